"""The program's order as memory plan and emitters see it: fused kernels are single steps, views share memory."""

from __future__ import annotations

from collections.abc import Iterator

from staged.ir.nodes import Block, End, Op, Value, walk_blocks, walk_ops
from staged.ir.thread_kernel import ThreadKernel
from staged.ir.types import TensorType
from staged.source import Position

OPAQUE = frozenset(("kernel", "contraction", "library", "gpu_func", "composite"))
"""Ops that are one step, whose block (a `library` and a `gpu_func` have none) is a description and no part of the program's order."""


def changed_operands(op: Op) -> tuple[int, ...]:
    """The numbers of the operands that an op changes in part, and gives as results."""
    if op.name == "gpu_func":
        kernel: ThreadKernel = op.attrs["kernel"]
        return kernel.written
    return (0,) if op.declared.changes_first else ()


def view_of(value: Value) -> Value | None:
    """The value that `value` is a view of, if it is one: left outside of kernels, its op only looks at that one's memory."""
    producer = value.producer
    if producer is None or not is_tensor(value):
        return None
    if producer.declared.is_view or producer.name in ("sequence_get", "frame_load"):
        return producer.operands[0]
    return None


def root_of(value: Value) -> Value:
    """The value whose memory `value` looks at: itself, unless it is a view."""
    while (viewed := view_of(value)) is not None:
        value = viewed
    return value


def is_tensor(value: Value) -> bool:
    """Whether a value needs memory: a tensor with at least one dimension."""
    return isinstance(value.type, TensorType) and bool(value.type.shape)


def is_absent(value: Value) -> bool:
    """Whether a value stands for one that a branch does not have."""
    return value.producer is not None and value.producer.name == "absent"


def where_made(value: Value) -> Position | None:
    """The user's line that computes a value: in the branch that has it, or in the kernel that makes it."""
    producer = value.producer
    if producer is None or producer.name in ("absent", "frame_null"):
        return None
    if producer.name == "if":
        given = [block.end.operands[value.index] for block in producer.blocks if block.end.kind == "yield"]
        return next((where for where in map(where_made, given) if where is not None), producer.where)
    if producer.name in OPAQUE and producer.blocks:
        inner = producer.blocks[0].end.operands[value.index].producer
        return producer.where if inner is None else inner.where
    return producer.where


def structural_ops(block: Block) -> Iterator[Op]:
    """Every op in program order, without the ops inside kernels."""
    return walk_ops(block, OPAQUE)


def structural_blocks(block: Block) -> Iterator[Block]:
    """`block` and the blocks of its control flow, without the blocks of kernels."""
    return walk_blocks(block, OPAQUE)


def ends_of_loop(op: Op) -> list[tuple[Block, End]]:
    """The blocks inside a loop that go on with it or leave it, with the ends that pass its carried values."""
    label = op.attrs["label"]
    found = [(op.blocks[-1], op.blocks[-1].end)] if op.blocks[-1].end.kind == "yield" else []
    for block in structural_blocks(op.blocks[-1]):
        if block.end.target is label:
            found.append((block, block.end))
    return found


def ends_of_branch(op: Op) -> list[tuple[Block, End]]:
    found = [(block, block.end) for block in op.blocks if block.end.kind == "yield"]
    if op.name == "scope":
        label = op.attrs["label"]
        found += [(block, block.end) for block in structural_blocks(op.blocks[0]) if block.end.target is label]
    return found
