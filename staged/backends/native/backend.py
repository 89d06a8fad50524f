"""The native back end: C programs for the host.

Tested by `tests/backends/test_contract.py` and `tests/backends/native/test_all_ops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from staged.backends.contract import BackEnd, Emitted, Planner
from staged.backends.cpu.kernel_library import KernelLibrary
from staged.backends.host.export import export_files
from staged.backends.host.program import ProgramEmitter
from staged.backends.host.standalone.iso_c import iso_c_files
from staged.backends.host.standalone.library import VARIANTS
from staged.backends.native.lapack.kernels import LapackLibrary
from staged.backends.native.lapack.ways import find_ways
from staged.base.artifact import Artifact
from staged.code import dialect
from staged.ir.machine import C99, Machine
from staged.ir.nodes import Function
from staged.ir.options import DeviceOptions
from staged.ops.library_calls import FindWay


class Native(BackEnd):
    """C, the libraries that every C compiler has, and the BLAS and LAPACK that a user chooses."""

    name = "native"
    devices = ("cpu",)
    has_families = has_ranks = True
    variants = tuple(VARIANTS)

    def library_ways(self, function: Function, options: DeviceOptions, machine: Machine) -> FindWay | None:
        """LAPACK's ways for functions of `st.linalg`, where the machine has one."""
        return find_ways(function, machine)

    def emit(self, function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
        """Write the C program of a fused function."""
        library = partial(KernelLibrary, dialect=dialect.C99) if machine.is_iso_c else LapackLibrary
        return ProgramEmitter(function, machine, library, check_nan).run(plan)

    def export(self, artifact: Artifact, variants: Mapping[str, Artifact], beside: Mapping[str, str]) -> dict[str, str]:
        """The folder that builds with a C compiler."""
        return iso_c_files(artifact) if artifact.target == C99.name else export_files(artifact, variants)


BACK_END = Native()
