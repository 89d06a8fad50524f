"""C functions of the user's in a program: their definitions, or their declarations where a library has them.

Tested by `tests/test_custom_ops.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from staged.backends.host.body import BodyEmitter
from staged.backends.host.messages import emit_failure
from staged.code.expr import Expr, Infix, Literal
from staged.code.types import word
from staged.code.writer import c_string
from staged.errors import ArgumentError
from staged.ir.functions import every_function
from staged.ir.nodes import Function, walk_ops
from staged.ops.custom import CUSTOM_OP, CFunction, CudaForm
from staged.source import Position

_RESTRICT = """\
#if defined(__cplusplus) && !defined(restrict)
#define restrict __restrict
#endif
"""
_WORD = re.compile(r"[A-Za-z_]\w*|[(){}]")


def functions_of(program: Function) -> list[CFunction]:
    """The C functions that a program calls. Raises: ArgumentError for two of one name."""
    found: dict[str, CFunction] = {}
    for function in every_function(program):
        for op in walk_ops(function.block):
            if op.declared is not CUSTOM_OP:
                continue
            called: CFunction = op.attrs["function"]
            before = found.setdefault(called.name, called)
            if _text(before) != _text(called):
                raise ArgumentError(f"the program calls two C functions called `{called.name}`", where=op.where)
    return list(found.values())


def names_in(functions: list[CFunction]) -> set[str]:
    """The words of the texts outside of parentheses and braces, which the program's own names must not be."""
    found, depth = {function.name for function in functions}, 0
    for function in functions:
        for each in _WORD.findall(function.source):
            if each in "({":
                depth += 1
            elif each in ")}":
                depth -= 1
            elif depth == 0:
                found.add(each)
    return found


def definitions(functions: list[CFunction]) -> str:
    """The text of the functions."""
    if not functions:
        return ""
    # With a device the text is part of a file of C++, which has another word for it.
    uses = any("restrict" in _WORD.findall(function.source) for function in functions)
    return "\n".join([*([_RESTRICT] if uses else []), *map(_text, functions)])


def libraries(functions: Iterable[CFunction | CudaForm]) -> tuple[str, ...]:
    """Linker flags for the libraries, in words that nvcc knows too."""
    found = dict.fromkeys(function.library for function in functions if function.library)
    return tuple(flag for path in found for flag in (path, "-Xlinker", f"-rpath={path.rpartition('/')[0]}"))


def call_checked(body: BodyEmitter, name: str, called: Expr, where: Position | None) -> None:
    """A call of the function known to the user as `name`, which stops the program if it returns another number than
    0.
    """
    status = body.local("status", word("int"), called, has_effects=True)
    with body.code.branch(Infix("!=", status, Literal("0"))):
        message = Literal(c_string(f"`{name}` has returned %d"))
        emit_failure(body, "ST_RUNTIME_ERROR", where, message, status)


def _text(function: CFunction) -> str:
    declared = f"int {function.name}({function.parameters or 'void'});"
    if function.source:
        # What is declared static stays it where it is defined: several files of a folder may have the text.
        return f"// ---- `{function.name}`, given to st.custom_op ----\nstatic {declared}\n{function.source.strip()}\n"
    return (
        f'// ---- `{function.name}`, of {function.library} ----\n#ifdef __cplusplus\nextern "C"\n#endif\n{declared}\n'
    )
