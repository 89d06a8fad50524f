"""Copies between host and device in the host part of a program, and pushes onto stacks of a device: the part of them
that all back ends share.

Tested by `tests/backends/cublas_cudnn/test_programs.py` and `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from staged.backends.gpu.addresses import device_of
from staged.backends.host.body import BodyEmitter
from staged.code.expr import Expr, Literal, Prefix, call
from staged.ir.buffers import Stack
from staged.ir.names import name_of
from staged.ir.nodes import Op
from staged.ir.storage import is_tensor
from staged.ir.types import TensorType


def begin_copy(structure: BodyEmitter, op: Op, there: str) -> tuple[Expr, Expr]:
    """Write why a `copy` op copies, and a local for a number; returns (target, source) as addresses."""
    source = structure.pointer(op.operands[0])
    structure.where(op.where)
    structure.code.comment(f"{op.attrs['what']}: to {there} ({op.attrs['why']})")
    if is_tensor(op.result):
        return structure.pointer(op.result), source
    local = structure.scalars[op.result] = structure.changing(name_of(op.result), structure.c_type(op.result))
    return Prefix("&", local), source


def device_push(structure: BodyEmitter, stack: Stack, source: Expr, item_bytes: Expr, type: TensorType) -> Expr:
    """The call that puts an array of a device onto a stack there."""
    assert device_of(source) == stack.device, "placement makes every crossing a copy of its own"
    item = "gpu", "host", structure.site_of(stack.where), structure.field(stack), source, item_bytes
    if isinstance(structure.count(type), Literal):
        return call("st_device_stack_push", *item)
    return call("st_device_stack_push_part", *item, structure.nbytes(type))
