"""Support functions as kernels call them: the host's, in the words of a dialect, and those that only a device has.

Tested by `tests/backends/gpu_family/test_kernel_text.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

from staged.backends.c_family.support.library import snippets
from staged.backends.gpu_family.dialect import GpuDialect
from staged.backends.gpu_family.nest.statements import FAILED
from staged.backends.gpu_family.thread_support import thread_function
from staged.ir.types import DTYPES

FindFunction = Callable[[str], tuple[tuple[str, ...], str] | None]
"""(names of functions that it calls, text) of a function of a device, by its name; None for one that the host has too.
"""

_CHECKED_TEXT = """\
// The same, but `{wrong}` is reported.
{head}{t} st_checked_{name}_{dtype}({record}failed, int site, {t} a, {t} b) {{
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
_CHECKED = {
    f"checked_{name}_{dtype}": (name, dtype) for name in _WRONG for dtype in DTYPES.values() if dtype.is_integer
}


def device_functions(names: Iterable[str], kernels: Sequence[str], dialect: GpuDialect, find: FindFunction) -> str:
    """The support functions of these names that `kernels` (texts) call, under names of their own.

    Why not the host's functions themselves: the kernels' part of the program is also compiled alone, without headers.
    Why not all that the snippets bring: compilers of kernels warn of functions that are not called.
    """
    texts: dict[str, str] = {}

    def add(name: str) -> None:
        if name in texts or name in dialect.own_functions:
            return
        found = checked_function(name, dialect) or thread_function(name, dialect) or find(name)
        if found is None:
            snippet = snippets()[name]
            found = snippet.needs, _for_device(snippet.text, dialect)
        for needed in found[0]:
            add(needed)
        texts[name] = found[1]

    for name in sorted(names):
        add(name)
    made = "\n".join(text.strip("\n") + "\n" for text in texts.values() if text.strip())
    functions = [text for text in device_names(made).strip("\n").split("\n\n") if text]
    while True:
        kept = [
            f
            for f in functions
            if _is_called(f, [*kernels, *(other for other in functions if other is not f)], dialect)
        ]
        if len(kept) == len(functions):
            return "\n\n".join(kept) + "\n" if kept else ""
        functions = kept


def checked_function(name: str, dialect: GpuDialect) -> tuple[tuple[str, ...], str] | None:
    """A function that reports operands for which the one that it calls has no result; None if `name` is none."""
    if name not in _CHECKED:
        return None
    op, dtype = _CHECKED[name]
    wrong, kind = _WRONG[op]
    head, record = dialect.function_head, dialect.words.type(FAILED.type)
    text = _CHECKED_TEXT.format(head=head, record=record, t=dtype.c_name, name=op, dtype=dtype, wrong=wrong, kind=kind)
    return ("fail", f"{op}_{dtype}"), text


def _for_device(text: str, dialect: GpuDialect) -> str:
    """A support function of the host as one of the device: maths functions are the language's."""
    text = re.sub(r"(?:__attribute__\(\(unused\)\) )?static inline ", dialect.function_head, text)
    text = re.sub(r"\b__builtin_(sqrtf?)\(", lambda found: dialect.builtin(found[1]), text)
    own = dialect.own_functions
    return re.sub(r"\b(st_\w+)\(", lambda found: f"{own.get(found[1], found[1])}(", text)


def _is_called(function: str, texts: Sequence[str], dialect: GpuDialect) -> bool:
    names = re.findall(rf"^{dialect.function_head}\w+ (\w+)\(", function, re.MULTILINE)
    return not names or any(re.search(rf"\b{name}\(", text) for name in names for text in texts)


def device_names(text: str) -> str:
    """`st_maximum_f32` becomes `st_device_maximum_f32` (names of the user never begin with `st_`)."""
    return re.sub(r"\bst_(?!device_)", "st_device_", text)
