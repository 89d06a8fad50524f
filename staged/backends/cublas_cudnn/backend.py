"""The CUDA back end: programs with kernels and calls of cuBLAS, cublasLt and cuDNN.

Its methods import what they need, so that a program without a GPU does not load it.

Tested by `tests/backends/test_contract.py` and `tests/backends/cublas_cudnn/test_programs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.backends.contract import BackEnd, Emitted, Planner
from staged.base.artifact import Artifact
from staged.ir.declaration import prims
from staged.ir.machine import Machine
from staged.ir.nodes import Block, Function, Op
from staged.ir.options import DeviceOptions
from staged.ir.types import CPU, dims_of
from staged.ops.custom import CFunction
from staged.ops.library_calls import FindWay


class CublasCudnn(BackEnd):
    """CUDA, with NVIDIA's libraries."""

    name = "cublas_cudnn"
    devices = ("cpu", "gpu")
    takes_cuda_arrays = takes_cuda_forms = has_families = True

    def emit(self, function: Function, machine: Machine, plan: Planner, check_nan: bool) -> Emitted:
        """Write the program of a placed and fused function.

        Raises: UnsupportedError for an op that has no CUDA spelling, with its Python line.
        """
        from staged.backends.cublas_cudnn.emit import emit_program

        return emit_program(function, machine, plan, check_nan)

    def takes_epilogue(self, op: Op, body: Block) -> bool:
        """Return whether a library makes a contraction with what `body` does to its result in one call."""
        from staged.backends.cublas_cudnn.library.form import Form, Scale, form_of

        if op.device == CPU:
            return True
        form = form_of(op.name, body)
        if form is None or form == Form():
            return form is not None
        if op.declared is prims.MATMUL and any(dims_of(operand.type) for operand in op.operands):
            # One of cuBLAS: cublasLt is given products of a fixed size. Of no rows, there is nothing to scale.
            terms = op.operands[0].tensor.shape[-2 if op.attrs.get("transpose_a", False) else -1]
            return form.is_linear and (isinstance(terms, int) or form.addend is None or form.beta == Scale(1.0))
        return all(operand.tensor.size != 0 for operand in op.operands)  # empty products: libraries reject them

    def library_ways(self, function: Function, options: DeviceOptions, machine: Machine) -> FindWay:
        """cuDNN's and cuSOLVER's ways for the composites of a function, and for primitives other than contractions,
        on their devices."""
        from staged.backends.cublas_cudnn.library.whole import find_ways

        return find_ways(function, options)

    def custom_source(self, function: CFunction) -> str:
        """Return a user's kernel with the definitions that NVRTC needs; empty for a function of a library."""
        from staged.backends.cublas_cudnn.emit import custom_source

        return custom_source(function)

    def export(self, artifact: Artifact, variants: Mapping[str, Artifact], beside: Mapping[str, str]) -> dict[str, str]:
        """The folder that builds with nvcc, or for the emulated device of `beside`."""
        from staged.backends.cublas_cudnn.export import export_files

        return export_files(artifact, beside)


BACK_END = CublasCudnn()
