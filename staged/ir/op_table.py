"""Tables by op name that files enter themselves in, so that whoever looks an op up need not know them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

Rule = TypeVar("Rule")


class OpTable(dict[str, Rule]):
    """A rule for each op name that has one: `@REVERSES.rule("for", "while")` above a function enters it."""

    def rule(self, *names: str) -> Callable[[Rule], Rule]:
        """Enter what is decorated as the rule of the ops `names`."""

        def enter(rule: Rule) -> Rule:
            taken = self.keys() & set(names)
            assert not taken, f"{taken} have a rule already"
            self.update(dict.fromkeys(names, rule))
            return rule

        return enter
