"""Running statistics of batch norm: what cuDNN brings up to date in the call that makes the batch's, recognised.

    running_mean * (1 - factor) + mean * factor
    running_var * (1 - factor) + variance * n / (n - 1) * factor        n: the elements of a channel

Tested by `tests/backends/cublas_cudnn/test_batch_norm.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from staged.backends.cublas_cudnn.library.form import MOVES, number_everywhere
from staged.ir.declaration import prims
from staged.ir.nodes import Op, Value
from staged.ir.users import Users

Places = Mapping[Op | None, int]
"""The position of each op of a block."""

REPEATS = (*MOVES, prims.CAST)


@dataclass(frozen=True, slots=True)
class Running:
    """The statistics as they were, the ops that bring them up to date, and by how much."""

    factor: float
    mean: Value
    variance: Value
    updates: tuple[Op, Op]


@dataclass(frozen=True, slots=True)
class _Update:
    """An `add` that makes old * (1 - factor) + new * factor."""

    op: Op
    factor: float
    old: Value


def running_statistics(op: Op, users: Users, places: Places, count: int, is_collected: bool) -> Running | None:
    """The running statistics that follow those of a `batch_norm_training` op, with `count` elements of a channel.

    `places` are those of the op's block; `is_collected`: a loop collects the variance for gradients alone. None where
    there are no statistics, where they are on another device or not known before the op, or where its variance is
    wanted for something else.
    """
    _, mean, variance = op.results
    means = list(_updates(mean, users, places, 1.0))
    variances = list(_updates(variance, users, places, count / (count - 1)))
    if len(means) != 1 or len(variances) != 1 or not math.isclose(means[0].factor, variances[0].factor, rel_tol=1e-6):
        return None
    updates = means[0].op, variances[0].op
    if any(update.device != op.device for update in updates):
        return None
    # What is made outside of the block is there, and so is what the block makes before the op.
    if any(old.producer in places and places[old.producer] > places[op] for old in (means[0].old, variances[0].old)):
        return None
    if not _is_only_for(variance, updates[1], users, is_collected):
        return None
    return Running(means[0].factor, means[0].old, variances[0].old, updates)


def _updates(value: Value, users: Users, places: Places, scale: float) -> Iterator[_Update]:
    """The updates with `scale` times a value."""
    for user in users.get(value, ()):
        if user is None or user not in places:
            continue
        if user.declared is prims.STOP_GRADIENT:
            yield from _updates(user.result, users, places, scale)
        elif user.declared is prims.MULTIPLY:
            number = number_everywhere(_other(user, value), REPEATS)
            if number is None:
                continue
            if scale != 1.0 and math.isclose(number, scale, rel_tol=1e-6):
                yield from _updates(user.result, users, places, 1.0)
            elif scale == 1.0:
                yield from _sums(user, users, places, number)


def _sums(part: Op, users: Users, places: Places, factor: float) -> Iterator[_Update]:
    """The updates that add `part`, which is `factor` times what is new."""
    for user in users.get(part.result, ()):
        if user is None or user.declared is not prims.ADD or user not in places:
            continue
        kept = _other(user, part.result).made_by(prims.MULTIPLY)
        if kept is None:
            continue
        for old in kept.operands:
            number = number_everywhere(_other(kept, old), REPEATS)
            if (
                number is not None
                and math.isclose(number, 1.0 - factor, rel_tol=1e-6)
                and old.tensor == user.result.tensor
            ):
                yield _Update(user, factor, old)
                break


def _other(op: Op, value: Value) -> Value:
    """The other of two operands."""
    first, second = op.operands
    return second if first is value else first


def _is_only_for(value: Value, update: Op, users: Users, is_collected: bool = False) -> bool:
    """Return whether only `update`, and gradients, want a value."""
    for user in users.get(value, ()):
        if user is None and is_collected:
            continue
        if user is update or user is not None and user.attrs.get("name") == "batch_norm_backward":
            continue
        if (
            user is None
            or user.declared not in (prims.MULTIPLY, prims.STOP_GRADIENT, prims.ADD)
            or len(user.results) != 1
        ):
            return False
        if not _is_only_for(user.result, update, users):
            return False
    return True
