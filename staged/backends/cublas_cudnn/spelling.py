"""How elementwise ops are spelled in CUDA kernels: the words of the language where it has them, else device functions."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from staged.backends.c_family.expr import Call, Expr
from staged.backends.c_family.scalars import Need, spell
from staged.backends.c_family.support.library import render
from staged.ir.types import DType, f32

CUDA_MATHS = frozenset(
    """exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc log2 log10 pow atan2 floor
    ceil trunc""".split()
)
"""Functions that CUDA has under their C names, with an `f` at the end for f32."""
_RENAMED = {"abs": "fabs", "round": "rint"}


def spell_in_cuda(
    name: str, dtypes: Sequence[DType], result: DType, operands: Sequence[Expr], attrs: Mapping[str, Any], need: Need
) -> Expr:
    """An elementwise op on numbers in a kernel."""
    dtype = dtypes[0] if dtypes else result
    if dtype.is_float and (name in CUDA_MATHS or name in _RENAMED):
        function = _RENAMED.get(name, name)
        return Call(f"{function}f" if dtype is f32 else function, tuple(operands))
    return spell(name, dtypes, result, operands, attrs, need)


def device_functions(snippets: Iterable[str], kernels: Sequence[str]) -> str:
    """The support functions of these names that `kernels` (texts) call, under names of their own.

    Why not the host's functions themselves: the kernels' part of the file is also compiled alone, without headers. Why
    not all that the snippets bring: nvcc warns of functions that nobody calls.
    """
    _, text = render(name for name in snippets if name != "math")
    text = re.sub(r"(?:__attribute__\(\(unused\)\) )?static inline ", "static __device__ inline ", text)
    functions = device_names(text).strip("\n").split("\n\n")
    while True:
        kept = [f for f in functions if _is_called(f, [*kernels, *(other for other in functions if other is not f)])]
        if len(kept) == len(functions):
            return "\n\n".join(kept) + "\n" if kept else ""
        functions = kept


def _is_called(function: str, texts: Sequence[str]) -> bool:
    names = re.findall(r"^static __device__ inline \w+ (\w+)\(", function, re.MULTILINE)
    return not names or any(re.search(rf"\b{name}\(", text) for name in names for text in texts)


def device_names(text: str) -> str:
    """`st_maximum_f32` becomes `st_device_maximum_f32` (names of the user never begin with `st_`)."""
    return re.sub(r"\bst_", "st_device_", text)
