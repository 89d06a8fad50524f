"""The known alignment of values on a device: bytes that the address of an array is a multiple of, in every call.

    x = big[1:]            # 4 bytes: a view of floats that begins at an offset
    y = x * 2.0            # 16 bytes: a buffer of the memory plan
    f(y) + f(x)            # in `f`, the parameter is known to be at a multiple of 4 bytes: the minimum over all calls

The arrays that the caller passes are at multiples of 16 bytes if the program depends on it: the entry function checks
the addresses, and the runtime copies an array that begins elsewhere (`runtime/cuda/borrowed.py`).

Tested by `tests/backends/gpu/test_alignment.py`.
"""

from __future__ import annotations

from math import gcd, prod

from staged.ir.declaration import prims
from staged.ir.functions import every_function, function_table
from staged.ir.loops import ArrayRef
from staged.ir.nodes import Function, Op, Value
from staged.ir.sizes import terms_of
from staged.ir.storage import family_of, structural_ops
from staged.ir.structure import CALL, SEQUENCE_GET, VARIABLE_READ
from staged.ir.types import TensorType, bound
from staged.ir.views import Call

ALIGNED = 16
"""The longest access of one thread in bytes. Every buffer begins at a multiple of it."""


class Alignments:
    """The known alignment of the values of a program, up to `ALIGNED`.

    Exact: the memory plan aligns buffers, the calls' arrays, and the slots that a device computes in. Views begin at
    an offset, elements of sequences and members of the program's families at multiples of their size.
    """

    def __init__(self, program: Function) -> None:
        table = function_table(program)
        self._parameters = {param: ALIGNED for function in program.functions for param in function.params}
        calls = [op for each in every_function(program) for op in structural_ops(each.block) if op.declared is CALL]
        is_settled = False
        while not is_settled:  # alignments only become smaller: recursive calls pass on what they receive
            is_settled = True
            for op in calls:
                for param, operand in zip(table[Call(op).function].params, op.operands, strict=True):
                    if (known := min(self._parameters[param], self.of(operand))) != self._parameters[param]:
                        self._parameters[param], is_settled = known, False

    def of(self, value: Value) -> int:
        """Bytes that the address of an array is a multiple of."""
        op = value.producer
        if op is None:
            return self._parameters.get(value, ALIGNED)
        if op.declared is SEQUENCE_GET or op.declared is VARIABLE_READ and op.operands:
            family = family_of(value)
            if not isinstance(value.type, TensorType) or family is not None and family.outer:
                return ALIGNED
            return gcd(ALIGNED, _nbytes(value.type))
        if not op.declared.is_view:
            return ALIGNED
        source = op.operands[0]
        if not source.tensor.shape:
            return 1
        return gcd(self.of(source), *_offsets(op))

    def of_arrays(self, op: Op) -> dict[ArrayRef, int]:
        """The same for the arrays of a kernel op's nest."""
        nest = op.attrs["nest"]
        found: dict[ArrayRef, int] = {}
        for source, value in zip((*nest.inputs, *nest.outputs), (*op.operands, *op.results), strict=True):
            if isinstance(source, ArrayRef):
                found[source] = min(found.get(source, ALIGNED), self.of(value))
        return found


def _offsets(view: Op) -> list[int]:
    """Divisors of the bytes of the steps along each axis by which a view is offset."""
    type, size = view.operands[0].tensor, view.result.tensor.dtype.size
    if view.declared is prims.SLICE:
        steps = [gcd(*terms_of(start).values()) for start in view.attrs["start"]]
    elif view.declared is prims.DYNAMIC_SLICE:
        steps = [int(count != extent) for count, extent in zip(view.attrs["sizes"], type.shape, strict=True)]
    else:
        return []
    strides = [_stride(type, axis) * size for axis in range(type.ndim)]
    return [step * stride for step, stride in zip(steps, strides, strict=True)]


def _stride(type: TensorType, axis: int) -> int:
    """The distance of neighbours along an axis in elements; 1 if the program finds a size behind the axis."""
    behind = [extent for extent in type.shape[axis + 1 :] if isinstance(extent, int)]
    return prod(behind) if len(behind) == type.ndim - axis - 1 else 1


def _nbytes(type: TensorType) -> int:
    return prod(map(bound, type.shape)) * type.dtype.size
