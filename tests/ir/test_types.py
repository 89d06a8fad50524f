"""Dtypes beside NumPy's."""

import numpy as np
import pytest

import staged as st
from staged.ir.types import DTYPES


@pytest.mark.parametrize("name", DTYPES)
def test_numpy_takes_a_dtype_for_its_own(name):
    dtype = DTYPES[name]
    theirs = dtype.numpy
    assert np.zeros(3, dtype=dtype).dtype == theirs and np.dtype(dtype) == theirs
    assert np.result_type(dtype, np.bool_) == theirs
    assert (dtype.kind, dtype.itemsize, dtype.byteorder, dtype.type) == (
        "f" if name == "bf16" else theirs.kind,  # `ml_dtypes` calls it a "V"
        theirs.itemsize,
        theirs.byteorder,
        theirs.type,
    )
    assert dtype == theirs and theirs == dtype and dtype == theirs.type and dtype == theirs.name and dtype == name
    others = [other for other in DTYPES.values() if other is not dtype]
    for other in others:
        assert dtype != other and dtype != other.numpy and other.numpy != dtype and dtype != other.name
    assert (dtype in (int,), dtype in (bool,)) == (name == "i64", name == "bool")  # as NumPy's
    assert dtype not in (None, 3, "sum", "float128", np.clongdouble, object())
    assert dtype not in ("(2,", "f4,f4", "[")
    assert len({*DTYPES.values(), *DTYPES}) == 2 * len(DTYPES)  # dtypes and names are different keys


def test_the_dtype_of_an_array_compares_with_numpys():
    x = st.asarray([1.0])
    assert x.dtype == np.float32 and x.dtype != np.float64
    assert np.issubdtype(x.dtype, np.floating)
    np.testing.assert_array_equal(np.asarray(x, dtype=st.f64), [1.0])


@pytest.mark.parametrize("dtype", ["(2,", "f4,f4", (np.float32, {"x": 1}), {"a": 1}], ids=str)
def test_what_numpy_cannot_read_as_a_dtype_is_refused(dtype):
    with pytest.raises(st.DTypeError):
        st.zeros(3, dtype=dtype)
