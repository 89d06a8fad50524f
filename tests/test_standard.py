"""Names that the Array API standard asks of the namespace, and torch's arguments of functions that NumPy has without them."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st


def test_limits_are_pythons_numbers() -> None:
    found = st.finfo(st.f32)
    assert (found.bits, found.eps, found.dtype) == (32, 2.0**-23, st.f32)
    assert (st.iinfo(st.u8).min, st.iinfo(np.zeros(2, np.int32)).max) == (0, 2**31 - 1)
    with pytest.raises(st.DTypeError, match="finfo is of a float dtype"):
        st.finfo(st.i32)
    with pytest.raises(st.DTypeError, match="iinfo is of an integer dtype"):
        st.iinfo(st.f32)


def test_questions_about_dtypes() -> None:
    assert st.isdtype(st.f32, ("integral", "real floating"))
    assert not st.isdtype(st.bool, "numeric")
    assert st.isdtype(st.int64, st.i64)
    with pytest.raises(st.ArgumentError, match="no kind 'whole'"):
        st.isdtype(st.f32, "whole")
    assert st.result_type(st.f32, st.f64) == st.f64
    assert st.result_type(np.zeros(2, np.float32), 2.0) == st.f32
    assert st.result_type(st.i32, st.u8) == st.i32
    assert st.can_cast(st.i32, st.f64)
    assert not st.can_cast(st.f64, st.f32)
    assert not st.can_cast(st.i32, st.u64)


def test_the_namespace_is_found_from_an_array() -> None:
    x = st.zeros(3, device="cpu")
    assert x.__array_namespace__() is st
    with pytest.raises(st.ArgumentError, match="version"):
        x.__array_namespace__(api_version="2999.12")
    info = st.__array_namespace_info__()
    assert info.dtypes(kind="real floating")["float32"] is st.f32
    assert info.default_dtypes()["integral"] is st.i64
    assert np.asarray(st.from_dlpack(np.arange(3))).tolist() == [0, 1, 2]
    with pytest.raises(st.ArgumentError, match="device='cuda'"):
        st.zeros(3, device="cuda")


@pytest.mark.parametrize("mode", ["eager", "program"])
def test_torchs_arguments(mode: str) -> None:
    @st.function
    def f(x, n):
        return (
            st.add(x, x, alpha=3),
            st.divide(n, 2, rounding_mode="trunc"),
            st.divide(n, 2, rounding_mode="floor"),
            st.round(x, decimals=1),
            st.round(x * 100.0, -2),
            st.floor(n),
            st.softmax(x, dim=0, dtype=st.f64),
            st.softplus(x, beta=2.0, threshold=1.0),
            st.repeat(n, [0, 2, 1]),
            st.cov(st.stack([x, x * x]), fweights=[1, 2, 1]),
            st.sum(x[0], axis=0),
        )

    x, n = np.array([0.26, -1.24, 3.0]), np.array([-7, 7, 2**60 + 1])
    with st.eager() if mode == "eager" else st.eager("no function"):
        found = [np.asarray(one) for one in f(x, n)]
    e = np.exp(x - x.max())
    expected = [
        4 * x, [-3, 3, 2**59], [-4, 3, 2**59], [0.3, -1.2, 3.0], [0.0, -100.0, 300.0], n, e / e.sum(),
        np.where(2 * x > 1, x, np.log1p(np.exp(2 * x)) / 2), [7, 7, 2**60 + 1], np.cov(np.stack([x, x * x]), fweights=[1, 2, 1]), 0.26,
    ]  # fmt: skip
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-12)
    assert found[1].dtype == found[5].dtype == np.int64
