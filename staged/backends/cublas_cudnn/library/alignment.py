"""The alignment of the arrays that libraries are called with.

    b = big[1:33]
    relu(a @ w + b)        ->   b is copied to a multiple of 16 bytes, then cublasLt adds it

The heuristics of cublasLt receive the alignment of the matrices, which is an attr of the op if it is below 16 bytes.
They do not receive that of the vector of an epilogue. Plans of cuDNN declare an alignment of 16 bytes for all arrays.
Arrays that are not known to be at such an address are copied. Calls of cuBLAS, of cuSOLVER and of cuDNN's routines that
are not plans accept every address of an element.

Tested by `tests/backends/cublas_cudnn/test_alignment.py`.
"""

from __future__ import annotations

from staged.backends.cublas_cudnn.library import attention, sums
from staged.backends.cublas_cudnn.library.call import form_of_op, operand_of
from staged.backends.gpu.alignment import ALIGNED, Alignments
from staged.ir.builder import Builder
from staged.ir.functions import every_function, map_functions
from staged.ir.names import name_of
from staged.ir.nodes import Function, Op, Value
from staged.ir.rewrite import Copier
from staged.ir.storage import structural_ops
from staged.ir.structure import CONTRACTION, COPY, LIBRARY
from staged.ir.types import CPU

_PLANS = (attention.FORWARD, attention.BACKWARD)


def align_operands(program: Function) -> Function:
    """The program with copies of the operands of library calls that must be, and are not known to be, at multiples of
    16 bytes, and with the alignment of the other matrices of cublasLt.
    """
    alignments = Alignments(program)
    ops = (op for function in every_function(program) for op in structural_ops(function.block))
    if all(alignments.of(value) == ALIGNED for op in ops for value in aligned_arrays(op)):
        return program
    return map_functions(program, lambda each: each.with_block(_Aligner(Builder(), alignments).block(each.block)))


def aligned_arrays(op: Op) -> tuple[Value, ...]:
    """The operands and results of a library call whose known alignment the call depends on."""
    if op.device == CPU:
        return ()
    if op.declared is LIBRARY and op.attrs["call"] in (*_PLANS, sums.PRODUCT):
        return (*op.operands, *op.results)
    return (*op.operands[:2], *_vectors(op), *op.results) if _is_epilogue(op) else ()


class _Aligner(Copier):
    def __init__(self, builder: Builder, alignments: Alignments) -> None:
        super().__init__(builder)
        self.alignments = alignments

    def op(self, op: Op) -> None:
        vectors = _vectors(op)
        copies: dict[Value, Value] = {}
        for value in vectors:
            if self.alignments.of(value) < ALIGNED and value not in copies:
                copies[value] = self.copy(op, value)
        matrices = [value for value in aligned_arrays(op) if value not in vectors]
        known = min(map(self.alignments.of, matrices), default=ALIGNED)
        if not copies and known == ALIGNED:
            super().op(op)
            return
        attrs = op.attrs if known == ALIGNED else {**op.attrs, "alignment": known}
        changed = op.replace(operands=[copies.get(value, value) for value in op.operands], attrs=attrs)
        super().op(changed)
        self.define(op.results, [self.value(result) for result in changed.results])

    def copy(self, op: Op, value: Value) -> Value:
        attrs = {"source": op.device, "what": name_of(value) or "an operand", "why": "alignment"}
        copy = Op(COPY, [self.value(value)], [value.type], attrs=attrs, device=op.device, where=op.where)
        copy.result.hint = value.hint
        self.builder.append(copy)
        return copy.result


def _vectors(op: Op) -> tuple[Value, ...]:
    """The operands that must be at multiples of 16 bytes."""
    if op.device == CPU:
        return ()
    if op.declared is LIBRARY and op.attrs["call"] in _PLANS:
        return op.operands
    if _is_epilogue(op) and (bias := form_of_op(op).bias) is not None:
        return (op.operands[operand_of(bias)],)
    return ()


def _is_epilogue(op: Op) -> bool:
    """Return whether cublasLt computes a matrix product with its epilogue."""
    is_product = op.declared is CONTRACTION and op.attrs["kind"] == "matmul" and op.operands[0].tensor.dtype.is_float
    return is_product and not form_of_op(op).is_linear
