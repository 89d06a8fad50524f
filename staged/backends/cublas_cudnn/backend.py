"""The CUDA back end as the pipeline sees it."""

from __future__ import annotations

from staged.backends.c_family.program import Emitted, Planner
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op
from staged.ir.options import DeviceOptions
from staged.ir.types import CPU, dims_of
from staged.ops.library import FindWay

NAME = "cublas_cudnn"
DEVICES = ("cpu", "gpu")
"""The device kinds whose ops this back end takes."""


def emit(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The program for a placed and fused function; `plan` makes its memory plan.

    Raises: UnsupportedError for an op that has no CUDA spelling, with its Python line.
    """
    from staged.backends.cublas_cudnn.emit import emit_program  # only where a program asks for a GPU

    return emit_program(function, machine, plan, check_nan)


def takes_epilogue(op: Op, body: Block) -> bool:
    """Whether a library makes a contraction with what `body` does to its result in one call."""
    from staged.backends.cublas_cudnn.library.form import Form, Scale, form_of

    if op.device == CPU:
        return True
    form = form_of(op.name, body)
    if form is None or form == Form():
        return form is not None
    if any(dims_of(operand.type) for operand in op.operands):
        # One of cuBLAS: what cublasLt is told of a product is of a fixed size. Of no rows, there is nothing to scale.
        is_sum = not op.attrs.get("transpose_a", False)
        return form.is_linear and (is_sum or form.addend is None or form.beta == Scale(1.0))
    return all(operand.tensor.size for operand in op.operands)  # else there is no sum, and no library wants to hear of it


def library_ways(function: Function, options: DeviceOptions) -> FindWay:
    """How cuDNN makes the composites of a function, and primitives that are no contractions, on their devices."""
    from staged.backends.cublas_cudnn.library.whole import find_ways

    return find_ways(function, options)
