"""The functions that CUDA kernels call: the language's own, and the support library's as functions of the device."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from staged.backends.c_family.support.library import snippets
from staged.backends.cublas_cudnn import permutation_text
from staged.backends.cublas_cudnn.failures import FAIL, FAIL_NOT_FINITE
from staged.backends.cublas_cudnn.reductions import reduction_function, wins_function
from staged.backends.cublas_cudnn.thread_support import thread_function
from staged.backends.gpu_family.packs import pack_type
from staged.backends.gpu_family.permutations import SNIPPET
from staged.ir.types import DTYPES

CUDA_MATHS = frozenset(
    """exp expm1 log log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc log2 log10 pow atan2 floor
    ceil trunc""".split()
)
"""Functions that CUDA has under their C names, with an `f` at the end for f32."""
RENAMED = {"abs": "fabs", "round": "rint"}
CUDA_FUNCTIONS = frozenset(f"{name}{ending}" for name in (*CUDA_MATHS, *RENAMED.values()) for ending in ("", "f"))
"""What kernels call by CUDA's names, which nothing of theirs may have."""

_CHECKED = re.compile(r"checked_(\w+)_([a-z]\d+)")
_CHECKED_TEXT = """\
// The same, but `{wrong}` is reported.
static __device__ inline {t} st_checked_{name}_{dtype}(st_device_failure *failed, int site, {t} a, {t} b) {{
    if ({wrong}) {{
        st_fail(failed, {kind}, site, 0, 0);
        return 0;
    }}
    return st_{name}_{dtype}(a, b);
}}
"""
_WRONG = {
    "floor_divide": ("b == 0", "ST_DEVICE_ZERO_DIVISION"),
    "remainder": ("b == 0", "ST_DEVICE_ZERO_DIVISION"),
    "pow": ("b < 0", "ST_DEVICE_VALUE"),
}
_OWN: dict[str, tuple[tuple[str, ...], str]] = {
    "fail": ((), FAIL),
    "fail_not_finite": ((), FAIL_NOT_FINITE),
    SNIPPET: (permutation_text.NEEDS, permutation_text.TEXT),
}
"""Device functions that the host does not have, under the names of its snippets: which they call, and their text."""


def device_functions(names: Iterable[str], kernels: Sequence[str]) -> str:
    """The support functions of these names that `kernels` (texts) call, under names of their own.

    Why not the host's functions themselves: the kernels' part of the file is also compiled alone, without headers. Why
    not all that the snippets bring: nvcc warns of functions that nobody calls.
    """
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts or re.fullmatch(r"st_(\w+)_f(32|64)", name) and name.split("_")[1] in CUDA_MATHS:
            return
        checked = _CHECKED.fullmatch(name)
        if checked is not None:
            add("fail")
            add(f"{checked[1]}_{checked[2]}")
            wrong, kind = _WRONG[checked[1]]
            texts[name] = _CHECKED_TEXT.format(
                t=DTYPES[checked[2]].c_name, name=checked[1], dtype=checked[2], wrong=wrong, kind=kind
            )
        elif name in _OWN:
            needed_first, text = _OWN[name]
            for needed in needed_first:
                add(needed)
            texts[name] = text
        elif (reduction := reduction_function(name)) is not None:
            for needed in reduction[0]:
                add(needed)
            texts[name] = reduction[1]
        elif (pack := pack_type(name)) is not None:
            texts[name] = pack
        elif (wins := wins_function(name)) is not None:
            texts[name] = wins
        elif (own := thread_function(name)) is not None:
            for needed in own[0]:
                add(needed)
            texts[name] = own[1]
        else:
            snippet = snippets()[name]
            for needed in snippet.needs:
                add(needed)
            texts[name] = _for_device(snippet.text)

    for name in sorted(names):
        add(name)
    made = "\n".join(text.strip("\n") + "\n" for text in texts.values() if text.strip())
    functions = [text for text in device_names(made).strip("\n").split("\n\n") if text]
    while True:
        kept = [f for f in functions if _is_called(f, [*kernels, *(other for other in functions if other is not f)])]
        if len(kept) == len(functions):
            return "\n\n".join(kept) + "\n" if kept else ""
        functions = kept


def _for_device(text: str) -> str:
    """A support function of the host as one of the device: maths functions are CUDA's."""
    text = re.sub(r"(?:__attribute__\(\(unused\)\) )?static inline ", "static __device__ inline ", text)
    text = re.sub(r"\b__builtin_(sqrtf?)\(", r"\1(", text)
    return re.sub(rf"\bst_({'|'.join(sorted(CUDA_MATHS))})_f(32|64)\(", _cuda_call, text)


def _cuda_call(found: re.Match[str]) -> str:
    return f"{found[1]}f(" if found[2] == "32" else f"{found[1]}("


def _is_called(function: str, texts: Sequence[str]) -> bool:
    names = re.findall(r"^static __device__ inline \w+ (\w+)\(", function, re.MULTILINE)
    return not names or any(re.search(rf"\b{name}\(", text) for name in names for text in texts)


def device_names(text: str) -> str:
    """`st_maximum_f32` becomes `st_device_maximum_f32` (names of the user never begin with `st_`)."""
    return re.sub(r"\bst_(?!device_)", "st_device_", text)
