"""Complex numbers: made of two real arrays and taken apart again, and what the arithmetic ops are on them.

Three primitives know complex numbers: `from_parts`, `real_part` and `imag_part`. Ops that move or add elements
(`by_parts` in their declaration) do so with complex ones, too. Every other op that has a meaning for complex numbers
has a *form*: a function of handles that `bind` calls instead of the op, and which is written in ops on the parts:

    @complex_form(prims.MULTIPLY)
    def _multiply(z, w): ...

So derivatives need no rule for complex numbers: those of the parts are right. The gradient of a real loss L by z is
dL/d(re z) + i dL/d(im z), the direction of steepest ascent, as in torch (JAX has its conjugate). `split_complex` turns
what is left of complex values into pairs of floats, before any back end sees them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.declaration import prims
from staged.ir.op_table import entered
from staged.ir.types import COMPLEX_OF, DType, TensorType, bool_, f32, f64
from staged.library.special.elementary import hypot
from staged.ops.array import Array
from staged.ops.choice import select, stop_gradient, zeros_of
from staged.ops.comparisons import logical_and, logical_or, not_equal
from staged.ops.composite import composite
from staged.ops.context import COMPLEX_FORMS, bind
from staged.ops.contraction import matrix_product
from staged.ops.elementwise import abs_, atan2, cos, isfinite, isinf, isnan, maximum, sin, sqrt
from staged.ops.joining import stack
from staged.ops.primitive import BadSample, Primitive, Sample, primitive, same_attrs
from staged.ops.promote import as_array, cast, dtype_error, promoted, together
from staged.ops.public import public
from staged.ops.shape import slice_axis, squeeze

Form = Callable[..., Array]

# ---- the primitives -------------------------------------------------------------------------------


def _infer_complex(re: TensorType, im: TensorType) -> TensorType:
    if not re.dtype.is_float:
        raise DTypeError(f"from_parts needs floats, got {re}", hint="cast it: `st.astype(x, st.f32)`")
    if re.dtype is not im.dtype or re.weak != im.weak:
        raise DTypeError(f"from_parts needs operands of one dtype, got {re} and {im}", hint="cast one of them")
    if re.shape != im.shape:
        raise ShapeError(f"from_parts needs operands of one shape, got {re} and {im}")
    return TensorType(COMPLEX_OF[re.dtype], re.shape, re.weak)


def _join(re: np.ndarray[Any, Any], im: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    z = np.empty(re.shape, np.result_type(re.dtype, np.complex64))
    z.real, z.imag = re, im
    return z


def _complex_jvp(tangents: Sequence[Any], y: Array, operands: Sequence[Array]) -> Array:
    re, im = (zeros_of(x) if t is None else t for t, x in zip(tangents, operands, strict=True))
    return join(re, im)


_join_op: Primitive = primitive(
    name="from_parts",
    by_parts=True,
    kind="elementwise",
    harmless=True,
    infer=_infer_complex,
    reference=_join,
    vjp=lambda ct, y, re, im: list(parts(ct)),
    jvp=_complex_jvp,
    samples=[Sample((shape, shape), differentiate=()) for shape in ((2, 3), (), (0, 4))],
    bad=[
        BadSample((TensorType(bool_, (3,)),) * 2, DTypeError, "needs floats"),
        BadSample((TensorType(f32, (3,)), TensorType(f64, (3,))), DTypeError, "one dtype"),
        BadSample((TensorType(f32, (3,)), TensorType(f32, (2,))), ShapeError, "one shape"),
    ],
    doc="The complex numbers of these real and imaginary parts.",
)


def _infer_part(name: str) -> Callable[[TensorType], TensorType]:
    def infer(z: TensorType) -> TensorType:
        if not z.dtype.is_complex:
            raise DTypeError(f"{name} is of complex numbers, got {z}")
        return TensorType(z.dtype.part, z.shape, z.weak)

    return infer


_SOME = np.array([[1.0 + 2.0j, -0.5j, 3.0], [0.25 - 1.0j, -2.0, 1.5 + 0.5j]], np.complex64)

_real_op: Primitive = primitive(
    name="real_part",
    by_parts=True,
    kind="elementwise",
    harmless=True,
    infer=_infer_part("real_part"),
    reference=lambda z: np.array(z.real),
    vjp=lambda ct, y, z: [join(ct, zeros_of(ct))],
    jvp=lambda tangents, y, operands: parts(tangents[0])[0],
    shift=same_attrs,
    samples=[Sample((_SOME,), differentiate=())],
    bad=[BadSample((TensorType(f32, (3,)),), DTypeError, "of complex numbers")],
    doc="The real part.",
)
_imag_op: Primitive = primitive(
    name="imag_part",
    by_parts=True,
    kind="elementwise",
    harmless=True,
    infer=_infer_part("imag_part"),
    reference=lambda z: np.array(z.imag),
    vjp=lambda ct, y, z: [join(zeros_of(ct), ct)],
    jvp=lambda tangents, y, operands: parts(tangents[0])[1],
    shift=same_attrs,
    samples=[Sample((_SOME,), differentiate=())],
    bad=[BadSample((TensorType(f32, (3,)),), DTypeError, "of complex numbers")],
    doc="The imaginary part.",
)


def join(re: Array, im: Array) -> Array:
    """The primitive: parts of one float dtype and shape."""
    return bind(_join_op, [re, im])


def parts(z: Array) -> tuple[Array, Array]:
    """The real and the imaginary part of a complex array."""
    return bind(_real_op, [z]), bind(_imag_op, [z])


# ---- public ---------------------------------------------------------------------------------------


@public("complex", numpy=None)
def complex_(real: Any, imag: Any = 0.0) -> Array:
    """The complex numbers `real + i imag`; c64 of f32, c128 of f64. torch `complex`.

    Shapes broadcast, dtypes promote. Raises DTypeError for complex parts.
    """
    re, im = together(real, imag, name="complex", floats=True)
    if re.dtype.is_complex:
        raise dtype_error(f"complex is made of real numbers, got {re.type}", re, hint="add them: `a + 1j * b`")
    return join(re, im)


@public("real")
def real(x: Any) -> Array:
    """The real part; of real numbers themselves. Array API `real`."""
    (array,) = promoted(x)
    return bind(_real_op, [array]) if array.dtype.is_complex else array


@public("imag")
def imag(x: Any) -> Array:
    """The imaginary part; of real numbers zeros. Array API `imag`."""
    (array,) = promoted(x)
    return bind(_imag_op, [array]) if array.dtype.is_complex else zeros_of(array)


@public("conj", method=True, numpy=("conjugate",), torch=("conj_physical",))
def conj(x: Any) -> Array:
    """The complex conjugate; of real numbers themselves. Array API `conj`."""
    (array,) = promoted(x)
    if not array.dtype.is_complex:
        return array
    re, im = parts(array)
    return join(re, -im)


@public("angle", method=True)
def angle(x: Any) -> Array:
    """The argument of complex numbers, from -pi to pi; 0 or pi of real ones, NaN of NaN. NumPy and torch `angle`."""
    (array,) = promoted(x, floats=True)
    if array.dtype.is_complex:
        re, im = parts(array)
        return atan2(im, re)
    flat = zeros_of(array)
    return select(isnan(array), array, select(array < 0, flat + np.pi, flat))


@public("polar", numpy=None)
def polar(abs: Any, angle: Any) -> Array:
    """The complex numbers with these absolute values and angles. torch `polar`."""
    size, turn = together(abs, angle, name="polar", floats=True)
    if size.dtype.is_complex:
        raise dtype_error(f"polar takes real numbers, got {size.type}", size)
    return join(size * cos(turn), size * sin(turn))


@public("view_as_real", method=True, numpy=None)
def view_as_real(x: Any) -> Array:
    """The real and the imaginary parts along a new last axis: (...) -> (..., 2). torch `view_as_real`."""
    array = as_array(x)
    if not array.dtype.is_complex:
        raise dtype_error(f"view_as_real is of complex numbers, got {array.type}", array)
    return stack(list(parts(array)), array.ndim)


@public("view_as_complex", method=True, numpy=None)
def view_as_complex(x: Any) -> Array:
    """The complex numbers whose parts are along the last axis: (..., 2) -> (...). torch `view_as_complex`."""
    array = as_array(x)
    if not array.dtype.is_float or not array.ndim or array.shape[-1] != 2:
        raise dtype_error(f"view_as_complex needs floats with a last axis of 2, got {array.type}", array)
    re, im = (squeeze(slice_axis(array, array.ndim - 1, part, part + 1), -1) for part in (0, 1))
    return join(re, im)


@public("is_complex", method=True, numpy=("iscomplexobj",))
def is_complex(x: Any) -> bool:
    """Return whether an array has a complex dtype, which is known while staging. torch `is_complex`."""
    return as_array(x).dtype.is_complex


# ---- forms ----------------------------------------------------------------------------------------


def complex_form(op: Primitive) -> Callable[[Form], Form]:
    """Enter what a primitive is on complex operands: `f(*operands, **attrs)`."""
    return entered(COMPLEX_FORMS, op)


def _apart(x: Array) -> tuple[Array, Array | None]:
    """The parts; of a real array itself, and None."""
    return parts(x) if x.dtype.is_complex else (x, None)


def _sum_of(a: Array | None, b: Array | None, minus: bool) -> Array:
    if b is None:
        assert a is not None
        return a
    if a is None:
        return -b if minus else b
    return a - b if minus else a + b


@complex_form(prims.NEGATIVE)
def _negative(z: Array) -> Array:
    re, im = parts(z)
    return join(-re, -im)


@complex_form(prims.ADD)
def _add(z: Array, w: Array) -> Array:
    (a, b), (c, d) = _apart(z), _apart(w)
    return join(_sum_of(a, c, False), _sum_of(b, d, False))


@complex_form(prims.SUBTRACT)
def _subtract(z: Array, w: Array) -> Array:
    (a, b), (c, d) = _apart(z), _apart(w)
    return join(_sum_of(a, c, True), _sum_of(b, d, True))


@complex_form(prims.MULTIPLY)
def _multiply(z: Array, w: Array) -> Array:
    """By the definition, as in NumPy: an infinity may give NaN, which C's Annex G repairs."""
    (a, b), (c, d) = _apart(z), _apart(w)
    if b is None or d is None:
        (scale, scaled) = (a, (c, d)) if b is None else (c, (a, b))
        return join(*(scale * part for part in scaled if part is not None))
    return join(a * c - b * d, a * d + b * c)


@complex_form(prims.SQUARE)
def _square(z: Array) -> Array:
    a, b = parts(z)
    product = a * b
    return join((a - b) * (a + b), product + product)


@complex_form(prims.DIVIDE)
def _divide(z: Array, w: Array) -> Array:
    """By Smith's algorithm, as in NumPy: no square of a part leaves the range."""
    (a, b), (c, d) = _apart(z), _apart(w)
    if d is None:
        assert b is not None
        return join(a / c, b / c)
    (result,) = _quotient(z if b is not None else join(a, zeros_of(a)), w)
    return result


@composite("complex_divide", slopes=[lambda t, y, z, w: t / w, lambda t, y, z, w: -(t * (y / w))], takes_complex=True)
def _quotient(z: Array, w: Array) -> Array:
    (a, b), (c, d) = parts(z), parts(w)
    upright = abs_(c) >= abs_(d)
    longer, shorter = select(upright, c, d), select(upright, d, c)
    ratio = shorter / select(longer == 0, longer + 1.0, longer)
    scale = 1.0 / (longer + shorter * ratio)
    first, second = select(upright, a, b), select(upright, b, a)
    im = (second - first * ratio) * scale
    return join((first + second * ratio) * scale, select(upright, im, -im))


@complex_form(prims.ABS)
def _abs(z: Array) -> Array:
    return hypot(*parts(z))


@complex_form(prims.SIGN)
def _sign(z: Array) -> Array:
    """z / abs(z), 0 at 0, and the direction of a single infinite part."""
    a, b = parts(z)
    absolute = abs_
    # The length of the longer part is a constant to derivatives: the direction does not depend on it.
    longer = stop_gradient(maximum(absolute(a), absolute(b)))
    at_zero = longer == 0
    scale = select(at_zero, longer + 1.0, longer)

    def scaled(part: Array, other: Array) -> Array:
        alone = logical_and(isinf(part), isfinite(other))
        found = select(alone, select(part > 0, zeros_of(part) + 1.0, zeros_of(part) - 1.0), part / scale)
        return select(at_zero, zeros_of(part), found)

    re, im = scaled(a, b), scaled(b, a)
    size = sqrt(select(at_zero, scale, re * re + im * im))
    return join(re / size, im / size)


@complex_form(prims.EQUAL)
def _equal(z: Array, w: Array) -> Array:
    (a, b), (c, d) = parts(z), parts(w)
    return logical_and(a == c, b == d)


@complex_form(prims.NOT_EQUAL)
def _not_equal(z: Array, w: Array) -> Array:
    (a, b), (c, d) = parts(z), parts(w)
    return logical_or(not_equal(a, c), not_equal(b, d))


@complex_form(prims.ISNAN)
def _isnan(z: Array) -> Array:
    a, b = parts(z)
    return logical_or(isnan(a), isnan(b))


@complex_form(prims.ISINF)
def _isinf(z: Array) -> Array:
    a, b = parts(z)
    return logical_or(isinf(a), isinf(b))


@complex_form(prims.ISFINITE)
def _isfinite(z: Array) -> Array:
    a, b = parts(z)
    return logical_and(isfinite(a), isfinite(b))


@complex_form(prims.CAST)
def _cast(z: Array, dtype: DType, weak: bool = False) -> Array:
    a, b = parts(z)
    if dtype.is_complex:
        return join(cast(a, dtype.part, weak), cast(b, dtype.part, weak))
    if dtype.is_bool:
        return logical_or(not_equal(a, 0), not_equal(b, 0))
    raise dtype_error(
        f"a complex array becomes no {dtype}: its imaginary part would be lost",
        z,
        hint="take `st.real(x)`, `st.imag(x)` or `st.abs(x)`",
    )


@complex_form(prims.PAD)
def _pad(z: Array, low: Any, high: Any, value: Any) -> Array:
    a, b = parts(z)
    filler = complex(value)
    re, im = (
        bind(prims.PAD, [part], low=low, high=high, value=number)
        for part, number in ((a, filler.real), (b, filler.imag))
    )
    return join(re, im)


@complex_form(prims.MATMUL)
def _matmul(z: Array, w: Array, transpose_a: bool = False, transpose_b: bool = False) -> Array:
    """Four products of the parts, which are what a product of complex matrices computes."""

    def product(x: Array, y: Array) -> Array:
        return matrix_product(x, y, transpose_a, transpose_b)

    (a, b), (c, d) = parts(z), parts(w)
    return join(product(a, c) - product(b, d), product(a, d) + product(b, c))
