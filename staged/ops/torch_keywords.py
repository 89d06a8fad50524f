"""torch's names for arguments of functions that have NumPy's names here.

`KEYWORDS` has torch's names of arguments, which every function declared by `public` accepts too. If a call means
something else in torch (`DIM_MEANS`), torch's keyword has torch's meaning, or is an error that names both.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

from staged.errors import ArgumentError, UnknownArgumentError
from staged.ir.types import (
    CPU,
)
from staged.ops.array import Array, functions
from staged.ops.promote import NUMPY_SCALARS, is_option, plain_number
from staged.source import here

F = TypeVar("F", bound=Callable[..., Any])

KEYWORDS: dict[str, tuple[str, ...]] = {
    "dim": ("axis", "axes"),
    "dims": ("axis", "axes", "repetitions"),
    "axis": ("dim",),
    "keepdim": ("keepdims",),
    "diagonal": ("k",),
    "end": ("stop",),
    "steps": ("num",),
    "size": ("shape",),
    "tensors": ("arrays",),
    "shifts": ("shift",),
    "dim0": ("axis1",),
    "dim1": ("axis2",),
    "index": ("indices",),
    "other": ("b",),
    "target": ("labels",),
    "p": ("ord",),
    "offset": ("k",),
    "ddof": ("correction",),
    "constant_values": ("value",),
    "interpolation": ("method",),
    "running_mean": ("mean",),
    "running_var": ("var",),
}
"""torch's name of an argument (`ddof` and `constant_values` are NumPy's), and its possible names here.

`input` is the first argument.
"""


HARMLESS: dict[str, tuple[Any, ...]] = {
    "device": (None, "cpu", CPU),
    "requires_grad": (False,),
    "pin_memory": (None, False),
    "memory_format": (None,),
    "layout": (None,),
    "out": (None,),
}
"""Arguments of torch and of the Array API, and their values that say what is done anyway.

Code runs where its region is, every array is dense, and derivatives are asked for by functions."""


_INSTEAD = {"out": "assign the result: `y = st.{}(...)`", "requires_grad": "differentiate with `st.grad`"}


def _without_harmless(name: str, kwargs: dict[str, Any], parameters: Sequence[str]) -> dict[str, Any]:
    """The keyword arguments but those of `HARMLESS` that the function does not have.

    Raises: UnknownArgumentError for another value of one of these.
    """
    kept = {word: value for word, value in kwargs.items() if word in parameters or word not in HARMLESS}
    for word in kwargs.keys() - kept.keys():
        value = kwargs[word]
        if not any(value is each or (type(value) is type(each) and value == each) for each in HARMLESS[word]):
            hint = _INSTEAD.get(word, "leave out `{1}`").format(name, word)
            raise UnknownArgumentError(f"{name} does not have an argument `{word}`", where=here(), hint=hint)
    return kept


def takes_torch_keywords(name: str, function: F) -> F:
    """`function`, called `name`, accepting torch's names of its arguments too."""
    parameters = list(inspect.signature(function).parameters)
    renamed = {"input": "a" if parameters[0] == "condition" else parameters[0]} if parameters else {}
    for word, candidates in KEYWORDS.items():
        renamed[word] = next((candidate for candidate in candidates if candidate in parameters), "")
    if "offset" in parameters:  # torch's `diagonal`, whose axes are `dim1` and `dim2`
        renamed |= {"dim1": "axis1", "dim2": "axis2"}
    renamed = {word: ours for word, ours in renamed.items() if ours and word not in parameters}
    known = inspect.signature(function).parameters.values()
    options = {one.name for one in known if is_option(one.annotation)}
    places = [place for place, one in enumerate(known) if one.name in options and one.kind is not one.KEYWORD_ONLY]
    options |= {word for word, ours in renamed.items() if ours in options}
    special = DIM_MEANS.get(name)
    option, with_option = OPTION_MEANS.get(name, ("", function))

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        if kwargs and not HARMLESS.keys().isdisjoint(kwargs):
            kwargs = _without_harmless(name, kwargs, parameters)
        if options:  # written out: tracing counts its calls
            for value in args:
                if type(value) in NUMPY_SCALARS:
                    args = tuple([plain_number(x) if n in places else x for n, x in enumerate(args)])
                    break
            for word in kwargs:
                if type(kwargs[word]) in NUMPY_SCALARS and word in options:
                    kwargs = {**kwargs, word: plain_number(kwargs[word])}
        if kwargs and option in kwargs:
            return with_option(function, *args, **{renamed.get(word, word): value for word, value in kwargs.items()})
        if kwargs and not renamed.keys().isdisjoint(kwargs):
            given = {renamed.get(word, word): value for word, value in kwargs.items()}
            doubled = len(given) < len(kwargs) or any(word in given for word in parameters[: len(args)])
            if doubled:
                words = " and ".join(f"`{word}`" for word in kwargs if word in renamed or word in renamed.values())
                raise ArgumentError(
                    f"{name}: an argument is given twice, by {words}", where=here(), hint="use one of the names"
                )
            if special is not None and "dim" in kwargs:
                return special(function, *args, **given)
            kwargs = given
        elif special is not None and "unbiased" in kwargs:
            return special(function, *args, **kwargs)
        return function(*args, **kwargs)

    return called  # type: ignore[return-value]


class Extreme(NamedTuple):
    """The result of torch's `max(dim=...)`: the extremes, and the index of the first of each."""

    values: Array
    indices: Array


def _largest(function: Any, x: Any, axis: Any, keepdims: bool = False) -> Extreme:
    return _extreme(x, functions.argmax(x, axis=axis, keepdims=True), axis, keepdims)


def _smallest(function: Any, x: Any, axis: Any, keepdims: bool = False) -> Extreme:
    return _extreme(x, functions.argmin(x, axis=axis, keepdims=True), axis, keepdims)


def _extreme(x: Any, indices: Array, axis: Any, keepdims: bool) -> Extreme:
    if not x.ndim:
        return Extreme(x, indices)
    values = functions.take_along_axis(x, indices, axis)  # the gradient goes to this element, as in torch
    if keepdims:
        return Extreme(values, indices)
    return Extreme(functions.squeeze(values, axis), functions.squeeze(indices, axis))


def _spread(function: Any, x: Any, axis: Any = None, **options: Any) -> Array:
    if "unbiased" in options:
        options["correction"] = 1.0 if options.pop("unbiased") else 0.0
    if "correction" not in options:
        raise ArgumentError(
            f"{function.__name__} over `dim` divides by n - 1 in torch, here as in NumPy by n: say which",
            where=here(),
            hint="`correction=1` is torch's, `correction=0` NumPy's",
        )
    result: Array = function(x, axis, **options)
    return result


def _sorted(function: Any, x: Any, axis: Any = -1, **options: Any) -> Any:
    return functions.sort_with_places(x, axis, **options)


def _lower_median(function: Any, x: Any, axis: Any = -1, **options: Any) -> Any:
    return functions.lower_median(x, axis, **options)


def _lower_nanmedian(function: Any, x: Any, axis: Any = None, **options: Any) -> Any:
    raise ArgumentError(
        "nanmedian over `dim` takes the lower of two middle elements in torch, here as in NumPy their mean",
        where=here(),
        hint='`axis=` is NumPy\'s; `st.nanquantile(x, 0.5, axis, method="lower")` is the lower one',
    )


def _split_by_dim(function: Any, x: Any, sections: Any = None, **options: Any) -> Any:
    raise ArgumentError(
        "split makes so many equal parts here, as in NumPy, and parts of so many elements in torch",
        where=here(),
        hint="`x.split(size, dim=...)` is torch's, `st.split(x, sections, axis=...)` NumPy's",
    )


def _scaled(function: Any, a: Any, b: Any, alpha: Any) -> Array:
    result: Array = function(a, functions.multiply(b, alpha))
    return result


def _rounded(function: Any, a: Any, b: Any, rounding_mode: str | None) -> Array:
    """torch's `div` with a rounding: integers stay integers."""
    if rounding_mode is None:
        found: Array = function(a, b)
    elif rounding_mode == "floor":
        found = functions.floor_divide(a, b)
    elif rounding_mode != "trunc":
        raise ArgumentError(f"divide: rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}", where=here())
    elif any(functions.asarray(one).dtype.is_float for one in (a, b)):
        found = functions.trunc(function(a, b))
    else:
        found = functions.floor_divide(functions.subtract(a, functions.fmod(a, b)), b)
    return found


OPTION_MEANS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("alpha", _scaled),
    "subtract": ("alpha", _scaled),
    "divide": ("rounding_mode", _rounded),
}
"""Arguments that torch has and NumPy has not, by the function: the word, and what the function does with it."""

DIM_MEANS: dict[str, Callable[..., Any]] = {
    "max": _largest,
    "min": _smallest,
    "std": _spread,
    "var": _spread,
    "split": _split_by_dim,
    "sort": _sorted,
    "median": _lower_median,
    "nanmedian": _lower_nanmedian,
}
"""Functions that torch has too and that mean something else there, once the axis is called `dim`."""
