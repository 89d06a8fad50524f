"""Comparisons, bools, bits and limits, element by element."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from staged.ir.types import bool_
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.declare_elementwise import ANY, BOOLS, INTEGERS, Binary, Unary, binary, unary
from staged.ops.elementwise import isnan
from staged.ops.promote import as_array, handle, is_number, type_of
from staged.ops.public import public
from staged.ops.wide_numbers import reached

# ---- comparisons ----------------------------------------------------------------------------------


def _compare(name: str, reference: Callable[..., Any], doc: str, word: str) -> Binary:
    doc = f"{doc} element by element; a bool array."
    return binary(name, reference, ANY, doc=doc, result=bool_, harmless=True, by_value=True, torch=(word,))


equal: Binary = _compare("equal", np.equal, "a == b", "eq")
not_equal: Binary = _compare("not_equal", np.not_equal, "a != b", "ne")
less: Binary = _compare("less", np.less, "a < b", "lt")
less_equal: Binary = _compare("less_equal", np.less_equal, "a <= b", "le")
greater: Binary = _compare("greater", np.greater, "a > b", "gt")
greater_equal: Binary = _compare("greater_equal", np.greater_equal, "a >= b", "ge")

# ---- bools and bits -------------------------------------------------------------------------------


def _truth(x: Any) -> Any:
    """`x` as bools: numbers are true if they are not 0, as in Python."""
    x = handle(x)
    if not is_number(x):
        x = as_array(x)
    if isinstance(x, Array) and not x.dtype.is_bool:
        return not_equal(x, 0)
    return bool(x) if is_number(x) else x


def _logical(name: str, reference: Callable[..., Any], doc: str) -> Binary:
    strict = binary(name, reference, BOOLS, doc=doc, enter=False, harmless=True)

    def function(a: Any, b: Any) -> Array:
        return strict(_truth(a), _truth(b))

    function.__doc__ = doc
    return public(name, method=True)(function)


logical_and: Binary = _logical("logical_and", np.logical_and, "Whether both are true, element by element.")
logical_or: Binary = _logical("logical_or", np.logical_or, "Whether one or both are true, element by element.")
logical_xor: Binary = _logical("logical_xor", np.logical_xor, "Whether exactly one is true, element by element.")
_strict_not: Unary = unary("logical_not", np.logical_not, BOOLS, doc="Whether x is false.", enter=False, harmless=True)


@public("logical_not", method=True)
def logical_not(x: Any) -> Array:
    """Return whether x is false, element by element; numbers are true if they are not 0."""
    return _strict_not(_truth(x))


def _bitwise(
    name: str,
    reference: Callable[..., Any],
    doc: str,
    on_bools: Binary | None,
    numpy: Sequence[str] = (),
    **traits: Any,
) -> Binary:
    strict = binary(name, reference, INTEGERS, doc=doc, enter=False, low=0, high=7, **traits)

    def function(a: Any, b: Any) -> Array:
        left, right = handle(a), handle(b)
        if on_bools is not None and type_of(left).dtype.is_bool and type_of(right).dtype.is_bool:
            return on_bools(left, right)
        return strict(left, right)

    function.__doc__ = doc
    return public(name, numpy=numpy)(function)


bitwise_and: Binary = _bitwise(
    "bitwise_and", np.bitwise_and, "a & b, bit by bit; the logical and of bools.", logical_and, harmless=True
)
bitwise_or: Binary = _bitwise(
    "bitwise_or", np.bitwise_or, "a | b, bit by bit; the logical or of bools.", logical_or, harmless=True
)
bitwise_xor: Binary = _bitwise(
    "bitwise_xor", np.bitwise_xor, "a ^ b, bit by bit; the logical xor of bools.", logical_xor, harmless=True
)
bitwise_left_shift: Binary = _bitwise(
    "bitwise_left_shift",
    np.left_shift,
    "a << b; bits shifted out are lost. 0 <= b < the number of bits.",
    None,
    vector="never",
    numpy=("left_shift",),
)
bitwise_right_shift: Binary = _bitwise(
    "bitwise_right_shift",
    np.right_shift,
    "a >> b, keeping the sign. 0 <= b < the number of bits.",
    None,
    vector="never",
    numpy=("right_shift",),
)
_strict_invert: Unary = unary(
    "bitwise_invert", np.invert, INTEGERS, doc="~x, bit by bit.", low=0, high=7, enter=False, harmless=True
)


@public("bitwise_invert", numpy=("invert",))
def bitwise_invert(x: Any) -> Array:
    """~x, bit by bit; the logical not of bools."""
    array = handle(x)
    return logical_not(array) if type_of(array).dtype.is_bool else _strict_invert(array)


# ---- limits ---------------------------------------------------------------------------------------


@public("clip", method=True, torch=("clamp",))
def clip(x: Any, min: Any = None, max: Any = None) -> Array:
    """`x` kept within [min, max]; None leaves a side open. Array API `clip`.

    Where `min` is above `max`, every element is `max`, and NaN at a bound that is NaN, as in NumPy and torch. Python
    integers beyond all numbers of x's dtype bound nothing. At a bound the gradient is passed on, beyond it is 0, as in
    torch.
    """
    kept = as_array(x)
    # Not minimum(maximum(x)), which would split the gradient at a bound. NaN compares false and so stays NaN.
    for bound, is_beyond in ((min, less), (max, greater)):
        if bound is not None:
            limit = reached(bound, kept, is_beyond is greater)
            outside = is_beyond(kept, limit)
            if math.isnan(limit) if is_number(limit) else type_of(limit).dtype.is_float:
                outside = logical_or(outside, isnan(limit))
            kept = where(outside, limit, kept)
    return kept
