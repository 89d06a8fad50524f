"""The operands of a product: the parameters of its function, and the offsets of the matrices of a batch.

Tested by `tests/backends/host/test_contraction_matmul.py`.
"""

from __future__ import annotations

from math import prod

from staged.backends.cpu.contraction.spec import MatmulSpec, Parameter
from staged.backends.cpu.contraction.text import times


def product_parameters(spec: MatmulSpec, scratch: bool = False) -> tuple[Parameter, ...]:
    """The parameters of a product, in order."""
    pointer = f"{spec.dtype.c_name} *restrict "
    operand = f"const {(spec.stored or spec.dtype).c_name} *restrict "
    found: list[Parameter] = [(operand, name) for name in spec.operand_names]
    if spec.epilogue is None:
        found.append((pointer, "c"))
    if scratch:
        found.append((pointer, "scratch"))
    if spec.counted in ("m", "k"):
        found.append(("int64_t ", "count"))
    found += [("int64_t ", "begin"), ("int64_t ", "end")]
    if spec.epilogue is not None:
        found += spec.epilogue.parameters
    return tuple(found)


def batch_items(spec: MatmulSpec, items: int) -> str:
    """The text of a number of work items that is a multiple of a counted batch."""
    if spec.counted != "batch":
        return ""
    each = items // spec.batch[0]
    return "{count}" if each == 1 else f"{{count}} * {each}"


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
