"""The errors of programs whose ranks would wait for each other forever, or compute wrong values.

Each has the line of the op, and the line from which a value is local.

Tested by `tests/ranks/test_wrong_programs.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.errors import GradientError, RankError, ShapeError, StagedError
from staged.ir.names import is_users_name
from staged.ir.nodes import Op, Value, VariableRef
from staged.ir.sizes import Dim, Extent
from staged.ir.structure import SAVE
from staged.ir.types import Shape, shape_text
from staged.source import Position


@dataclass(frozen=True)
class Cause:
    """The reason why a value is local."""

    what: str
    where: Position | None
    of: str = "condition"
    """The reason why only some ranks run a block: a condition, or a trip count."""
    rows: Extent | None = None
    """The size of axis 0 on this rank, if the value is made of rows of a batch."""

    def __str__(self) -> str:
        place = f", {self.where.short}: {self.where.text}" if self.where is not None else ""
        return f"{self.what}{place}"


def name_in_text(value: Value) -> str:
    """The user's name of a value in a message, or of the array whose elements it has."""
    while not is_users_name(value.hint) and value.producer is not None and value.producer.declared.is_move:
        value = value.producer.operands[0]
    return f"`{value.hint}`" if is_users_name(value.hint) else "a value"


def waiting(op: Op, cause: Cause) -> StagedError:
    """The error of a collective that only some ranks run."""
    return RankError(
        f"`st.{op.name}` runs under a {cause.of} that differs between ranks: some ranks would wait forever",
        where=op.where,
        details=(f"the {cause.of} is local: {cause}",),
        hint=f'use a {cause.of} that is equal on all ranks, for example `st.all_reduce(x, "max")`',
    )


def not_replicated(op: Op, cause: Cause) -> StagedError:
    """The error of a `shard` of a local array."""
    return RankError(
        f"`st.{op.name}` needs a replicated array, and {name_in_text(op.operands[0])} is local",
        where=op.where,
        details=(f"it is local: {cause}",),
        hint=f"remove the `st.{op.name}`: each rank has its own array already",
    )


def unequal_sizes(op: Op, dim: Dim, cause: Cause) -> StagedError:
    """The error of a message whose size differs between ranks."""
    return ShapeError(
        f"`st.{op.name}` needs equal sizes on all ranks, and the size `{dim}` is local",
        where=op.where,
        details=(f"it is local: {cause}",),
        hint=f'use a size that is equal on all ranks: `st.all_reduce({dim}, "max")`, and pad the array with zeros',
    )


def shared_file(op: Op, cause: Cause) -> StagedError:
    """The error of a file of local values whose name is equal on all ranks."""
    hint = 'open a file for each rank: `open(f"values_{st.rank()}.txt", "w")`'
    if op.declared is SAVE:
        hint = 'save the array of all ranks: `st.all_gather(x)`; or a file for each: `st.save(f"{st.rank()}.st", x)`'
    return RankError(
        "a file of local values needs the number of the rank in its name",
        where=op.where,
        details=(f"it is local: {cause}",),
        hint=hint,
    )


def drifting(op: Op, variable: VariableRef, cause: Cause, is_of_value: bool) -> StagedError:
    """The error of a write after which the copies of a replicated Variable differ."""
    reduced = 'reduce the value over ranks: `st.all_reduce(x, "mean")`'
    if variable.part:
        message = "random numbers are drawn under a condition, or of a size, that differs between ranks"
        why = "the generator of each rank would continue with other numbers"
        hint = "draw the numbers on all ranks, before the condition"
    elif is_of_value:
        message = f"a local value is written to the replicated Variable `{variable.name}`"
        why = "its copies would drift apart"
        hint = f"{reduced}, or declare `st.Variable(value, local=True)`"
    else:
        message = f"the replicated Variable `{variable.name}` is written under a condition that differs between ranks"
        why = "its copies would drift apart"
        hint = "write it on all ranks, for example `v.value = st.where(condition, new, v)` with a reduced condition"
    return RankError(
        f"{message}: {why}",
        where=op.where,
        details=(f"the {'value' if is_of_value else 'condition'} is local: {cause}",),
        hint=hint,
    )


def local_loss(op: Op, value: Value, cause: Cause, wrt: Value) -> StagedError:
    """The error of the derivative of a local value with respect to a replicated one."""
    return GradientError(
        f"the derivative of {name_in_text(value)}, which is local, with respect to {name_in_text(wrt)}, which is "
        "replicated: each rank would follow its own value",
        where=op.where,
        details=(f"{name_in_text(value)} is local: {cause}",),
        hint='differentiate the mean over ranks: `return st.all_reduce(loss, "mean")`',
    )


def local_cotangent(op: Op, value: Value, cause: Cause) -> StagedError:
    """The error of a local cotangent of a replicated value."""
    return GradientError(
        f"the cotangent of {name_in_text(value)} is local, and the value is replicated",
        where=op.where,
        details=(f"the cotangent is local: {cause}",),
        hint='reduce the cotangent over ranks: `st.all_reduce(cotangent, "sum")`',
    )


def equal_draws(op: Op, shape: Shape, cause: Cause) -> StagedError:
    """The error of random numbers for local values that are not rows of a batch: all ranks would have the same."""
    batch = "" if cause.rows is None else f", of which a rank has {cause.rows} rows"
    return RankError(
        f"random numbers of shape {shape_text(shape)} are drawn for local values{batch}: all ranks would draw the same",
        where=op.where,
        details=(f"a value that uses them is local: {cause}",),
        hint="draw other numbers on each rank with `shard=0`; for equal numbers, use an argument or a Variable",
    )


def batch_of_rank(op: Op, cause: Cause) -> StagedError:
    """The error of a batch norm whose statistics would be those of the rows of one rank."""
    return RankError(
        "batch norm of a local array has the statistics of the rows of one rank, and needs those of all ranks",
        where=op.where,
        details=(f"the array is local: {cause}",),
        hint="use `nn.SyncBatchNorm`",
    )
