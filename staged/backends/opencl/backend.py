"""The OpenCL back end as the pipeline sees it. Its method imports what it needs, so that other programs do not load it.

Tested by `tests/backends/opencl/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from staged.backends.contract import BackEnd, Emitted, Planner
from staged.base.artifact import Artifact
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op
from staged.ir.types import CPU


class OpenCl(BackEnd):
    """OpenCL C, on devices with shared virtual memory."""

    name = "opencl"
    devices = ("cpu", "gpu")

    def emit(self, function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
        """Write the program of a placed and fused function.

        Raises: UnsupportedError for what it cannot write yet, with the Python line.
        """
        from staged.backends.opencl.file import emit_program

        return emit_program(function, machine, plan, check_nan)

    def takes_epilogue(self, op: Op, body: Block) -> bool:
        """Return whether a contraction takes an elementwise op along: on the host, tile by tile."""
        return op.device == CPU

    def export(self, artifact: Artifact, variants: Mapping[str, Artifact], beside: Mapping[str, str]) -> dict[str, str]:
        """The folder that builds with a C compiler and OpenCL's loader."""
        from staged.backends.host.export import export_files

        has_device_arrays = any(parameter.device != CPU.kind for parameter in artifact.parameters)
        device_text = '\n#include "staged_opencl_arrays.h"\n' if has_device_arrays else ""
        linked = replace(artifact, link=(*artifact.link, "-lOpenCL"))
        return export_files(linked, None, beside, device_text, "OpenCL's loader, `libOpenCL`")


BACK_END = OpenCl()
