"""The decisions of fusion, kept to explain why two kernels are not one.

Tested by `tests/explain/test_explain.py`.
"""

from __future__ import annotations

from staged.ir.nodes import Op
from staged.kernels.groups import Groups


class FusionLog:
    """The origin of each kernel of a program, to explain why two of them were not fused."""

    def __init__(self) -> None:
        self.origins: dict[object, tuple[Groups, Op]] = {}
        """The groups of the block that a `kernel` or `contraction` op stands in, and the first op in it."""

    def enter(self, kernel: Op, groups: Groups, first: Op) -> None:
        self.origins[_identity_of(kernel)] = (groups, first)

    def apart(self, a: Op, b: Op) -> str:
        """Why the kernels `a` and `b`, of which `b` reads what `a` makes, are not one. They may be copies of those
        entered.
        """
        keys = _identity_of(a), _identity_of(b)
        if not all(key in self.origins for key in keys):
            return "one of them was made after fusion"
        (groups, first), (others, second) = (self.origins[key] for key in keys)
        if groups is not others:
            return "they stand in different blocks of the program"
        if first not in groups.steps.node_of or second not in groups.steps.node_of:
            return "one of them makes an array of a view"
        return (
            groups.obstacle(groups.steps.node_of[first], groups.steps.node_of[second])
            or "they were not tried: each joined others first"
        )


def _identity_of(kernel: Op) -> object:
    """The identity that a kernel op and its copies share."""
    return kernel.attrs.get("nest") or (kernel.name, kernel.attrs.get("name"), kernel.where)
