"""torch's names for arrays' methods, functions and arguments that have NumPy's names here.

`METHOD_WORDS` has the methods of a torch tensor that NumPy's arrays lack and that take a few lines on our functions.
`KEYWORDS` has torch's names of arguments, which every function declared by `public` accepts too. Where a call means
something else in torch (`DIM_MEANS`), torch's keyword has torch's meaning, or is refused with both names.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, TypeVar

import numpy as np

from staged.errors import ArgumentError, DTypeError, ShapeError, UnknownArgumentError
from staged.ir.types import (
    CPU,
    Dim,
    DType,
    Shape,
    TensorType,
    bf16,
    bool_,
    dtype_of,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    shape_text,
    u8,
)
from staged.ops.array import METHOD_NAMES, METHODS, WORDS, Array
from staged.ops.promote import NUMPY_SCALARS, is_option, plain_number
from staged.source import here

F = TypeVar("F", bound=Callable[..., Any])

# ---- names of arguments -----------------------------------------------------------------------------

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


def _extreme(position: str) -> Callable[..., Extreme]:
    def both(function: Any, x: Any, axis: Any, keepdims: bool = False) -> Extreme:
        # The gradient goes to the element that `indices` names, as in torch.
        indices = METHODS[position](x, axis=axis, keepdims=True)
        if not x.ndim:
            return Extreme(x, indices)
        values = METHODS["take_along_axis"](x, indices, axis)
        if keepdims:
            return Extreme(values, indices)
        return Extreme(METHODS["squeeze"](values, axis), METHODS["squeeze"](indices, axis))

    return both


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


def _with_places(name: str) -> Callable[..., Any]:
    def pair(function: Any, x: Any, axis: Any = -1, **options: Any) -> Any:
        return METHODS[name](x, axis, **options)

    return pair


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
    result: Array = function(a, METHODS["multiply"](b, alpha))
    return result


def _rounded(function: Any, a: Any, b: Any, rounding_mode: str | None) -> Array:
    """torch's `div` with a rounding: integers stay integers."""
    if rounding_mode is None:
        found: Array = function(a, b)
    elif rounding_mode == "floor":
        found = METHODS["floor_divide"](a, b)
    elif rounding_mode != "trunc":
        raise ArgumentError(f"divide: rounding_mode is None, 'trunc' or 'floor', got {rounding_mode!r}", where=here())
    elif any(METHODS["asarray"](one).dtype.is_float for one in (a, b)):
        found = METHODS["trunc"](function(a, b))
    else:
        found = METHODS["floor_divide"](METHODS["subtract"](a, METHODS["fmod"](a, b)), b)
    return found


OPTION_MEANS: dict[str, tuple[str, Callable[..., Any]]] = {
    "add": ("alpha", _scaled),
    "subtract": ("alpha", _scaled),
    "divide": ("rounding_mode", _rounded),
}
"""Arguments that torch has and NumPy has not, by the function: the word, and what the function does with it."""

DIM_MEANS: dict[str, Callable[..., Any]] = {
    "max": _extreme("argmax"),
    "min": _extreme("argmin"),
    "std": _spread,
    "var": _spread,
    "split": _split_by_dim,
    "sort": _with_places("sort_with_places"),
    "median": _with_places("lower_median"),
    "nanmedian": _lower_nanmedian,
}
"""Functions that torch has too and that mean something else there, once the axis is called `dim`."""

# ---- the size of an array ---------------------------------------------------------------------------


class Size(int):
    """The number of elements, which is NumPy's `x.size`; called, the shape or an extent,
    which is torch's `x.size(0)`."""

    shape: Shape

    def __new__(cls, count: int, shape: Shape) -> Size:
        made = super().__new__(cls, count)
        made.shape = shape
        return made

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its extent along one axis."""
        return _extent(self.shape, dim)

    def __reduce__(self) -> Any:
        return Size, (int(self), self.shape)


class StagedSize(Array):
    """The number of elements of an array with a symbolic dimension: a number of the program. Called like `Size`."""

    __slots__ = ("shape_of",)

    def __init__(self, shape: Shape) -> None:
        self.shape_of = shape

    @property
    def type(self) -> TensorType:  # type: ignore[override]
        return TensorType(i64, (), weak=True)

    def __staged_read__(self) -> Any:
        total: Any = 1
        for extent in self.shape_of:
            total = METHODS["multiply"](extent, total)
        return total

    def __call__(self, dim: int | None = None) -> Any:
        """The shape, or its extent along one axis."""
        return _extent(self.shape_of, dim)


def _extent(shape: Shape, dim: int | None) -> Any:
    if dim is None:
        return shape
    if not isinstance(dim, int) or not -len(shape) <= dim < len(shape):
        raise ShapeError(f"size: axis {dim} does not exist in an array of shape {shape_text(shape)}", where=here())
    return shape[dim]


def size_of(type: TensorType) -> Any:
    """The value of `.size`."""
    return Size(type.size, type.shape) if type.is_static else StagedSize(type.shape)


# ---- methods ----------------------------------------------------------------------------------------


def _view(x: Array, *shape: Any) -> Array:
    if len(shape) == 1 and dtype_of(shape[0]) is not None and not isinstance(shape[0], tuple | list | int):
        raise DTypeError(
            "the bits of an array cannot be viewed as another dtype", where=here(), hint="`x.astype(dtype)`"
        )
    result: Array = METHODS["reshape"](x, *shape)
    return result


def _masked_fill(x: Array, mask: Any, value: Any) -> Array:
    chosen = METHODS["asarray"](mask)
    if not chosen.dtype.is_bool:
        raise DTypeError(
            f"masked_fill takes a mask of bools, got {chosen.type}",
            where=here(),
            hint="compare it: `mask == 0`, `mask != 0`",
        )
    fill = METHODS["asarray"](value)
    if fill.ndim:
        raise ShapeError(
            f"masked_fill fills with one number, got {fill.type}", where=here(), hint="`st.where(mask, values, x)`"
        )
    if fill.dtype.is_float and not x.dtype.is_float:
        raise DTypeError(
            f"masked_fill cannot put a {fill.dtype} into {x.type}", where=here(), hint="cast x: `x.float()`"
        )
    if not isinstance(value, bool | int | float) and not (isinstance(value, Array) and value.type.weak):
        value = METHODS["astype"](fill, x.dtype)
    result: Array = METHODS["where"](chosen, value, x)
    if result.shape != x.shape:
        raise ShapeError(f"masked_fill: a mask {shape_text(chosen.shape)} does not fit {x.type}", where=here())
    return result if result.dtype == x.dtype else METHODS["astype"](result, x.dtype)


def _split(x: Array, split_size_or_sections: Any, dim: int = 0) -> list[Array]:
    extent = _fixed("split", x, dim)
    if isinstance(split_size_or_sections, int | np.integer):
        if split_size_or_sections < 1:
            raise ShapeError(f"split: parts have at least one element, got {split_size_or_sections}", where=here())
        cuts = list(range(split_size_or_sections, extent, split_size_or_sections))
    else:
        sizes = list(split_size_or_sections)
        if sum(sizes) != extent or min(sizes, default=0) < 0:
            raise ShapeError(
                f"split: parts of {sizes} elements do not make up {extent}, axis {dim} of {x.type}", where=here()
            )
        cuts = [sum(sizes[:count]) for count in range(1, len(sizes))]
    parts: Any = METHODS["split"](x, cuts, axis=dim)
    return list(parts)


def _chunk(x: Array, chunks: int, dim: int = 0) -> list[Array]:
    extent = _fixed("chunk", x, dim)
    if not isinstance(chunks, int | np.integer) or chunks < 1:
        raise ShapeError(f"chunk makes at least one part, got {chunks}", where=here())
    return _split(x, -(-extent // int(chunks)) or [0] * int(chunks), dim)


def _fixed(name: str, x: Array, dim: int) -> int:
    extent = _extent(x.shape, dim)
    if isinstance(extent, Dim):
        raise ShapeError(f"{name} needs a size fixed while staging, got {x.type}", where=here())
    return int(extent)


def _to(x: Array, target: Any = None, *, dtype: Any = None) -> Array:
    target = dtype if target is None else target
    dtype = target.dtype if isinstance(target, Array) else dtype_of(target)
    if dtype is None:
        raise ArgumentError(
            f"an array goes to a dtype here, got {target!r}",
            where=here(),
            hint="where code runs is said by `with st.with_backend(st.GPU, x):`",
        )
    return _cast(x, dtype)


def _cast(x: Array, dtype: DType) -> Array:
    result: Array = METHODS["astype"](x, dtype)
    return result


def _t(x: Array) -> Array:
    if x.ndim > 2:
        raise ShapeError(
            f"t() takes a matrix, got {x.type}",
            where=here(),
            hint="`x.transpose(1, 2)` swaps two axes, `x.mT` the last",
        )
    result: Array = METHODS["transpose"](x)
    return result


def _expand(x: Array, *sizes: Any) -> Array:
    shape = list(sizes[0] if len(sizes) == 1 and isinstance(sizes[0], tuple | list) else sizes)
    first = len(shape) - x.ndim
    for position, extent in enumerate(shape):
        if extent == -1:
            if position < first:
                raise ShapeError(f"expand: a new axis has no extent to keep, got {tuple(shape)}", where=here())
            shape[position] = x.shape[position - first]
    result: Array = METHODS["broadcast_to"](x, tuple(shape))
    return result


def _narrow(x: Array, dim: int, start: int | Array, length: int) -> Array:
    axis, extent = dim % max(x.ndim, 1), _fixed("narrow", x, dim)
    if isinstance(start, Array):  # its place is checked when the program runs
        at: Any = METHODS["where"](start < 0, start + extent, start)
        return x[(slice(None),) * axis + (slice(at, at + length),)]
    first = start + extent if start < 0 else start
    if not 0 <= first <= first + length <= extent:
        raise ShapeError(f"narrow: {length} elements from {start} do not lie in axis {dim} of {x.type}", where=here())
    return x[(slice(None),) * axis + (slice(first, first + length),)]


def _select(x: Array, dim: int, index: Any) -> Array:
    _extent(x.shape, dim)
    return x[(slice(None),) * (dim % x.ndim) + (index,)]


def _value(x: Array) -> Array:
    """The array itself, since arrays are immutable and need no copy; for a Variable its present value."""
    reader = getattr(x, "__staged_read__", None)
    return x if reader is None else reader()


def _amount(x: Array) -> Any:
    """The number of elements as a Python int, or a number of the program."""
    return int(x.size) if isinstance(x.size, Size) else x.size.__staged_read__()


METHOD_WORDS: dict[str, Callable[..., Any]] = {
    # shapes
    "view": _view,
    "view_as": lambda x, other: METHODS["reshape"](x, other.shape),
    "reshape_as": lambda x, other: METHODS["reshape"](x, other.shape),
    "expand": _expand,
    "expand_as": lambda x, other: METHODS["broadcast_to"](x, other.shape),
    "t": _t,
    "split": _split,
    "chunk": _chunk,
    "unbind": lambda x, dim=0: METHODS["unstack"](x, axis=dim),
    "narrow": _narrow,
    "select": _select,
    "repeat_interleave": lambda x, repeats, dim=None: METHODS["repeat"](x, repeats, axis=dim),
    "dim": lambda x: x.ndim,
    "ndimension": lambda x: x.ndim,
    "numel": _amount,
    "nelement": _amount,
    # the same array
    "contiguous": _value,
    "resolve_conj": _value,
    "resolve_neg": _value,
    "clone": _value,
    "copy": _value,
    "cpu": _value,
    # dtypes
    "float": lambda x: _cast(x, f32),
    "double": lambda x: _cast(x, f64),
    "half": lambda x: _cast(x, f16),
    "bfloat16": lambda x: _cast(x, bf16),
    "char": lambda x: _cast(x, i8),
    "short": lambda x: _cast(x, i16),
    "int": lambda x: _cast(x, i32),
    "long": lambda x: _cast(x, i64),
    "byte": lambda x: _cast(x, u8),
    "bool": lambda x: _cast(x, bool_),
    "to": _to,
    "type_as": lambda x, other: _cast(x, other.dtype),
    "is_floating_point": lambda x: x.dtype.is_float,
    # arithmetic
    "masked_fill": _masked_fill,
    "where": lambda x, condition, other: METHODS["where"](condition, x, other),
    "clamp_min": lambda x, min: METHODS["clip"](x, min, None),
    "clamp_max": lambda x, max: METHODS["clip"](x, None, max),
    "amax": lambda x, dim=None, keepdim=False: METHODS["max"](x, dim, keepdim),
    "amin": lambda x, dim=None, keepdim=False: METHODS["min"](x, dim, keepdim),
}
"""Methods of a torch tensor that are more than another word for one of our functions (see `public.public`)."""

_TWO_MEANINGS = {
    "repeat": "`st.tile(x, counts)` is torch's repeat, `st.repeat(x, count)` NumPy's",
}


def method_named(name: str) -> Callable[..., Any] | None:
    """The function behind a method by torch's name; None where there is none."""
    return METHOD_WORDS.get(name)


def missing(name: str) -> str:
    """The hint for a missing method, if there is one; else empty."""
    if name in _TWO_MEANINGS:
        return f": {_TWO_MEANINGS[name]}"
    plain = name.removesuffix("_")
    if name.endswith("_") and any(plain in known for known in (METHOD_WORDS, METHOD_NAMES, METHODS)):
        return f": arrays are values, write `x = x.{plain}(...)`"
    return ""


WORDS |= {"method": method_named, "methods": METHOD_WORDS.keys, "missing": missing, "size": size_of}
