"""Faults and gaps of Lantern's GPU back end, item by item, against NumPy and PyTorch.

Sizes lie above the 14,336 elements from where Lantern's kernels gave wrong numbers (28 blocks of 512 threads). Each program
runs with threads in order and streams that work at once, then with shuffled threads and lazy streams. Source of the list:
Lantern's issue 8 and its test suite at https://github.com/feiwang3311/Lantern.
"""

from __future__ import annotations

import gc
import itertools
import math
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import CPU, GPU, optim, with_backend
from staged.frontend.values import trees
from tests.backends.cublas_cudnn.harness import on_gpu

pytestmark = pytest.mark.usefixtures("device")
LANTERNS_LIMIT = 14_336
MODES = ("eager forward", "lazy shuffled seed=3")
RANDOM = np.random.default_rng(8)


def normal(*shape: int, dtype: str = "f4") -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype(dtype)


def check(device: Emulator, compute: Any, args: Any, wanted: Any, rtol: float = 1e-5, atol: float = 1e-6) -> None:
    """The result of `compute` on the device is `wanted`, however the device behaves."""
    program = on_gpu(compute)
    expected = [np.asarray(value) for value in wanted]
    for words in MODES:
        device.configure(words)
        found = trees.flatten(program(*args))[0]
        for value, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(value, other, rtol=rtol, atol=atol)


def torch_gradients(torch: Any, compute: Any, args: Any) -> list[Any]:
    """The value of `compute` in PyTorch, and its derivatives by the arguments of floats."""
    tensors = [torch.tensor(value, requires_grad=value.dtype.kind == "f") for value in args]
    value = compute(*tensors)
    value.backward()
    return [value.detach().numpy(), *(tensor.grad.numpy() for tensor in tensors if tensor.requires_grad)]


# ---- elementwise --------------------------------------------------------------------------------

BROADCASTS = [
    ((LANTERNS_LIMIT + 1,), (LANTERNS_LIMIT + 1,)),
    ((LANTERNS_LIMIT + 1,), (1,)),
    ((127, 113), (113,)),
    ((127, 1), (1, 113)),
    ((3, 1, 71, 69), (71, 1)),
    ((5, 1, 24, 1, 25), (1, 5, 1, 3, 25)),
]


@pytest.mark.parametrize(("left", "right"), BROADCASTS)
def test_broadcast_ops_above_lanterns_limit(left: Any, right: Any, device: Emulator, torch: Any) -> None:
    assert math.prod(np.broadcast_shapes(left, right)) > LANTERNS_LIMIT
    a, b = normal(*left), np.abs(normal(*right)) + 0.5
    weights = normal(4, *np.broadcast_shapes(left, right))

    def values(a: Any, b: Any) -> Any:
        return [a + b, a - b, a * b, a / b]

    def loss(a: Any, b: Any) -> Any:
        return sum((value * value * weight).sum() for value, weight in zip(values(a, b), weights, strict=True))

    def compute(a: Any, b: Any) -> Any:
        return *values(a, b), st.grad(loss, argnums=(0, 1))(a, b)

    wide = [value.astype("f8") for value in (a, b)]
    torch_weights = torch.tensor(weights.astype("f8"))
    gradients = torch_gradients(
        torch,
        lambda a, b: sum((value**2 * w).sum() for value, w in zip(values(a, b), torch_weights, strict=True)),
        wide,
    )
    check(device, compute, (a, b), [*values(*wide), *gradients[1:]], rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize(("left", "right"), [((131, 113), (131, 113)), ((131, 113), (113,)), ((113,), (131, 113))])
def test_the_gradient_of_a_difference_goes_to_both_sides(left: Any, right: Any, device: Emulator) -> None:
    a, b = normal(*left, dtype="f8"), normal(*right, dtype="f8")
    weight = normal(131, 113, dtype="f8")

    def compute(a: Any, b: Any) -> Any:
        return st.grad(lambda a, b: st.sum((a - b) * weight), argnums=(0, 1))(a, b)

    d_a = weight if len(left) == 2 else weight.sum(0)
    d_b = -weight if len(right) == 2 else -weight.sum(0)
    check(device, compute, (a, b), [d_a, d_b], rtol=1e-12, atol=1e-12)


def test_the_gradient_of_an_array_less_itself_is_zero(device: Emulator) -> None:
    a = normal(131, 113)
    check(device, lambda a: st.grad(lambda a: st.sum((a - a) * (a - 1.0)))(a), (a,), [np.zeros_like(a)])


def test_clipped_gradients_update_the_parameters(device: Emulator) -> None:
    """By value and by norm: with and without an effect, in Adagrad and in SGD with momentum."""
    w, d_w = normal(151, 101), normal(151, 101)
    d_w[0, 0] = 40.0

    def steps(limit: Any, bound: Any) -> Any:
        by_value, by_norm = st.Variable(w), st.Variable(w)
        first, second = optim.Adagrad([by_value], lr=0.5), optim.SGD([by_norm], lr=0.5, momentum=0.9)
        norms = []
        for _ in range(2):
            first.step(optim.clip_grad_value([d_w * 1.0 + 0.0 * limit], limit))
            clipped, norm = optim.clip_grad_norm([d_w * 1.0 + 0.0 * bound], bound)
            second.step(clipped)
            norms.append(norm)
        return by_value.value, by_norm.value, norms[1]

    for limit, bound in ((0.25, 3.0), (100.0, 1e6)):
        clipped = np.clip(d_w, -limit, limit)
        norm = np.sqrt((d_w.astype("f8") ** 2).sum())
        scaled = d_w * min(1.0, bound / (norm + 1e-6))
        assert (clipped == d_w).all() == (limit == 100.0)
        adagrad = w - 0.5 * clipped / (np.abs(clipped) + 1e-10) - 0.5 * clipped / (np.sqrt(2) * np.abs(clipped) + 1e-10)
        momentum = w - 0.5 * scaled - 0.5 * 1.9 * scaled
        check(device, steps, (limit, bound), [adagrad, momentum, norm], rtol=1e-5, atol=1e-5)


# ---- convolutions and pooling -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("x", "w", "stride", "padding"),
    [
        ((2, 3, 9, 40), (7, 3, 3, 5), 1, 0),
        ((2, 3, 40, 9), (7, 3, 5, 2), 1, (2, 0)),
        ((2, 2, 31, 12), (3, 2, 4, 3), (3, 1), (0, 1)),
        ((1, 4, 1, 64), (5, 4, 1, 9), (1, 2), (0, 4)),
    ],
)
def test_convolutions_with_outputs_that_are_not_square(
    x: Any, w: Any, stride: Any, padding: Any, device: Emulator, torch: Any
) -> None:
    args = [normal(*x, dtype="f8"), normal(*w, dtype="f8"), normal(w[0], dtype="f8")]

    def compute(x: Any, w: Any, b: Any) -> Any:
        def loss(x: Any, w: Any, b: Any) -> Any:
            y = st.conv2d(x, w, b, stride=stride, padding=padding)
            assert y.shape[2] != y.shape[3]
            return st.sum(st.sin(y))

        return st.value_and_grad(loss, argnums=(0, 1, 2))(x, w, b)

    conv2d = torch.nn.functional.conv2d
    wanted = torch_gradients(torch, lambda x, w, b: conv2d(x, w, b, stride, padding).sin().sum(), args)
    check(device, compute, args, wanted, rtol=1e-9, atol=1e-9)


def test_sixty_convolutions_of_sixty_shapes_in_one_program(device: Emulator, torch: Any) -> None:
    """Lantern numbered its convolutions beyond the twelve names that it had."""
    widths = [2 + number % 9 for number in range(61)]
    sizes = [(1 + number % 2, 1 + number // 2 % 3) for number in range(60)]
    args = [normal(1, widths[0], 6, 35, dtype="f8")]
    args += [normal(widths[n + 1], widths[n], *sizes[n], dtype="f8") / widths[n] for n in range(60)]

    def compute(x: Any, *weights: Any) -> Any:
        for w, (height, _) in zip(weights, sizes, strict=True):
            x = st.conv2d(x, w, padding=(height - 1, 0)) if x.shape[2] < 4 else st.conv2d(x, w)
            x = x[:, :, :, : max(x.shape[3], 4)]
            x = st.pad(x, ((0, 0), (0, 0), (0, 0), (0, max(0, 6 - x.shape[3]))))
        return x

    def in_torch(x: Any, *weights: Any) -> Any:
        for w, (height, _) in zip(weights, sizes, strict=True):
            x = torch.nn.functional.conv2d(x, w, padding=(height - 1, 0) if x.shape[2] < 4 else 0)
            x = torch.nn.functional.pad(x, (0, max(0, 6 - x.shape[3])))
        return x

    check(device, compute, args, [in_torch(*map(torch.tensor, args))], rtol=1e-9, atol=1e-12)
    text = on_gpu(compute).stage(*args).source
    plans = re.findall(r"cudnnConvolutionFwdAlgo_t (\w+);", text)
    assert len(plans) == len(set(plans)) > 30
    calls = re.findall(
        r"^static int (\w+)\(const Device \*gpu, st_host \*host, int site, const double \*a,", text, re.MULTILINE
    )
    assert len(calls) == len(set(calls)) > 30


@pytest.mark.parametrize(("window", "stride", "padding"), [(3, 1, 1), ((2, 3), (1, 2), 0), (2, 2, 0)])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_the_gradient_of_pooling_accumulates(
    kind: str, window: Any, stride: Any, padding: Any, device: Emulator, torch: Any
) -> None:
    """Overlapping windows, added onto the gradients of the array's other uses."""
    x = normal(2, 4, 43, 44, dtype="f8")
    weight = normal(2, 4, 43, 44, dtype="f8")
    assert x.size > LANTERNS_LIMIT
    pools = {"max": st.max_pool2d, "avg": st.avg_pool2d}
    torch_pools = {"max": torch.nn.functional.max_pool2d, "avg": torch.nn.functional.avg_pool2d}

    def compute(x: Any) -> Any:
        def loss(x: Any) -> Any:
            y = pools[kind](x, window, stride, padding)
            return st.sum(x * weight) + st.sum(y * y) + st.sum(st.sin(pools[kind](x, window, stride, padding)))

        return st.value_and_grad(loss)(x)

    def in_torch(x: Any) -> Any:
        y = torch_pools[kind](x, window, stride, padding)
        return (x * torch.tensor(weight)).sum() + (y * y).sum() + y.sin().sum()

    check(device, compute, (x,), torch_gradients(torch, in_torch, (x,)), rtol=1e-9, atol=1e-9)


# ---- reductions and losses ----------------------------------------------------------------------

AXES = [None, 0, 1, 2, 3, (0, 1), (1, 3), (0, 2), (1, 2, 3), (0, 1, 2, 3)]
TOTALS: dict[str, tuple[Any, Any]] = {
    "sum": (st.sum, np.sum),
    "prod": (lambda x, **how: st.prod(x * 0.01 + 1.0, **how), lambda x, **how: np.prod(x * 0.01 + 1.0, **how)),
    "max": (st.max, np.max),
    "min": (st.min, np.min),
    "mean": (st.mean, np.mean),
    "norm1": (lambda x, **how: st.norm(x, ord=1, **how), lambda x, **how: np.sum(np.abs(x), **how)),
    "norm2": (lambda x, **how: st.norm(x, ord=2, **how), lambda x, **how: np.sqrt(np.sum(x * x, **how))),
}
POSITIONS: dict[str, tuple[Any, Any]] = {"argmax": (st.argmax, np.argmax), "argmin": (st.argmin, np.argmin)}


@pytest.mark.parametrize("name", [*TOTALS, *POSITIONS])
def test_totals_over_any_axes(name: str, device: Emulator) -> None:
    x = normal(5, 16, 7, 29, dtype="f8")
    assert x.size > LANTERNS_LIMIT
    ours, numpys = (TOTALS | POSITIONS)[name]
    axes = AXES if name in TOTALS else [axis for axis in AXES if not isinstance(axis, tuple)]
    ways = [{"axis": axis, "keepdims": keepdims} for axis in axes for keepdims in (False, True)]
    check(device, lambda x: [ours(x, **way) for way in ways], (x,), [numpys(x, **way) for way in ways], rtol=1e-11)


@pytest.mark.parametrize("name", TOTALS)
def test_gradients_of_totals_over_any_axes(name: str, device: Emulator, torch: Any) -> None:
    x = normal(5, 16, 7, 29, dtype="f8")
    axes = [(0,), (2,), (1, 3), (0, 1, 2, 3)]
    in_torch = {
        "sum": lambda x, axis: x.sum(axis),
        "prod": lambda x, axis: torch.exp(torch.log(x * 0.01 + 1.0).sum(axis)),
        "max": lambda x, axis: x.amax(axis),
        "min": lambda x, axis: x.amin(axis),
        "mean": lambda x, axis: x.mean(axis),
        "norm1": lambda x, axis: x.abs().sum(axis),
        "norm2": lambda x, axis: (x * x).sum(axis).sqrt(),
    }[name]

    def compute(x: Any) -> Any:
        return st.grad(lambda x: sum(st.sum(TOTALS[name][0](x, axis=axis) ** 2) for axis in axes))(x)

    wanted = torch_gradients(torch, lambda x: sum((in_torch(x, axis) ** 2).sum() for axis in axes), (x,))
    check(device, compute, (x,), wanted[1:], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_mse_and_its_gradient_stay_on_the_device(reduction: str, device: Emulator, torch: Any) -> None:
    prediction, target = normal(150, 101, dtype="f8"), normal(150, 101, dtype="f8")

    def loss(p: Any, t: Any) -> Any:
        return st.sum(st.mse_loss(p, t, reduction=reduction))

    mse_loss = torch.nn.functional.mse_loss
    args = (prediction, target)
    wanted = torch_gradients(torch, lambda p, t: mse_loss(p, t, reduction=reduction).sum(), args)
    compute = st.value_and_grad(loss, argnums=(0, 1))
    check(device, compute, args, wanted, rtol=1e-9, atol=1e-12)
    program = on_gpu(compute).stage(*args)
    assert [t.why for t in program.transfers()] == ["input"] * 2 + ["result"] * 3


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_nll_and_its_gradient_stay_on_the_device(reduction: str, device: Emulator, torch: Any) -> None:
    scores, labels = normal(1500, 10, dtype="f8"), RANDOM.integers(0, 10, 1500)

    def loss(scores: Any, labels: Any) -> Any:
        return st.sum(st.nll_loss(st.log_softmax(scores, axis=1), labels, reduction=reduction))

    f = torch.nn.functional
    args = (scores, labels)
    wanted = torch_gradients(torch, lambda s, k: f.nll_loss(f.log_softmax(s, 1), k, reduction=reduction).sum(), args)
    compute = st.value_and_grad(loss)
    check(device, compute, args, wanted, rtol=1e-9, atol=1e-12)
    program = on_gpu(compute).stage(*args)
    assert [t.why for t in program.transfers()] == ["input", "input", "result", "result", "failure"]
    with pytest.raises(IndexError, match="label"):
        program(scores, np.where(np.arange(1500) == 700, 10, labels))


# ---- views --------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 2, 3, 7, 20])
def test_concat_of_any_number_of_arrays_along_any_axis(count: int, device: Emulator) -> None:
    shape = (3, 4, 5, 2)
    axes = (0, 1, 2, 3, -1)
    parts = {
        axis: [normal(*(1 + n % 4 if a == axis % 4 else size for a, size in enumerate(shape))) for n in range(count)]
        for axis in axes
    }
    weights = {axis: RANDOM.normal(size=np.concatenate(parts[axis], axis).shape).astype("f4") for axis in axes}

    def compute(parts: Any) -> Any:
        joined = [st.concat(parts[axis], axis=axis) for axis in axes]

        def loss(parts: Any) -> Any:
            return sum(st.sum(st.concat(parts[axis], axis=axis) * weights[axis]) for axis in axes)

        gradients = st.grad(loss)(parts)
        return joined, [gradients[axis] for axis in axes]

    wanted = [np.concatenate(parts[axis], axis) for axis in axes]
    for axis in axes:
        ends = np.cumsum([part.shape[axis] for part in parts[axis]])[:-1]
        wanted += np.split(weights[axis], ends, axis)
    check(device, compute, (parts,), wanted, rtol=0.0, atol=0.0)


@pytest.mark.parametrize("rank", range(1, 7))
def test_permutations_of_any_rank(rank: int, device: Emulator) -> None:
    shape = {
        1: (14_401,),
        2: (33, 437),
        3: (21, 34, 22),
        4: (9, 8, 7, 31),
        5: (5, 8, 3, 11, 11),
        6: (3, 4, 5, 2, 11, 11),
    }
    x = normal(*shape[rank])
    assert x.size > LANTERNS_LIMIT
    orders = list(itertools.permutations(range(rank)))
    orders = orders if len(orders) <= 24 else [orders[n] for n in RANDOM.choice(len(orders), 12, replace=False)]
    weight = normal(*shape[rank])

    def compute(x: Any) -> Any:
        moved = [st.permute_dims(x, order) * 2.0 for order in orders[:6]]
        turned = sum(st.sum(st.permute_dims(x, order) * st.permute_dims(weight, order)) for order in orders[:6])
        back = [
            st.grad(lambda x: st.sum(st.permute_dims(x, order) * np.transpose(weight, order)))(x)  # noqa: B023
            for order in orders[6:12] or orders[-1:]
        ]
        return moved, turned, back

    wanted = [2.0 * np.transpose(x, order) for order in orders[:6]]
    wanted += [np.float32(len(orders[:6]) * (x.astype("f8") * weight).sum())]
    wanted += [weight for _ in orders[6:12] or orders[-1:]]
    check(device, compute, (x,), wanted, rtol=1e-4, atol=1e-4)


# ---- random numbers -----------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_tensor_on_both(device: Emulator) -> None:
    """Random numbers, which Lantern drew on the host and copied, are made on the device, from the counters of the host."""

    def draws(backend: Any) -> Any:
        @st.function
        def f(seed: Any) -> Any:
            st.seed(seed)
            with with_backend(backend):
                model = st.nn.Linear(160, 97)
                exact = model.weight.value, st.random.uniform((121, 119)), st.random.bernoulli(0.2, (3, 71, 70))
                near = st.random.normal((144, 103))
            return exact, near

        return f

    on_device, on_host = draws(GPU), draws(CPU)
    for words in MODES:
        device.configure(words)
        for seed in (0, 1, 987_654_321_098):
            before = device.counts()
            found, near = on_device(seed)
            assert (device.counts() - before).copies_to_device == 0
            expected, expected_near = on_host(seed)
            for value, other in zip(found, expected, strict=True):
                assert value.size > LANTERNS_LIMIT
                np.testing.assert_array_equal(value, other)
            np.testing.assert_allclose(near, expected_near, rtol=1e-6, atol=1e-6)
    assert not np.array_equal(on_device(0)[0][0], on_device(1)[0][0])


# ---- memory, prints, copies ---------------------------------------------------------------------


def test_a_program_that_ends_on_the_host_frees_the_device(device: Emulator) -> None:
    """Lantern cleaned up for the back end that happened to be current at the end."""

    @st.function
    def f(x: Any, w: Any) -> Any:
        with with_backend(GPU, x, w):
            y = st.conv2d(x, w)
            with with_backend(CPU):
                total = st.sum(y)
        with with_backend(CPU):
            z = total * 2.0 + st.sum(x)
        return z

    x, w = normal(2, 3, 30, 90), normal(4, 3, 3, 3)
    gc.collect()
    before = device.counts()
    first = f(x, w)
    held = device.counts() - before
    assert held.live_allocations > 0 and held.live_descriptors > 0 and held.live_handles == 1
    assert f(x, w) == first
    del f
    gc.collect()
    left = device.counts() - before
    names = [name for name in left.__slots__ if name.startswith("live_")]
    assert {name: getattr(left, name) for name in names} == dict.fromkeys(names, 0), device.live_objects()


def test_arrays_of_odd_sizes_lie_at_aligned_addresses(device: Emulator) -> None:
    args = [normal(size) for size in (3, 14_337, 129, 1, 77)]

    def compute(*args: Any) -> Any:
        return [st.sin(x) * 2.0 + st.sum(x) for x in args]

    wanted = [2.0 * np.sin(x) + x.astype("f8").sum() for x in args]
    check(device, compute, args, wanted, rtol=1e-4, atol=1e-3)
    offsets = [int(offset) for offset in re.findall(r"gpu->memory \+ (\d+)", on_gpu(compute).stage(*args).source)]
    assert len(set(offsets)) > 5 and all(offset % 256 == 0 for offset in offsets)


def test_values_of_the_device_are_printed_in_a_loop(device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    x = normal(150, 100)

    @st.function
    def f(x: Any, steps: Any) -> Any:
        with with_backend(GPU, x):
            for step in st.range(steps):
                x = x * 0.5
                norm = st.norm(x)
                if step % 3 == 0:
                    print(f"step {step}: norm {norm:.3f}, first {x[0, 0]:.4f}")
                print("row", x[0, :3])
        return x

    program = f.stage(x, 8)
    for words in MODES:
        device.configure(words)
        before = device.counts()
        program(x, 8)
        seen = device.counts() - before
        printed = capsys.readouterr().out
        # Three times two numbers, eight times a row, and the result.
        assert (seen.copies_to_device, seen.copies_to_host) == (1, 3 * 2 + 8 + 1)
        assert seen.bytes_to_host == 3 * 8 + 8 * 12 + x.nbytes
        with st.eager():
            f(x, 8)
        assert printed == capsys.readouterr().out
        assert printed.count("norm") == 3 and printed.count("row") == 8


def test_copies_are_counted_and_are_the_least(device: Emulator) -> None:
    """One per input, per value printed, per decision and per result: what `transfers` lists is what the device has seen."""
    rows, table = normal(64, 30), normal(300, 30)

    @st.function
    def f(x: Any, steps: Any) -> Any:
        with with_backend(GPU):
            total = st.zeros((64, 300))
            for step in st.range(steps):
                total = total + x @ table.T
                if st.max(total) > 1e6:
                    total = total * 0.5
                if step == 2:
                    print(st.sum(total))
            best = st.argmax(total, axis=1)
        return best, total

    program = f.stage(rows, 5)
    assert sorted((t.why, t.nbytes) for t in program.transfers()) == [
        ("decision", 1), ("input", rows.nbytes), ("input", table.nbytes), ("print", 4), ("result", 64 * 8),
        ("result", 64 * 300 * 4),
    ]  # fmt: skip
    for words in MODES:
        device.configure(words)
        before = device.counts()
        program(rows, 5)
        seen = device.counts() - before
        assert (seen.copies_to_device, seen.bytes_to_device) == (2, rows.nbytes + table.nbytes)
        assert (seen.copies_to_host, seen.bytes_to_host) == (5 + 1 + 2, 5 * 1 + 4 + 64 * 8 + 64 * 300 * 4)
        assert seen.copies_on_device == 0
