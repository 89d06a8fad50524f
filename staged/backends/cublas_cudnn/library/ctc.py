"""The choice of CTC losses that are calls of cuDNN: a loss alone, or with its gradient, which the same call computes. A
reverse in another loop than the loss has its own call, so that the loop stores the log-probabilities and no paths.

cuDNN takes the softmax itself, of activations (T, N, C), and gives the gradient by these. What stands directly behind
`log_softmax` is its own logarithm of a softmax, so it is taken as the activations. With p = exp(log_probs), and for
each step and class the probability q that a path which spells the text is there,

    cuDNN's gradient = p - q        that of the op, by log_probs = -q

The labels of all texts lie one behind the other. Two kinds of texts are not shown to cuDNN, which has a short one in
their place: longer ones than their input allows, for which it reads what is not there (PyTorch keeps them away from it
too), and empty ones, which it is known to have got wrong, and which are but the sum of a column. A label or length that
is out of range has been noted by then, for the host to read; so that cuDNN reads no wild memory before, it gets these
within bounds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from staged.backends.cublas_cudnn.library.cudnn import MOST_ELEMENTS
from staged.backends.cublas_cudnn.library.reverses import Kept, nobody_else_reads, reverses_of
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Op, Value
from staged.ir.structure import COMPOSITE
from staged.ir.types import TensorType, f32, i32
from staged.ir.users import Users
from staged.library.losses.ctc import NEVER
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import equal, logical_and
from staged.ops.elementwise import exp, isnan, maximum, minimum
from staged.ops.index import at_labels, take
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.promote import cast
from staged.ops.record import RecordContext
from staged.ops.reduction import max_, sum_
from staged.ops.shape import expand_dims, reshape, slice_axis
from staged.ops.source import arange, iota, zeros

LOSS, BACKWARD = "ctc_loss", "ctc_loss_backward"
MOST_LABELS = 255
"""Labels of a text up to which cuDNN takes it."""
MOST_TEXTS = 2048
"""Texts of a batch: to pack the labels, each looks for its text among all. With more of them, kernels for each step do
well.
"""
LETTER = 1
"""The label of the text that stands for one which cuDNN is not shown."""


@dataclass(frozen=True, slots=True)
class _Made:
    """The results of a call for the reverse: the losses, which targets it received, and cuDNN's gradient."""

    losses: Value
    shown: Value
    gradients: Value | None = None


class Ctc:
    """The ways of the CTC losses of a function, in program order."""

    def __init__(self, function: Function, users: Users) -> None:
        self.users = users
        self.kept = reverses_of(function.block, _paths_of)
        self.made: dict[Op, _Made | None] = {}
        """By the reverses that calls are taken for: what the call for their loss has made, if that is the same one."""
        self.ways: dict[str, FindWay] = {LOSS: self.forward, BACKWARD: self.backward}

    def forward(self, op: Op, block: Block) -> Way | None:
        """(losses, paths), of which only reverses read the paths."""
        paths, kept = op.results[1], self.kept.get(op, Kept())
        if not _fits(op) or not nobody_else_reads([paths], kept, self.users):
            return None
        if any(reverse.device != op.device for reverse in kept.reverses):
            return None
        at_once = [reverse for reverse in kept.reverses if reverse.operands[-1] is paths]

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            made = _call(context, bool(at_once), *operands)
            self.made |= {reverse: made if reverse in at_once else None for reverse in kept.reverses}
            return context.handle(made.losses), zeros(paths.tensor.shape, paths.tensor.dtype)  # unused

        return Way(write)

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangent of the log-probabilities."""
        if op not in self.made:
            return None

        def write(context: RecordContext, ct: Array, *operands: Array) -> Sequence[Array]:
            log_probs, _, input_lengths, *_ = operands
            made = self.made[op] or _call(context, True, *operands[:4])
            assert made.gradients is not None
            losses, gradients, shown = (context.handle(value) for value in (made.losses, made.gradients, made.shown))
            steps, _, classes = log_probs.shape
            is_blank = iota((1, 1, classes), 2) == 0
            # Of a probability of 0, which no path has, cuDNN may make NaN.
            q = where(isnan(gradients), 0.0, exp(log_probs) - gradients)
            q = where(_each(shown), q, where(is_blank, 1.0, 0.0))
            # Beyond an input's end, and where no path spells the text, it may leave anything.
            counts = logical_and(iota((steps, 1, 1), 0) < _each(input_lengths), _each(losses < -0.5 * NEVER))
            return [where(counts, -_each(ct) * q, 0.0)]

        return Way(write)


def _call(context: RecordContext, with_gradient: bool, log_probs: Array, *texts: Array) -> _Made:
    """The call, and what is done around it, for targets, lengths of inputs and lengths of targets."""
    batch = _batch(log_probs, *texts)
    shown = batch.shown()
    types = [TensorType(log_probs.dtype, log_probs.shape[1:2]), log_probs.type][: 1 + with_gradient]
    costs, *gradients = library_call(
        LOSS,
        [log_probs, *batch.packed(context, shown)],
        types,
        ("costs", "gradients")[: len(types)],
        longest=batch.longest,
        partly_made=(1,),
    )
    losses = where(shown, costs, batch.others(log_probs))
    return _Made(*map(context.value_of, (losses, shown, *gradients)))


# ---- what cuDNN takes -----------------------------------------------------------------------------


def _fits(op: Op) -> bool:
    """Return whether cuDNN has the loss for operands of these sizes, blank 0, behind a `log_softmax`."""
    log_probs, targets = (operand.tensor for operand in op.operands[:2])
    sizes = (*log_probs.shape, targets.shape[1])
    if log_probs.dtype is not f32 or op.attrs["blank"] != 0 or not all(isinstance(size, int) for size in sizes):
        return False
    steps, batch, classes, longest = (int(size) for size in sizes)  # type: ignore[arg-type]
    return (
        steps > 0
        and 0 < batch <= MOST_TEXTS
        and classes > LETTER
        and 0 < longest <= MOST_LABELS
        and prod((steps, batch, classes)) < MOST_ELEMENTS
        and _is_normalized(op.operands[0])
    )


def _is_normalized(value: Value) -> bool:
    """Return whether `log_softmax` along the last axis makes it, but for where its rows stand."""
    classes = value.tensor.shape[-1]
    while True:
        op = value.producer
        if op is None or value.tensor.shape[-1:] != (classes,):
            return False
        last = value.tensor.ndim - 1
        if op.declared is COMPOSITE:
            return bool(op.attrs["name"] == "log_softmax" and op.attrs["axis"] == last)
        is_view = op.declared in (prims.RESHAPE, prims.STOP_GRADIENT)
        if not is_view and not (op.declared is prims.PERMUTE and op.attrs["axes"][last] == last):
            return False
        value = op.operands[0]


def _paths_of(op: Op) -> Sequence[Value]:
    """The paths that an op reads, if it is the reverse of a loss for the cotangent of that alone."""
    is_reverse = op.declared is COMPOSITE and op.attrs["name"] == BACKWARD and op.attrs["given"] == "l"
    return op.operands[-1:] if is_reverse else ()


# ---- what is done around the call -----------------------------------------------------------------


def _each(of_sequences: Array) -> Array:
    """(N,) as (1, N, 1)."""
    return expand_dims(expand_dims(of_sequences, 0), 2)


@dataclass(frozen=True, slots=True)
class _Batch:
    """Texts (N, S), how many labels each has, and the steps of its input (N,), all within bounds."""

    texts: Array
    counts: Array
    inputs: Array
    steps: int
    classes: int

    @property
    def longest(self) -> int:
        """Labels of a text at most."""
        return int(self.texts.shape[1])  # type: ignore[arg-type]

    def shown(self) -> Array:
        """(N,): whether cuDNN gets to see a text, which has labels, and steps for them and for a blank between equal
        ones.
        """
        needed = self.counts
        if self.longest > 1:
            pairs = equal(slice_axis(self.texts, 1, 1, self.longest), slice_axis(self.texts, 1, 0, self.longest - 1))
            inside = iota((1, self.longest - 1), 1) + 1 < expand_dims(self.counts, 1)
            needed = needed + sum_(cast(logical_and(pairs, inside), needed.dtype), 1)
        return logical_and(self.counts > 0, needed <= self.inputs)

    def packed(self, context: RecordContext, shown: Array) -> list[Array]:
        """The labels of all texts one behind the other (N * S,), how many each text has, and the steps of its input
        (N,).
        """
        batch = int(self.texts.shape[0])  # type: ignore[arg-type]
        counts, inputs = where(shown, self.counts, 1), where(shown, self.inputs, self.steps)
        until = iota((batch, batch), 1) <= iota((batch, batch), 0)
        ends = expand_dims(sum_(where(until, expand_dims(counts, 0), 0), 1), 0)
        place = iota((batch * self.longest,), 0)
        behind = ends <= expand_dims(place, 1)
        # The texts that end before a place are those before its own, and the last of these ends where its own begins.
        text = minimum(sum_(cast(behind, place.dtype), 1), batch - 1)
        within = minimum(maximum(place - max_(where(behind, ends, 0), 1), 0), self.longest - 1)
        letters = reshape(where(expand_dims(shown, 1), self.texts, LETTER), (-1,))
        labels = _between(LETTER, take(letters, text * self.longest + within), self.classes - 1)
        made = [cast(one, i32) for one in (labels, counts, inputs)]
        for array, name in zip(made, ("labels", "label_lengths", "step_counts"), strict=True):
            context.value_of(array).hint = name
        return made

    def others(self, log_probs: Array) -> Array:
        """(N,): the losses of texts that cuDNN is not shown: all blanks for an empty one, else no path at all."""
        blanks = reshape(slice_axis(log_probs, 2, 0, 1), log_probs.shape[:2])
        inside = iota((self.steps, 1), 0) < expand_dims(self.inputs, 0)
        return where(equal(self.counts, 0), -sum_(where(inside, blanks, 0.0), 0), -NEVER)


def _batch(log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array) -> _Batch:
    steps, _, classes = (int(extent) for extent in log_probs.shape)  # type: ignore[arg-type]
    # Reading a table of all labels that there are checks these.
    texts = at_labels(arange(classes), targets, "letter")
    counts = _between(0, target_lengths, int(targets.shape[1]))  # type: ignore[arg-type]
    inputs = _between(0, input_lengths, steps)
    return _Batch(texts, counts, inputs, steps, classes)


def _between(least: int, x: Array, most: int) -> Array:
    return minimum(maximum(x, least), most)
