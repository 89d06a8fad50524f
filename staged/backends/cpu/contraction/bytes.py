"""Products of i8 whose sums are i32: which of the two forms computes one.

Tested by `tests/backends/host/test_contraction_bytes.py`.
"""

from __future__ import annotations

from staged.backends.cpu.contraction.byte_tiles import emit_byte_tiles
from staged.backends.cpu.contraction.dots import emit_dots
from staged.backends.cpu.contraction.spec import ContractionKernel, MatmulSpec
from staged.ir.machine import Machine
from staged.ir.types import u32

FEW_ROWS = 4
"""Rows up to which copying the right operand takes longer than its products."""


def emit_bytes(spec: MatmulSpec, machine: Machine) -> ContractionKernel:
    """The C text of a product of i8 in i32, of a left operand whose rows are dense."""
    is_run = spec.b_strides[-2] == 1 and 4 * spec.k >= machine.vector_bytes
    is_small = spec.m <= FEW_ROWS or 2 * spec.n <= machine.lanes(u32.size)
    return (emit_dots if is_run and is_small else emit_byte_tiles)(spec, machine)
