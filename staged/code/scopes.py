"""Short names for locals: variables of two blocks may have the same name if neither block is inside the other.

    for (int64_t layer = 0; ...) {...}             for (int64_t layer = 0; ...) {...}
    for (int64_t layer_2 = 0; ...) {...}     ->    for (int64_t layer = 0; ...) {...}

Each name is unique until the function is complete. No variable shadows another one afterwards.

Tested by `tests/code/test_scopes.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from staged.code.expr import Call, Expr, Literal, Name, Variable
from staged.code.rebuild import rebuilt
from staged.code.tree import (
    Declare,
    DeclareStruct,
    DeclareTable,
    For,
    ForAny,
    ForBits,
    Statement,
    inner_of,
    walk,
)
from staged.code.uses import expressions_within, with_parts
from staged.code.writer import Names

_WORD = re.compile(r"[A-Za-z_]\w*")


def with_short_names(
    parameters: Sequence[Variable], body: Sequence[Statement], names: Names
) -> tuple[tuple[Variable, ...], tuple[Statement, ...]]:
    """The parameters and statements of a function, in which locals have the shortest names that are free.

    `names` are those of its locals. Its outer names, those of the file, stay apart from locals.
    """
    shortener = _Shortener(parameters, body, names)
    shortener.block(body, parameters, shortener.fixed)
    found = {old: new for old, new in shortener.found.items() if old != new}
    return tuple(renamed(tuple(parameters), found)), tuple(renamed(tuple(body), found))


class _Shortener:
    """Chooses the names of one function, from its outermost block to the inner ones."""

    def __init__(self, parameters: Sequence[Variable], body: Sequence[Statement], names: Names) -> None:
        self.names = names
        self.found: dict[str, str] = {}
        """New names by old ones."""
        declared = Counter([*(each.text for each in parameters), *declared_within(body)])
        parts = list(with_parts(expressions_within(body)))
        mentioned = {part.text for part in parts if isinstance(part, Name)}
        texts = [part.text for part in parts if isinstance(part, Literal)]
        words = {word for text in texts for word in _WORD.findall(text)}
        words |= {part.function for part in parts if isinstance(part, Call)}
        again = {name for name, count in declared.items() if count > 1}
        self.fixed = frozenset(mentioned - declared.keys() | words | again)
        """Names that stay: those of the file, and of locals that several blocks declare."""

    def block(self, body: Sequence[Statement], own: Sequence[Variable], around: frozenset[str]) -> None:
        """Name the variables of a block, `own` first, then those of the blocks inside. Names in `around` are in use."""
        variables = [each.text for each in own] + [each.text for each in _declared(body)]
        taken = set(around)
        taken.update(name for name in (*variables, *declared_within(body)) if name not in self.names.numbered)
        for name in variables:
            self.found[name] = self.shortest(name, taken)
            taken.add(self.found[name])
        for statement in body:
            index = [statement.index] if isinstance(statement, For | ForAny) else []
            index += [statement.rest] if isinstance(statement, ForBits) else []
            for inner in inner_of(statement):
                self.block(inner, index, around | {self.found[name] for name in variables})

    def shortest(self, name: str, taken: set[str]) -> str:
        """The first free name with the same base; names without a number stay."""
        base = self.names.numbered.get(name)
        if base is None or name in self.fixed:
            return name
        for candidate in self.names.numbers(base):
            if candidate not in taken and not self.is_of_file(candidate):
                return candidate
        raise AssertionError(name)

    def is_of_file(self, name: str) -> bool:
        """Return whether the file has a function or field of this name."""
        return self.names.outer is not None and self.names.outer.taken(name)


def renamed(tree: Any, found: Mapping[str, str]) -> Any:
    """Statements or expressions with other names."""
    if isinstance(tree, Name):
        return replace(tree, text=found[tree.text]) if tree.text in found else tree
    return rebuilt(tree, lambda part: renamed(part, found))


def replaced(tree: Any, found: Mapping[Variable, Expr]) -> Any:
    """Statements or expressions with expressions in the place of variables."""
    if isinstance(tree, Variable):
        return found.get(tree, tree)
    return rebuilt(tree, lambda part: replaced(part, found))


def _declared(body: Sequence[Statement]) -> Iterator[Variable]:
    """The variables that the statements of a block declare for those behind them."""
    for statement in body:
        match statement:
            case Declare(variable, also=also):
                yield variable
                yield from (other for other, _ in also)
            case DeclareStruct(variable) | DeclareTable(variable):
                yield variable


def declared_within(body: Sequence[Statement]) -> Iterator[str]:
    """The names that statements declare, those inside of them included."""
    return (each.text for each in declared_variables(body))


def declared_variables(body: Sequence[Statement]) -> Iterator[Variable]:
    """The variables that statements declare, those inside of them included."""
    for statement in walk(body):
        yield from _declared((statement,))
        match statement:
            case For(index) | ForAny(index) | ForBits(index):
                yield index
