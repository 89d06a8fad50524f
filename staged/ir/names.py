"""Names of values in generated text: the user's, else derived from the op that makes the value."""

from __future__ import annotations

from functools import lru_cache

from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.structure import ABSENT, CALL, FRAME_LOAD, FRAME_NULL, VARIABLE_READ


@lru_cache(maxsize=1024)
def as_name(words: str) -> str:
    """`model.0.weight` -> `model_0_weight`: words of the user's as a name."""
    return "".join(c if c.isalnum() else "_" for c in words)


def name_of(value: Value) -> str:
    """A name for a value; nothing where neither the user nor the op behind it has one."""
    op = value.producer
    if value.hint or op is None:
        return value.hint
    if op.declared is VARIABLE_READ:
        return str(op.attrs["variable"].name)
    if op.declared is prims.FIT:
        return name_of(op.operands[0]) or "number"
    if op.declared.named_after_operand:
        return name_of(op.operands[0]) or op.name
    if op.declared.is_opaque:
        return _name_of_result(op, value)
    if op.declared is prims.INDEX_CHECK:
        return "index"
    says_nothing = (CALL, ABSENT, FRAME_LOAD, FRAME_NULL, prims.CONSTANT)
    return "" if op.declared.is_control or op.declared in says_nothing else op.name


def _name_of_result(op: Op, value: Value) -> str:
    """The only result of a kernel is called as the kernel is, one of several after the op inside that makes it."""
    if not op.blocks or len(op.results) == 1:
        return str(op.attrs.get("name") or "")
    inner = op.blocks[0].end.operands[value.index]
    params = op.blocks[0].params
    if inner in params:
        return name_of(op.operands[params.index(inner)]) if params.index(inner) < len(op.operands) else inner.hint
    return name_of(inner)
