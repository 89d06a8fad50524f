"""The arguments on a device that must be at multiples of 16 bytes: threads read several of their elements at once, or a
library was chosen for such addresses.

The caller chooses the addresses. The entry function checks these arguments. The runtime copies an array of
another library that begins elsewhere (`runtime/cuda/borrowed.py`), so that the check stops callers in C alone.

Tested by `tests/backends/cublas_cudnn/test_alignment.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from staged.backends.cublas_cudnn.library.alignment import aligned_arrays
from staged.backends.cublas_cudnn.library.call import LibraryCall
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.host.body import BodyEmitter
from staged.code.kernel_text import KernelText
from staged.ir.buffers import Buffer
from staged.ir.nodes import Op, Value, VariableRef
from staged.ir.storage import family_of, root_of, structural_ops
from staged.ir.structure import CALL
from staged.ir.views import Call

Place = Buffer | VariableRef
"""A buffer of a function, or a family of the caller's Variables."""


def aligned_arguments(bodies: Sequence[BodyEmitter], kernels: Mapping[Op, KernelText]) -> set[Place]:
    """The entry function's buffers of arguments whose alignment its kernels, or those of its functions, depend on, and
    such families.

    `bodies` are those of all functions, the entry's first.
    """
    calls: dict[str, list[tuple[BodyEmitter, Op]]] = {}
    for body in bodies:
        for op in structural_ops(body.function.block):
            if op.declared is CALL:
                calls.setdefault(Call(op).function, []).append((body, op))
    found: dict[tuple[BodyEmitter, Place], None] = {}
    waiting = [place for body in bodies for place in _of_kernels(body, kernels)]
    while waiting:
        body, buffer = place = waiting.pop()
        if place in found:
            continue
        found[place] = None
        if isinstance(buffer, VariableRef):
            continue  # of the whole program
        if buffer.is_of_caller:
            for caller, op in calls.get(body.function.name, ()):
                values = op.operands if buffer.kind == "input" else op.results
                waiting += _places(caller, values[buffer.index])
        elif buffer.variable is not None and body is not bodies[0]:
            waiting += [(bodies[0], each) for each in bodies[0].plan.buffers if each.variable is buffer.variable]
    families = {place for _, place in found if isinstance(place, VariableRef)}
    own = {place for body, place in found if body is bodies[0] and isinstance(place, Buffer) and place.is_argument}
    return families | own


def _of_kernels(body: BodyEmitter, kernels: Mapping[Op, KernelText]) -> Iterator[tuple[BodyEmitter, Place]]:
    """The buffers that a function's kernels and library calls read or write by more than one element at once."""
    for op in structural_ops(body.function.block):
        kernel = kernels.get(op)
        values: Sequence[Value] = (*op.operands, *op.results)
        if isinstance(kernel, GpuKernel):
            values = [values[number] for number in sorted(kernel.aligned)]
        elif not isinstance(kernel, LibraryCall):
            values = ()
        elif not any(instead.aligned for instead in kernel.kernels):
            values = aligned_arrays(op)
        for value in values:
            yield from _places(body, value)


def _places(body: BodyEmitter, value: Value) -> list[tuple[BodyEmitter, Place]]:
    """The buffer in which a value is, or the family; none of an element of another sequence."""
    buffer, family = body.plan.place.get(root_of(value)), family_of(value)
    if buffer is not None and buffer.element is not None:
        family = buffer.variable
    if family is not None:
        return [(body, family)] if family.outer else []
    return [] if buffer is None else [(body, buffer)]
