"""A constant that no other integer is beyond: an extreme takes it in without a comparison, of which compilers warn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.runtime.options import CompileOptions

STRICT = CompileOptions(extra=("-Wall", "-Wextra", "-Werror"))


@pytest.mark.parametrize("dtype", ["u8", "u16", "u32", "u64", "i8", "i16", "i32", "i64", "bool"])
def test_extremes_of_the_least_and_greatest_constant(dtype: str) -> None:
    kind = getattr(st, dtype)
    low, high = (0, 1) if dtype == "bool" else (np.iinfo(kind.numpy).min, np.iinfo(kind.numpy).max)
    x = np.array([[1, 0, 1]]).astype(kind.numpy)

    def run(x: Any) -> Any:
        out = []
        for fill in (low, high):
            same = st.full((3, 13), fill, dtype=kind)
            framed = st.pad(x, ((1, 1), (0, 2)), value=fill)
            for each in (same, framed):
                out += [st.argmax(each, axis=0), st.argmin(each, axis=1)]
                out += (
                    [st.any(each, axis=0), st.all(each, axis=1)]
                    if dtype == "bool"
                    else [st.max(each, axis=0), st.min(each, axis=1)]
                )
        return out

    with st.eager():
        expected = run(x)
    staged = st.function(run)
    staged.options = STRICT
    for found, wanted in zip(staged(x), expected, strict=True):
        np.testing.assert_array_equal(found, np.asarray(wanted))


def test_any_and_all_of_nothing_that_is_repeated() -> None:
    x = np.array([True, False])

    def run(x: Any) -> Any:
        none = st.broadcast_to(x, (0, 2))
        return st.any(none, axis=0), st.all(none, axis=0)

    for found, wanted in zip(st.function(run)(x), ([False, False], [True, True]), strict=True):
        np.testing.assert_array_equal(found, wanted)
