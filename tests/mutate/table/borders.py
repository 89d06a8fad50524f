"""Faults at the conditions that rewrites and plans state of themselves (`Exact:`)."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

PLACES = ("tests/kernels/test_places.py", "-k", "compiled")

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "an argmax over several axes walks them in the order of memory, not of its places",
        "staged/kernels/lower.py",
        "return s.with_rising_places(order)",
        "return order",
        PLACES,
    ),
    Mutant(
        "an argmax of totals is not told where it is",
        "staged/kernels/lower.py",
        "if self.analysis.reduced_axes(op) == row:\n                self.accumulate(op, reduction)",
        "if self.analysis.reduced_axes(op) == row:\n"
        "                dims = self.affine(self.analysis.operand_dims[op])\n"
        "                self.put(Accumulate(reduction, self.eval(op.operands[0], dims)))",
        PLACES,
    ),
    Mutant(
        "an argmax shares loops that come to its places in another order",
        "staged/kernels/axes.py",
        "        self.check_levels()\n        self.check_places()\n",
        "        self.check_levels()\n",
        PLACES,
    ),
    Mutant(
        "buffers share memory where one is last read in the position in which the other is written",
        "staged/passes/memory/offsets.py",
        "if a[i][1] < b[j][0]:",
        "if a[i][1] <= b[j][0]:",
        ("tests/passes/memory/test_offsets.py",),
    ),
    Mutant(
        "a Variable of the caller's is overwritten before what may stop the program",
        "staged/passes/memory/variable_lives.py",
        'if effect.kind in ("fail", "io"):\n                self.uses[start] |= self.at_stop',
        'if effect.kind in ("fail", "io"):\n                self.uses[start] |= 0',
        ("tests/passes/memory/test_variable_lives.py", "-k", "compiled"),
    ),
    Mutant(
        "unused work that may stop the program is dropped",
        "staged/passes/dead_code.py",
        "self.effects[op] = bool(op.effects) or (any(inside) and has_effects(op))",
        'self.effects[op] = any(effect.kind != "fail" for effect in op.effects) or (any(inside) and has_effects(op))',
        ("tests/passes/test_dead_code.py",),
    ),
    Mutant(
        "a pool takes the last of ties",
        "staged/kernels/lower_alone.py",
        'stays, wins, number, both = (Local(n, bool_) for n in ("less_equal", "logical_not", "equal", "wins"))\n'
        '    body.append(Compute(stays, "less_equal", (x, best), {}))',
        'stays, wins, number, both = (Local(n, bool_) for n in ("less", "logical_not", "equal", "wins"))\n'
        '    body.append(Compute(stays, "less", (x, best), {}))',
        ("tests/kernels/test_lower_alone.py", "-k", "ties"),
    ),
    Mutant(
        "long reductions of a size that has no divisor are cut, and the rest is lost",
        "staged/kernels/split.py",
        "if extent % d == 0]",
        "]",
        ("tests/kernels/test_split.py",),
    ),
    Mutant(
        "a pad beside another is joined to it past a gap",
        "staged/passes/partial_sums.py",
        "if pieces[0][1] != pieces[1][0]:\n        return None",
        "if pieces[0][1] > pieces[1][0]:\n        return None",
        ("tests/passes/test_movement.py", "-k", "compiled"),
    ),
    Mutant(
        "a window that was written is read as it was given, from another place too",
        "staged/passes/movement.py",
        "if update is None or list(update.operands[2:]) != start or",
        "if update is None or",
        ("tests/passes/test_movement.py", "-k", "compiled"),
    ),
    Mutant(
        "an index into rows without elements is not checked",
        "staged/ops/index.py",
        "nothing = 0 in others or any(",
        "nothing = any(",
        ("tests/kernels/test_no_elements.py",),
    ),
    Mutant(
        "an index into rows of which the program finds none is not checked",
        "staged/ops/index.py",
        "0 in others or any(isinstance(other, Dim) for other in others)",
        "0 in others",
        ("tests/kernels/test_no_elements.py",),
    ),
    Mutant(
        "of ties that threads find, any one wins",
        "staged/backends/cublas_cudnn/reductions.py",
        "(x == best && place < best_place);\\n",
        "(x == best && place > best_place);\\n",
        ("tests/backends/cublas_cudnn/test_reductions.py", "-k", "ties"),
    ),
    Mutant(
        "an element that is written over keeps its cotangent",
        "staged/ops/index.py",
        "bind(dynamic_update_op, [ct, zeros_like(update), *starts]),",
        "ct,",
        ("tests/autodiff/test_borders_of_state.py", "-k", "compiled"),
    ),
    Mutant(
        "a checkpoint is made again from another of its captures",
        "staged/autodiff/checkpoints.py",
        "operands = [*op.operands, *seeds]",
        "operands = [*op.operands[:-1], op.operands[0], *seeds]",
        ("tests/autodiff/test_borders_of_state.py", "-k", "compiled"),
    ),
)
