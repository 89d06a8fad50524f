"""Convolution and correlation of vectors, by NumPy's names."""

from __future__ import annotations

from typing import Any

from staged.ir.sizes import surely
from staged.library.elementwise.complex_numbers import conj
from staged.library.pooling.convolution import conv1d
from staged.ops.array import Array
from staged.ops.assumptions import decide
from staged.ops.checks import check_sizes
from staged.ops.index import take
from staged.ops.promote import check_argument, promoted, shape_error
from staged.ops.public import public
from staged.ops.record import in_range
from staged.ops.shape import expand_dims, flip, pad_axis, reshape, slice_axis
from staged.ops.source import arange


@public("convolve")
def convolve(a: Any, v: Any, mode: str = "full") -> Array:
    """The sums of a[i] * v[k - i] for each k, of two vectors. NumPy `convolve`.

    "full" has all n + m - 1 sums, "same" as many as the longer vector has elements, "valid" those without zeros beyond
    the ends. For long vectors `st.fft` is faster.
    """
    x, y = promoted(a, v)
    return _convolved("convolve", x, y, mode)


@public("correlate")
def correlate(a: Any, v: Any, mode: str = "valid") -> Array:
    """The sums of a[i + k] * conj(v[i]) for each k, of two vectors. NumPy `correlate`; modes as in `convolve`."""
    x, y = promoted(a, v)
    return _convolved("correlate", x, flip(conj(y) if y.dtype.is_complex else y), mode)


def _convolved(name: str, x: Array, y: Array, mode: str) -> Array:
    check_argument(mode in ("full", "same", "valid"), f'{name}: mode is "full", "same" or "valid", got {mode!r}')
    if x.ndim != 1 or y.ndim != 1:
        raise shape_error(
            f"{name}: operands must be two vectors, got {x.type} and {y.type}", hint="use `st.conv1d` for batches"
        )
    n, m = x.shape[0], y.shape[0]
    if n == 0 or m == 0:
        raise shape_error(
            f"{name}: operands must be vectors with elements, got {x.type} and {y.type}", hint="check the size before"
        )
    decide(n >= m)
    is_swapped = surely(lambda: m > n)
    if is_swapped:
        x, y, n, m = y, x, m, n
    check_sizes(m > 0, f"{name}: operands must be vectors with elements, got {x.type} and {y.type}")
    check_sizes(n >= m, f"{name}: the second vector must not be longer than the first, got {x.type} and {y.type}")
    padding = 0 if mode == "valid" else m - 1
    if x.dtype.is_float and isinstance(m, int):
        found = reshape(conv1d(reshape(x, (1, 1, n)), reshape(flip(y), (1, 1, m)), padding=padding), (-1,))
    else:  # convolutions of images are of floats alone, and their kernels have static sizes
        places = expand_dims(arange(n + 2 * padding - m + 1), 1) + arange(m)
        with in_range():
            found = take(pad_axis(x, 0, padding, padding, 0), places, 0) @ flip(y)
    if mode != "same":
        return found
    start = m // 2 if is_swapped and name == "correlate" else (m - 1) // 2
    return slice_axis(found, 0, start, start + n)
