"""What values are called in generated text: as the user calls them, else after what makes them."""

from __future__ import annotations

from staged.ir.nodes import Op, Value
from staged.ir.storage import OPAQUE

CONTROL = frozenset("if for while scope call constant absent frame_load frame_null".split())
"""Ops whose own name says nothing of what they give."""


def name_of(value: Value) -> str:
    """A name for a value; nothing where neither the user nor the op behind it has one."""
    op = value.producer
    if value.hint or op is None:
        return value.hint
    if op.name == "variable_read":
        return str(op.attrs["variable"].name)
    if op.declared.named_after_operand or op.name in ("copy", "sequence_get"):
        return name_of(op.operands[0]) or op.name
    if op.name in OPAQUE:
        return _name_of_result(op, value)
    if op.name == "index_check":
        return "index"
    return "" if op.name in CONTROL else op.name


def _name_of_result(op: Op, value: Value) -> str:
    """The only result of a kernel is called as the kernel is, one of several after the op inside that makes it."""
    if not op.blocks or len(op.results) == 1:
        return str(op.attrs.get("name") or "")
    inner = op.blocks[0].end.operands[value.index]
    params = op.blocks[0].params
    if inner in params:
        return name_of(op.operands[params.index(inner)]) if params.index(inner) < len(op.operands) else inner.hint
    return name_of(inner)
