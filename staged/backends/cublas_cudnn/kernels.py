"""The kernels of a program: one for each kernel op, equal ones once; calls of libraries where these do the work."""

from __future__ import annotations

from staged.backends.cublas_cudnn import custom
from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.cublas_cudnn.host_kernels import HostKernels
from staged.backends.cublas_cudnn.library import attention_graphs, operation_graphs, plans
from staged.backends.cublas_cudnn.library.contraction import Contractions
from staged.backends.cublas_cudnn.library.instead import KernelsInstead
from staged.backends.gpu.alignment import Alignments
from staged.backends.gpu.attention.ways import KERNELS
from staged.backends.gpu.kernels import NestKernels
from staged.backends.gpu.thread_kernels import ThreadKernels
from staged.code.kernel_text import KernelText, Site
from staged.code.writer import Names
from staged.ir.declaration import prims
from staged.ir.machine import Gpu, Machine
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.products import product_nest
from staged.ir.structure import CONTRACTION, LIBRARY
from staged.ir.types import CPU
from staged.ops.custom import CUSTOM_LAUNCH


class CudaLibrary:
    """Emits each kernel of a program: for its host in C, for its device in CUDA or as a call of a library."""

    def __init__(
        self,
        machine: Machine,
        names: Names,
        site: Site,
        options: DeviceOptions,
        gpu: Gpu,
        alignments: Alignments,
        launchers: dict[str, str],
    ) -> None:
        self.machine = machine
        self.gpu = gpu
        self.names = names
        self.options = options
        self.names.used |= CUDA.reserved | operation_graphs.NAMES | attention_graphs.NAMES | plans.NAMES
        self.site = site
        self.host = HostKernels(machine, names, site)
        self.nests = NestKernels(names, CUDA, gpu, site, options, alignments)
        self.contractions = Contractions(names, site, options, KernelsInstead(self.nests, names, launchers))
        self.thread_kernels = ThreadKernels(names, CUDA, site)

    def kernel(self, op: Op) -> KernelText:
        """The text for an op that is one step. Raises UnsupportedError, with the Python line, for what has none."""
        if op.declared is prims.GPU_FUNC:
            return self.thread_kernels.kernel(op)
        if op.declared is CUSTOM_LAUNCH:
            return custom.kernel_of(op)
        if op.declared is LIBRARY and op.attrs["call"] in KERNELS:
            return self.nests.kernel(op, op.results[0].hint or op.attrs["call"])
        if op.declared is LIBRARY:
            return self.contractions.whole(op)
        name = str(op.attrs.get("name") or "kernel")
        if op.device == CPU:
            return self.host.kernel(op)
        if op.declared is CONTRACTION:
            call = self.contractions.call(op, name)
            if call is not None:
                return call
            op = op.replace(attrs={**op.attrs, "nest": product_nest(op, name)})
        return self.nests.kernel(op, name)
