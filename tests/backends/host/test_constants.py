"""Constant arrays in the text: every number reads back as itself."""

from __future__ import annotations

import numpy as np
import pytest

from staged.backends.host.constants import _texts
from staged.ir.types import DTYPES

EDGES = [0.0, -0.0, 1.0, 1e-45, 1e-38, 3.4e38, 16777216.0, 123456789.0, 1e22, 0.1, np.inf, -np.inf, np.nan]


@pytest.mark.parametrize(("name", "dtype", "suffix"), [("f32", np.float32, "f"), ("f64", np.float64, "")])
def test_floats_of_large_tables_are_literals_of_their_type_that_read_back(name: str, dtype: type, suffix: str) -> None:
    drawn = np.random.default_rng(1).integers(0, 2**31 - 2**23, 5000).astype(np.uint32).view(np.float32)
    array = np.concatenate([np.array(EDGES), drawn]).astype(dtype)
    texts = _texts(array, DTYPES[name])
    special = {"NAN": np.nan, "INFINITY": np.inf, "-INFINITY": -np.inf}
    back = np.array([special[text] if text in special else float(text.removesuffix(suffix)) for text in texts], dtype)
    np.testing.assert_array_equal(back, array)
    np.testing.assert_array_equal(np.signbit(back[:-1]), np.signbit(array[:-1]))
    # Without a point or an exponent `1f` would be no C.
    assert all(text in special or ("." in text or "e" in text) and text.endswith(suffix) for text in texts)


def test_integers_and_bools_are_as_elsewhere() -> None:
    assert _texts(np.array([-(2**63), 7]), DTYPES["i64"])[1] == "7"
    assert _texts(np.array([True, False]), DTYPES["bool"]) == ["true", "false"]
