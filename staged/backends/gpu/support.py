"""Support functions as kernels call them: the host's, in the words of a dialect, and those that only a device has.

Tested by `tests/backends/gpu/test_support.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.failures import FITTED
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.nest.statements import FAILED
from staged.backends.gpu.thread_support import thread_function
from staged.code.support.library import Snippet, SupportFunction, made_of, snippets
from staged.code.uses import functions_called
from staged.ir.numbers import limits
from staged.ir.types import ALL_DTYPES, i64

FindSnippet = Callable[[str], Snippet | None]
"""The snippet that a device has of its own under a name; None where it has none."""

_CHECKED_TEXT = """\
({record}failed, int site, {t} a, {t} b) {{
    if ({wrong}) {{
        st_fail(failed, {kind}, site, 0, 0);
        return 0;
    }}
    return {function}(a, b);
}}
"""
_WRONG = {
    "floor_divide": ("b == 0", "ST_DEVICE_ZERO_DIVISION"),
    "remainder": ("b == 0", "ST_DEVICE_ZERO_DIVISION"),
    "pow": ("b < 0", "ST_DEVICE_VALUE"),
}
_FIT_TEXT = """\
({record}failed, int site, int64_t x) {{
    if (x < {low} || x > {high}) {{
        st_fail(failed, ST_DEVICE_OVERFLOW, site, x, {number});
        return 0;
    }}
    return ({t})x;
}}
"""
_FITS = {f"checked_fit_{dtype}": number for number, dtype in enumerate(FITTED)}
_CHECKED = {f"checked_{name}_{dtype}": (name, dtype) for name in _WRONG for dtype in ALL_DTYPES if dtype.is_integer}


def needs_of(kernels: Iterable[GpuKernel]) -> set[str]:
    """The names of the snippets that kernels use."""
    return {name for kernel in kernels for name in kernel.snippets}


def calls_of(kernels: Iterable[GpuKernel]) -> set[str]:
    """The names of the functions that kernels call."""
    return {name for kernel in kernels if kernel.code is not None for name in functions_called(kernel.code.body)}


def device_functions(names: Iterable[str], called: Iterable[str], dialect: GpuDialect, find: FindSnippet) -> str:
    """The snippets of these names as a device has them, under names of its own; of functions those that kernels call,
    by name (`called`), and those that these call.

    Why not the host's functions themselves: the kernels' part of the program is also compiled alone, without headers.
    Why not all that the snippets bring: compilers of kernels warn of functions that are not called.
    """
    found: dict[str, Snippet] = {}

    def add(name: str) -> None:
        if name in found or name in dialect.own_functions:
            return
        own = checked_function(name, dialect) or thread_function(name, dialect) or find(name)
        snippet = own or snippets()[name]
        assert own or snippet.functions or not snippet.text, f"the support snippet {name} is the host's alone"
        for needed in snippet.needs:
            add(needed)
        found[name] = snippet

    for name in sorted(names):
        add(name)
    functions = [function for snippet in found.values() for function in snippet.functions]
    calls: dict[str, tuple[str, ...]] = {function.name: function.calls for function in functions}
    reached: set[str] = set()
    left = list(called)
    while left:
        name = left.pop()
        if name not in reached:
            reached.add(name)
            left += calls.get(name, ())
    texts = []
    for snippet in found.values():
        if not snippet.functions and snippet.text:
            texts.append(snippet.text)
        texts += [_of_device(function, dialect) for function in snippet.functions if function.name in reached]
    return "\n".join(texts)


def checked_function(name: str, dialect: GpuDialect) -> Snippet | None:
    """A function that reports operands for which an op has no result; None if `name` is none."""
    if name in _FITS:
        return _fit_function(name, dialect)
    if name not in _CHECKED:
        return None
    op, dtype = _CHECKED[name]
    wrong, kind = _WRONG[op]
    function, t = f"st_{op}_{dtype}", dtype.c_name
    record = dialect.words.type(FAILED.type)
    text = _CHECKED_TEXT.format(record=record, t=t, function=function, wrong=wrong, kind=kind)
    comment = f"// The same, but `{wrong}` is reported.\n"
    checked = SupportFunction(t, f"st_{name}", text, ("st_fail", function), comment)
    return made_of(name, checked, needs=("fail", f"{op}_{dtype}"))


def _fit_function(name: str, dialect: GpuDialect) -> Snippet:
    """The function that reports an integer which its dtype cannot hold; `limit` of the report says which dtype."""
    number = _FITS[name]
    dtype = FITTED[number]
    low, high = limits(dtype)
    record = dialect.words.type(FAILED.type)
    text = _FIT_TEXT.format(record=record, t=dtype.c_name, low=low, high=min(high, limits(i64)[1]), number=number)
    comment = f"// A number as {dtype}; one that does not fit is reported.\n"
    return made_of(name, SupportFunction(dtype.c_name, f"st_{name}", text, ("st_fail",), comment), needs=("fail",))


def _of_device(function: SupportFunction, dialect: GpuDialect) -> str:
    """A support function in the words of a device: maths functions are the language's."""

    def name_of(name: str) -> str:
        if name.startswith("__builtin_"):
            return dialect.builtin(name.removeprefix("__builtin_"))
        return dialect.own_functions.get(name) or dialect.words.function(name)

    overloaded = dialect.overloaded if function.is_overloaded else ""
    return function.spelled(dialect.function_head + overloaded, name_of)
