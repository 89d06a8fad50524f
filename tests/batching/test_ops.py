"""Every op with a leading axis: the mapped program against a loop over rows, mapped operands alone and together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.trace_function import trace
from staged.ir.nodes import walk_ops
from staged.ir.types import f64
from staged.ops.composite import COMPOSITES, Composite
from staged.ops.context import bind_all
from staged.ops.primitive import PRIMITIVES, Primitive, Sample
from tests.batching.harness import agrees, fulfilled, ops_of

RNG = np.random.default_rng(3)
X = RNG.normal(size=(4, 3))
W = RNG.normal(size=(3, 3))
I = np.array([2, 0, 1, 1])  # noqa: E741


# ---- every primitive, from its declaration --------------------------------------------------------

SIZE = 3


def rows_of(primitive: Primitive | Composite, sample: Sample, place: int, operand: Any) -> tuple[np.ndarray, np.ndarray]:
    """SIZE variants of one operand of a sample, and one of them."""
    if isinstance(operand, np.ndarray):
        # Ready arrays are indices and the like: keep their values, in another order for each element.
        flat = [np.roll(operand.reshape(-1), number).reshape(operand.shape) for number in range(SIZE)]
        return np.stack(flat), operand
    dtype = f64 if f64 in sample.dtypes else sample.dtypes[0]
    made = RNG.uniform(sample.low, sample.high, size=(SIZE, *operand)).astype(dtype.numpy)
    return made, made[0]


def cases() -> Iterator[Any]:
    for name, primitive in PRIMITIVES.items():
        # Random numbers are refused under vmap; what has no operand is the same for all elements.
        if primitive.kind in ("random", "shuffle") or not any(sample.operands for sample in primitive.samples):
            continue
        for number, sample in enumerate(primitive.samples):
            count = len(sample.operands)
            masks = {tuple(place == one for place in range(count)) for one in range(count)} | {(True,) * count}
            for mask in sorted(masks):
                letters = "".join("x" if flag else "." for flag in mask)
                yield pytest.param(primitive, sample, mask, id=f"{name}-{number}-{letters}")


@pytest.mark.parametrize(("primitive", "sample", "mask"), list(cases()))
def test_every_primitive(primitive: Primitive, sample: Sample, mask: tuple[bool, ...]) -> None:
    given = [rows_of(primitive, sample, place, operand) for place, operand in enumerate(sample.operands)]
    operands = [mapped if flag else one for (mapped, one), flag in zip(given, mask, strict=True)]

    def element(*arrays: Any) -> Any:
        return bind_all(primitive, list(map(st.asarray, arrays)), **sample.attrs)

    def f(*arrays: Any) -> Any:
        return st.vmap(element, in_axes=tuple(0 if flag else None for flag in mask))(*arrays)

    agrees(f, *operands)


# ---- composites -----------------------------------------------------------------------------------

COMPOSITE_CASES = [
    pytest.param(one, sample, id=f"{one.name}-{number}")
    for one in COMPOSITES.values()
    for number, sample in enumerate(one.samples)
]


@pytest.mark.parametrize(("one", "sample"), COMPOSITE_CASES)
def test_composites_and_their_gradients(one: Composite, sample: Sample) -> None:
    """The first operand is mapped, and indices; weights are the same for all elements."""
    pairs = [rows_of(one, sample, place, operand) for place, operand in enumerate(sample.operands)]
    flags = [place == 0 or single.dtype.kind != "f" for place, (_, single) in enumerate(pairs)]
    given = [rows if flag else single for (rows, single), flag in zip(pairs, flags, strict=True)]
    smooth = tuple(place for place, array in enumerate(given) if array.dtype.kind == "f")

    def call(*arrays: Any) -> Any:
        result = one(*map(st.asarray, arrays), **sample.attrs)[0]
        return st.abs(result) if one.name == "svd" else result  # the signs of singular vectors are free

    def mapped(function: Callable[..., Any]) -> Callable[..., Any]:
        return st.vmap(function, in_axes=tuple(0 if flag else None for flag in flags))

    def f(*arrays: Any) -> Any:
        if not smooth:
            return mapped(call)(*arrays)
        whole = st.grad(lambda *a: st.sin(mapped(call)(*a)).sum(), argnums=smooth)(*arrays)
        each = mapped(st.grad(lambda *a: st.sin(call(*a)).sum()))(*arrays)
        return mapped(call)(*arrays), whole, each

    agrees(f, *given)


# ---- what becomes one wide op ---------------------------------------------------------------------


def test_a_vector_times_one_matrix_becomes_one_product() -> None:
    program = fulfilled(trace(lambda x, w: st.vmap(lambda r: r @ w)(x), (X, W)).function)
    (product,) = (op for op in walk_ops(program.block) if op.name == "matmul")
    assert [operand.tensor.shape for operand in product.operands] == [(4, 3), (3, 3)]


def test_what_is_not_mapped_is_computed_once() -> None:
    def f(x, w):
        return st.vmap(lambda r: r * st.exp(w).sum())(x)

    traced_names = ops_of(f, X, W)
    assert traced_names.index("exp") < traced_names.index("multiply")
    agrees(f, X, W)


@pytest.mark.parametrize("size", [0, 1, 5, 1000])
def test_code_does_not_grow_with_the_axis(size: int) -> None:
    def f(x, w):
        return st.vmap(lambda r: st.sin(r) @ w + st.where(r > 0, r, -r).sum())(x)

    assert len(ops_of(f, np.zeros((size, 3)), W)) == len(ops_of(f, np.zeros((7, 3)), W))


# ---- reading and writing at places that differ ----------------------------------------------------


def put(r: Any, i: Any) -> Any:
    r[i] = r[i] * 2.0 + 1.0
    return r


PLACES: dict[str, Callable[..., Any]] = {
    "read": lambda x, i: st.vmap(lambda r, i: r[i])(x, i),
    "read what is not mapped": lambda x, i: st.vmap(lambda i: x[i])(i),
    "read at two places": lambda x, i: st.vmap(lambda i: x[i, i % 3])(i),
    "write": lambda x, i: st.vmap(put)(x, i),
    "take": lambda x, i: st.vmap(lambda r, i: st.take(r, i))(x, i[:, None] * np.ones((1, 2), np.int64)),
    "window": lambda x, i: st.vmap(lambda r, i: st.dynamic_slice(r, i % 2, 2))(x, i),
    "write a window": lambda x, i: st.vmap(lambda r, i: st.dynamic_update_slice(r, r[:2] * 3.0, i % 2))(x, i),
}


@pytest.mark.parametrize("name", PLACES)
def test_places_that_differ_and_their_gradients(name: str) -> None:
    f = PLACES[name]
    agrees(f, X, I)
    agrees(lambda x, i: st.grad(lambda x: st.sin(f(x, i)).sum())(x), X, I)


def test_an_index_out_of_range_stops_the_program() -> None:
    for f in (
        lambda x, i: st.vmap(lambda r, i: r[i])(x, i),
        lambda x, i: st.vmap(lambda r, i: st.take(r, i[None]))(x, i),
    ):
        with pytest.raises(IndexError, match="index 3 is out of range for an axis of 3 elements"):
            st.function(f)(X, np.array([0, 1, 3, 0]))


def test_a_window_out_of_range_stops_the_program() -> None:
    """From a negative start a window may not reach the end: there Python's slice is empty."""

    @st.function
    def run(x, starts):
        return st.vmap(lambda i: x[i : i + 3])(starts)

    x = np.arange(8.0)
    np.testing.assert_array_equal(run(x, np.array([0, -4, -8, 5])), x[np.array([0, 4, 0, 5])[:, None] + np.arange(3)])
    for start in (6, -3, -1, -9, 2**62):
        said = f"slice from {start} on is out of range: it fits at 6 places"
        with pytest.raises(IndexError, match=said):
            run(x, np.array([0, start]))
        with pytest.raises(IndexError, match="slice of 3 elements"), st.eager():
            run(x, np.array([0, start]))
