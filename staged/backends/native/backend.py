"""The native back end as the pipeline sees it."""

from __future__ import annotations

from staged.backends.c_family.program import Emitted, Planner
from staged.backends.native.emit import emit_program
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op

NAME = "native"
DEVICES = ("cpu",)
"""The device kinds whose ops this back end takes."""


library_ways = None
"""It calls no libraries."""


def emit(function: Function, machine: Machine, plan: Planner, check_nan: bool = False) -> Emitted:
    """The program for a fused function; `plan` makes its memory plan, `check_nan` adds checks of every kernel's results."""
    return emit_program(function, machine, plan, check_nan)


def takes_epilogue(op: Op, body: Block) -> bool:
    """Whether a contraction takes what `body` does to its result along: always, tile by tile."""
    return True
