"""The operands of a product: the parameters of its function, and the offsets of the matrices of a batch.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from math import prod

from staged.backends.cpu.contraction.spec import Conv2dSpec, MatmulSpec, Parameter
from staged.backends.cpu.contraction.text import times
from staged.ir.types import i8, i32


def kernel_parameters(spec: MatmulSpec | Conv2dSpec, has_scratch: bool = False) -> tuple[Parameter, ...]:
    """The parameters of a kernel, in the order in which a program passes them."""
    operand = sums = spec.dtype
    names = spec.operand_names
    if isinstance(spec, MatmulSpec):
        operand, sums = spec.stored or operand, i32 if spec.dtype is i8 else sums
        names = names[::-1] if spec.right_first else names
    sizes = [("int64_t ", name) for name in spec.sizes if spec.epilogue is None]
    inputs: tuple[Parameter, ...] = ()
    results: tuple[Parameter, ...] = ((f"{sums.c_name} *restrict ", spec.result_name),)
    if spec.epilogue is not None:
        first = len(spec.epilogue.parameters) - spec.epilogue.results
        inputs, results = spec.epilogue.parameters[:first], spec.epilogue.parameters[first:]
    scratch = [(f"{spec.dtype.c_name} *restrict ", "scratch")] if has_scratch else []
    operands = [(f"const {operand.c_name} *restrict ", name) for name in names]
    return (*operands, *inputs, *sizes, *results, *scratch, ("int64_t ", "begin"), ("int64_t ", "end"))


def batch_terms(extents: tuple[int, ...], strides: tuple[int, ...], index: str = "batch") -> list[str]:
    """The terms of an operand's offset for matrix number `index` of a batch with the given extents,
    in row-major order."""
    axes = [axis for axis in range(len(extents)) if extents[axis] > 1]
    dense = all(strides[axis] == strides[inner] * extents[inner] for axis, inner in zip(axes, axes[1:], strict=False))
    if not axes:
        return []
    if dense:
        return [times(strides[axes[-1]], index)]
    terms = []
    for axis in axes:
        below, above = prod(extents[axis + 1 :]), prod(extents[:axis])
        position = index if below == 1 else f"{index} / {below}"
        if above > 1:
            position = f"{position} % {extents[axis]}"
        terms.append(times(strides[axis], position))
    return terms
