"""The choice of batch norms that are calls of cuDNN: training with its statistics, gradients, and inference unless a
kernel absorbs it.

    y = weight * (x - mean) / sqrt(variance + eps) + bias        per channel of (N, C, ...)

cuDNN keeps what its backward wants: the means, and 1 / sqrt(variance + eps). Running statistics are brought up to date
in the same call. Where there are none, it makes those of the batch alone: the variance, over n - 1, comes no other way.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

from staged.backends.cublas_cudnn.library.cudnn import MOST_ELEMENTS, MOST_IMAGES
from staged.backends.cublas_cudnn.library.form import MOVES
from staged.backends.cublas_cudnn.library.running import Places, Running, running_statistics
from staged.ir.nodes import Block, Function, Op, Value, walk_ops
from staged.ir.structure import COMPOSITE, FOR, SEQUENCE_GET, WHILE
from staged.ir.types import TensorType
from staged.ir.users import Users
from staged.ir.views import Loop
from staged.ops.array import Array
from staged.ops.elementwise import rsqrt, square
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.record import RecordContext

TRAINING, BACKWARD, INFERENCE = "batch_norm_training", "batch_norm_backward", "batch_norm_inference"
RUNNING = "batch_norm_training_running"
KEPT = ("", "", "", "saved_mean", "saved_rstd")
"""Names of what the calls for training make."""
FUSED_KINDS = ("elementwise", "reduction", "random")
"""Kinds of primitives that share a kernel with an elementwise neighbour."""


def images(x: TensorType) -> tuple[int, ...]:
    """(N, C, ...) as the four extents that cuDNN wants."""
    n, channels, *rest = (int(extent) for extent in x.shape)  # type: ignore[arg-type]
    return n, channels, prod(rest[:-1]), prod(rest[-1:])


class BatchNorms:
    """The ways of the batch norms of a function, in program order."""

    def __init__(self, function: Function, users: Users) -> None:
        self.users = users
        self.elements: dict[Value, Value] = {}
        """By sequence that a loop collects: its element in an iteration."""
        self.collected: set[Value] = set()
        """The variances in whose place loops collect 1/std."""
        for op in walk_ops(function.block):
            if op.declared in (FOR, WHILE):
                self.elements.update(zip(Loop(op).collected, Loop(op).elements, strict=False))
        self.places: dict[Block, Places] = {}
        self.saved: dict[Value, tuple[float, Value, Value]] = {}
        """For each variance that a call makes: eps, and what the call keeps for the gradient."""
        self.updated: dict[Op, Value] = {}
        """The running statistics that a call has brought up to date already, by the ops that would."""
        self.ways: dict[str, FindWay] = {
            TRAINING: self.training,
            BACKWARD: self.backward,
            INFERENCE: self.inference,
            "add": self.update,
        }

    def training(self, op: Op, block: Block) -> Way | None:
        """y, mean and variance of `batch_norm_training`."""
        x, eps, parts = op.operands[0].tensor, float(op.attrs["eps"]), op.attrs["parts"]
        if not _fits(x, eps) or _count(x) < 2:
            return None
        is_collected = self.is_collected(op.results[2], eps)
        if is_collected:
            self.collected.add(op.results[2])
        running = running_statistics(op, self.users, self.places_in(block), _count(x), is_collected)
        if running is not None:
            return self.with_running(op, running, is_collected)
        few, n = _per_channel(x), _count(x)

        def write(context: RecordContext, x: Array, *affine: Array) -> Sequence[Array]:
            types = [x.type, few, few, few, few]
            made = library_call(TRAINING, [x, *affine], types, KEPT, eps=eps, parts=parts)
            y, mean, unbiased, saved, rstd = made
            self.save(context, op, eps, saved, rstd)
            return y, mean, rstd if is_collected else unbiased * ((n - 1) / n)

        return Way(write)

    def places_in(self, block: Block) -> Places:
        """The positions of the ops of a block."""
        if block not in self.places:
            self.places[block] = {each: number for number, each in enumerate(block.ops)}
        return self.places[block]

    def is_collected(self, variance: Value, eps: float) -> bool:
        """Return whether loops collect a variance, for gradients with `eps` alone: 1/std is collected instead."""
        sequences = [sequence for sequence, element in self.elements.items() if element is variance]
        reads = [user for sequence in sequences for user in self.users.get(sequence, ())]
        if not sequences or not all(read is not None and read.declared is SEQUENCE_GET for read in reads):
            return False
        found = [(user, read.result) for read in reads if read is not None for user in self.users.get(read.result, ())]
        return len(sequences) == sum(user is None for user in self.users[variance]) and all(
            user is not None and user.attrs.get("name") == BACKWARD and user.attrs["eps"] == eps
            and [operand for operand in user.operands if operand is value] == [user.operands[3]]
            for user, value in found
        )  # fmt: skip

    def with_running(self, op: Op, running: Running, is_collected: bool) -> Way:
        """The same, where running statistics follow."""
        eps, parts = float(op.attrs["eps"]), op.attrs["parts"]
        few = _per_channel(op.operands[0].tensor)

        def write(context: RecordContext, x: Array, *rest: Array) -> Sequence[Array]:
            *affine, mean, variance = rest
            operands, types = [x, *affine, mean, variance], [x.type, few, few, few, few]
            made = library_call(RUNNING, operands, types, KEPT, eps=eps, parts=parts, factor=running.factor)
            y, *followed, saved, rstd = made
            for update, new in zip(running.updates, followed, strict=True):
                self.updated[update] = context.value_of(new)
            self.save(context, op, eps, saved, rstd)
            # What would read this variance takes what is kept instead.
            return y, saved, rstd if is_collected else 1.0 / square(rstd) - eps

        return Way(write, (running.mean, running.variance))

    def save(self, context: RecordContext, op: Op, eps: float, mean: Array, rstd: Array) -> None:
        self.saved[op.results[2]] = eps, context.value_of(mean), context.value_of(rstd)

    def update(self, op: Op, block: Block) -> Way | None:
        """An `add` to running statistics that a call has made."""
        made = self.updated.get(op)
        return None if made is None else Way(lambda context, *operands: [context.handle(made)])

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangents of x, weight and bias. cuDNN always makes the first, which is as much work as both others."""
        x, eps = op.operands[1].tensor, float(op.attrs["eps"])
        if not _fits(x, eps) or not self.users.get(op.results[0]):
            return None
        few = _per_channel(x)
        kept, *saved = self.saved.get(op.operands[3], (None,))
        read = op.operands[3].made_by(SEQUENCE_GET)
        is_collected = read is not None and self.elements.get(read.operands[0]) in self.collected

        def write(context: RecordContext, ct: Array, x: Array, mean: Array, variance: Array, *weight: Array) -> Any:
            rstd = variance if is_collected else rsqrt(variance + eps)
            if kept == eps:
                mean, rstd = (context.handle(value) for value in saved)
            operands, parts = [x, ct, *weight, mean, rstd], "w" if weight else ""
            return library_call(BACKWARD, operands, [x.type, few, few], eps=eps, parts=parts)

        return Way(write)

    def inference(self, op: Op, block: Block) -> Way | None:
        """`batch_norm_inference`, where it would be a kernel of its own; else it costs nothing in the one that is there
        anyway.
        """
        x, eps, parts = op.operands[0].tensor, float(op.attrs["eps"]), op.attrs["parts"]
        if not _fits(x, eps) or _is_fused(op, self.users):
            return None

        def write(context: RecordContext, x: Array, mean: Array, variance: Array, *affine: Array) -> Sequence[Array]:
            return library_call(INFERENCE, [x, *affine, mean, variance], [x.type], eps=eps, parts=parts)

        return Way(write)


def _fits(x: TensorType, eps: float) -> bool:
    """Return whether cuDNN has batch norm for arrays of this type: some elements, and not too many."""
    if not all(isinstance(extent, int) for extent in x.shape) or eps < 0.0:
        return False
    return 0 < x.size < MOST_ELEMENTS and x.shape[0] <= MOST_IMAGES


def _count(x: TensorType) -> int:
    """The elements of a channel."""
    n, _, height, width = images(x)
    return n * height * width


def _per_channel(x: TensorType) -> TensorType:
    return TensorType(x.dtype, x.shape[1:2])


def _is_fused(op: Op, users: Users) -> bool:
    """Return whether a kernel makes what an op takes, or takes what it gives."""
    made = op.operands[0].behind(*MOVES)
    return made.producer is not None and _is_kernel(made.producer) or _reach_kernel(op.results, users)


def _reach_kernel(values: Sequence[Value], users: Users) -> bool:
    for user in (user for value in values for user in users.get(value, ())):
        if user is not None and (_is_kernel(user) or user.declared in MOVES and _reach_kernel(user.results, users)):
            return True
    return False


def _is_kernel(op: Op) -> bool:
    if op.declared is COMPOSITE:
        return op.attrs["name"] not in (TRAINING, BACKWARD)
    return op.declared.kind in FUSED_KINDS
