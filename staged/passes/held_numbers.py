"""The numbers that Variables hold at one place of a function, as far as earlier reads and writes show them.

Tested by `tests/passes/test_reads_of_variables.py`.
"""

from __future__ import annotations

from collections.abc import Hashable

from staged.ir.nodes import Op, Value, VariableRef, walk_op
from staged.ir.structure import CALLBACK, VARIABLE_READ, VARIABLE_WRITE
from staged.ir.trips import constant_of
from staged.ir.types import TensorType


class HeldNumbers:
    """By Variable, or member of a family, the value of its last read or write.

    Arrays are left out: the value of a read may share the Variable's memory, and would be copied if it lived longer.
    """

    def __init__(self) -> None:
        self._known: dict[VariableRef, dict[tuple[Hashable, ...], Value]] = {}

    def copy(self) -> HeldNumbers:
        """The same numbers, for a block that begins here."""
        held = HeldNumbers()
        held._known = {variable: dict(members) for variable, members in self._known.items()}
        return held

    def read(self, op: Op) -> Value | None:
        """The value that a read gives, if it is known."""
        if not _is_access(op) or op.declared is not VARIABLE_READ:
            return None
        found = self._known.get(op.attrs["variable"], {}).get((op.device, *op.operands))
        return found if found is not None and _is_alike(found, op.result) else None

    def after(self, op: Op) -> None:
        """Note what an op without blocks reads or writes."""
        self.forget(op)
        if _is_access(op):
            is_write = op.declared is VARIABLE_WRITE
            value, key = (op.operands[0], op.operands[1:]) if is_write else (op.result, op.operands)
            self._known.setdefault(op.attrs["variable"], {})[op.device, *key] = value

    def forget(self, op: Op) -> None:
        """Forget what an op may write, in its blocks and calls too; a function of Python's may write anything."""
        for each in walk_op(op):
            if each.declared is CALLBACK:
                self._known.clear()
            for effect in each.effects:
                if effect.kind == "write" and effect.target in self._known:
                    is_member = each.declared is VARIABLE_WRITE and len(each.operands) > 1
                    index = constant_of(each.operands[-1]) if is_member else None
                    self._forget_members(effect.target, index)

    def _forget_members(self, variable: VariableRef, index: object) -> None:
        """Forget a Variable; of a family, all members but those that are known to have another number."""
        members = self._known[variable]
        for key in list(members):
            last = key[-1]
            other = constant_of(last) if isinstance(last, Value) else None
            if index is None or other is None or other == index:
                del members[key]


def _is_access(op: Op) -> bool:
    """Return whether an op reads or writes one number of a Variable."""
    if op.declared is not VARIABLE_READ and op.declared is not VARIABLE_WRITE:
        return False
    variable: VariableRef = op.attrs["variable"]
    has_index = len(op.operands) > (op.declared is VARIABLE_WRITE)
    return not variable.type.shape and (has_index or not variable.members)


def _is_alike(value: Value, other: Value) -> bool:
    types = value.type, other.type
    return all(isinstance(type, TensorType) for type in types) and value.tensor.dtype is other.tensor.dtype
