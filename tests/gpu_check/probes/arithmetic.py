"""Probes of kernels and matmuls: load and launch, misaligned operands, NaN, gradients of weights and biases."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from staged.runtime.cuda.resident import DeviceCopy
from staged.runtime.guard import ffi
from tests.gpu_check.probes import epilogues
from tests.gpu_check.probes.book import EXACT, Book, on_device

F32, F64, F16 = 2e-6, 1e-13, 2e-3
SUM, PRODUCT = 1e-5, 2e-5
"""Tolerances for f32: for sums and products of some hundred numbers."""


def load(book: Book) -> None:
    """Machine code is loaded and launched: elementwise maths, integers, reductions, and movements of elements."""
    x = book.normal(37, 19)
    long = book.normal(100_003 if not book.small else 4_099)

    def maths(x: Any) -> Any:
        y = st.exp(x) + st.tanh(x) * st.sqrt(st.abs(x)) + st.erf(x) + st.sin(x) - st.log1p(st.abs(x)) + st.cos(x) ** 2
        return y, st.where(x > 0.0, x, -x) + st.floor(x) + st.sign(x) + st.maximum(x, 0.25)

    def integers(k: Any) -> Any:
        return k * 3 + 1 - (k & 7) ^ (k << 2), st.maximum(k, 5) - st.abs(k), k // 3, k % 5

    def totals(x: Any) -> Any:
        return st.sum(x, axis=0), st.sum(x, axis=1), st.sum(x), st.argmax(x, axis=1), st.max(x), st.softmax(x, axis=1)

    def moves(x: Any) -> Any:
        return x.T * 2.0, st.concat([x, x * 2.0], axis=1), st.pad(x, ((1, 1), (0, 2))), x[1:3] + 1.0, st.sort(x, axis=1)

    book.check("double", on_device(lambda x: x * 2.0 + 1.0), x, tolerance=F32)
    book.check("maths", on_device(maths), long, tolerance=F32)
    book.check("maths in f64", on_device(maths), long.astype(np.float64), tolerance=F64)
    book.check("integers", on_device(integers), np.arange(-5000, 5000), tolerance=EXACT)
    book.check("totals", on_device(totals), x, tolerance=SUM)
    book.check("a total of many", on_device(lambda x: (st.sum(x), st.mean(x))), long, tolerance=SUM)
    book.check("moves", on_device(moves), x, tolerance=F32)
    book.check("halves", on_device(lambda x: x * x + st.exp(x)), x.astype(np.float16), tolerance=F16)


# ---- misaligned operands ----------------------------------------------------------------------------


class OnDevice:
    """An array of another library on the device: its elements begin `offset` bytes into their allocation."""

    def __init__(self, array: np.ndarray[Any, Any], offset: int) -> None:
        self.host_copy = array
        self.place = DeviceCopy("gpu", array.nbytes + offset)
        self.place.update(np.frombuffer(bytes(offset) + array.tobytes(), np.uint8))
        self.offset = offset

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        array, address = self.host_copy, int(ffi.cast("uintptr_t", self.place.address))
        return {
            "shape": array.shape, "typestr": array.dtype.str, "strides": None, "version": 3, "stream": 1,
            "data": (address + self.offset, True),
        }  # fmt: skip


def misaligned(book: Book) -> None:
    """Operands that begin one element late: elementwise packs, a bias, the factors of a matmul, views, parameters."""
    a, b, bias = book.normal(64, 128, scale=0.1), book.normal(128, 96, scale=0.1), book.normal(96)
    long, half = book.normal(8_193), book.normal(2 * 4 * 16 * 32 + 1, dtype=np.float16)

    def late(array: np.ndarray[Any, Any]) -> Any:
        return st.to(array, GPU) if book.prepares else OnDevice(array, array.itemsize)

    def linear(a: Any, b: Any, bias: Any) -> Any:
        return a @ b + bias

    def tail(big: Any) -> Any:
        return st.tanh(big[1:]) * 2.0, big[1:] @ big[1:]

    def attend(big: Any) -> Any:
        q = st.reshape(big[1:], (2, 4, 16, 32))
        return st.scaled_dot_product_attention(q, q * 0.5, q * 2.0)

    @st.function(target="portable")
    def recursive(data: Any, n: Any) -> Any:
        with with_backend(GPU, data):
            total = _halved(data[1:8193], n)
        return total

    with with_backend(GPU):
        book.check("elementwise", on_device(lambda x: x * 2.0 + 1.0), late(long[1:].copy()), tolerance=F32)
        book.check("elementwise, f16", on_device(lambda x: x * 2.0 + 1.0), late(half[1:].copy()), tolerance=F16)
        book.check("bias", on_device(linear), a, b, late(bias), tolerance=PRODUCT)
        book.check("bias and relu", on_device(lambda *p: st.relu(linear(*p))), a, b, late(bias), tolerance=PRODUCT)
        book.check("left factor", on_device(linear), late(a), b, bias, tolerance=PRODUCT)
        book.check("right factor", on_device(linear), a, late(b), bias, tolerance=PRODUCT)
        book.check("row sums", on_device(lambda x: st.sum(x, axis=1)), late(a), tolerance=SUM)
    book.check("a slice", on_device(tail), long, tolerance=1e-4)
    book.check("a parameter of a function", recursive, book.normal(9_000), 2, tolerance=1e-4)
    book.check("attention of a slice", on_device(attend), half, tolerance=4e-3)


@st.function(target="portable")
def _halved(x: Any, n: Any) -> Any:
    y = x * 2.0 + 1.0
    return st.sum(y) if n <= 0 else _halved(y * 0.5, n - 1) + st.sum(y)


# ---- NaN --------------------------------------------------------------------------------------------


def nan(book: Book) -> None:
    """A NaN stays a NaN: relu, gelu and maxima after matmuls and convolutions, and alone."""
    a, w, b = book.normal(64, 128, scale=0.1), book.normal(128, 96, scale=0.1), book.normal(96)
    x, kernel, offset = book.normal(4, 8, 12, 12), book.normal(16, 8, 3, 3, scale=0.1), book.normal(16)
    wide = book.normal(130, 260)
    a[3, 5] = x[1, 2, 3, 4] = wide[0, 0] = wide[77, 259] = wide[129, 128] = np.nan
    a[9, 9], wide[5, 5] = -np.inf, np.inf

    def gelu(a: Any, w: Any, b: Any) -> Any:
        return st.gelu(a @ w + b, approximate="tanh")

    def maxima(x: Any) -> Any:
        return st.max(x, axis=1), st.max(x, axis=0), st.min(x, axis=1), st.relu(x), st.maximum(x, 0.5), st.max(x)

    book.check("relu of a matmul", on_device(lambda a, w: st.relu(a @ w)), a, w, tolerance=PRODUCT)
    book.check("bias and relu", on_device(lambda a, w, b: st.relu(a @ w + b)), a, w, b, tolerance=PRODUCT)
    book.check("maximum with 0", on_device(lambda a, w, b: st.maximum(a @ w + b, 0.0)), a, w, b, tolerance=PRODUCT)
    book.check("bias and gelu", on_device(gelu), np.nan_to_num(a, nan=np.nan, neginf=-1.0), w, b, tolerance=PRODUCT)
    book.check(
        "convolution, bias and relu", on_device(lambda *p: st.relu(st.conv2d(*p, padding=1))), x, kernel, offset,
        tolerance=PRODUCT,
    )  # fmt: skip
    book.check("maxima and relu", on_device(maxima), wide, tolerance=F32)
    book.check("max-pool", on_device(lambda x: st.max_pool2d(x, 2)), x, tolerance=F32)
    book.check("avg-pool", on_device(lambda x: st.avg_pool2d(x, 2)), x, tolerance=F32)
    epilogues.of_nan(book)


# ---- gradients of weights and biases ----------------------------------------------------------------


def bias_gradients(book: Book) -> None:
    """The gradient of a weight with that of its bias, as one matmul of cublasLt (BGRADA, BGRADB) or as two calls."""
    for rows, inner, columns in [(64, 128, 96), (1, 8, 16), (33, 1, 5), (40, 24, 1), (1000, 768, 10)]:
        x, d_y = book.normal(rows, inner), book.normal(rows, columns, scale=0.1)
        sizes = f"({rows}, {inner}) and ({rows}, {columns})"

        def columns_of_weights(x: Any, d_y: Any) -> Any:
            return x.T @ d_y, st.sum(d_y, axis=0)

        def rows_of_weights(x: Any, d_y: Any) -> Any:
            return d_y.T @ x, st.sum(d_y, axis=0)

        book.check(f"x.T @ d_y, {sizes}", on_device(columns_of_weights), x, d_y, tolerance=5e-5)
        book.check(f"d_y.T @ x, {sizes}", on_device(rows_of_weights), x, d_y, tolerance=5e-5)
    x, w, b, d_y = book.normal(64, 128), book.normal(128, 96, scale=0.1), book.normal(96), book.normal(64, 96)

    def through_relu(x: Any, w: Any, b: Any, d_y: Any) -> Any:
        return st.value_and_grad(lambda w, b: st.sum(st.relu(x @ w + b) * d_y), (0, 1))(w, b)

    book.check("behind relu", on_device(through_relu), x, w, b, d_y, tolerance=5e-5)
    book.check("TF32", on_device(lambda x, d: (x.T @ d, st.sum(d, axis=0)), tf32=True), x, d_y, tolerance=5e-3)
