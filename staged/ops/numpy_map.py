"""NumPy's own functions on our arrays: `np.exp(x)` and `np.concatenate([x, y])` are carried out by ours, or refused.

NumPy hands them over by its protocols `__array_ufunc__` and `__array_function__`. What has no counterpart here, or is
asked for with an option that ours lacks, is refused with the name of what to use; nothing is computed behind the back of
the program that is being recorded.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn

from staged.errors import StagingError
from staged.ops.array import METHODS, Array
from staged.ops.promote import public
from staged.source import here

# NumPy's name to ours, where they differ.
_UFUNCS = {
    "absolute": "abs",
    "fabs": "abs",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arctan2": "atan2",
    "power": "pow",
    "float_power": "pow",
    "true_divide": "divide",
    "mod": "remainder",
    "rint": "round",
    "invert": "bitwise_invert",
    "left_shift": "bitwise_left_shift",
    "right_shift": "bitwise_right_shift",
}
_SAME_UFUNCS = frozenset(
    """abs add subtract multiply divide floor_divide remainder pow negative sign square sqrt exp expm1 log log1p sin cos
    tan sinh cosh tanh floor ceil trunc maximum minimum equal not_equal less less_equal greater greater_equal logical_and
    logical_or logical_xor logical_not bitwise_and bitwise_or bitwise_xor isnan isinf isfinite matmul vecdot""".split()
)
_REDUCTIONS = {
    "add": "sum",
    "multiply": "prod",
    "maximum": "max",
    "minimum": "min",
    "logical_and": "all",
    "logical_or": "any",
}
_FUNCTIONS = {
    "amax": "max",
    "amin": "min",
    "concatenate": "concat",
    "permute_dims": "permute_dims",
    "around": "round",
    "ravel": "flatten",
}
_SAME_FUNCTIONS = frozenset(
    """sum prod max min any all argmax argmin mean var std reshape transpose squeeze expand_dims swapaxes moveaxis flip
    roll stack concat where clip take take_along_axis pad split tile repeat broadcast_to broadcast_arrays zeros_like
    ones_like full_like empty_like dot outer tensordot tril triu meshgrid count_nonzero round astype matrix_transpose
    unstack""".split()
)
# Options of NumPy's that have another name here, or that say what we do anyway.
_RENAMED = {"ddof": "correction", "a": "x", "arr": "x", "m": "x", "a_min": "min", "a_max": "max", "newshape": "shape"}
_HARMLESS: dict[str, tuple[Any, ...]] = {
    "out": (None,),
    "where": (True,),
    "casting": ("same_kind",),
    "order": ("K", "C", None),
    "subok": (True, False),
    "mode": ("raise",),
    "copy": (None, True, False),
    "dtype": (None,),
}


@public("empty_like")
def empty_like(x: Any, dtype: Any = None) -> Array:
    """Zeros of the shape and (unless given) dtype of `x`: nothing in a program is ever unset."""
    return METHODS["zeros_like"](x, dtype)


@public("numpy_ufunc")
def numpy_ufunc(ufunc: Any, method: str, inputs: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """`ufunc(*inputs)`, or its `reduce`, by our function of that name. Raises StagingError where we have none."""
    name = ufunc.__name__
    options = _options(f"np.{name}", kwargs)
    ours = _UFUNCS.get(name, name if name in _SAME_UFUNCS else "")
    if method == "reduce" and name in _REDUCTIONS:
        options.pop("initial", None)
        # NumPy's `reduce` goes over the first axis unless told otherwise.
        axis = options.pop("axis", 0)
        return METHODS[_REDUCTIONS[name]](inputs[0], axis=axis, **options)
    if method != "__call__" or not ours:
        _refuse(f"np.{name}" + ("" if method == "__call__" else f".{method}"))
    return _call(f"np.{name}", METHODS[ours], inputs, options)


@public("numpy_function")
def numpy_function(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """A function of NumPy's by ours of that name. Raises StagingError where we have none, or lack an option."""
    name = function.__name__
    ours = _FUNCTIONS.get(name, name if name in _SAME_FUNCTIONS else "")
    if not ours or not function.__module__.startswith("numpy") or "linalg" in function.__module__:
        _refuse(f"{function.__module__}.{name}".replace("numpy", "np", 1))
    return _call(f"np.{name}", METHODS[ours], args, _options(f"np.{name}", kwargs))


def _options(name: str, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """The keyword arguments by our names; those that change nothing left out."""
    options = {}
    for key, value in kwargs.items():
        known = _HARMLESS.get(key)
        if known is not None and any(value is one or value == one for one in known if not isinstance(value, Array)):
            continue
        if key == "out":
            _refuse(f"{name}(..., out=...)", "arrays are values: assign the result to a name")
        options[_RENAMED.get(key, key)] = value
    return options


def _call(name: str, function: Callable[..., Any], args: Sequence[Any], options: Mapping[str, Any]) -> Any:
    try:
        inspect.signature(function).bind(*args, **options)
    except TypeError as error:
        _refuse(f"{name} with these arguments ({error})", f"use `st.{function.__name__}`")
    return function(*args, **options)


def _refuse(what: str, hint: str = "use the functions of `staged`, or compute it before the staged function") -> NoReturn:
    raise StagingError(f"{what} is not available on arrays of staged", where=here(), hint=hint)
