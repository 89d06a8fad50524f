"""`st.fft`: discrete Fourier transforms, by matrix products and twiddle factors.

A transform of n = r s elements is r s-point transforms and s r-point ones with a twiddle factor between them (Cooley
and Tukey). The elements are the rows of a matrix, the transforms its columns, so that a short transform is one product
of matrices, which the back ends do best, and the transposition between two steps leaves the result in order (Stockham):

    (r, s c)  --F(r) @-->  (r, s, c)  --twiddle, transpose-->  (s, r c)  --s-point-->  (s, r, c) = (n, c)

Lengths with a large prime factor go by a convolution with a chirp (Bluestein), as do those that the program finds. Real
transforms of even length are complex ones of half the length. All of it is written in ops, so that derivatives,
batching and devices follow.

Tables are computed in f64 and rounded once. Source: Van Loan, Computational Frameworks for the Fast Fourier Transform.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Literal
from weakref import WeakValueDictionary

import numpy as np

from staged.errors import StagedValueError
from staged.ir.sizes import Extent, bounds_of, smallest
from staged.ir.types import DType, f32, f64
from staged.library.elementwise.complex_numbers import (
    complex_,
    conj,
    imag,
    join,
    parts,
    real,
    view_as_complex,
    view_as_real,
)
from staged.ops.array import Array
from staged.ops.checks import check_sizes
from staged.ops.choice import where
from staged.ops.contraction import matrix_product
from staged.ops.dimension import as_extent, real_number
from staged.ops.elementwise import cos, minimum, multiply, sin, sqrt
from staged.ops.index import take
from staged.ops.joining import concat, roll
from staged.ops.promote import (
    as_array,
    as_float,
    axes_of,
    axis_of,
    cast,
    check_argument,
    check_dtype,
    check_real,
)
from staged.ops.public import public
from staged.ops.shape import flip, moveaxis, pad, permute_dims, reshape, slice_axis
from staged.ops.source import arange, check_device, iota

_LARGEST = 64
"""The longest transform that is one product with a matrix, and the largest prime factor that is no chirp."""
_PASS = 16
"""The cost of a step beside its product, in rows: the twiddle factors and the transposition."""
_NORMS = ("backward", "ortho", "forward")

# ---- tables -----------------------------------------------------------------------------------------

TableKind = Literal["matrix", "twiddles", "chirp", "kernel", "real", "real inverse"]
_tables: WeakValueDictionary[Any, np.ndarray[Any, Any]] = WeakValueDictionary()
"""By what they are: the tables that programs hold. One that only a trace holds becomes a constant of an export."""


def _roots(exponents: np.ndarray[Any, Any], n: int) -> np.ndarray[Any, Any]:
    """exp(-2 pi i k / n) for integers k, exact at quarters of a turn."""
    exponents = exponents % n
    quarter, rest = np.divmod(4 * exponents, n)
    angle = (np.pi / 2.0) * (rest / n)
    return np.asarray((np.cos(angle) - 1j * np.sin(angle)) * np.array([1, -1j, -1, 1j])[quarter])


def _table(kind: TableKind, key: tuple[Any, ...], make: Any, dtype: DType) -> Array:
    """A complex table, of two real arrays of `dtype`."""
    found = []
    for part in ("real", "imag"):
        name = kind, key, part, dtype.name
        array = _tables.get(name)
        if array is None:
            array = _tables[name] = np.ascontiguousarray(getattr(make(), part)).astype(dtype.numpy)
        found.append(as_array(array))
    return join(*found)


def _matrix(n: int, sign: int, scale: float, dtype: DType) -> Array:
    def make() -> np.ndarray[Any, Any]:
        k = np.arange(n)
        return scale * _roots(sign * np.multiply.outer(k, k), n)

    return _table("matrix", (n, sign, scale), make, dtype)


def _twiddles(r: int, s: int, sign: int, dtype: DType) -> Array:
    """The factors between r-point and s-point transforms: (r, s, 1)."""

    def make() -> np.ndarray[Any, Any]:
        return _roots(sign * np.multiply.outer(np.arange(r), np.arange(s)), r * s)[..., None]

    return _table("twiddles", (r, s, sign), make, dtype)


@cache
def _factors(n: int) -> tuple[int, ...]:
    """The prime factors."""
    found, divisor = [], 2
    while divisor * divisor <= n:
        while n % divisor == 0:
            found.append(divisor)
            n //= divisor
        divisor += 1
    return (*found, n) if n > 1 else tuple(found)


@cache
def _plan(n: int) -> tuple[int, ...]:
    """The lengths of the steps: those whose products are cheapest."""
    best: tuple[float, tuple[int, ...]] = (n + _PASS, (n,))
    for r in range(2, min(_LARGEST, n // 2) + 1):
        if n % r == 0:
            rest = _plan(n // r)
            cost = r + _PASS + sum(rest) + _PASS * len(rest)
            if rest[0] <= r and cost < best[0] and max(rest) <= _LARGEST:
                best = cost, (r, *rest)
    return best[1]


# ---- one axis -----------------------------------------------------------------------------------------


def _product(matrix: Array, z: Array) -> Array:
    """The product with real or complex columns."""
    if z.dtype.is_complex:
        return matrix_product(matrix, z)
    re, im = parts(matrix)
    return join(matrix_product(re, z), matrix_product(im, z))


def _columns(z: Array, sign: int, scale: Any = 1.0) -> Array:
    """The transforms of the columns of a matrix, times `scale`."""
    n, width = z.shape
    dtype = z.dtype.part
    if not isinstance(n, int) or n == 1:
        found = z if z.dtype.is_complex else complex_(z)
        return multiply(found if isinstance(n, int) else _chirp_of_size(found, n, sign), scale)
    if max(_factors(n)) > _LARGEST:
        return _chirp(z, sign, scale)
    r = _plan(n)[0]
    if r == n:
        return _product(_matrix(n, sign, scale, dtype), z)
    s = n // r
    first = _product(_matrix(r, sign, scale, dtype), reshape(z, (r, s * width)))
    turned = reshape(first, (r, s, width)) * _twiddles(r, s, sign, dtype)
    return reshape(_columns(reshape(permute_dims(turned, (1, 0, 2)), (s, r * width)), sign), (n, width))


def _chirp(z: Array, sign: int, scale: float) -> Array:
    """Bluestein's algorithm: jk is (j^2 + k^2 - (k - j)^2) / 2, so the transform is a convolution with a chirp."""
    n = z.shape[0]
    assert isinstance(n, int)
    size, dtype = 1 << (2 * n - 2).bit_length(), z.dtype.part

    def chirp() -> np.ndarray[Any, Any]:
        k = np.arange(n)
        return _roots(sign * (k * k % (2 * n)), 2 * n)[:, None]

    def kernel() -> np.ndarray[Any, Any]:
        turns = chirp().conj()
        around = np.zeros((size, 1), complex)
        around[:n] = turns
        around[size - n + 1 :] = turns[:0:-1]
        return np.fft.fft(around, axis=0) * (scale / size)

    turns = _table("chirp", (n, sign), chirp, dtype)
    spectrum = _columns(pad(z * turns, ((0, size - n), (0, 0))), 1)
    product = _columns(spectrum * _table("kernel", (n, sign, scale), kernel, dtype), -1)
    return slice_axis(product, 0, 0, n) * turns


def _chirp_of_size(z: Array, n: Extent, sign: int) -> Array:
    """Bluestein's algorithm for a length that the program finds: its convolution has the largest length."""
    size = 1 << (2 * int(bounds_of(n)[1]) - 2).bit_length()

    def chirp(k: Any) -> Array:
        return reshape(_computed_roots(k * k * sign, 2 * n, z.dtype.part), (-1, 1))

    turns, places = chirp(iota((n,), 0)), iota((size,), 0)
    away = minimum(places, size - places)
    around = where(reshape(away < n, (-1, 1)), conj(chirp(away)), 0.0)
    spectrum = _columns(pad(z * turns, ((0, size - n), (0, 0))), 1)
    product = _columns(spectrum * _columns(around, 1), -1, 1.0 / size)
    return slice_axis(product, 0, 0, n) * turns


def _computed_roots(exponents: Array, n: Extent, dtype: DType) -> Array:
    """`_roots`, computed by the program."""
    angle = cast(exponents % n, f64) * (-2.0 * math.pi / n)
    return join(cast(cos(angle), dtype), cast(sin(angle), dtype))


def _along(z: Array, axis: int, sign: int, scale: float | Array) -> Array:
    """The transforms along an axis."""
    first = moveaxis(z, axis, 0)
    rows = reshape(first, (first.shape[0], math.prod(first.shape[1:])))
    turned = _columns(rows, sign, scale)
    return moveaxis(reshape(turned, first.shape), 0, axis)


def _to_length(z: Array, axis: int, n: Extent) -> Array:
    """The first n elements along an axis, with zeros where there are fewer."""
    kept = smallest(z.shape[axis], n)
    z = slice_axis(z, axis, 0, kept)
    return z if kept == n else pad(z, [(0, n - kept if each == axis else 0) for each in range(z.ndim)])


def _scale(name: str, n: Extent, norm: str | None, inverse: bool) -> float | Array:
    norm = norm or "backward"
    check_argument(norm in _NORMS, f"{name}: norm is one of {', '.join(map(repr, _NORMS))}, got {norm!r}")
    if norm == "ortho":
        return 1.0 / (math.sqrt(n) if isinstance(n, int) else sqrt(real_number(n)))
    return 1.0 / n if (norm == "backward") == inverse else 1.0


def _prepared(name: str, x: Any, n: Any, axis: int, is_half: bool = False) -> tuple[Array, int, Extent]:
    """The array, its axis, and the length of the transform."""
    array = as_float(x)
    place = axis_of(axis, array.ndim, name)
    extent = array.shape[place]
    return array, place, _length(name, (2 * (extent - 1) if is_half else extent) if n is None else n)


def _length(name: str, n: Any) -> Extent:
    length, message = as_extent(n), f"{name} needs a length of at least 1, got {n}"
    check_argument(length is not None, message)
    assert length is not None
    check_sizes(length > 0, message, error=StagedValueError)
    return length


def _transform(name: str, x: Any, n: int | None, axis: int, norm: str | None, inverse: bool) -> Array:
    array, place, length = _prepared(name, x, n, axis)
    scale = _scale(name, length, norm, inverse)
    return _along(_to_length(array, place, length), place, -1 if inverse else 1, scale)


def _of_real(name: str, x: Any, n: int | None, axis: int, norm: str | None) -> Array:
    array, place, length = _prepared(name, x, n, axis)
    check_real(name, array)
    scale = _scale(name, length, norm, False)
    array = _to_length(array, place, length)
    if not isinstance(length, int) or length % 2 or length == 2:
        return slice_axis(_along(array, place, 1, scale), place, 0, length // 2 + 1)
    half = length // 2
    rows = moveaxis(array, place, -1)
    packed = _along(view_as_complex(reshape(rows, (*rows.shape[:-1], half, 2))), array.ndim - 1, 1, scale)
    last = packed.ndim - 1
    packed = concat([packed, slice_axis(packed, last, 0, 1)], last)
    mirrored = conj(flip(packed, last))
    turns = _table("real", (length,), lambda: -0.5j * _roots(np.arange(half + 1), length), array.dtype)
    return moveaxis((packed + mirrored) * 0.5 + (packed - mirrored) * turns, -1, place)


def _to_real(name: str, x: Any, n: int | None, axis: int, norm: str | None) -> Array:
    array, place, length = _prepared(name, x, n, axis, True)
    scale = _scale(name, length, norm, True)
    half = length // 2
    rows = moveaxis(_to_length(array, place, half + 1), place, -1)
    last = rows.ndim - 1
    re, im = real(rows), imag(rows)
    if not isinstance(length, int):
        number = iota((length,), 0)
        mirror = minimum(number, length - number)
        im = take(im, mirror, last) * where(2 * number > length, -1.0, 1.0)
        whole = join(take(re, mirror, last), where((mirror == 0) | (2 * mirror == length), 0.0, im))
        return moveaxis(real(_along(whole, last, -1, scale)), -1, place)
    half = length // 2
    # The spectrum of real numbers is real at 0, and at the middle: imaginary parts there count as 0.
    within = slice_axis(im, last, 1, half + length % 2)
    ends = (1, 1 - length % 2)
    im = pad(within, [(0, 0)] * last + [ends])
    if length % 2 or length == 2:
        mirrored = flip(slice_axis(re, last, 1, half + length % 2), last)
        whole = join(concat([re, mirrored], last), concat([im, -flip(within, last)], last))
        return moveaxis(real(_along(whole, last, -1, scale)), -1, place)
    rows = join(re, im)
    mirrored = conj(flip(rows, last))
    turns = _table("real inverse", (length,), lambda: 1j * _roots(-np.arange(half + 1), length), re.dtype)
    packed = slice_axis((rows + mirrored) + (rows - mirrored) * turns, last, 0, half)
    pairs = view_as_real(_along(packed, last, -1, scale))
    return moveaxis(reshape(pairs, (*rows.shape[:-1], length)), -1, place)


_OTHER = {"backward": "forward", None: "forward", "forward": "backward"}


@public("fft.fft")
def fft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The discrete Fourier transform along an axis. NumPy, torch and Array API `fft.fft`.

    sum over j of x[j] exp(-2 pi i j k / n); c64 of f32 and c64, c128 of f64 and c128. `n` cuts x, or fills it up with
    zeros. `norm` is "backward" (the inverse is divided by n), "ortho" (both by its root) or "forward".
    """
    return _transform("fft.fft", x, n, axis, norm, False)


@public("fft.ifft")
def ifft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft.fft`. NumPy, torch and Array API `fft.ifft`."""
    return _transform("fft.ifft", x, n, axis, norm, True)


@public("fft.rfft")
def rfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The first n // 2 + 1 elements of the transform of real numbers: the others follow. `fft.rfft` of NumPy."""
    return _of_real("fft.rfft", x, n, axis, norm)


@public("fft.irfft")
def irfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft.rfft`: n real numbers, by default 2 (m - 1) of m elements. `fft.irfft` of NumPy.

    Imaginary parts of the first element, and of the middle one of an even n, count as 0.
    """
    return _to_real("fft.irfft", x, n, axis, norm)


@public("fft.hfft")
def hfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The transform of a signal whose spectrum is real, of its first half: n real numbers. `fft.hfft` of NumPy."""
    return _to_real("fft.hfft", conj(as_float(x)), n, axis, _OTHER.get(norm, norm))


@public("fft.ihfft")
def ihfft(x: Any, n: int | None = None, axis: int = -1, norm: str | None = None) -> Array:
    """The inverse of `fft.hfft`. `fft.ihfft` of NumPy."""
    return conj(_of_real("fft.ihfft", x, n, axis, _OTHER.get(norm, norm)))


# ---- several axes -------------------------------------------------------------------------------------


def _sizes(name: str, array: Array, s: Any, axes: Any) -> list[tuple[int, int | None]]:
    """(axis, length or None) for each axis, in the order that they are named in."""
    if axes is None:
        axes = range(array.ndim) if s is None else range(array.ndim - len(s), array.ndim)
    places = [axis_of(axis, array.ndim, name) for axis in axes]
    check_argument(len(set(places)) == len(places), f"{name}: an axis is named twice in {tuple(axes)}")
    check_argument(
        s is None or len(s) == len(places), f"{name}: `s` has a length for each axis, got {s} for {tuple(axes)}"
    )
    check_argument(bool(places), f"{name} needs an axis")
    lengths = [None] * len(places) if s is None else [None if as_extent(one) == -1 else one for one in s]
    return list(zip(places, lengths, strict=True))


def _over(name: str, x: Any, s: Any, axes: Any, norm: str | None, inverse: bool) -> Array:
    array = as_float(x)
    for axis, length in reversed(_sizes(name, array, s, axes)):
        array = _transform(name, array, length, axis, norm, inverse)
    return array


@public("fft.fftn")
def fftn(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The transform along several axes (None: all of them), to lengths `s`. `fft.fftn` of NumPy."""
    return _over("fft.fftn", x, s, axes, norm, False)


@public("fft.ifftn")
def ifftn(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `fft.fftn`. `fft.ifftn` of NumPy."""
    return _over("fft.ifftn", x, s, axes, norm, True)


@public("fft.rfftn")
def rfftn(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The transform of real numbers along several axes: half of the last one. `fft.rfftn` of NumPy."""
    array = as_float(x)
    *others, (last, length) = _sizes("fft.rfftn", array, s, axes)
    array = _of_real("fft.rfftn", array, length, last, norm)
    for axis, extent in reversed(others):
        array = _transform("fft.rfftn", array, extent, axis, norm, False)
    return array


@public("fft.irfftn")
def irfftn(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] | None = None, norm: str | None = None) -> Array:
    """The inverse of `fft.rfftn`. `fft.irfftn` of NumPy."""
    array = as_float(x)
    *others, (last, length) = _sizes("fft.irfftn", array, s, axes)
    for axis, extent in others:
        array = _transform("fft.irfftn", array, extent, axis, norm, True)
    return _to_real("fft.irfftn", array, length, last, norm)


@public("fft.fft2")
def fft2(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """`fft.fftn` over two axes. `fft.fft2` of NumPy."""
    return fftn(x, s, axes, norm)


@public("fft.ifft2")
def ifft2(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """`fft.ifftn` over two axes. `fft.ifft2` of NumPy."""
    return ifftn(x, s, axes, norm)


@public("fft.rfft2")
def rfft2(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """`fft.rfftn` over two axes. `fft.rfft2` of NumPy."""
    return rfftn(x, s, axes, norm)


@public("fft.irfft2")
def irfft2(x: Any, s: Sequence[int] | None = None, axes: Sequence[int] = (-2, -1), norm: str | None = None) -> Array:
    """`fft.irfftn` over two axes. `fft.irfft2` of NumPy."""
    return irfftn(x, s, axes, norm)


# ---- frequencies and shifts ---------------------------------------------------------------------------


def _frequencies(name: str, n: Extent, d: float, dtype: Any, device: Any, start: Extent, stop: Extent) -> Array:
    check_device(device, name)
    wanted = check_dtype(f32 if dtype is None else dtype)
    return cast(arange(start, stop, dtype=np.float64) * (1.0 / (real_number(n) * d)), wanted)


@public("fft.fftfreq")
def fftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the elements of an `fft` of samples `d` apart; f32 by default. Array API `fft.fftfreq`."""
    count = _length("fft.fftfreq", n)
    frequencies = _frequencies("fft.fftfreq", count, d, dtype, device, -(count // 2), (count + 1) // 2)
    return roll(frequencies, (count + 1) // 2)


@public("fft.rfftfreq")
def rfftfreq(n: int, d: float = 1.0, *, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the elements of an `rfft` of samples `d` apart; f32 by default. Array API `fft.rfftfreq`."""
    count = _length("fft.rfftfreq", n)
    return _frequencies("fft.rfftfreq", count, d, dtype, device, 0, count // 2 + 1)


@public("fft.fftshift")
def fftshift(x: Any, axes: int | Sequence[int] | None = None) -> Array:
    """`x` with frequency 0 in the middle of the axes (None: all of them). Array API `fft.fftshift`."""
    array = as_array(x)
    for axis in axes_of(axes if not isinstance(axes, list) else tuple(axes), array.ndim, "fft.fftshift"):
        array = roll(array, array.shape[axis] // 2, axis)
    return array


@public("fft.ifftshift")
def ifftshift(x: Any, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fft.fftshift`. Array API `fft.ifftshift`."""
    array = as_array(x)
    for axis in axes_of(axes if not isinstance(axes, list) else tuple(axes), array.ndim, "fft.ifftshift"):
        array = roll(array, -(array.shape[axis] // 2), axis)
    return array
