"""Loops of known length inside the CUDA graph of a step: one launch a step, and the bits of the program without graphs."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, optim, with_backend
from staged.errors import ProgramIndexError

pytestmark = pytest.mark.usefixtures("device")
LAYERS, STEPS, BATCH, WORDS, WIDTH = 5, 4, 3, 11, 8
ON_GPU, NO_GRAPHS, ON_CPU = partial(with_backend, GPU), partial(with_backend, GPU, graphs=False), partial(with_backend, CPU)
RNG = np.random.default_rng(1)
XS = RNG.normal(size=(3, LAYERS, 6, 6)).astype(np.float32)
TOKENS, LABELS = RNG.integers(0, WORDS, (2, 4, STEPS, BATCH)).astype(np.int32)


def variable(rng: np.random.Generator, name: str, *shape: int) -> st.Variable:
    return st.Variable((rng.normal(size=shape) * 0.2).astype(np.float32), name=name)


# ---- programs: each is made anew on a back end, so that Variables begin alike ----------------------


def gpt(backend: Any) -> Callable[..., Any]:
    """A transformer whose parameters are stacked: the layers are a loop, and so are their gradients."""
    rng = np.random.default_rng(2)
    shapes = {
        "qkv": (WIDTH, 3 * WIDTH),
        "proj": (WIDTH, WIDTH),
        "fc": (WIDTH, 2 * WIDTH),
        "b": (2 * WIDTH,),
        "out": (2 * WIDTH, WIDTH),
    }
    p = {name: variable(rng, name, LAYERS, *shape) for name, shape in shapes.items()}
    wte, wpe = variable(rng, "wte", WORDS, WIDTH), variable(rng, "wpe", BATCH, WIDTH)
    every = [wte, wpe, *p.values()]
    opt = optim.Adam(every, lr=0.01)

    def norm(x: Any) -> Any:
        return (x - st.mean(x, axis=-1, keepdims=True)) / st.sqrt(st.var(x, axis=-1, keepdims=True) + 1e-5)

    def loss_of(tokens: Any, labels: Any) -> Any:
        x = wte[tokens] + wpe
        for l in st.range(LAYERS):  # noqa: E741
            qkv = (norm(x) @ p["qkv"][l]).reshape(STEPS, BATCH, 3, 2, WIDTH // 2).transpose(2, 0, 3, 1, 4)
            scores = st.softmax(qkv[0] @ qkv[1].transpose(0, 1, 3, 2), axis=-1)
            x = x + (scores @ qkv[2]).transpose(0, 2, 1, 3).reshape(STEPS, BATCH, WIDTH) @ p["proj"][l]
            x = x + st.gelu(norm(x) @ p["fc"][l] + p["b"][l]) @ p["out"][l]
        return st.cross_entropy((x @ wte.T).reshape(STEPS * BATCH, WORDS), labels.reshape(STEPS * BATCH))

    return training(backend, loss_of, every, opt)


def char_lstm(backend: Any) -> Callable[..., Any]:
    """Cells in a loop over the time steps."""
    rng = np.random.default_rng(2)
    names = {"emb": (WORDS, WIDTH), "wx": (WIDTH, 4 * WIDTH), "wh": (WIDTH, 4 * WIDTH), "b": (4 * WIDTH,)}
    every = [variable(rng, name, *shape) for name, shape in names.items()]
    emb, wx, wh, b = every

    def loss_of(tokens: Any, labels: Any) -> Any:
        h = c = st.zeros((BATCH, WIDTH))
        loss = 0.0
        for t in st.range(STEPS):
            i, f, o, u = st.split(emb[tokens[t]] @ wx + h @ wh + b, 4, axis=1)
            c = st.sigmoid(f) * c + st.sigmoid(i) * st.tanh(u)
            h = st.sigmoid(o) * st.tanh(c)
            loss = loss + st.cross_entropy(h @ emb.T, labels[t])
        return loss / STEPS

    return training(backend, loss_of, every, optim.SGD(every, lr=0.1, momentum=0.9))


def training(backend: Any, loss_of: Any, every: list[st.Variable], opt: Any) -> Callable[..., Any]:
    @st.function
    def train(tokens: Any, labels: Any, n: Any) -> Any:
        loss = 0.0
        with backend(tokens, labels):
            for i in st.range(n):
                k = i % 4
                loss, grads = st.value_and_grad(loss_of, wrt=every)(tokens[k], labels[k])
                opt.step(grads)
        return loss

    return lambda n: (train(TOKENS, LABELS, n), *(each.numpy().copy() for each in every))


def nested(backend: Any) -> Callable[..., Any]:
    """The gradient of loops inside one another: sequences of sequences."""

    @st.function
    def gradient(xs: Any, ws: Any, n: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            for l in st.range(3):  # noqa: E741
                for k in st.range(2):
                    x = st.tanh(x @ w[l]) * (1.0 + 0.1 * k) + st.sin(x @ w[k])
                x = x + w[l]
            return st.sum(x * x)

        total = 0.0
        with backend(xs, ws):
            for i in st.range(n):
                value, d_w = st.value_and_grad(loss)(ws, xs[i % 3][0])
                ws = ws - 0.01 * d_w
                total = total + value
        return total, ws

    return lambda n: gradient(XS, XS[0] * 0.3, n)


def other_ranges(backend: Any) -> Callable[..., Any]:
    """Loops that keep residuals and count down, or from another number than 0."""

    @st.function
    def gradient(xs: Any, ws: Any, n: Any) -> Any:
        def loss(w: Any, x: Any) -> Any:
            for l in st.range(LAYERS - 1, 0, -1):  # noqa: E741
                x = st.tanh(x @ w[l]) + st.sin(x @ w[l - 1])
            for l in st.range(1, 4):  # noqa: E741
                x = st.tanh(x @ w[l] * l)
            return st.sum(x * x)

        with backend(xs, ws):
            for i in st.range(n):
                ws = ws - 0.01 * st.grad(loss)(ws, xs[i % 3][0])
        return ws

    return lambda n: gradient(XS, XS[0] * 0.3, n)


def batches_of_series(backend: Any) -> Callable[..., Any]:
    """The reads of a library depend on the iteration of the inner loop, and of the outer one."""

    @st.function
    def run(xs: Any, w: Any, n: Any) -> Any:
        with backend(xs, w):
            h = w
            for i in st.range(n):
                x = xs[i % 3]
                for t in st.range(LAYERS):
                    h = st.tanh(x[t] @ w + h @ w) * (1.0 / (t + 1.0))
        return h

    return lambda n: run(XS, XS[0, 0] * 0.3, n)


def factors(backend: Any) -> Callable[..., Any]:
    """Factors of products: of the inner loop, and of the outer one."""

    @st.function
    def run(xs: Any, w: Any, n: Any) -> Any:
        with backend(xs, w):
            h = w
            for i in st.range(n):
                rate = 0.1 / (1.0 + i)
                for t in st.range(LAYERS):
                    h = h - (0.1 * t + 0.05) * (w.T @ h)
                    h = h - rate * (w.T @ st.tanh(h))
        return h

    return lambda n: run(XS, XS[0, 0] * 0.3, n)


def in_place(backend: Any) -> Callable[..., Any]:
    """Variables that the loop writes, and arrays that change places."""
    w = st.Variable(XS[0] * 0.3, name="w")

    @st.function
    def run(xs: Any, n: Any) -> Any:
        with backend(xs):
            a, b = xs[0, 0], xs[0, 1]
            for _ in st.range(n):
                for l in st.range(LAYERS):  # noqa: E741
                    a, b = b, st.tanh(a @ w[l] + b)
                    w.value = w * 0.9 + st.mean(st.sin(a @ b))
        return a, b

    return lambda n: (*run(XS, n), w.numpy().copy())


def mixed(backend: Any) -> Callable[..., Any]:
    """Addresses and factors that depend on two captured loops and on the loop around them."""

    @st.function
    def run(xs: Any, w: Any, n: Any) -> Any:
        with backend(xs, w):
            h = w
            for i in st.range(n):
                x, rate = xs[i % 3], 0.1 / (1.0 + i)
                for t in st.range(LAYERS - 1, 2, -1):
                    own = rate * t
                    for k in st.range(1, 3):
                        h = h - own / (t + k) * (x[t] @ st.tanh(h)) + 0.1 * st.sin(x[t - k] @ h) * own
                    h = h * 0.5 + st.tanh(x[t] @ h) * own
        return h

    return lambda n: run(XS, XS[0, 0] * 0.3, n)


PROGRAMS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "gpt": gpt,
    "char_lstm": char_lstm,
    "nested": nested,
    "other ranges": other_ranges,
    "batches of series": batches_of_series,
    "factors": factors,
    "in place": in_place,
    "mixed": mixed,
}


def calls(device: Emulator, program: Callable[[int], Any], n: int) -> tuple[list[np.ndarray[Any, Any]], int]:
    before = device.counts()
    result = program(n)
    leaves = [np.asarray(each) for each in (result if isinstance(result, tuple) else (result,))]
    return leaves, (device.counts() - before).graph_launches


@pytest.mark.parametrize("make", PROGRAMS.values(), ids=PROGRAMS)
def test_a_step_is_one_graph_with_the_bits_of_a_step_without(make: Any, device: Emulator) -> None:
    made, plain, on_cpu = make(ON_GPU), make(NO_GRAPHS), make(ON_CPU)
    made(2), plain(2), on_cpu(2)  # the second step is captured
    for words, n in (("", 5), ("lazy shuffled seed=7", 3), ("lazy reverse seed=8", 1)):
        device.configure(words)
        found, launches = calls(device, made, n)
        wanted, none = calls(device, plain, n)
        assert (launches, none) == (n, 0)
        for given, expected, hosts in zip(found, wanted, calls(device, on_cpu, n)[0], strict=True):
            np.testing.assert_array_equal(given, expected)
            np.testing.assert_allclose(given, hosts, rtol=2e-3, atol=1e-4)


# ---- loops that stay loops of the host -------------------------------------------------------------


def stops_early(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w)
        if st.sum(x * x) < 1e-3:
            break
    return x


def decides(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w)
        if st.sum(x) > 0.0:
            x = x - 0.5
    return x


def prints(x: Any, w: Any, n: Any) -> Any:
    for k in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w)
        print(k)
    return x


def asserts(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w)
        assert st.sum(x) < 1e6
    return x


def is_of_any_length(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(n):
        x = st.tanh(st.sin(x @ w) @ w)
    return x


def is_empty(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4, 4):
        x = st.tanh(st.sin(x @ w) @ w)
    return st.tanh(st.sin(x @ w) @ w) @ w


def draws(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        x = st.dropout(st.tanh(st.sin(x @ w) @ w), 0.5)
    return x


def computes_on_the_host(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w)
        with ON_CPU():
            h = x * 2.0
        x = h @ w
    return x


def carries_a_number(x: Any, w: Any, n: Any) -> Any:
    k = 1
    for _ in st.range(4):
        x = st.tanh(st.sin(x @ w) @ w * k)
        k = k * 2 % 7
    return x + k


def copies_on_the_host(x: Any, w: Any, n: Any) -> Any:
    with ON_CPU():
        a, b = st.zeros((6, 6)), st.ones((6, 6))
    for _ in st.range(3):
        x = st.tanh(st.sin(x @ w) @ w)
        a, b = b, a
    with ON_CPU():
        c = a * 2.0 - b
    return x + c


def grows(x: Any, w: Any, n: Any) -> Any:
    def loss(w: Any) -> Any:
        h = x
        for _ in st.range(3):
            for _ in st.range(n):
                h = st.tanh(st.sin(h @ w) @ w)
        return st.sum(h)

    return st.grad(loss)(w)


HOSTS = [
    stops_early,
    decides,
    prints,
    asserts,
    is_of_any_length,
    is_empty,
    draws,
    computes_on_the_host,
    carries_a_number,
    copies_on_the_host,
    grows,
]


def steps(body: Callable[..., Any], backend: Any) -> Any:
    @st.function
    def run(xs: Any, w: Any, n: Any) -> Any:
        total = st.zeros((6, 6))
        with backend(xs, w):
            for i in st.range(n):
                total = total + body(xs[i % 3, i % 2], w, n)
        return total

    return run


def captured_loops(source: str) -> int:
    """The loops in the functions that are captured."""
    work = source[source.index("// ---- turns of loops") : source.index("typedef int Work(")]
    functions = work[work.index("static int do_") :] if "static int do_" in work else ""
    return functions.count("for (int64_t ")


@pytest.mark.parametrize("body", HOSTS, ids=lambda body: body.__name__)
def test_a_loop_in_which_the_host_has_a_part_is_not_captured(body: Any, device: Emulator) -> None:
    made, plain = steps(body, ON_GPU), steps(body, NO_GRAPHS)
    given = XS, XS[0, 0] * 0.3, 3
    source = made.stage(*given).source
    assert "// ---- turns of loops" not in source or captured_loops(source) == 0
    for words in ("", "lazy shuffled seed=7"):
        device.configure(words)
        st.seed(1)
        found = made(*given)
        st.seed(1)
        np.testing.assert_array_equal(found, plain(*given))


def layers(x: Any, w: Any, n: Any) -> Any:
    for _ in st.range(4):
        for _ in st.range(5):
            x = st.tanh(st.sin(x @ w) @ w)
    return x


@pytest.mark.parametrize(("most", "loops"), [(80, 2), (79, 1), (20, 1), (19, 0)])
def test_a_graph_has_a_limited_number_of_calls(
    most: int, loops: int, device: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loop that is too long is one of the host, and so is the loop around it."""
    for module in ("steps", "runs"):
        monkeypatch.setattr(f"staged.backends.cublas_cudnn.{module}.MOST_CALLS", most)
    made, plain = steps(layers, ON_GPU), steps(layers, NO_GRAPHS)
    given = XS, XS[0, 0] * 0.3, 3
    assert captured_loops(made.stage(*given).source) == loops
    np.testing.assert_array_equal(made(*given), plain(*given))


def test_ten_thousand_iterations_are_no_graph() -> None:
    def long(x: Any, w: Any, n: Any) -> Any:
        for _ in st.range(10_000):
            x = st.tanh(st.sin(x @ w) @ w)
        return x

    source = steps(long, ON_GPU).stage(XS, XS[0, 0], 3).source
    assert captured_loops(source) == 0
    assert "4 calls, one graph" in source, "an iteration is"


@pytest.mark.parametrize(("most", "loops"), [(14, 1), (5, 0)])
def test_what_depends_on_two_loops_is_passed_for_each_index(
    most: int, loops: int, device: Emulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("staged.backends.cublas_cudnn.steps.MOST_VALUES", most)

    def scaled(x: Any, w: Any, n: Any) -> Any:
        for k in st.range(5):
            x = st.tanh(st.sin(x @ w * (st.astype(n, st.f32) / (k + 1.0))) @ w)
        return x

    made, plain = steps(scaled, ON_GPU), steps(scaled, NO_GRAPHS)
    given = XS, XS[0, 0] * 0.3, 3
    assert captured_loops(made.stage(*given).source) == loops
    np.testing.assert_array_equal(made(*given), plain(*given))


def test_arrays_elsewhere_are_those_of_a_new_graph(device: Emulator) -> None:
    """Their addresses are known in a captured loop only."""

    @st.function
    def run(x: Any, w: Any, n: Any) -> Any:
        for _ in st.range(n):
            for l in st.range(LAYERS):  # noqa: E741
                x = st.tanh(x @ w[l]) + st.sin(w[l] @ x)
        return x

    others = [XS[0] * 0.3, XS[1] * 0.3]
    expected = [run(XS[0, 0], w, 3) for w in others]
    with with_backend(GPU, XS[0, 0], *others) as (x, *arrays):
        for _ in range(3):
            for w, wanted in zip(arrays, expected, strict=True):
                np.testing.assert_allclose(np.asarray(run(x, w, 3)), wanted, rtol=1e-3, atol=1e-5)


def test_an_index_out_of_range_in_a_captured_loop_names_its_line(device: Emulator) -> None:
    @st.function
    def look_up(table: Any, rows: Any, n: Any) -> Any:
        with with_backend(GPU, table, rows):
            h = table[:6]
            for i in st.range(n):
                for k in st.range(3):
                    h = st.tanh(h @ table[:6]) + table[rows + k + i]
        return h

    table, rows = XS.reshape(-1, 6), np.arange(6)
    for words in ("", "lazy shuffled seed=7"):
        device.configure(words)
        look_up(table, rows, 4)
        with pytest.raises(ProgramIndexError, match="index 90 is out of range for an axis of 90") as raised:
            look_up(table, rows + 80, 4)
        assert "table[rows + k + i]" in str(raised.value)
        look_up(table, rows, 4)
