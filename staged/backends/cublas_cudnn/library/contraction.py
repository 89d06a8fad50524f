"""The choice of a library for a matrix product or a convolution.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from staged.backends.cublas_cudnn.library.call import LibraryCall, form_of_op
from staged.backends.cublas_cudnn.library.convolution import emit_convolution
from staged.backends.cublas_cudnn.library.cublas import emit_product
from staged.backends.cublas_cudnn.library.cublaslt import emit_epilogue_product
from staged.backends.cublas_cudnn.library.instead import KernelsInstead
from staged.backends.cublas_cudnn.library.whole import EMITTERS, WITH_KERNELS
from staged.code.writer import Names
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.source import Position


class Contractions:
    """The library calls of a program, each once, however many lines ask for the same."""

    def __init__(
        self,
        names: Names,
        site: Callable[[Position | None], int],
        options: DeviceOptions,
        kernels: KernelsInstead,
    ) -> None:
        self.names = names
        self.site = site
        self.options = options
        self.kernels = kernels
        self.known: dict[str, LibraryCall] = {}

    def call(self, op: Op, name: str) -> LibraryCall | None:
        """The call for a `contraction` op of the device; None for one that no library takes: a product of integers."""
        if not op.operands[0].tensor.dtype.is_float:
            return None
        form, site, options = form_of_op(op), self.site(op.where), self.options
        if op.attrs["kind"] == "matmul" and form.is_linear:
            return self.once(name, lambda chosen: emit_product(op, chosen, site, form, options))
        emit = emit_epilogue_product if op.attrs["kind"] == "matmul" else emit_convolution
        return self.once(name, lambda chosen: emit(op, chosen, site, form, options, self.kernels))

    def whole(self, op: Op) -> LibraryCall:
        """The call for a `library` op."""
        site, call = self.site(op.where), op.attrs["call"]

        def emit(chosen: str) -> LibraryCall:
            if call in WITH_KERNELS:
                return WITH_KERNELS[call](op, chosen, site, self.kernels)
            return EMITTERS[call](op, chosen, site)

        return self.once(op.results[0].hint or call, emit)

    def once(self, name: str, emit: Callable[[str], LibraryCall]) -> LibraryCall:
        """The call that `emit` makes under a name, or the one there is that does the same."""
        meaning = statements(emit("call").text)
        if meaning not in self.known:
            self.known[meaning] = emit(self.names.fresh(name))
        return self.known[meaning]


def statements(text: str) -> str:
    """A function without the comments above it."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("//"))
