"""Copies between host and device in the host part of a program: what they have in common, whatever makes them.

Tested by `tests/backends/cublas_cudnn/test_programs.py` and `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from staged.backends.c_family.expr import Expr, Prefix
from staged.backends.c_family.structure import StructureEmitter
from staged.ir.names import name_of
from staged.ir.nodes import Op
from staged.ir.storage import is_tensor


def begin_copy(structure: StructureEmitter, op: Op, there: str) -> tuple[Expr, Expr]:
    """Write why a `copy` op copies, and a local for a number; returns (target, source) as addresses."""
    source = structure.pointer(op.operands[0])
    structure.where(op.where)
    structure.code.comment(f"{op.attrs['what']}: to {there} ({op.attrs['why']})")
    if is_tensor(op.result):
        return structure.pointer(op.result), source
    local = structure.scalars[op.result] = structure.changing(name_of(op.result), structure.c_type(op.result))
    return Prefix("&", local), source
