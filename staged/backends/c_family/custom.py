"""C functions of the user's in a program: their definitions, or their declarations where a library has them.

Tested by `tests/test_custom_ops.py`.
"""

from __future__ import annotations

import re

from staged.errors import ArgumentError
from staged.ir.functions import every_function
from staged.ir.nodes import Function, walk_ops
from staged.ops.custom import CUSTOM_OP, CFunction

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
        for word in _WORD.findall(function.source):
            if word in "({":
                depth += 1
            elif word in ")}":
                depth -= 1
            elif depth == 0:
                found.add(word)
    return found


def definitions(functions: list[CFunction]) -> str:
    """The text of the functions."""
    return "\n".join(map(_text, functions))


def libraries(functions: list[CFunction]) -> tuple[str, ...]:
    """Linker flags for the libraries."""
    found = dict.fromkeys(function.library for function in functions if function.library)
    return tuple(flag for path in found for flag in (path, f"-Wl,-rpath,{path.rpartition('/')[0]}"))


def _text(function: CFunction) -> str:
    declared = f"int {function.name}({function.parameters or 'void'});"
    if function.source:
        # What is declared static stays it where it is defined: several files of a folder may have the text.
        return f"// ---- `{function.name}`, given to st.custom_op ----\nstatic {declared}\n{function.source.strip()}\n"
    return (
        f'// ---- `{function.name}`, of {function.library} ----\n#ifdef __cplusplus\nextern "C"\n#endif\n{declared}\n'
    )
