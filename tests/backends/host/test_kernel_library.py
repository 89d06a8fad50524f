"""Kernels are one where nothing but their comments and their own names differ: products by what is asked for."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import staged as st

A = np.linspace(-1, 1, 12 * 24, dtype=np.float32).reshape(12, 24)
B = np.linspace(-2, 1, 24 * 24, dtype=np.float32).reshape(24, 24)
X = np.linspace(-1, 1, 2 * 3 * 6 * 6, dtype=np.float32).reshape(2, 3, 6, 6)
W = np.linspace(-1, 1, 3 * 3 * 3 * 3, dtype=np.float32).reshape(3, 3, 3, 3)


def two_products(a, b):
    first = st.tanh(a @ b)
    second = st.tanh(first @ b)
    return second


def other_epilogues(a, b):
    first = st.tanh(a @ b)
    second = st.exp(first @ b)
    return second


def other_strides(a, b):
    first = st.tanh(a @ b)
    second = st.tanh(first @ b.T)
    return second


def two_convolutions(x, w):
    first = st.relu(st.conv2d(x, w, padding=1))
    second = st.relu(st.conv2d(first, w, padding=1))
    return second


def other_padding(x, w):
    first = st.relu(st.conv2d(x, w, padding=1))
    second = st.relu(st.conv2d(first, w, padding=0))
    return second


@pytest.mark.parametrize("target", ["portable", "x86-64-v3"])
@pytest.mark.parametrize(
    ("function", "args", "bodies"),
    [
        (two_products, (A, B), 1),
        (other_epilogues, (A, B), 2),
        (other_strides, (A, B), 2),
        (two_convolutions, (X, W), 1),
        (other_padding, (X, W), 2),
    ],
)
def test_equal_products_share_a_function(
    function: Callable[..., object], args: tuple, bodies: int, target: str
) -> None:
    lines = st.function(function, target=target).stage(*args).source.splitlines()
    heads = [line for line in lines if line.startswith(("static void first(", "static void second("))]
    assert len(heads) == bodies
