"""The native back end's programs: the shared program writer with this back end's kernels."""

from __future__ import annotations

from staged.backends.c_family.kernel_library import KernelLibrary
from staged.backends.c_family.program import Emitted, Planner, ProgramEmitter
from staged.ir.machine import Machine
from staged.ir.nodes import Function


def emit_program(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The C program for a function whose tensor ops have been fused into kernels.

    `plan` makes the memory plan; it is asked once the kernels are known, since they say which buffers may be shared.
    """
    return ProgramEmitter(function, machine, KernelLibrary, check_nan).run(plan)
