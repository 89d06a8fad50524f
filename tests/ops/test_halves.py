"""f16 and bf16: a function of them is that of their f32 values, rounded once; eager mode, programs and torch agree."""

from __future__ import annotations

import copy
import pickle
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import staged as st
from staged.errors import ProgramNanError
from staged.ir.nodes import Function
from staged.ir.verifier import VerificationError
from staged.ops.dtypes import promote_dtypes
from tests.torch_reference import reference

BF16 = np.dtype(ml_dtypes.bfloat16)
HALVES = {"f16": np.dtype(np.float16), "bf16": BF16}
TORCH = {"f16": "float16", "bf16": "bfloat16"}

CASES: dict[str, tuple[tuple[tuple[int, ...], ...], Callable[..., Any], Callable[..., Any]]] = {
    "arithmetic": (((3, 4), (3, 4)), lambda x, y: x * y + x / (y * y + 1), lambda t, x, y: x * y + x / (y * y + 1)),
    "numbers": (((5,),), lambda x: 2 * x + 0.1, lambda t, x: 2 * x + 0.1),
    "tanh": (((3, 4),), st.tanh, lambda t, x: t.tanh(x)),
    "gelu": (((3, 4),), st.gelu, lambda t, x: t.nn.functional.gelu(x)),
    "exp": (((3, 4),), st.exp, lambda t, x: t.exp(x)),
    "sum": (((40, 30),), lambda x: st.sum(x, axis=1), lambda t, x: t.sum(x, 1)),
    "mean": (((40, 30),), st.mean, lambda t, x: t.mean(x)),
    "var": (((8, 30),), lambda x: st.var(x, axis=1), lambda t, x: t.var(x, 1, unbiased=False)),
    "max": (((8, 30),), lambda x: st.max(x, axis=1), lambda t, x: t.amax(x, 1)),
    "cumsum": (((3, 20),), lambda x: st.cumsum(x, axis=1), lambda t, x: t.cumsum(x, 1)),
    "softmax": (((8, 30),), st.softmax, lambda t, x: t.softmax(x, -1)),
    "logsumexp": (((8, 30),), lambda x: st.logsumexp(x, axis=1), lambda t, x: t.logsumexp(x, 1)),
    "layer_norm": (((8, 30),), lambda x: st.layer_norm(x, (30,)), lambda t, x: t.nn.functional.layer_norm(x, (30,))),
    "matmul": (((9, 33), (33, 17)), st.matmul, lambda t, x, y: x @ y),
    "batched": (((2, 3, 5), (2, 5, 4)), st.matmul, lambda t, x, y: x @ y),
    "conv2d": (
        ((2, 3, 7, 8), (4, 3, 3, 3)),
        lambda x, w: st.conv2d(x, w, padding=1),
        lambda t, x, w: t.nn.functional.conv2d(x, w, padding=1),
    ),
    "transposed": (((3, 4),), lambda x: x.T[::2], lambda t, x: x.T[::2]),
    "chosen": (((3, 4),), lambda x: st.where(x > 0, x, 0.5), lambda t, x: t.where(x > 0, x, 0.5)),
    "sorted": (((3, 9),), st.sort, lambda t, x: t.sort(x).values),
    "rows": (((5, 4),), lambda x: x[st.asarray([3, 0, 3])], lambda t, x: x[t.tensor([3, 0, 3])]),
    "joined": (((3, 4), (2, 4)), lambda x, y: st.concat([x, y]), lambda t, x, y: t.cat([x, y])),
    "padded": (((3, 4),), lambda x: st.pad(x, 1), lambda t, x: t.nn.functional.pad(x, (1, 1, 1, 1))),
    "cross_entropy": (
        ((6, 5),),
        lambda x: st.cross_entropy(x, np.array([0, 4, 2, 2, 1, 3])),
        lambda t, x: t.nn.functional.cross_entropy(x, t.tensor([0, 4, 2, 2, 1, 3])),
    ),
}


def operands(name: str, half: str) -> list[np.ndarray]:
    rng = np.random.default_rng(len(name))
    return [rng.normal(size=shape).astype(np.float32).astype(HALVES[half]) for shape in CASES[name][0]]


def steps(a: Any, b: Any) -> int:
    """The most halves between two arrays' elements."""
    a, b = np.asarray(a), np.asarray(b)
    assert a.dtype == b.dtype and a.shape == b.shape, (a.dtype, b.dtype, a.shape, b.shape)
    bits = [x.view(np.int16).astype(np.int32) for x in (a, b)]
    placed = [np.where(one < 0, -(one & 0x7FFF), one) for one in bits]
    return int(np.abs(placed[0] - placed[1]).max(initial=0))


def value_and_gradient(f: Callable[..., Any], count: int) -> Callable[..., Any]:
    """f, and the gradient of a weighted sum of its elements."""

    def both(*xs: Any) -> Any:
        def loss(*xs: Any) -> Any:
            y = st.astype(f(*xs), st.f32)
            return st.sum(y * st.reshape(st.arange(y.size, dtype=st.f32) * 0.25 + 1, y.shape))

        return f(*xs), *st.grad(loss, argnums=tuple(range(count)))(*xs)

    return both


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_a_function_of_halves_is_that_of_f32_rounded_once(name: str, half: str) -> None:
    xs, f = operands(name, half), CASES[name][1]
    both = st.function(value_and_gradient(f, len(xs)))
    made = both(*xs)
    with st.eager():
        eagerly = [np.asarray(y) for y in both(*xs)]
    wide = [x.astype(np.float32) for x in xs]
    narrow = [np.asarray(y).astype(HALVES[half]) for y in both(*wide)]
    # Several functions in a row, and sums of gradients, are rounded several times.
    assert steps(made[0], narrow[0]) <= 3 * (name == "arithmetic")
    assert steps(made[0], eagerly[0]) <= (name in ("var", "layer_norm", "logsumexp"))  # f32 in another order
    for ours, exact, eager in zip(made[1:], narrow[1:], eagerly[1:], strict=True):
        assert ours.dtype == exact.dtype == eager.dtype == HALVES[half]
        allowed = 2 * float(ml_dtypes.finfo(HALVES[half]).eps) * np.abs(exact.astype(np.float64)).max()
        for other in (exact, eager):
            assert np.abs(ours.astype(np.float64) - other.astype(np.float64)).max() <= allowed


@pytest.mark.parametrize("half", HALVES)
@pytest.mark.parametrize("name", CASES)
def test_results_are_those_of_torch(name: str, half: str) -> None:
    xs = operands(name, half)

    def compute(torch: Any, *arrays: Any) -> Any:
        return CASES[name][2](torch, *(torch.tensor(x).to(getattr(torch, TORCH[half])) for x in arrays)).float()

    expected = reference(compute, *(x.astype(np.float32) for x in xs))
    ours = np.asarray(CASES[name][1](*map(st.asarray, xs)))
    assert ours.dtype == HALVES[half]
    # torch rounds what is between; log_softmax before the mean, in a row of cumsum each element
    allowed = {"arithmetic": 4, "numbers": 1, "cross_entropy": 3, "cumsum": 2, "layer_norm": 2}.get(name, 1)
    scale = np.abs(expected).max()
    near = np.abs(ours.astype(np.float64) - expected) <= 1e-3 * scale  # beside zero a step is smaller than any error
    assert steps(np.where(near, 0, ours.astype(np.float32)).astype(HALVES[half]),
                 np.where(near, 0, expected).astype(HALVES[half])) <= allowed  # fmt: skip


def test_dtypes_promote_as_in_the_array_api_and_jax() -> None:
    half = {"f16": st.f16, "bf16": st.bf16}
    for one in half.values():
        for other in (st.i8, st.u16, st.i64, st.u64, st.bool_):
            assert promote_dtypes(one, other) is one is promote_dtypes(other, one)
        for other in (st.f32, st.f64):
            assert promote_dtypes(one, other) is other is promote_dtypes(other, one)
    assert promote_dtypes(st.f16, st.bf16) is st.f32 is promote_dtypes(st.bf16, st.f16)
    x = st.asarray(np.ones(2, np.float16))
    assert {(x * 0.1).dtype, (x + 1).dtype, (True * x).dtype, st.maximum(x, 0.5).dtype} == {st.f16}
    assert (x + np.ones(2, np.int64)).dtype == st.f16
    assert (x + x.bfloat16()).dtype == (x + x.float()).dtype == st.f32
    assert [st.stack([x, x]).dtype, st.sum([x[0], 2.0]).dtype] == [st.f16, st.f16]


def test_names_of_the_dtypes() -> None:
    assert st.f16 is st.float16 is st.dtype_of("float16") is st.dtype_of(np.float16)
    assert st.bf16 is st.bfloat16 is st.dtype_of("bfloat16") is st.dtype_of(BF16)
    assert np.zeros(2, st.bf16).dtype == BF16 == st.bf16
    for dtype in (st.f16, st.bf16):
        assert copy.copy(dtype) is dtype is pickle.loads(pickle.dumps(dtype))
        assert st.isdtype(dtype, "real floating")
        x = np.ones(3, np.float32)
        methods = [st.asarray(x).half() if dtype is st.f16 else st.asarray(x).bfloat16(), st.astype(x, dtype)]
        assert [y.dtype for y in methods] == [dtype, dtype]
    assert st.finfo(st.f16).max == 65504
    assert st.finfo(st.bf16).eps == 2**-7


def test_a_sum_adds_up_in_f32() -> None:
    """In f16 it would stay at 2048, in bf16 at 256; and a mean of large numbers would be infinite."""
    total = st.function(lambda x: (st.sum(x), st.mean(x * 60000)))
    for half in HALVES.values():
        found = total(np.ones(3000, half))
        assert found[0] == np.asarray(3000).astype(half)
        assert found[1] == np.asarray(60000).astype(half)


def test_a_gradient_adds_up_in_f32() -> None:
    """Of one row taken 3,000 times."""
    slope = st.function(lambda x: st.grad(lambda x: st.sum(x[st.zeros(3000, dtype=st.i64)]))(x))
    assert slope(np.ones((2, 1), np.float16))[:, 0].tolist() == [3000, 0]


def test_every_op_of_a_program_rounds_its_result() -> None:
    """1 + 2^-11 is 1 in f16, in one kernel too."""
    f = st.function(lambda x, y: (x + y) - x)
    x, y = np.ones(20, np.float16), np.full(20, 2.0**-11, np.float16)
    assert f(x, y).max() == 0 == np.asarray(f(x.astype(BF16), y.astype(BF16))).max()
    assert f(x.astype(np.float32), y.astype(np.float32)).min() == 2**-11


def test_conversions_between_all_dtypes() -> None:
    """By way of f32 where both are floats; integers, by way of f64, are rounded once too."""
    numbers = np.array([0, 1, -3, 255, 257, 2049, 65519, 65520, -70000, 2**24 + 1, 2**31 - 1])
    beside = 2**24 + 2**16 + 1  # f32 rounds it to the middle of two bf16
    to = st.function(lambda x, i, u: [st.astype(a, d) for a in (x, i, u) for d in (st.f16, st.bf16)])
    given = numbers.astype(np.float64) * (1 + 2**-30), np.append(numbers, beside), np.abs(numbers).astype(np.uint64)
    made = to(*given)
    with st.eager():
        for ours, eager in zip(made, to(*given), strict=True):
            assert steps(ours, np.asarray(eager)) == 0
    assert made[3][-1] == np.asarray(2**24 + 2**17).astype(BF16)
    back = st.function(lambda x: [st.astype(x, d) for d in (st.i32, st.u8, st.f64, st.bool_, st.bf16, st.i64)])
    x = np.array([0, -0.0, 1.5, -2.5, 300, np.inf, np.nan, 6e-8], np.float16)
    with st.eager():
        eager = [np.asarray(y) for y in back(x)]
    for ours, expected in zip(back(x), eager, strict=True):
        assert ours.dtype == expected.dtype
        assert ours.tobytes() == expected.tobytes()


def test_numbers_are_arguments_results_and_variables() -> None:
    state = st.Variable(np.zeros(2, BF16))

    @st.function
    def step(x: Any, rate: Any) -> Any:
        state.value = state.value + rate * x
        return rate * 2

    for _ in range(3):  # the later calls take the short way
        doubled = step(np.ones(2, BF16), BF16.type(0.7))
    assert doubled.dtype == BF16
    assert float(doubled) == 2 * float(BF16.type(0.7))
    assert np.asarray(state.value).dtype == BF16
    assert np.asarray(state.value).astype(float).tolist() == [2.09375, 2.09375]


def test_halves_print_the_shortest_text_that_reads_back(capsys: pytest.CaptureFixture[str]) -> None:
    @st.function
    def show(x: Any) -> None:
        print(x)
        print(f"{x[0]} {x[0]:.5f} {x[1]!r} {x[2]:8}")

    for half in HALVES.values():
        x = np.array([0.1, 1e-5, 1 / 3, 60000, -0.0, np.inf, np.nan], np.float32).astype(half)
        show(x)
        compiled = capsys.readouterr().out
        with st.eager():
            show(x)
        assert capsys.readouterr().out == compiled
        assert (
            compiled.splitlines()[0].split()[:4]
            == {
                "float16": ["[", "0.1", "1e-05", "0.3333"],
                "bfloat16": ["[", "0.1", "1e-05", "0.334"],
            }[half.name]
        )


@pytest.mark.parametrize("half", ["f16", "bf16"])
def test_every_half_prints_text_that_reads_back(half: str) -> None:
    from staged.ops.formatting import format_value

    x = np.arange(0, 2**16, 7, dtype=np.uint16).view(HALVES[half])
    x = x[np.isfinite(x.astype(np.float32))]
    read = np.array([float(format_value(each)) for each in x]).astype(np.float32).astype(HALVES[half])
    assert steps(x, read) == 0


def test_infinities_are_found(capsys: pytest.CaptureFixture[str]) -> None:
    f = st.function(lambda x: x * 2.0, check_nan=True)
    assert f(np.ones(2, np.float16)).tolist() == [2, 2]
    with pytest.raises(ProgramNanError, match="infinity at position 1"):
        f(np.array([1, 60000], np.float16))
    with pytest.raises(ProgramNanError, match="NaN at position 0"):
        f(np.array([np.nan, 1], BF16))


def test_an_op_that_computes_with_halves_is_found_by_the_verifier() -> None:
    from staged.ir.builder import Builder
    from staged.ir.types import TensorType
    from staged.ir.verifier import verify

    builder, type = Builder(), TensorType(st.f16, (2,))
    with builder.block([type]) as opened:
        builder.end("return", [builder.op("tanh", [opened.params[0]], [type]).result])
    with pytest.raises(VerificationError, match="tanh.*computes with f16"):
        verify(Function("f", opened.block), "a pass")


def test_exports_read_and_write_halves(tmp_path: Path) -> None:
    @st.function
    def f(x: Any, y: Any, s: Any, t: Any) -> Any:
        print(f"{s} {t}")
        return x * s, y + t, s * 2

    x, y = np.linspace(0, 1, 5).astype(np.float16), np.linspace(0, 1, 3).astype(BF16)
    f.stage(x, y, np.float16(0.3), BF16.type(0.3)).export(tmp_path)
    np.save(tmp_path / "x.npy", x)
    np.save(tmp_path / "y.npy", y)
    make = subprocess.run(["make"], cwd=tmp_path, capture_output=True, text=True)
    assert make.returncode == 0, make.stderr
    assert "warning" not in make.stderr
    call = ["./f", "--x", "x.npy", "--y", "y.npy", "--s", "0.3", "--out", "."]
    done = subprocess.run([*call, "--t", "0.3"], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[0] == "0.3 0.3"
    scaled, sums = np.load(tmp_path / "result.0.npy"), np.load(tmp_path / "result.1.npy")
    assert steps(scaled, np.asarray(st.asarray(x) * np.float16(0.3))) == 0
    assert steps(sums.view(BF16), np.asarray(st.asarray(y) + BF16.type(0.3))) == 0
    refused = subprocess.run([*call, "--t", "3.5e38"], cwd=tmp_path, capture_output=True, text=True)
    assert "larger than any number of its type" in refused.stderr


@pytest.mark.parametrize("half", HALVES)
def test_the_half_after_each_half_is_numpys(half: str) -> None:
    """All 65,536 halves, upwards, downwards and to themselves."""
    x = np.arange(2**16).astype(np.uint16).view(HALVES[half])
    for towards in (HALVES[half].type(np.inf), HALVES[half].type(-np.inf), x):
        with np.errstate(all="ignore"):
            wanted = np.nextafter(x, towards)
        for found in (st.nextafter(x, towards), st.function(lambda x, to: st.nextafter(x, to))(x, towards)):
            np.testing.assert_array_equal(np.asarray(found).astype(float), wanted.astype(float))


@pytest.mark.parametrize("half", HALVES)
def test_chosen_elements_keep_their_dtype(half: str) -> None:
    st.seed(0)
    found = st.random.choice(np.arange(3).astype(HALVES[half]), (40,), p=np.array([0.5, 0.0, 0.5]))
    assert found.dtype == HALVES[half]
    assert set(np.asarray(found).astype(int).tolist()) == {0, 2}


@pytest.mark.parametrize("half", HALVES)
def test_cotangents_of_a_half_and_its_view_are_added(half: str) -> None:
    @st.function
    def slopes(x: Any, w: Any) -> Any:
        return st.grad(lambda x: st.sum((x + st.matrix_transpose(x)) * w))(x)

    w = np.arange(9, dtype=np.float32).reshape(3, 3)
    found = slopes(np.ones((3, 3), HALVES[half]), w)
    assert np.array_equal(np.asarray(found).astype(np.float32), w + w.T)
