"""Faults at the conditions that rewrites and plans state of themselves (`Exact:`)."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

PLACES = ("tests/kernels/test_places.py", "-k", "compiled")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an argmax over several axes walks them in the order of memory, not of its places",
        "kernels.lower:Lowering.axis_order",
        "s.with_rising_places(order)",
        "order",
        PLACES,
    ),
    Mutant(
        "an argmax of totals is not told where it is",
        "kernels.lower:Lowering.row_body",
        "self.accumulate(op, reduction)",
        "dims = self.affine(self.analysis.operand_dims[op])\n"
        "self.put(Accumulate(reduction, self.eval(op.operands[0], dims)))",
        PLACES,
    ),
    Mutant(
        "an argmax shares loops that come to its places in another order",
        "kernels.axes:Structure.__init__",
        "self.check_places()",
        "",
        PLACES,
    ),
    Mutant(
        "buffers share memory where one is last read in the position in which the other is written",
        "passes.memory.offsets:overlap",
        "a[i][1] < b[j][0]",
        "a[i][1] <= b[j][0]",
        ("tests/passes/memory/test_offsets.py",),
    ),
    Mutant(
        "a Variable of the caller's is overwritten before what may stop the program",
        "passes.memory.variable_lives:_Flow.op",
        "if effect.is_ordered:\n"
        "    self.uses[start] |= self.at_stop\n"
        "else: ...",
        "if effect.is_ordered:\n"
        "    self.uses[start] |= 0\n"
        "else: ...",
        ("tests/passes/memory/test_variable_lives.py", "-k", "compiled"),
    ),
    Mutant(
        "unused work that may stop the program is dropped",
        "passes.dead_code:_Live.survey",
        "bool(op.effects) or (any(inside) and has_effects(op))",
        'any(effect.kind != "fail" for effect in op.effects) or (any(inside) and has_effects(op))',
        ("tests/passes/test_dead_code.py",),
    ),
    Mutant(
        "a pool takes the last of ties",
        "kernels.lower_alone:larger",
        'Compute(stays, prims.LESS_EQUAL, (x, best), {})',
        'Compute(stays, prims.LESS, (x, best), {})',
        ("tests/kernels/test_lower_alone.py", "-k", "ties"),
    ),
    Mutant(
        "long reductions of a size that has no divisor are cut, and the rest is lost",
        "kernels.split:_piece_of",
        "[d for d in range(PIECE, min(extent // 16, 64 * PIECE) + 1) if extent % d == 0]",
        "[d for d in range(PIECE, min(extent // 16, 64 * PIECE) + 1) ]",
        ("tests/kernels/test_split.py",),
    ),
    Mutant(
        "a pad beside another is joined to it past a gap",
        "passes.partial_sums:add_side_by_side",
        "pieces[0][1] != pieces[1][0]",
        "pieces[0][1] > pieces[1][0]",
        ("tests/passes/test_movement.py", "-k", "compiled"),
    ),
    Mutant(
        "a window that was written is read as it was given, from another place too",
        "passes.movement:read_what_was_written",
        "update is None or list(update.operands[2:]) != start or update.operands[1].type != op.result.type",
        "update is None or update.operands[1].type != op.result.type",
        ("tests/passes/test_movement.py", "-k", "compiled"),
    ),
    Mutant(
        "an index into rows without elements is not checked",
        "ops.index:check_of_no_elements",
        "0 in others or any(isinstance(other, Size) for other in others)",
        "any(isinstance(other, Size) for other in others)",
        ("tests/kernels/test_no_elements.py",),
    ),
    Mutant(
        "an index into rows of which the program finds none is not checked",
        "ops.index:check_of_no_elements",
        "0 in others or any(isinstance(other, Size) for other in others)",
        "0 in others",
        ("tests/kernels/test_no_elements.py",),
    ),
    Mutant(
        "of ties that threads find, any one wins",
        "backends.cublas_cudnn.reductions:_wins_function",
        Text("(x == best && place < best_place);\\n"),
        "(x == best && place > best_place);\\n",
        ("tests/backends/cublas_cudnn/test_reductions.py", "-k", "ties"),
    ),
    Mutant(
        "an element that is written over keeps its cotangent",
        "ops.dynamic_slice:dynamic_update_op",
        "bind(dynamic_update_op, [ct, zeros_like(update), *starts])",
        "ct",
        ("tests/autodiff/test_borders_of_state.py", "-k", "compiled"),
    ),
    Mutant(
        "a checkpoint is made again from another of its captures",
        "autodiff.checkpoints:reverse_checkpoint",
        "[*op.operands, *seeds]",
        "[*op.operands[:-1], op.operands[0], *seeds]",
        ("tests/autodiff/test_borders_of_state.py", "-k", "compiled"),
    ),
)
