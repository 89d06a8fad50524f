"""The program's order as memory plan and emitters see it: fused kernels are single steps, views share memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value, VariableRef, walk_blocks, walk_ops
from staged.ir.structure import ABSENT, FRAME_LOAD, FRAME_NULL, IF, SEQUENCE_GET, VARIABLE_READ
from staged.ir.types import TensorType
from staged.source import Position

if TYPE_CHECKING:
    from staged.ir.thread_kernel import ThreadKernel


def changed_operands(op: Op) -> tuple[int, ...]:
    """The numbers of the operands that an op updates in part and returns as results."""
    if op.declared is prims.GPU_FUNC:
        kernel: ThreadKernel = op.attrs["kernel"]
        return kernel.written
    return (0,) if op.declared.changes_first else ()


def view_of(value: Value) -> Value | None:
    """The value that `value` is a view of, if it is one: left outside of kernels, its op only looks at that one's
    memory.
    """
    producer = value.producer
    if producer is None or not is_tensor(value):
        return None
    if producer.declared.is_view or producer.declared in (SEQUENCE_GET, FRAME_LOAD):
        return producer.operands[0]
    return None


def root_of(value: Value) -> Value:
    """The value whose memory `value` looks at: itself, unless it is a view."""
    while (viewed := view_of(value)) is not None:
        value = viewed
    return value


def family_of(value: Value) -> VariableRef | None:
    """The family of which a value is a member, read by its number or as a part of the whole family."""
    read = root_of(value).made_by(VARIABLE_READ)
    variable: VariableRef | None = None if read is None else read.attrs["variable"]
    return variable if variable is not None and variable.members else None


def is_tensor(value: Value) -> bool:
    """Return whether a value needs memory: a tensor with at least one dimension."""
    return isinstance(value.type, TensorType) and bool(value.type.shape)


def is_absent(value: Value) -> bool:
    """Return whether a value is the placeholder for one that a branch does not have."""
    return value.made_by(ABSENT) is not None


def where_made(value: Value) -> Position | None:
    """The user's line that computes a value: in the branch that has it, or in the kernel that makes it."""
    producer = value.producer
    if producer is None or producer.declared in (ABSENT, FRAME_NULL):
        return None
    if producer.declared is IF:
        given = [block.end.operands[value.index] for block in producer.blocks if block.end.kind == "yield"]
        return next((where for where in map(where_made, given) if where is not None), producer.where)
    if producer.declared.is_opaque and producer.blocks:
        inner = producer.blocks[0].end.operands[value.index].producer
        return producer.where if inner is None else inner.where
    return producer.where


def structural_ops(block: Block) -> Iterator[Op]:
    """Every op in program order, without the ops inside kernels."""
    return walk_ops(block, into_opaque=False)


def structural_blocks(block: Block) -> Iterator[Block]:
    """`block` and the blocks of its control flow, without the blocks of kernels."""
    return walk_blocks(block, into_opaque=False)
