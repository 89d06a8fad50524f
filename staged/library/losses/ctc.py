"""Connectionist temporal classification: the likelihood of a text under every way that a sequence may spell it.

A path through (T, C) log-probabilities spells its labels with repetitions merged and blanks dropped. The states of a
text of S labels are its labels with a blank before, between and after them: 2 S + 1. Probabilities are summed over all
paths by a recursion over the steps, in logarithms; `NEVER` stands for the logarithm of 0, finite so that differences of
it are. Source: Graves, Fernandez, Gomez and Schmidhuber, Connectionist temporal classification, 2006.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from staged.ir.declaration import prims
from staged.ir.sizes import Extent
from staged.ir.types import i64
from staged.library.losses.losses import check_reduction, reduced
from staged.library.sequences.loop import index_of, row, scan, with_row
from staged.ops.array import Array
from staged.ops.choice import where
from staged.ops.comparisons import logical_and, not_equal
from staged.ops.composite import composite
from staged.ops.context import bind
from staged.ops.elementwise import exp, log, maximum
from staged.ops.index import at_labels
from staged.ops.joining import concat, stack
from staged.ops.primitive import Sample
from staged.ops.promote import as_array, as_float, broadcast, cast, dtype_error, fixed_size, shape_error, whole
from staged.ops.public import public
from staged.ops.reduction import max_, sum_
from staged.ops.shape import expand_dims, pad, reshape, slice_axis
from staged.ops.source import arange, full, iota, zeros

NEVER = -1e30


# ---- states ---------------------------------------------------------------------------------------


def _states(targets: Array, lengths: Array, blank: int) -> Array:
    """(N, 2 S + 1): the label of every state; blanks where a text has ended."""
    batch, longest = targets.shape
    blanks = full((batch, longest), blank, i64)
    labels = where(iota((1, longest), 1) < expand_dims(lengths, 1), targets, blanks)
    pairs = reshape(stack([blanks, labels], 2), (batch, 2 * longest))
    return concat([pairs, full((batch, 1), blank, i64)], 1)


def _emissions(log_probs: Array, states: Array) -> Array:
    """(T, N, 2 S + 1): the log-probability of every state's label at every step."""
    found = at_labels(log_probs, broadcast(states, (log_probs.shape[0], *states.shape)), "letter")
    return maximum(found, NEVER)


def _skips(states: Array) -> Array:
    """Return whether a state may follow the one two before it: a label that differs from the label before."""
    is_label = iota((1, states.shape[1]), 1) % 2 == 1
    return logical_and(is_label, not_equal(states, _moved(states, 2, -1)))


def _moved(x: Array, by: int, fill: float) -> Array:
    """(N, L) moved up by some places (down where negative), with `fill` where nothing comes from."""
    extent = x.shape[1]
    if by > 0:
        return slice_axis(pad(x, [(0, 0), (by, 0)], value=fill), 1, 0, extent)
    return slice_axis(pad(x, [(0, 0), (0, -by)], value=fill), 1, -by, extent - by)


def _ways(alpha: Array, skips: Array) -> tuple[Array, Array, Array]:
    """The predecessors of a state: itself, the one before, and the one before that."""
    return alpha, _moved(alpha, 1, NEVER), where(skips, _moved(alpha, 2, NEVER), NEVER)


def _last(alpha: Array, lengths: Array) -> Array:
    """`alpha` of the two states that a text may end in, NEVER of the others."""
    state, end = iota((1, alpha.shape[1]), 1), expand_dims(lengths, 1) * 2
    return where((state == end) | (state == end - 1), alpha, NEVER)


# ---- the composites -------------------------------------------------------------------------------


@composite("ctc_loss_backward")
def _ctc_backward(*operands: Array, blank: int, given: str) -> Array:
    """The cotangent of the log-probabilities; `given` names the cotangents of the results: losses, paths.

    The recursion backwards: a state's share of the next step's cotangent follows its contribution to it.
    """
    cts = dict(zip(given, operands, strict=False))
    log_probs, targets, input_lengths, target_lengths, alphas = operands[len(given) :]
    count = log_probs.shape[0]
    states = _states(targets, target_lengths, blank)
    skips = _skips(states)
    d_alpha = zeros(states.shape, log_probs.dtype)
    if "l" in cts:
        last = _last(row(alphas, index_of(count)), target_lengths)
        shares = exp(last - max_(last, 1, keepdims=True))
        d_alpha = -expand_dims(cts["l"], 1) * shares / sum_(shares, 1, keepdims=True)

    def step(t: Array, d_alpha: Array, d_emissions: Array) -> list[Array]:
        if "p" in cts:
            d_alpha = d_alpha + row(cts["p"], t + 1)
        stay, one, two = _ways(row(alphas, t), skips)
        peak = maximum(maximum(stay, one), two)
        stay, one, two = exp(stay - peak), exp(one - peak), exp(two - peak)
        part = d_alpha / (stay + one + two)
        before = part * stay + _moved(part * one, -1, 0.0) + _moved(where(skips, part * two, 0.0), -2, 0.0)
        runs = expand_dims(t < input_lengths, 1)
        return [where(runs, before, d_alpha), with_row(d_emissions, t, where(runs, d_alpha, 0.0))]

    empty = zeros((count, *states.shape), log_probs.dtype)
    _, d_emissions = scan(count, [d_alpha, empty], step, ("d_paths", "d_emissions"), backwards=True)
    places = broadcast(states, d_emissions.shape)
    return bind(prims.SCATTER_ADD_ALONG, [zeros(log_probs.shape, log_probs.dtype), places, d_emissions], axis=2)


_SAMPLE = Sample(
    (
        np.log(np.outer(np.linspace(0.9, 0.6, 4), [0.1, 0.4, 0.2, 0.3, 0.25, 0.05, 0.3, 0.4]).reshape(4, 2, 4)),
        np.array([[1, 1], [2, 0]]),
        np.array([4, 3]),
        np.array([2, 1]),
    ),
    {"blank": 3},
)
"""4 steps of 2 texts over 4 symbols; the probabilities need not add up to 1."""


def _ctc_vjp(cts: Any, results: Any, *operands: Array, blank: int) -> list[Array | None]:
    there = {letter: ct for letter, ct in zip("lp", cts, strict=True) if ct is not None}
    (d_log_probs,) = _ctc_backward(*there.values(), *operands, results[1], blank=blank, given="".join(there))
    return [d_log_probs, None, None, None]


@composite("ctc_loss", vjp=_ctc_vjp, samples=[_SAMPLE])
def _ctc(
    log_probs: Array, targets: Array, input_lengths: Array, target_lengths: Array, *, blank: int
) -> tuple[Array, ...]:
    """The losses (N,), at least -NEVER where no path spells the text; and by step, from 0 on, the paths (T + 1, N, 2 S
    + 1).

    The paths are the log-probabilities, summed over all that have come to a state.
    """
    count = log_probs.shape[0]
    states = _states(targets, target_lengths, blank)
    emissions, skips = _emissions(log_probs, states), _skips(states)
    # Before the first step all is in state 0: from there a path may stay, or go on to the first label.
    start = broadcast(where(iota((1, states.shape[1]), 1) == 0, 0.0, NEVER), states.shape)
    start = cast(start, log_probs.dtype)

    def step(t: Array, alpha: Array, alphas: Array) -> list[Array]:
        stay, one, two = _ways(alpha, skips)
        peak = maximum(maximum(stay, one), two)
        total = log(exp(stay - peak) + exp(one - peak) + exp(two - peak)) + peak + row(emissions, t)
        alpha = where(expand_dims(t < input_lengths, 1), total, alpha)
        return [alpha, with_row(alphas, t + 1, alpha)]

    kept = concat([expand_dims(start, 0), zeros((count, *states.shape), log_probs.dtype)])
    alpha, alphas = scan(count, [start, kept], step, ("paths", "path_history"))
    last = _last(alpha, target_lengths)
    peak = max_(last, 1, keepdims=True)
    return -(log(sum_(exp(last - peak), 1)) + reshape(peak, (-1,))), alphas


# ---- public ---------------------------------------------------------------------------------------


@public("ctc_loss")
def ctc_loss(
    log_probs: Any,
    targets: Any,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Array:
    """Minus the log-likelihood of label sequences under all their alignments. torch `nn.functional.ctc_loss`.

    Shapes: log_probs (T, N, C), from `log_softmax`; targets (N, S) integers, 0 <= label < C and not `blank`, rows
    padded with anything; the lengths (N,) integers, up to T and S. Without a batch (T, C), (S,) and numbers. The mean
    divides each loss by its target's length first.
    Numerics: sums in logarithms. Where no alignment exists (the target is longer than the input) the loss is infinite,
    or 0 with `zero_infinity`; its gradient is 0 in both cases. The gradient is that of the formula: torch's own adds a
    term that `log_softmax` cancels.
    Raises: ShapeError or DTypeError while staging if the operands do not fit together; a label or length out of range
    stops the program when it runs.
    Source: Graves, Fernandez, Gomez and Schmidhuber, 2006.
    """
    check_reduction("ctc_loss", reduction)
    scores, texts = as_float(log_probs), as_array(targets)
    lengths = [as_array(input_lengths), as_array(target_lengths)]
    alone = scores.ndim == 2
    if alone and texts.ndim == 1:
        scores, texts = expand_dims(scores, 1), expand_dims(texts, 0)
        lengths = [reshape(one, (1,)) if one.ndim == 0 else one for one in lengths]
    count, classes, longest = _check_ctc(scores, texts, lengths, blank)
    # Reading a table of all that is allowed checks the lengths.
    inputs, labels = (
        at_labels(arange(most + 1), cast(one, i64), "length")
        for one, most in zip(lengths, (count, longest), strict=True)
    )
    inside = iota((1, longest), 1) < expand_dims(labels, 1)
    texts = where(inside, cast(texts, i64), blank)
    losses, _ = _ctc(scores, texts, inputs, labels, blank=blank)
    losses = where(losses < -0.5 * NEVER, losses, 0.0 if zero_infinity else float("inf"))
    if reduction == "mean":
        losses = losses / cast(maximum(labels, 1), losses.dtype)
    return reduced(reshape(losses, ()) if alone else losses, reduction)


def _check_ctc(scores: Array, texts: Array, lengths: list[Array], blank: Any) -> tuple[Extent, int, Extent]:
    """The numbers of steps, classes and labels; raise where the operands of `ctc_loss` do not belong together."""
    if scores.ndim != 3 or texts.ndim != 2 or scores.shape[1] != texts.shape[0]:
        raise shape_error(
            f"ctc_loss needs log-probabilities (T, N, C) and targets (N, S), got {scores.type} and {texts.type}",
            scores,
            texts,
            hint="pad the targets to one length, and give their lengths",
        )
    count, longest = scores.shape[0], texts.shape[1]
    classes = fixed_size("ctc_loss", scores, 2)
    blank = whole(blank)
    if not isinstance(blank, int) or not 0 <= blank < classes:
        raise shape_error(f"ctc_loss: the blank is one of {classes} classes, got {blank!r}", scores)
    for what, array in (("input_lengths", lengths[0]), ("target_lengths", lengths[1]), ("targets", texts)):
        if not array.dtype.is_integer:
            raise dtype_error(f"ctc_loss needs integer {what}, got {array.type}", array)
        if array is not texts and array.shape != texts.shape[:1]:
            raise shape_error(
                f"ctc_loss needs one of {what} for each of {texts.shape[0]} targets, got {array.type}", array
            )
    return count, classes, longest
