"""f16 and bf16: arrays of them are stored, moved and converted; computations are made with f32.

A function of half arrays is that of their f32 values, and its results are rounded once: to the dtype that the operands
have together. So `st.softmax` of f16 adds up in f32, and `x * 0.1` multiplies by the f32 nearest to 0.1. Functions that
only move elements take halves as they are. Ops that derivatives and passes record one by one do likewise, each for
itself (`bind`). Hence no back end computes with halves: all of them convert.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import numpy as np

from staged.ir.types import DType, bf16, dtype_of, f16, f32
from staged.ops.array import Array, StagedArray, functions
from staged.ops.autocast import IN_F32, IN_F32_MODULES, IN_LOW_PRECISION, lowered_to

F = TypeVar("F", bound=Callable[..., Any])

_MOVING_MODULES = frozenset(("index", "joining", "numpy_map", "shape", "subscript"))
_MOVING = frozenset(
    "all_gather all_to_all asarray astype broadcast diagonal diag diagflat diag_embed empty empty_like exchange_halo "
    "flip full full_like item ones ones_like nextafter pad random.choice random.truncated_normal random.uniform shard "
    "shift_ranks stop_gradient tril triu unfold unflatten where zeros zeros_like".split()
)
"""Functions that choose, move or convert elements: they take halves as they are. `dtype` means the dtype they make.

Also functions whose results depend on the neighbours of a half: `nextafter`, and random numbers below `high`.
"""
_PLAIN = frozenset((float, int, bool, str, type(None)))


def in_f32(name: str, function: F) -> F:
    """`function`, called `name`, computing with f32 where it is given f16 or bf16."""
    module = function.__module__.rpartition(".")[2]
    if name in _MOVING or module in _MOVING_MODULES:
        return function
    stays = name in IN_F32 or module in IN_F32_MODULES

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        for given in args:
            kind = type(given)
            if kind is StagedArray:
                if given.type.dtype.size == 2 and given.type.dtype.is_half:
                    return _widened(function, args, kwargs, stays)
            elif kind not in _PLAIN and _has_half(given):
                return _widened(function, args, kwargs, stays)
        if kwargs and any(map(_has_half, kwargs.values())):
            return _widened(function, args, kwargs, stays)
        return function(*args, **kwargs)

    return _lowering(called) if name in IN_LOW_PRECISION else called  # type: ignore[return-value]


def _lowering(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` of operands that are converted where an `autocast` is around."""

    @functools.wraps(function)
    def called(*args: Any, **kwargs: Any) -> Any:
        low = lowered_to()
        if low is None:
            return function(*args, **kwargs)

        def narrow(x: Any) -> Any:
            if type(x) in (list, tuple):
                return type(x)(map(narrow, x))
            dtype = None if type(x) in _PLAIN else getattr(x, "dtype", None)
            known = dtype if dtype is None or type(dtype) is DType else dtype_of(dtype)
            if known is None or not known.is_float or known.size > 4 or isinstance(x, DType | type):
                return x
            return functions.astype(x, low)

        return function(*map(narrow, args), **{name: narrow(value) for name, value in kwargs.items()})

    return called


def _half(x: Any) -> DType | None:
    """The half dtype that `x` names, or whose array it is; None for anything else."""
    dtype = getattr(x, "dtype", x)
    if type(dtype) is not DType:
        if dtype is None or getattr(dtype, "itemsize", 0) != 2:
            return None
        dtype = dtype_of(str(dtype).removeprefix("torch.") if not isinstance(dtype, np.dtype) else dtype)
    return dtype if dtype is f16 or dtype is bf16 else None


def _has_half(x: Any) -> bool:
    if type(x) in (list, tuple):
        return any(map(_has_half, x))
    return type(x) not in _PLAIN and _half(x) is not None


def _widened(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], stays: bool) -> Any:
    """`function` of the f32 values; `stays`: in an `autocast` its results stay f32."""
    floats: set[str] = set()
    asked: list[DType] = []

    def wide(x: Any) -> Any:
        kind = type(x)
        if kind in _PLAIN:
            return x
        if kind is list or kind is tuple:
            return kind(map(wide, x))
        half = _half(x)
        if half is None:
            dtype = getattr(x, "dtype", None)
            known = dtype if dtype is None or type(dtype) is DType else dtype_of(dtype)
            if known is not None and known.kind in "fc" and not (isinstance(x, Array) and x.type.weak):
                floats.add(known.name)
            return x
        if not hasattr(x, "dtype") or isinstance(x, DType | type):
            asked.append(half)
            return f32
        floats.add(half.name)
        return functions.astype(x, f32)

    wanted = kwargs.get("dtype")
    result = function(*map(wide, args), **{name: wide(value) for name, value in kwargs.items()})
    if asked:
        return _narrowed(result, asked[0])
    if wanted is not None or len(floats) != 1 or (stays and lowered_to() is not None):
        return result
    return _narrowed(result, f16 if "f16" in floats else bf16)


def _narrowed(result: Any, dtype: DType) -> Any:
    """f32 results in a half dtype."""
    if isinstance(result, Array):
        return functions.astype(result, dtype) if result.dtype is f32 else result
    if isinstance(result, tuple):
        narrow = [_narrowed(each, dtype) for each in result]
        return type(result)(*narrow) if hasattr(result, "_fields") else tuple(narrow)
    return [_narrowed(each, dtype) for each in result] if isinstance(result, list) else result
