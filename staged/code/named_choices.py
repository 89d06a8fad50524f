"""Names for the extremes of sizes that a function writes more than once, before its other statements.

    const int64_t H_size = (H_dim + 1) / 2 - 1 > 0 ? (H_dim + 1) / 2 - 1 : 0;

Tested by `tests/code/test_extents.py`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from staged.code.expr import Conditional, Expr, Group, Infix, Literal, Name, Variable
from staged.code.rebuild import rebuilt
from staged.code.scopes import declared_within
from staged.code.tree import Declare, Statement
from staged.code.types import INDEX
from staged.code.unused import names_used
from staged.code.uses import expressions_within, mentioned, with_parts
from staged.code.writer import Names


def with_named_choices(parameters: Sequence[Variable], statements: Sequence[Statement]) -> tuple[Statement, ...]:
    """The statements, in which a variable holds each choice between sums and products of integer parameters."""
    fixed = {parameter.text for parameter in parameters if parameter.type.text == INDEX.text}
    if not fixed:
        return tuple(statements)
    found = Counter(
        expr
        for expr in with_parts(expressions_within(statements))
        if isinstance(expr, Group) and _is_fixed(expr, fixed)
    )
    names = Names()
    names.used |= fixed | names_used(statements) | set(declared_within(statements))
    declared: list[Declare] = []
    named: dict[Expr, Expr] = {}
    for choice, count in sorted(found.items(), key=lambda item: str(item[0])):
        if count > 1:
            used = dict.fromkeys(part.text for part in with_parts([choice]) if isinstance(part, Name))
            words = [*(name.removesuffix("_dim") for name in used), "size"]
            variable = Variable(names.fresh("_".join(words)), INDEX)
            named[choice] = variable
            declared.append(Declare(variable, choice.operand))
    return tuple(needed(declared, _replaced(tuple(statements), named))) if named else tuple(statements)


def needed(declared: Sequence[Declare], body: Sequence[Statement]) -> list[Statement]:
    """The declarations that a body needs, with those that they need, and the body."""
    found = [*body]
    for each in reversed(declared):
        if each.variable in mentioned(found):
            found.insert(0, each)
    return found


def _is_fixed(expr: Group, names: set[str]) -> bool:
    """Return whether an expression is a choice that no statement changes."""
    return isinstance(expr.operand, Conditional) and all(
        isinstance(part, Conditional | Group | Infix | Literal) or (isinstance(part, Name) and part.text in names)
        for part in with_parts([expr])
    )


def _replaced(node: Any, named: Mapping[Expr, Expr]) -> Any:
    if isinstance(node, Group) and node in named:
        return named[node]
    return rebuilt(node, lambda part: _replaced(part, named))
