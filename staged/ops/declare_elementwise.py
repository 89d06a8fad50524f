"""Declares elementwise ops: one result element from the operands' elements at the same place.

The primitives take operands of one type (shape, dtype, weakness); the public functions promote and broadcast first.
Since the derivative is diagonal, one rule per operand, linear in `t`, serves as vjp (t: cotangent) and jvp (t:
tangent).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError
from staged.ir.nodes import PURE
from staged.ir.types import ALL_DTYPES, INTEGER_DTYPES, NUMBER_DTYPES, DType, TensorType, bool_, f32, f64, i32, i64
from staged.ops.array import Array
from staged.ops.context import bind
from staged.ops.primitive import BadSample, Sample, Slope, diagonal, primitive
from staged.ops.promote import promoted, together
from staged.ops.public import public
from staged.ops.wide_numbers import comparable

Unary = Callable[[Any], Array]
Binary = Callable[[Any, Any], Array]

FLOATS = ("f",)
INEXACT = ("f", "c")
INTEGERS = ("i", "u")
NUMBERS = ("f", "i", "u")
NUMERIC = (*NUMBERS, "c")
BOOLS = ("b",)
ANY = ("f", "i", "u", "b")

_WORDS = {FLOATS: "floats", INTEGERS: "integers", NUMBERS: "numbers", BOOLS: "bools", ANY: "any dtype"}
_WORDS |= {INEXACT: _WORDS[FLOATS], NUMERIC: _WORDS[NUMBERS]}
SAMPLE_DTYPES = {
    **dict.fromkeys((FLOATS, INEXACT), (f32, f64)),
    INTEGERS: INTEGER_DTYPES,
    **dict.fromkeys((NUMBERS, NUMERIC), NUMBER_DTYPES),
    BOOLS: (bool_,),
    ANY: ALL_DTYPES,
}
_DTYPE_HINT = {
    **dict.fromkeys((FLOATS, INEXACT), "cast it: `st.astype(x, st.f32)`"),
    INTEGERS: "cast it: `st.astype(x, st.i64)`",
    **dict.fromkeys((NUMBERS, NUMERIC), "cast it: `st.astype(x, st.i64)` or `st.astype(x, st.f32)`"),
    BOOLS: "compare first: `x != 0`",
    ANY: None,
}


def check_kind(name: str, type: TensorType, kinds: tuple[str, ...]) -> None:
    """Raises: DTypeError if the operand of the op `name` has a dtype of another kind."""
    if type.dtype.kind not in kinds:
        raise DTypeError(f"{name} needs {_WORDS[kinds]}, got {type}", hint=_DTYPE_HINT[kinds])


def elementwise(name: str, kinds: tuple[str, ...], result: DType | None = None) -> Callable[..., TensorType]:
    """The type rule: operands of one type, of the `kinds` of the op; the result has that type, or dtype `result`."""

    def infer(*types: TensorType) -> TensorType:
        first = types[0]
        for other in types[1:]:
            if other.shape != first.shape:
                raise ShapeError(
                    f"{name} needs operands of one shape, got {first} and {other}",
                    hint="extents must be equal, or 1; `st.broadcast_to(x, shape)` repeats an array",
                )
            if other.dtype is not first.dtype or other.weak != first.weak:
                raise DTypeError(
                    f"{name} needs operands of one dtype, got {first} and {other}", hint="cast one of them"
                )
        check_kind(name, first, kinds)
        return first if result is None else TensorType(result, first.shape, first.weak)

    return infer


_NO_FLOAT_RESULT = "its result is not a float"


def _refused(name: str, kinds: tuple[str, ...], count: int) -> list[BadSample]:
    wrong = [dtype for dtype in (f32, i64, bool_) if dtype.kind not in kinds]
    message = f"{name} needs {_WORDS[kinds]}"
    bad = [BadSample((TensorType(dtype, (3,)),) * count, DTypeError, message) for dtype in wrong[:1]]
    if count > 1:
        good = next(dtype for dtype in (f32, i64, bool_) if dtype.kind in kinds)
        other = next(dtype for dtype in (f64, i32, i64) if dtype is not good)
        shapes = (TensorType(good, (2, 3)), TensorType(good, (3, 2)))
        bad.append(BadSample((*shapes[:1], *shapes[1:] * (count - 1)), ShapeError, "operands of one shape"))
        bad.append(BadSample((TensorType(good, (3,)), TensorType(other, (3,))), DTypeError, "operands of one dtype"))
    return bad


def unary(
    name: str,
    reference: Callable[..., Any],
    kinds: tuple[str, ...],
    slope: Slope | None = None,
    *,
    doc: str,
    result: DType | None = None,
    flat: bool = False,
    whole: bool = False,
    low: float = -2.0,
    high: float = 2.0,
    harmless: bool = False,
    enter: bool = True,
    numpy: Sequence[str] = (),
    torch: Sequence[str] = (),
    **traits: Any,
) -> Unary:
    """Declare a unary op; the public function. `flat`: the derivative is zero wherever it exists.

    A flat op is harmless, and so is a test, whose result is a bool. `whole`: integers and bools stay as they are.
    """
    differentiable = slope is not None or flat
    op = primitive(
        name=name,
        kind="elementwise",
        harmless=harmless or flat or result is bool_,
        **traits,
        infer=elementwise(name, kinds, result),
        reference=lambda x: np.asarray(reference(x), dtype=result.numpy if result else x.dtype),
        samples=[Sample((shape,), low=low, high=high, dtypes=SAMPLE_DTYPES[kinds]) for shape in ((2, 3), (), (0, 4))],
        bad=_refused(name, kinds, 1),
        doc=doc,
        why_not_differentiable="" if differentiable else _NO_FLOAT_RESULT,
        **(diagonal([slope]) if differentiable else {}),
    )

    def function(x: Any) -> Array:
        (array,) = promoted(x, floats=kinds == FLOATS and not whole)
        return array if whole and not array.dtype.is_inexact else bind(op, [array])

    function.__doc__ = doc
    return public(name, method=True, numpy=numpy, torch=torch)(function) if enter else function


def maths(name: str, reference: Callable[..., Any], slope: Slope, **fields: Any) -> Unary:
    """Declare a function of the mathematical library: of floats, and expensive."""
    return unary(name, reference, FLOATS, slope, expensive=True, **fields)


def binary(
    name: str,
    reference: Callable[..., Any],
    kinds: tuple[str, ...],
    slopes: Sequence[Slope | None] | None = None,
    *,
    doc: str,
    result: DType | None = None,
    effects: Any = PURE,
    low: float = -2.0,
    high: float = 2.0,
    why: str = _NO_FLOAT_RESULT,
    enter: bool = True,
    mixes: bool = False,
    method: bool = True,
    by_value: bool = False,
    numpy: Sequence[str] = (),
    torch: Sequence[str] = (),
    **traits: Any,
) -> Binary:
    """Declare a binary op; the public function, which promotes and broadcasts.

    With `mixes` a real operand with a complex one stays real. With `by_value` Python integers next to narrower ones
    are taken as they are, and need not fit these.
    """
    op = primitive(
        name=name,
        kind="elementwise",
        **traits,
        infer=elementwise(name, kinds, result),
        reference=lambda a, b: np.asarray(reference(a, b), dtype=result.numpy if result else a.dtype),
        effects=effects,
        samples=[
            Sample((shape, shape), low=low, high=high, dtypes=SAMPLE_DTYPES[kinds]) for shape in ((2, 3), (), (0, 4))
        ],
        bad=_refused(name, kinds, 2),
        doc=doc,
        why_not_differentiable="" if slopes is not None else why,
        **(diagonal(slopes) if slopes is not None else {}),
    )

    def function(a: Any, b: Any) -> Array:
        if by_value:
            a, b = comparable(a, b)
        return bind(op, together(a, b, name=name, floats=kinds == FLOATS, mixes=mixes))

    function.__doc__ = doc
    return public(name, method=method, numpy=numpy, torch=torch)(function) if enter else function
