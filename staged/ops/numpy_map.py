"""NumPy's own functions on our arrays: `np.exp(x)` and `np.concatenate([x, y])` call ours if there is one.

NumPy dispatches to us by its protocols `__array_ufunc__` and `__array_function__`. In plain Python, a function without
a counterpart here, or with an option that ours lacks, runs NumPy's on the elements, with NumPy's results. In a staged
function (eager too) and under differentiation it is refused with a hint: nothing is computed outside of the recorded
program, and no gradient is lost.
"""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np

from staged.base.other_names import EQUIVALENTS, answer_from
from staged.errors import StagingError
from staged.ir.declaration import DECLARED, reduction_by
from staged.ir.types import dtype_of
from staged.ops.array import METHODS, NUMPY_NAMES, WORDS, Array, StagedArray
from staged.ops.context import current_context
from staged.ops.promote import handle, type_of
from staged.ops.public import internal
from staged.source import here

_OF_FLOATS = ("fabs", "float_power")
"""Those that make f64 of integers, where ours stays with integers, and may leave their range."""
# Options of NumPy's that have another name here, or that say what we do anyway.
_RENAMED = {"ddof": "correction", "a": "x", "arr": "x", "m": "x", "a_min": "min", "a_max": "max", "newshape": "shape"}
_RENAMED |= {"ary": "x", "array": "x", "A": "x", "prototype": "x", "reps": "repetitions", "constant_values": "value"}
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "out": (None,),
    "where": (True,),
    "casting": ("same_kind",),
    "order": ("K", "C", None),
    "subok": (True, False),
    "mode": ("raise", "constant"),
    "decimals": (0,),
    "device": (None, "cpu"),
    "copy": (None, True, False),
    "dtype": (None,),
    "optimize": (True, False, "greedy", "optimal"),
}


class _MissingError(Exception):
    """Our function does not support this call of NumPy's; `hint` is the alternative in a staged function."""

    def __init__(self, what: str, hint: str = ""):
        super().__init__(what)
        self.what = what
        self.hint = hint or _instead(what)


def _instead(what: str) -> str:
    """The hint for a NumPy function in a staged function."""
    name = what.split(" ")[0].split(".")[-1]
    known = answer_from((EQUIVALENTS,), name).removeprefix(": ")
    return known or "use the functions of `staged`, or compute it before the staged function"


@internal("numpy_ufunc")
def numpy_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`ufunc(*inputs)`, or its `reduce`, by our function of that name; by NumPy's where there is none,
    in plain Python."""
    try:
        return _ufunc_by_ours(ufunc, method, inputs, kwargs)
    except _MissingError as missing:
        return _by_numpy(getattr(ufunc, method), inputs, kwargs, missing)


@internal("numpy_function")
def numpy_function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function of NumPy's by ours of that name; by NumPy's itself where there is none, in plain Python."""
    try:
        return _function_by_ours(function, args, kwargs)
    except _MissingError as missing:
        return _by_numpy(function, args, kwargs, missing)


def _ufunc_by_ours(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    name = ufunc.__name__
    options = _options(f"np.{name}", kwargs)
    ours = NUMPY_NAMES.get(name, "")
    reduction = reduction_by(DECLARED[name]) if method == "reduce" and name in DECLARED else None
    if reduction is not None:
        # NumPy's `reduce` goes over the first axis unless told otherwise.
        return _call(f"np.{name}.reduce", METHODS[reduction.name], inputs, {"axis": 0, **options})
    if method != "__call__" or not ours or any(map(_is_foreign, inputs)):
        raise _MissingError(f"np.{name}" + ("" if method == "__call__" else f".{method}"))
    if name in _OF_FLOATS and not any(type_of(handle(each)).dtype.is_float for each in inputs):
        raise _MissingError(f"np.{name} of integers", "cast them first: `st.astype(x, st.f64)`")
    if name == "reciprocal" and not type_of(handle(inputs[0])).dtype.is_inexact:
        raise _MissingError("np.reciprocal of integers", "write `1 / x`, or `1 // x` for integers")
    return _call(f"np.{name}", METHODS[ours], inputs, options)


def _function_by_ours(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    name = function.__name__
    module = _MODULES.get(function.__module__, "")
    ours = _of_module(module, name) if module else NUMPY_NAMES.get(name, "")
    if not ours or not function.__module__.startswith("numpy"):
        raise _MissingError(f"{function.__module__}.{name}".replace("numpy", "np", 1))
    if any(map(_is_foreign, args)):
        raise _MissingError(f"np.{name}")
    positional, named = _by_name(function, METHODS[ours], args)
    return _call(f"np.{name}", METHODS[ours], positional, _options(f"np.{name}", {**named, **kwargs}))


_MODULES = {"numpy.linalg": "linalg", "numpy.fft": "fft"}
_ALIKE = ("cross", "matmul", "matrix_transpose", "tensordot", "vecdot")
"""Functions of `np.linalg` that are functions of `st` itself."""


def _of_module(module: str, name: str) -> str:
    ours = f"{module}.{name}"
    return ours if ours in METHODS else name if module == "linalg" and name in _ALIKE else ""


def _is_foreign(value: Any) -> bool:
    """Return whether it is an array of NumPy's of a dtype that we do not have, or a list that has one."""
    if isinstance(value, list | tuple):
        return any(map(_is_foreign, value))
    return isinstance(value, np.ndarray | np.generic) and dtype_of(value.dtype) is None


@cache
def _names(function: Any) -> list[str]:
    """The names of a function's positional parameters; empty for any number of arrays."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # some of NumPy's that are written in C
        return []
    return [] if any(each.kind is each.VAR_POSITIONAL for each in parameters) else [each.name for each in parameters]


def _by_name(function: Any, ours: Any, args: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The arguments of NumPy's function, by name if our parameters have another order."""
    theirs, known = _names(function), list(inspect.signature(ours).parameters)
    for place, name in enumerate(theirs[: len(args)]):
        word = _RENAMED.get(name, name)
        if place and (word in known or name in _HARMLESS) and known[place : place + 1] != [word]:
            return list(args[:place]), dict(zip(theirs[place:], args[place:], strict=False))
    return list(args), {}


def _options(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments by our names; those that change nothing left out."""
    options = {}
    for key, value in kwargs.items():
        known = _HARMLESS.get(key)
        if known is not None and not isinstance(value, Array | np.ndarray) and value in known:
            continue
        if key == "out":
            raise _MissingError(f"{name}(..., out=...)", "arrays are values: assign the result to a name")
        options[_RENAMED.get(key, key)] = value
    return options


_NUMPYS_ALONE = {"pad": ("mode", ("empty", "linear_ramp", "maximum", "mean", "median", "minimum"))}
"""Values of an argument that only NumPy's function has."""


def _call(name: str, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    try:
        bound = inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        raise _MissingError(f"{name} with these arguments ({error})", f"use `st.{function.__name__}`") from None
    word, values = _NUMPYS_ALONE.get(function.__name__, ("", ()))
    if word and bound.arguments.get(word) in values:
        chosen = f"{word}={bound.arguments[word]!r}"
        raise _MissingError(f"{name} with these arguments ({chosen})", f"use `st.{function.__name__}`")
    return function(*args, **options)


# ---- by NumPy itself --------------------------------------------------------------------------------


def _by_numpy(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any], missing: _MissingError) -> Any:
    """NumPy's function on the elements, in plain Python. `out` must be an array of NumPy's."""
    out = kwargs.get("out")
    if not current_context().is_plain or any(
        isinstance(each, Array) for each in (out if isinstance(out, tuple) else (out,))
    ):
        raise StagingError(
            f"{missing.what} is not available on arrays of staged", where=here(), hint=missing.hint
        ) from None
    given = {key: value if key == "out" else _elements(value) for key, value in kwargs.items()}
    return _own(function(*map(_elements, args), **given))


def _elements(value: Any) -> Any:
    """`value` with NumPy's arrays for ours, which NumPy may read and not write: arrays are values."""
    if isinstance(value, Array):
        array = np.asarray(value)
        array.flags.writeable = False
        return array
    if type(value) in (list, tuple):
        return type(value)(map(_elements, value))
    if type(value) is dict:
        return {key: _elements(item) for key, item in value.items()}
    return value


def _own(made: Any) -> Any:
    """A result that is a view of elements that may not be written, as a copy of the caller's own."""
    if isinstance(made, np.ndarray):
        with warnings.catch_warnings(action="ignore"):  # NumPy's, that results of `broadcast_arrays` will be read-only
            return made if made.flags.writeable else made.copy()
    if type(made) in (list, tuple):
        return type(made)(map(_own, made))
    return made


def numpy_attribute(array: Array, name: str) -> Any:
    """A method or property of NumPy's arrays that ours lack, in plain Python; NotImplemented without one.

    Addresses are left out, since the temporary array behind one would be freed at once; so are methods that write.
    """
    if name in _ADDRESSES or name in _IN_PLACE or isinstance(array, StagedArray) or not hasattr(np.ndarray, name):
        return NotImplemented
    if not current_context().is_plain:
        return NotImplemented
    found = getattr(_elements(array), name)
    return (lambda *args, **kwargs: _own(found(*args, **kwargs))) if callable(found) else found


_ADDRESSES = frozenset({"base", "ctypes", "data", "flags", "setflags"})
_IN_PLACE = frozenset({"byteswap", "fill", "itemset", "partition", "put", "resize", "setfield", "sort"})
WORDS["numpy"] = numpy_attribute
