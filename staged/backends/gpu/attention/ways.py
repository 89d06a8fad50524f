"""The choice of attention that kernels of our own do: one for the result, two for the gradients.

What has no kernel (heads too large for shared memory, the gradient by a mask of floats, second derivatives in reverse
mode) stays the loop over blocks of the composite.

Tested by `tests/backends/cublas_cudnn/test_attention_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from staged.backends.gpu.attention.backward import d_key_kernel, d_query_kernel
from staged.backends.gpu.attention.forward import forward_kernel
from staged.backends.gpu.attention.sizes import BACKWARD_KEYS, BACKWARD_QUERIES, FORWARD, AttentionSizes
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.kernel_text import GpuKernel
from staged.ir.declaration import prims
from staged.ir.machine import Gpu
from staged.ir.nodes import Block, Op
from staged.ir.types import f32
from staged.ir.users import Users
from staged.ops.array import Array
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.promote import cast
from staged.ops.record import RecordContext
from staged.ops.source import zeros

KERNELS: Mapping[str, Callable[[Op, str, Gpu, GpuDialect], GpuKernel]] = {
    FORWARD: forward_kernel,
    BACKWARD_QUERIES: d_query_kernel,
    BACKWARD_KEYS: d_key_kernel,
}
"""By the attr `call` of a `library` op: its kernel."""


class AttentionKernels:
    """The ways of attention on a GPU."""

    def __init__(self, users: Users, gpu: Gpu) -> None:
        self.users = users
        self.gpu = gpu
        self.ways: dict[str, FindWay] = {"attention": self.forward, "attention_backward": self.backward}

    def fits(self, op: Op, *kernels: str) -> bool:
        """Return whether there are kernels for an op."""
        return not any(AttentionSizes.of(kernel, op, self.gpu).why_not() for kernel in kernels)

    def forward(self, op: Op, block: Block) -> Way | None:
        """(result, lse)."""
        if not self.fits(op, FORWARD) or not any(map(self.users.get, op.results)):
            return None
        hint = op.results[0].hint or "attention"

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            return library_call(
                FORWARD, _as_stored(op, operands), [r.tensor for r in op.results], (hint, "lse"), **_attrs(op)
            )

        return Way(write)

    def backward(self, op: Op, block: Block) -> Way | None:
        """The cotangents of q, k and v; those that are unused are not computed."""
        wanted = [bool(self.users.get(result)) for result in op.results]
        calls = [(BACKWARD_QUERIES, op.results[:1]), (BACKWARD_KEYS, op.results[1:])]
        calls = [call for call, is_wanted in zip(calls, (wanted[0], any(wanted[1:])), strict=True) if is_wanted]
        if not calls or not self.fits(op, *(kernel for kernel, _ in calls)):
            return None
        hints = {result: result.hint or hint for result, hint in zip(op.results, ("d_q", "d_k", "d_v"), strict=True)}

        def write(context: RecordContext, *operands: Array) -> Sequence[Array]:
            stored, made = _as_stored(op, operands), list[Array]()
            for kernel, results in ((BACKWARD_QUERIES, op.results[:1]), (BACKWARD_KEYS, op.results[1:])):
                types = [result.tensor for result in results]
                if (kernel, results) in calls:
                    made += library_call(kernel, stored, types, [hints[r] for r in results], **_attrs(op))
                else:
                    made += [zeros(type.shape, type.dtype) for type in types]  # unused
            return made

        return Way(write)


def _as_stored(op: Op, operands: Sequence[Array]) -> list[Array]:
    """The operands; halves where they are made of these: the kernels read halves, and add up in f32."""
    stored = list(operands)
    for number, value in enumerate(op.operands):
        made = value.made_by(prims.CAST)
        if made is not None and value.tensor.dtype is f32 and made.operands[0].tensor.dtype.is_half:
            stored[number] = cast(stored[number], made.operands[0].tensor.dtype)
    return stored


def _attrs(op: Op) -> dict[str, object]:
    return {name: op.attrs[name] for name in ("causal", "scale", "p", "parts", "blocks")}
