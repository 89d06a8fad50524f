"""Terms added to a product under a guard (padding, joined parts) stand in their own columns, in whatever tile these are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st

ADDENDS: dict[str, Callable[[Any], Any]] = {
    "padded behind": lambda c: st.pad(c[:, 2:], ((0, 0), (0, 2))),
    "padded before": lambda c: st.pad(c[:, :-3], ((0, 0), (3, 0))),
    "padded around": lambda c: st.pad(c[2:-1, 5:-4], ((2, 1), (5, 4)), value=7.0),
    "joined": lambda c: st.concat([c[:, 3:], c[:, :3]], axis=1),
    "rolled back": lambda c: st.roll(c, -2, axis=1) + st.roll(c, 2, axis=0),
}
PRODUCTS: dict[str, Callable[[Any, Any], Any]] = {
    "plain": lambda a, b: a @ b,
    "left transposed": lambda a, b: a.T @ b,
    "right transposed": lambda a, b: a @ b.T,
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("size", [70, 33, 130])
@pytest.mark.parametrize("product", PRODUCTS)
def test_guards_of_what_is_added_hold_in_every_tile(product: str, size: int, dtype: Any) -> None:
    random = np.random.default_rng(size)
    a, b, c = (random.integers(-9, 9, (size, size)).astype(dtype) for _ in range(3))

    def run(a: Any, b: Any, c: Any) -> Any:
        return [PRODUCTS[product](a, b) + add(c) for add in ADDENDS.values()]

    with st.eager():
        expected = run(a, b, c)
    for name, found, wanted in zip(ADDENDS, st.function(run)(a, b, c), expected, strict=True):
        np.testing.assert_array_equal(found, np.asarray(wanted), err_msg=name)


@pytest.mark.parametrize("width", [20, 70])
def test_guards_of_what_is_added_to_a_convolution_hold_in_every_tile(width: int) -> None:
    random = np.random.default_rng(width)
    x = random.integers(-5, 5, (2, 3, 9, width)).astype(np.float32)
    w = random.integers(-5, 5, (4, 3, 3, 3)).astype(np.float32)
    c = random.integers(-5, 5, (2, 4, 7, width - 2)).astype(np.float32)

    def run(x: Any, w: Any, c: Any) -> Any:
        y = st.conv2d(x, w)
        return y + st.pad(c[..., 2:], ((0, 0), (0, 0), (0, 0), (0, 2))), y + st.concat([c[..., 3:], c[..., :3]], axis=3)

    with st.eager():
        expected = run(x, w, c)
    for found, wanted in zip(st.function(run)(x, w, c), expected, strict=True):
        np.testing.assert_array_equal(found, np.asarray(wanted))


@pytest.mark.parametrize(("columns", "overlaps"), [(50, True), (5, False)])
def test_the_last_vector_of_a_tile_overlaps_the_one_before_it(columns: int, overlaps: bool) -> None:
    """Columns that are fewer than a vector are computed one by one."""
    random = np.random.default_rng(0)
    a, b, c = (random.standard_normal(shape).astype("f") for shape in ((20, 50), (50, columns), (columns,)))

    @st.function(target="x86-64-v3")
    def layer(a: Any, b: Any, c: Any) -> Any:
        return st.tanh(a @ b + c)

    program = layer.stage(a, b, c)
    assert ("cols - 8" in program.source) == overlaps and "whole_8 = cols" not in program.source
    np.testing.assert_allclose(program(a, b, c), np.tanh(a @ b + c), rtol=1e-4, atol=1e-5)
