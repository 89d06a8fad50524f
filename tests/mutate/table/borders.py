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
)
