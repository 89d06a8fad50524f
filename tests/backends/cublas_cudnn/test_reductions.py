"""Totals that threads bring together and then all of them read: by columns, rows and blocks, in sizes that end raggedly."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.ir.declaration import DECLARED
from staged.ops.context import bind
from staged.ops.primitive import PRIMITIVES
from staged.ops.promote import as_array
from staged.ops.reduction import declare_reduction
from tests import opencl_device
from tests.backends.cublas_cudnn.harness import on_gpu

COLUMNS = [(600, 64), (33, 1), (257, 33), (40, 31)]
ROWS = [(64, 600), (1, 33), (33, 257), (3, 5000)]


def softmax(x, axis):
    wide = np.exp(x.astype(np.float64) - x.max(axis, keepdims=True))
    return wide / wide.sum(axis, keepdims=True)


@pytest.mark.parametrize(("axis", "shapes"), [(0, COLUMNS), (1, ROWS)])
def test_every_thread_of_a_team_reads_the_same_total(axis, shapes, emulated_device):
    arrays = [np.random.default_rng(n).normal(size=shape).astype(np.float32) for n, shape in enumerate(shapes)]

    def run(arrays):
        results = []
        for x in arrays:
            best = st.expand_dims(st.argmax(x, axis=axis), axis)
            results.append((
                st.softmax(x, axis=axis),
                x - st.max(x, axis=axis, keepdims=True),
                x * st.any(x > 2.5, axis=axis, keepdims=True),
                st.take_along_axis(x, best, axis=axis) - x,
            ))  # fmt: skip
        return results

    for x, results in zip(arrays, on_gpu(run)(arrays), strict=True):
        top = x.max(axis, keepdims=True)
        right = (softmax(x, axis), x - top, x * (x > 2.5).any(axis, keepdims=True), top - x)
        for got, wanted in zip(results, right, strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-6)


def test_integer_totals_of_teams_are_exact(emulated_device):
    x = (np.arange(600 * 64) * 7919 % 251).reshape(600, 64)

    def run(a, b, c):
        return [
            (
                y - st.sum(y, axis=axis, keepdims=True, dtype=y.dtype),
                st.max(y, axis=axis, keepdims=True) - y,
                st.min(y, axis=axis, keepdims=True) + y,
                st.argmin(y, axis=axis),
            )
            for y in (a, b, c)
            for axis in (0, 1)
        ]

    arrays = [x.astype(dtype) for dtype in (np.uint8, np.int32, np.uint32)]
    found = on_gpu(run)(*arrays)
    pairs = [(y, axis) for y in arrays for axis in (0, 1)]
    for (y, axis), results in zip(pairs, found, strict=True):
        right = (
            y - y.sum(axis, keepdims=True, dtype=y.dtype),
            y.max(axis, keepdims=True) - y,
            y.min(axis, keepdims=True) + y,
            y.argmin(axis),
        )
        for got, wanted in zip(results, right, strict=True):
            assert got.dtype == wanted.dtype
            np.testing.assert_array_equal(got, wanted)


def test_of_ties_every_team_finds_the_lowest_place_and_of_nans_the_first(emulated_device):
    arrays = []
    for shape in ((300, 1000), (33, 257), (4, 3)):
        x = np.zeros(shape, np.float32)
        x[1, 2] = x[2, 0] = x[-1, -1] = x[-1, -2] = 1
        holes = x.copy()
        holes[2, 1] = holes[1, -1] = np.nan
        arrays += [x, holes]
    cube = np.zeros((3, 40, 50), np.float32)
    cube[1, 5, 6] = cube[1, 6, 5] = cube[0, 39, 0] = cube[0, 3, 49] = 1

    def run(arrays, cube):
        flat = st.reshape(st.permute_dims(cube, (0, 2, 1)), (3, -1))
        found = [
            st.argmax(st.permute_dims(cube, (2, 1, 0))),
            st.argmax(flat, axis=1),
            st.argmax(st.sum(cube, axis=(0, 1))),
        ]
        for x in arrays:
            found += [
                st.argmax(x),
                st.argmin(-x.T),
                st.argmax(x, axis=0),
                st.argmax(x.T, axis=0),
                st.argmin(x * 0.0, axis=1),
            ]
        return found

    right = [
        cube.transpose(2, 1, 0).argmax(),
        cube.transpose(0, 2, 1).reshape(3, -1).argmax(1),
        cube.sum((0, 1)).argmax(),
    ]
    for x in arrays:
        right += [x.argmax(), (-x.T).argmin(), x.argmax(0), x.T.argmax(0), (x * 0).argmin(1)]
    for number, (got, wanted) in enumerate(zip(on_gpu(run)(arrays, cube), right, strict=True)):
        np.testing.assert_array_equal(got, wanted, err_msg=str(number))


@pytest.fixture(params=[("bitwise_xor", 0), ("bitwise_and", -1)], ids=lambda param: param[0])
def planted(request):
    """A reduction of integers for which no file has a row: one declaration."""
    combine, identity = request.param
    made = declare_reduction(
        f"planted_{combine}",
        lambda x, axes: np.asarray(getattr(np, combine).reduce(x, axis=axes, dtype=x.dtype)),
        ("i", "u"),
        combine=DECLARED[combine],
        identity=identity,
        why_not_differentiable="integers",
        doc="All elements combined.",
    )
    yield made
    del DECLARED[made.name], PRIMITIVES[made.name]


@pytest.fixture(params=["portable", "native", "gpu", "opencl"])
def staged_for(request, emulated_device, monkeypatch):
    """The function that stages a function: for three threads of a CPU, or for a device."""
    monkeypatch.setenv("STAGED_NUM_THREADS", "3")
    if request.param == "opencl":
        opencl_device.require()
        monkeypatch.setenv("STAGED_BACKEND", "opencl")
    return on_gpu if request.param in ("gpu", "opencl") else lambda run: st.function(run, target=request.param)


def test_a_new_reduction_is_right_on_every_back_end(planted, staged_for, request):
    """Vectors, threads, teams of threads, columns, cascades and single elements: any other op would be another number."""

    def run(*arrays):
        both = [bind(planted, [as_array(each)], axes=axes) for each in arrays for axes in ((1,), (0,), (0, 1), ())]
        return [*both, bind(planted, [as_array(arrays[0] * 3 + 1)], axes=(1,)) + 1]

    rng = np.random.default_rng(0)
    arrays = [
        rng.integers(-100, 100, shape).astype(dtype)
        for shape, dtype in (((3, 5000), "i8"), ((600, 33), "i1"), ((3, 100_000), "u4"), ((400, 5001), "i4"))
    ]
    staged = staged_for(run)
    if "native" in request.node.name:
        source = staged.stage(*arrays).source
        assert "_v[u] ^ " in source or "_v[u] & " in source, "a program without vectors"
        assert "ST_SHARE(" in source, "a program of one thread"
    found = staged(*arrays)
    for got, wanted in zip(found, run(*arrays), strict=True):
        np.testing.assert_array_equal(np.asarray(got), np.asarray(wanted))
    np.testing.assert_array_equal(np.asarray(found[0]), getattr(np, planted.combine.name).reduce(arrays[0], axis=1))


def test_long_rows_and_columns_of_every_reduction(staged_for):
    rng = np.random.default_rng(0)
    shapes = [((3, 5000), 1), ((2, 100_000), 1), ((5000, 33), 0), ((100_000,), 0)]
    drawn = {
        "f": lambda shape: rng.uniform(0.999, 1.001, shape).astype(np.float32),
        "i": lambda shape: rng.integers(-99, 99, shape).astype(np.int32) * 2 + 1,
        "b": lambda shape: rng.uniform(size=shape) < 1e-4,
    }
    ops = [each for each in PRIMITIVES.values() if each.kind == "reduction"]
    assert {"sum", "prod", "max", "min", "any", "all", "argmax", "argmin"} <= {op.name for op in ops}

    def run(arrays):
        return {
            f"{op.name} {kind} {x.shape}": bind(op, [as_array(x)], **({"axis": axis} if op.is_position else {"axes": (axis,)}))
            for op in ops
            for kind, each in arrays.items()
            if any(dtype.kind == kind for sample in op.samples for dtype in sample.dtypes)
            for x, (_, axis) in zip(each, shapes, strict=True)
        }

    arrays = {kind: [draw(shape) for shape, _ in shapes] for kind, draw in drawn.items()}
    found, wanted = staged_for(run)(arrays), run(arrays)
    assert list(found) == list(wanted)
    for name, value in wanted.items():
        tolerance = 1e-4 if " f " in name else 0
        np.testing.assert_allclose(np.asarray(found[name]), np.asarray(value), rtol=tolerance, err_msg=name)


def test_a_reduction_is_declared_with_its_initial_value():
    with pytest.raises(TypeError, match="identity"):
        declare_reduction("planted_without_identity", np.sum, ("i", "u"), combine=DECLARED["bitwise_xor"])
