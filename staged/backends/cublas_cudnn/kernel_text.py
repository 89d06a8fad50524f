"""The text of a kernel on the device, and what the host must know to launch it."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.writer import Writer, safe_comment, wrapped
from staged.backends.cublas_cudnn.spelling import CUDA_FUNCTIONS, device_names
from staged.backends.gpu_family.geometry import Launch

CUDA_WORDS = CUDA_FUNCTIONS | frozenset(
    "threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 __global__ __device__ __shared__ KERNELS KERNEL ST_UNROLLED".split()
)
"""Names that mean something in kernels, or in what surrounds them."""
LAUNCH_WORDS = frozenset("gpu grid block blocks values copied cleared".split())
"""What the host functions that start kernels have beside the kernels' parameters, which have the same names there."""


@dataclass(frozen=True, slots=True)
class WholeCopy:
    """All of one parameter of a kernel from another, before it starts, unless they are one buffer; None: zeros."""

    target: str
    source: str | None
    size: str


@dataclass(frozen=True, slots=True)
class CudaKernel(KernelText):
    """A kernel on the device, and its launch; kernels of the host have none."""

    launch: Launch | None = None
    copies: tuple[WholeCopy, ...] = ()
    workspace_bytes: int = 0
    """Memory that its threads share out among them; it then takes it as `scratch`."""
    comments: tuple[str, ...] = ()
    statements: str = ""
    """What stands between its braces."""
    own_parameters: tuple[tuple[str, str], ...] = ()
    """What it takes besides the op's operands and results."""
    zeroes: bool = False
    """Whether it only fills its result with zeros, as cudaMemsetAsync does at an address that the host knows."""
    restricted: frozenset[str] = frozenset()
    """The parameters whose arrays are reached by no other."""

    @property
    def how(self) -> str:
        return "" if self.launch is None else str(self.launch)

    def can_read(self, positions: Collection[int]) -> bool:
        """Whether it has such a form: the host must know the addresses of arrays that it copies before the launch."""
        names = {self.parameters[position][1] for position in positions}
        return bool(self.statements) and not any(copy.target in names or copy.source in names for copy in self.copies)

    def reading(self, positions: Collection[int], name: str) -> CudaKernel:
        """The same kernel, called `name`, with the arguments at `positions` found where an address of the device points.

            y_kernel(const float *x, float factor)  ->  y_of_turn_kernel(const float *x, const float *factor_at)
        """
        parameters, reads = [], []
        for position, (c_type, parameter) in enumerate(self.parameters):
            if position not in positions:
                parameters.append((c_type, parameter))
                continue
            place = f"{parameter}_at"
            while re.search(rf"\b{place}\b", self.statements):
                place += "_"
            is_pointer = c_type.endswith("*")
            parameters.append((f"{c_type}const *" if is_pointer else f"const {c_type}*", place))
            reads.append(f"    {c_type if is_pointer else f'const {c_type}'}{'const ' * is_pointer}{parameter} = *{place};")
        statements = "\n".join([*reads, self.statements])
        assert self.launch is not None and self.can_read(positions)
        given = (*parameters, *self.own_parameters)
        text = kernel_function(name, self.comments, self.launch, given, self.restricted, statements)
        return replace(
            self, name=name, text=text, parameters=tuple(parameters), statements=statements, zeroes=False
        )


def kernel_function(
    name: str,
    comments: Sequence[str],
    launch: Launch,
    parameters: Sequence[tuple[str, str]],
    restricted: Collection[str],
    statements: str,
) -> str:
    """The text of a kernel: `statements` stand between its braces."""
    w = Writer()
    for comment in comments:
        w.line("// " + safe_comment(comment))
    text = ", ".join(f"{type}{'__restrict__ ' * (name in restricted)}{name}" for type, name in parameters)
    bounds = f"__launch_bounds__({launch.threads})"
    w.line(wrapped(f'extern "C" __global__ void {bounds} {name}({text})') + " {")
    w.text(statements)
    w.line("}")
    return device_names(str(w))
