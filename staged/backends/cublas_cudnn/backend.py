"""The CUDA back end as the pipeline sees it."""

from __future__ import annotations

from staged.backends.c_family.program import Emitted, Planner
from staged.ir.machine import Machine
from staged.ir.nodes import Function

NAME = "cublas_cudnn"
DEVICES = ("cpu", "gpu")
"""The device kinds whose ops this back end takes."""


def emit(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The program for a placed and fused function; `plan` makes its memory plan.

    Raises: UnsupportedError for an op that has no CUDA spelling, with its Python line.
    """
    from staged.backends.cublas_cudnn.emit import emit_program  # only where a program asks for a GPU

    return emit_program(function, machine, plan, check_nan)
