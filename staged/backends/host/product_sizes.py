"""The sizes of products that a program finds: it fills a struct before it calls a kernel, or before loops around it.

    const st_product_f32 sizes = st_sized_f32((st_matrices){T, T, 32, false, true, false, false}, scores_sizes);
    for (int64_t head = 0; head < 8; ++head) {
        scores(q + head * (T * 32), k + head * (T * 32), T, m->scores, &sizes, (float *)m->scratch, 0, 1);

Tested by `tests/backends/host/test_contraction_sized.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from staged.code.expr import Call, Expr, Index, Member, Prefix
from staged.code.kernel_text import KernelText
from staged.code.scopes import declared_within, renamed
from staged.code.tree import Declare, For, ForAny, ForBits, Statement, While
from staged.code.types import CType, word
from staged.code.unused import names_used
from staged.code.uses import with_parts, written_names

FILLS = "st_sized_"
"""The start of the names of functions that fill a struct."""


def filled_sizes(
    local: Callable[[str, CType, Expr], Expr], kernel: KernelText, arguments: Sequence[Expr]
) -> list[Expr]:
    """The sizes that a kernel asks for: a struct that `local` declares, and numbers."""
    made = kernel.filled
    if made is None:
        return []
    return made.passed(local(made.name, word(made.type), made.value(arguments)), arguments)


def with_sizes_first(statement: Statement) -> tuple[Statement, ...]:
    """A statement; if it is a loop, the sizes that it does not change are filled before it, equal ones once."""
    if not isinstance(statement, For | ForAny | ForBits | While):
        return (statement,)
    inside = {*declared_within((statement,)), *written_names((statement,))}
    first, found, kept = dict[str, Declare](), dict[str, str](), list[Statement]()
    for each in statement.body:
        if isinstance(each, Declare) and _fills(each.value) and names_used((each,)).isdisjoint(inside):
            same = first.setdefault(str(each.value), each)
            found[each.variable.text] = same.variable.text
        else:
            kept.append(each)
    if not first:
        return (statement,)
    return (*first.values(), replace(statement, body=renamed(tuple(kept), found)))


def _fills(value: Expr | None) -> bool:
    """Return whether a value is a struct of sizes that only depends on variables."""
    if not isinstance(value, Call) or not value.function.startswith(FILLS):
        return False
    return not any(isinstance(part, Member | Index | Prefix) for part in with_parts([value]))
