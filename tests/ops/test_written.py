"""A value that is written into an array, or scales it, takes its dtype without loss, or is refused with the line."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st

SINGLE, DOUBLE = np.zeros(3, np.float32), np.full(3, 1 / 3)
I = np.array([0, 1, 2])  # noqa: E741
IMAGE = np.ones((1, 3, 4, 4), np.float32)


def set_items(x: Any, v: Any) -> Any:
    x[I] = v
    return x


def add_items(x: Any, v: Any) -> Any:
    x[I] += v
    return x


WRITES: dict[str, Callable[[Any, Any], Any]] = {
    "x[i] = v": set_items,
    "x[i] += v": add_items,
    "scatter_add": lambda x, v: st.scatter_add(x, I, v),
    "index_add": lambda x, v: st.index_add(x, 0, I, v),
    "index_copy": lambda x, v: st.index_copy(x, 0, I, v),
    "index_fill": lambda x, v: st.index_fill(x, 0, I, v[0]),
    "dynamic_update_slice": lambda x, v: st.dynamic_update_slice(x, v, 0),
    "set_item": lambda x, v: st.set_item(x, I, v),
    "add_item": lambda x, v: st.add_item(x, I, v),
}


@pytest.mark.parametrize("name", WRITES)
def test_what_would_lose_digits_is_refused_and_what_fits_is_written(name: str) -> None:
    write = WRITES[name]
    whole = np.array([1, 2, 3])
    for x, v in ((SINGLE, DOUBLE), (whole, DOUBLE), (whole, SINGLE), (whole.astype(np.int32), whole)):
        for mode in (contextlib.nullcontext, st.eager):
            with mode(), pytest.raises(st.DTypeError, match="cannot (write|add)") as refused:
                st.function(write)(x, v)
            assert "test_written.py" in str(refused.value)
    for x, v in ((DOUBLE * 0, SINGLE + 1), (SINGLE, whole), (SINGLE, SINGLE + 2)):
        found = st.function(write)(x, v)
        assert found.dtype == x.dtype
        np.testing.assert_array_equal(found, np.full(3, v[0]) if name == "index_fill" else v)


def test_a_staged_float_is_no_more_an_integer_than_a_static_one() -> None:
    @st.function
    def program(x: Any, a: Any) -> Any:
        x[0] = a
        return x

    with pytest.raises(st.DTypeError, match="cannot write f64 .* into i64"):
        program(np.zeros(2, np.int64), 0.5)
    np.testing.assert_array_equal(program(np.zeros(2, np.float32), 0.5), [0.5, 0.0])
    np.testing.assert_array_equal(program(np.zeros(2, np.int32), 7), [7, 0])


CONVOLUTIONS: dict[str, Callable[[Any], Any]] = {
    "conv2d": lambda b: st.conv2d(IMAGE, np.ones((2, 3, 1, 1), np.float32), b),
    "conv1d": lambda b: st.conv1d(IMAGE[0], np.ones((2, 4, 1), np.float32), b),
    "conv3d": lambda b: st.conv3d(IMAGE[None], np.ones((2, 1, 1, 1, 1), np.float32), b),
    "conv_transpose2d": lambda b: st.conv_transpose2d(IMAGE, np.ones((3, 2, 1, 1), np.float32), b),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_the_bias_of_a_convolution_promotes_as_its_weight_does(name: str) -> None:
    conv, bias = CONVOLUTIONS[name], np.array([1 / 3, 0.1])
    plain = np.asarray(conv(None))
    for run in (conv, st.function(conv)):
        found = run(bias)
        assert np.asarray(found).dtype == np.float64
        axes = (-1, *[1] * (plain.ndim - 2)) if name == "conv1d" else (1, -1, *[1] * (plain.ndim - 2))
        np.testing.assert_array_equal(found, plain + bias.reshape(axes))
        assert np.asarray(run(bias.astype(np.float32))).dtype == np.float32


NORMS: dict[str, Callable[[Any], Any]] = {
    "layer_norm": lambda w: st.layer_norm(IMAGE, None, w),
    "rms_norm": lambda w: st.rms_norm(IMAGE, None, w),
    "group_norm": lambda w: st.group_norm(IMAGE, 1, w[:3]),
    "instance_norm": lambda w: st.instance_norm(IMAGE, weight=w[:3]),
    "batch_norm": lambda w: st.batch_norm(IMAGE, np.zeros(3, np.float32), np.ones(3, np.float32), w[:3]),
}


@pytest.mark.parametrize("name", NORMS)
def test_a_weight_wider_than_what_it_scales_is_refused(name: str) -> None:
    norm, weight = NORMS[name], np.array([1 / 3, 0.1, 0.2, 0.3])
    for run in (norm, st.function(norm)):
        with pytest.raises(st.DTypeError, match=f"{name}: the weight is f64 .* for f32") as refused:
            run(weight)
        assert "st.astype(x, st.f64)" in str(refused.value)
        assert np.asarray(run(weight.astype(np.float32))).dtype == np.float32


@pytest.mark.parametrize("mode", [contextlib.nullcontext, st.eager])
def test_real_numbers_are_written_into_complex_arrays_and_no_complex_ones_into_others(mode: Any) -> None:
    def mixed(x: Any) -> Any:
        x[0] = 1.5
        x[1:3] = [2.5, 1j]
        return x

    def counted(x: Any) -> Any:
        number = 0j
        for _ in st.range(2):
            number += 1j
        x[0] = number
        return x

    with mode():
        np.testing.assert_array_equal(st.function(mixed)(np.zeros(3, np.complex64)), np.array([1.5, 2.5, 1j]))
        for dtype in (np.float32, np.int64, bool):
            with pytest.raises(st.DTypeError):
                st.function(counted)(np.zeros(3, dtype))
