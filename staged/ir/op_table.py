"""Tables by op that files register themselves in, so that a look-up need not import them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from staged.ir.declaration import Declaration

Rule = TypeVar("Rule")


def entered(table: dict[Any, Any], *keys: Any) -> Callable[[Rule], Rule]:
    """A decorator that enters a function into `table` under these keys."""

    def enter(rule: Rule) -> Rule:
        table.update(dict.fromkeys(keys, rule))
        return rule

    return enter


class OpTable(dict[Declaration, Rule]):
    """A rule for each op that has one: `@REVERSES.rule(FOR, WHILE)` above a function enters it."""

    def rule(self, *ops: Declaration) -> Callable[[Rule], Rule]:
        """Register the decorated function as the rule of these ops."""
        taken = [op.name for op in ops if op in self]
        assert not taken, f"{taken} have a rule already"
        return entered(self, *ops)
