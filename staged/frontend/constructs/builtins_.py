"""Python's builtins and `math` on staged values."""

from __future__ import annotations

import builtins
import functools
import operator
import time
from collections.abc import Callable
from typing import Any, get_args

import numpy as np

from staged.call.guards.guard import MISSING
from staged.errors import StagedValueError, StagingError
from staged.frontend.calls.call import BUILTINS, OF_FRAME, REFUSED, as_converted, builtin, call
from staged.frontend.constructs import math_
from staged.frontend.constructs.attributes import attribute
from staged.frontend.constructs.iterables import (
    ArrayRows,
    Enumerate,
    Range,
    StagedIterable,
    as_staged_iterable,
    reversed_of,
    zipped,
)
from staged.frontend.constructs.stores import delete_attribute, set_attribute
from staged.frontend.constructs.strings import Part, StagedString, format_parts, parts_of
from staged.frontend.trace.context import current_trace, note_made
from staged.frontend.values.truth import truth
from staged.frontend.values.variable import Variable
from staged.ir.declaration import prims
from staged.ir.sizes import Size
from staged.ir.types import TensorType, bool_, f64, i64
from staged.ops import comparisons, elementwise, reduction
from staged.ops.array import Array, StagedArray
from staged.ops.assumptions import refuse
from staged.ops.choice import where
from staged.ops.context import bind
from staged.ops.dimension import is_size
from staged.ops.promote import as_array, cast, read
from staged.ops.source import asarray, full
from staged.source import here

REFUSED.update({
    builtins.input: "pass the value as an argument",
    builtins.exec: "write the code out",
    builtins.eval: "write the code out",
    builtins.locals: "name the variables",
    builtins.vars: "name the attributes",
    builtins.breakpoint: "run it with `with staged.eager():` to step through it",
    time.sleep: "sleep in Python, between calls",
})  # fmt: skip
OF_FRAME.update({
    builtins.globals: (0, "name the global, or import its module and use `getattr`"),
    builtins.locals: (0, "name the variables"),
    builtins.vars: (0, "name the variables"),
    builtins.dir: (0, "name the variables"),
    builtins.eval: (1, "write the code out"),
    builtins.exec: (1, "write the code out"),
})  # fmt: skip


@builtin(range)
def range_(*bounds: Any) -> Any:
    """With a staged bound, one loop of the program."""
    bounds = tuple(map(read, bounds))
    return Range(*bounds) if any(isinstance(bound, Array) for bound in bounds) else range(*bounds)


@builtin(enumerate)
def enumerate_(iterable: Any, start: Any = 0) -> Any:
    staged = as_staged_iterable(iterable)
    if staged is None and isinstance(iterable, Array) and iterable.shape:
        staged = ArrayRows(iterable)  # in eager mode: it counts as the program does
    return enumerate(iterable, start) if staged is None else Enumerate(staged, start)


@builtin(zip)
def zip_(*iterables: Any, strict: bool = False) -> Any:
    return zipped(iterables, strict) or zip(*iterables, strict=strict)


@builtin(reversed)
def reversed_(iterable: Any) -> Any:
    staged = as_staged_iterable(iterable)
    return reversed(iterable) if staged is None else reversed_of(staged)


def _holds_staged(value: Any) -> bool:
    """Return whether an array of ours is in a nest of lists."""
    return isinstance(value, Array) or (isinstance(value, list | tuple) and any(map(_holds_staged, value)))


@builtin(np.array)
def array_(value: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
    """Our array for a list of staged numbers, for which NumPy has no protocol; NumPy's for others."""
    if not _holds_staged(value):
        return np.array(value, dtype, *args, **options)
    return asarray(value, dtype)


@builtin(np.asarray)
def asarray_(value: Any, dtype: Any = None, *args: Any, **options: Any) -> Any:
    """As `array_`; an array of NumPy stays the array that it is."""
    if not _holds_staged(value):
        return np.asarray(value, dtype, *args, **options)
    return asarray(value, dtype)


@builtin(np.full)
def full_(shape: Any, fill_value: Any, dtype: Any = None, **options: Any) -> Any:
    if not isinstance(fill_value, Array):
        return np.full(shape, fill_value, dtype, **options)
    return full(shape, fill_value, dtype)


@builtin(len)
def len_(value: Any) -> Any:
    counted = getattr(type(value), "__staged_len__", None)
    if counted is not None:
        return counted(value)
    if isinstance(value, StagedIterable) and not hasattr(type(value), "__len__"):
        return value.length
    if isinstance(value, StagedArray) and value.shape and isinstance(value.shape[0], Size):
        return as_array(value.shape[0])  # a staged int
    return len(value)


@builtin(abs)
def abs_(value: Any) -> Any:
    return elementwise.abs_(read(value)) if isinstance(value, Array) else abs(value)


@builtin(bool)
def bool_of(value: Any = False) -> Any:
    found = truth(value)
    return cast(found, bool_, weak=True) if isinstance(found, StagedArray) else found


@builtin(int)
def int_(value: Any = 0, *base: Any) -> Any:
    """A staged Python integer: truncates, as Python does."""
    value = read(value)
    if not isinstance(value, Array):
        return int(value, *base)
    if value.dtype.is_float:
        math_.note_raiser((ValueError, OverflowError), "`int`", int, (value,))
    return _convert(value, TensorType(i64, (), True), "int")


@builtin(float)
def float_(value: Any = 0.0) -> Any:
    value = read(value)
    if not isinstance(value, Array):
        return float(value)
    return _convert(value, TensorType(f64, (), True), "float")


def _convert(value: Array, type_: TensorType, name: str) -> Any:
    if value.shape:
        raise StagedValueError(
            f"`{name}` takes a scalar, got {value.type}", where=here(), hint="use `st.astype(x, ...)` for arrays"
        )
    return value if value.type == type_ else bind(prims.CAST, [value], dtype=type_.dtype, weak=True)


@builtin(str)
def str_(value: Any = "", *rest: Any) -> Any:
    parts: list[Part] = parts_of(value) if not rest else [str(value, *rest)]
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    return StagedString(parts)


@builtin(repr)
def repr_(value: Any) -> Any:
    parts = format_parts(value, "r", "")
    if all(isinstance(part, str) for part in parts):
        return "".join(part for part in parts if isinstance(part, str))
    return StagedString(parts)


@builtin(round)
def round_(value: Any, digits: Any = None) -> Any:
    """To the nearest, halves to even; with `digits` by scaling, as NumPy rounds."""
    value = read(value)
    if not isinstance(value, Array):
        return round(value) if digits is None else round(value, digits)
    if isinstance(digits, Array):
        raise StagedValueError("the digits of `round` must be static", where=here(), hint="write the number")
    if value.dtype.is_integer:
        return value if digits is None or digits >= 0 else _round_integer(value, 10**-digits)
    if digits is None:
        rounded = elementwise.round_(value)
        return rounded if value.shape else int_(rounded)
    scale = 10.0**digits
    return elementwise.round_(value * scale) / scale


def _round_integer(value: Array, unit: int) -> Any:
    """The nearest multiple of `unit`, halves to even."""
    quotient, rest = value // unit, value % unit
    up = (2 * rest > unit) | ((2 * rest == unit) & (quotient % 2 == 1))
    return where(up, quotient + 1, quotient) * unit


@builtin(pow)
def pow_(base: Any, exponent: Any, *modulus: Any) -> Any:
    base, exponent = read(base), read(exponent)
    if modulus and any(isinstance(value, Array) for value in (base, exponent, *modulus)):
        raise StagingError(
            "`pow` with a modulus cannot be staged",
            where=here(),
            hint="write `base**exponent % modulus` where nothing overflows, or a loop that takes `%` at each step",
        )
    return pow(base, exponent, *modulus)


@builtin(divmod)
def divmod_(a: Any, b: Any) -> Any:
    if isinstance(a, Array) or isinstance(b, Array):
        return a // b, a % b
    return divmod(a, b)


def _fold(
    reduce: Callable[..., Array], pair: Callable[..., Array], plain: Callable[..., Any], is_better: Callable[..., Any]
) -> Callable[..., Any]:

    def handler(*values: Any, key: Any = None, **options: Any) -> Any:
        values = tuple(map(read, values))
        items = values
        if len(values) == 1:
            (only,) = values
            if isinstance(only, Array):
                if only.ndim != 1:
                    raise StagedValueError(
                        f"`{plain.__name__}` takes several numbers or an array of one dimension, got {only.type}",
                        where=here(),
                        hint=f"use `st.{plain.__name__}(x)`",
                    )
                if key is None:
                    return reduce(only)
            items = tuple(only)
        if key is None:
            if not any(isinstance(item, Array) for item in items):
                return plain(items, **options) if len(values) == 1 else plain(*items, **options)
            return functools.reduce(pair, items)
        keys = [call(key, item) for item in items]
        if not any(isinstance(item, Array) for item in keys):
            chosen = plain(range(len(items)), key=keys.__getitem__, **options) if items else None
            return plain((), **options) if chosen is None else items[chosen]
        best, best_key = items[0], keys[0]
        for item, item_key in zip(items[1:], keys[1:], strict=True):
            better = is_better(item_key, best_key)  # at a tie the first one stays, as in Python
            best, best_key = where(better, item, best), where(better, item_key, best_key)
        return best

    return handler


BUILTINS[max] = _fold(reduction.max_, elementwise.maximum, max, operator.gt)
BUILTINS[min] = _fold(reduction.min_, elementwise.minimum, min, operator.lt)


@builtin(sum)
def sum_(values: Any, start: Any = 0) -> Any:
    values = read(values)
    if isinstance(values, Array):
        total = reduction.sum_(values, axis=0)
        return total if isinstance(start, int) and start == 0 else start + total
    return sum(values, start)


@builtin(any)
def any_(values: Any) -> Any:
    return _reduce_truth(values, reduction.any_, comparisons.logical_or, any)


@builtin(all)
def all_(values: Any) -> Any:
    return _reduce_truth(values, reduction.all_, comparisons.logical_and, all)


@builtin(sorted)
def sorted_(values: Any, *, key: Any = None, reverse: bool = False) -> Any:
    """Sorts what is known while staging; staged values have no order yet."""
    made = [*read(values)]
    in_order = None if key is None else as_converted(key)
    if current_trace() is None:
        return sorted(made, key=in_order, reverse=reverse)
    try:
        made.sort(key=in_order, reverse=reverse)
        note_made(made)
        return made
    except StagedValueError as error:
        raise StagingError(
            "`sorted` of staged values cannot be staged: their order is known only when the program runs",
            where=here(),
            hint="`st.sort(st.stack(values))` is an array in order; of two, write `a, b = min(a, b), max(a, b)`",
        ) from error


def _reduce_truth(
    values: Any, reduce: Callable[..., Array], connect: Callable[..., Array], plain: Callable[[Any], bool]
) -> Any:
    values = read(values)
    if isinstance(values, Array):
        return reduce(values)
    items = list(values)
    if not any(isinstance(item, Array) for item in items):
        return plain(items)
    return functools.reduce(connect, [truth(item) for item in items])


@builtin(isinstance)
def isinstance_(value: Any, classes: Any) -> bool:
    """Arrays of the program are also of their classes in Python, see `class_in_python`; a size is an `int` only."""
    if is_size(value):
        return issubclass(int, classes)
    if isinstance(value, classes):
        return True
    own = class_in_python(value)
    if own in (np.float64, np.complex128):  # derived from `float` and `complex`, which is true of no other scalar
        return any(issubclass(own, each) for each in _flat(classes) if each not in (float, complex))
    return own is not None and issubclass(own, classes)


def _flat(classes: Any) -> list[Any]:
    """The classes of nested tuples and unions."""
    parts = classes if isinstance(classes, tuple) else get_args(classes) or None
    return [classes] if parts is None else [one for part in parts for one in _flat(part)]


def class_in_python(value: Any) -> Any:
    """The class that a value has if Python runs the function with NumPy; None for anything but an array of ours.

    A weak number is Python's, an array without axes NumPy's scalar.
    """
    if not isinstance(value, Array) or isinstance(value, Variable):
        return None
    if value.type.weak:
        return _PYTHONS[value.dtype.kind]
    return np.ndarray if value.shape else value.dtype.numpy.type


_PYTHONS = {"b": bool, "i": int, "f": float, "c": complex}


@builtin(type)
def type_(value: Any, *rest: Any) -> Any:
    """The class of Python for a weak number; the class of other arrays is ours."""
    is_number = not rest and isinstance(value, Array) and not isinstance(value, Variable) and value.type.weak
    return class_in_python(value) if is_number else type(value, *rest)


@builtin(np.isscalar)
def isscalar_(value: Any) -> bool:
    own = class_in_python(value)
    return np.isscalar(value) if own is None else own is not np.ndarray


@builtin(getattr)
def getattr_(owner: Any, name: str, *default: Any) -> Any:
    try:
        value = attribute(owner, name)
    except AttributeError:
        _note_whether(owner, name, False)
        if default:
            return default[0]
        raise
    _note_whether(owner, name, True)
    return value


@builtin(hasattr)
def hasattr_(owner: Any, name: str) -> bool:
    return getattr_(owner, name, MISSING) is not MISSING


def _note_whether(owner: Any, name: str, has: bool) -> None:
    """Note that an attribute decides something, if Python's number differs from an array without axes."""
    own = class_in_python(owner)
    if own in (int, float, bool) and hasattr(own, name) != has:
        refuse(f"Python asks whether a number has the attribute `{name}`")


@builtin(setattr)
def setattr_(owner: Any, name: str, value: Any) -> None:
    set_attribute(owner, name, value)


@builtin(delattr)
def delattr_(owner: Any, name: str) -> None:
    delete_attribute(owner, name)
