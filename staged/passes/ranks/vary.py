"""Mark where values become local, and remove the marks after autodiff.

`check_ranks` runs before autodiff: it inserts a `vary` after each replicated value that local values use. Its vjp is
the sum over ranks, so the gradient of the value is right, and there is one message for all its uses.
`lower_ranks` runs after autodiff, which alone needs `vary`.

Tested by `tests/passes/ranks/test_locality.py` and `tests/ranks/test_gradients.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Container, Sequence

from staged.errors import RankError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import map_functions
from staged.ir.machine import Machine
from staged.ir.nodes import COMM, FAIL, Block, Function, Op, Value, walk_ops
from staged.ir.printer import print_function
from staged.ir.ranks import collectives, has_ranks
from staged.ir.rewrite import Copier, rewrite
from staged.ir.structure import COMPARE_RANKS, FILE_CLOSE, FILE_OPEN, PRINT, SAVE
from staged.ir.types import TensorType, i64
from staged.ops.array import Array
from staged.ops.context import bind, use_context
from staged.ops.dynamic_slice import dynamic_slice_op
from staged.ops.promote import constant
from staged.ops.ranks import Collective
from staged.ops.record import RecordContext
from staged.ops.shape import reshape
from staged.ops.source import zeros_like
from staged.passes.ranks.draws import with_first
from staged.passes.ranks.locality import Locality
from staged.passes.ranks.saves import save_pieces
from staged.passes.ranks.scatter import scatter_sums

INDEX = TensorType(i64)


def local_values(program: Function) -> Container[Value]:
    """The values that may differ between ranks."""
    return Locality(program).local if has_ranks(program) else ()


def check_ranks(program: Function, machine: Machine) -> Function:
    """Insert `vary` where local values use replicated ones; for one rank, replace all collectives.

    Exact: `vary` is the identity. Of one rank, all arrays are its own.
    Raises: RankError, GradientError, ShapeError at the user's lines (`errors.py`).
    """
    if not has_ranks(program):
        return program
    locality = Locality(program)
    locality.check()
    if machine.ranks == 1:
        return map_functions(program, _alone) if next(collectives(program), None) is not None else program
    made = map_functions(program, lambda function: function.with_block(_Vary(locality, function).block(function.block)))
    return _with_comparison(program, made, machine)


def _with_comparison(traced: Function, program: Function, machine: Machine) -> Function:
    """The program after a comparison with those of the other ranks. The digest covers the trace and its options."""
    text = f"{print_function(traced)}\n{traced.options}"
    place = f"{os.path.basename(traced.where.file)}, line {traced.where.line}" if traced.where else traced.name
    attrs = {
        "program": int.from_bytes(hashlib.sha256(text.encode()).digest()[:8]),
        "vector_bytes": machine.vector_bytes,
        "place": place,
    }
    compare = Op(COMPARE_RANKS, [], [], attrs=attrs, effects=(*COMM, *FAIL), where=traced.where)
    block = program.block
    return program.with_block(Block(block.params, [compare, *block.ops], block.end))


class _Vary(Copier):
    """Copies a function with a `vary` after each replicated value that local values use."""

    def __init__(self, locality: Locality, function: Function) -> None:
        super().__init__(Builder())
        self.locality = locality
        self.copies: dict[Value, Value] = {}
        """The local copies, by value."""
        self.passed = locality.passed(function)
        pairs = [
            pair for op in walk_ops(function.block) for pair in zip(op.operands, locality.wants_local(op), strict=True)
        ]
        for end, wants in self.passed.items():
            pairs += zip(end.operands, wants, strict=True)
        wanted = {value for value, wants in pairs if wants} - locality.local.keys()
        self.wanted = wanted | {origin for value in wanted for origin in _origins(value)}

    def params(self, block: Block) -> None:
        for param in block.params:
            self.vary(param, None)

    def op(self, op: Op) -> None:
        wants = self.locality.wants_local(op)
        if op in self.locality.drawn:
            operands = [self.copy(value, want) for value, want in zip(op.operands, wants, strict=True)]
            self.define(op.results, with_first(op, operands, self.builder))
        elif op.declared in (PRINT, FILE_OPEN, FILE_CLOSE, SAVE):
            self.replace(op, op.replace(attrs={**op.attrs, "by": "each" if op in self.locality.by_each else "first"}))
        elif not any(value in self.copies and want for value, want in zip(op.operands, wants, strict=True)):
            super().op(op)
        else:
            operands = [self.copy(value, want) for value, want in zip(op.operands, wants, strict=True)]
            self.replace(op, op.replace(operands=operands))
        for result in op.results:
            self.vary(result, op)

    def replace(self, op: Op, changed: Op) -> None:
        super().op(changed)
        self.values.update((old, self.value(new)) for old, new in zip(op.results, changed.results, strict=True))

    def end(self, block: Block) -> None:
        end = block.end
        wants = self.passed.get(end, [False] * len(end.operands))
        operands = [self.copy(value, want) for value, want in zip(end.operands, wants, strict=True)]
        label = self.labels.get(end.target, end.target) if end.target is not None else None
        self.builder.end(end.kind, operands, label, end.where)

    def copy(self, value: Value, is_local: bool) -> Value:
        """The copy of a value for a user that needs it local, or not."""
        return self.copies.get(value, self.value(value)) if is_local else self.value(value)

    def vary(self, value: Value, op: Op | None) -> None:
        """Make the local copy of a value, if a user needs one. Constants have no gradient."""
        if value not in self.wanted or not isinstance(value.type, TensorType) or not value.type.dtype.is_inexact:
            return
        if op is not None and op.declared.kind == "source":
            return
        if op is not None and _only_moves(op):
            # The sum over ranks of the gradient of a bias is that of the bias, not of its rows.
            if op.operands[0] in self.copies:
                moved = op.replace(operands=[self.copies[op.operands[0]], *map(self.value, op.operands[1:])])
                self.copies[value] = self.builder.append(moved).result
            return
        where = None if op is None else op.where
        made = self.builder.op(prims.VARY, [self.value(value)], [value.type], where=where).result
        made.hint = value.hint
        self.copies[value] = made


def _only_moves(op: Op) -> bool:
    """Return whether an op moves, repeats or converts the elements of its first operand."""
    return op.declared.is_move or op.declared in (prims.BROADCAST_TO, prims.CAST)


def _origins(value: Value) -> list[Value]:
    """The values that have the elements of a value, before ops that only move them."""
    found = []
    while value.producer is not None and _only_moves(value.producer):
        value = value.producer.operands[0]
        found.append(value)
    return found


# ---- one rank -----------------------------------------------------------------------------------


def _alone(function: Function) -> Function:
    """The function for one rank."""

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.declared.kind != "collective":
            return None
        if op.attrs.get("ranks", 1) != 1:
            raise RankError(
                f"the program is for {op.attrs['ranks']} ranks, and runs on 1",
                where=op.where,
                hint="start it with `mpiexec -n`, or export it",
            )
        context = RecordContext(builder, locate=lambda: op.where)
        with use_context(context):
            given = [context.handle(value) for value in op.operands]
            return [context.value_of(x) for x in _own(op, given)]

    return rewrite(function, rule)


def _own(op: Op, given: Sequence[Array]) -> Sequence[Array]:
    if not isinstance(op.declared, Collective):
        return [constant(0 if op.declared is prims.RANK else 1, op.result.tensor)]
    if op.declared is prims.SHIFT_RANKS and not op.attrs["wrap"] and op.attrs["shift"]:
        return [zeros_like(given[0])]
    return [reshape(x, result.tensor.shape) for x, result in zip(given, op.results, strict=True)]


# ---- after autodiff -----------------------------------------------------------------------------


def lower_ranks(program: Function) -> Function:
    """Replace `vary` by its operand, and `shard` by a slice, or by a `reduce_scatter` (`scatter_sums`).

    Exact: a row of a replicated array is that of the rank's own copy.
    """
    if not has_ranks(program):
        return program
    return map_functions(program, lambda function: _lowered(save_pieces(scatter_sums(function))))


def _lowered(function: Function) -> Function:
    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        if op.declared is prims.VARY:
            return op.operands
        if op.declared is not prims.SHARD:
            return None
        context = RecordContext(builder, locate=lambda: op.where, checks=False)
        with use_context(context):
            (x,) = map(context.handle, op.operands)
            zero = constant(0, INDEX)
            starts = [bind(prims.RANK, [])] + [zero] * (x.ndim - 1)
            row = bind(dynamic_slice_op, [x, *starts], sizes=(1, *x.shape[1:]))
            return [context.value_of(reshape(row, x.shape[1:]))]

    return rewrite(function, rule)
