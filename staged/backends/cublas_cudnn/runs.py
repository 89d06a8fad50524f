"""Runs: the work of a loop's iteration that goes to the device without a decision of the host in between.

    for i in range(n):
        x = xs[i]                    # the host: which rows
        h = relu(x @ w1 + b1)        #   \\
        ...                          #    a run: launches and library calls alone
        w1 = w1 - 0.1 * d_w1         #   /
        if i % 100 == 0:             # a decision, and a print: the run ends here
            print(loss)

What the host computes meanwhile (offsets, an optimiser's factors) it can as well compute before: nothing of it depends
on the device, or there would be a copy, which ends a run. So a run is first all of the host's part, then all of the
device's, and that is the same from iteration to iteration but for some numbers and addresses: a CUDA graph
(`graphs.py`).

Tested by `tests/backends/cublas_cudnn/test_graphs.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.backends.cublas_cudnn.library.call import LibraryCall
from staged.backends.gpu.kernel_text import GpuKernel
from staged.code.kernel_text import KernelText
from staged.ir.buffers import Plan
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.storage import is_tensor, view_of
from staged.ir.structure import ABSENT, ASSERT, COPY, RAISE, SEQUENCE_EMPTY, SEQUENCE_GET, VARIABLE_READ, VARIABLE_WRITE
from staged.ir.types import CPU, TensorType

LEAST_CALLS = 4
"""A graph stands for two calls, that which says what has changed and its launch:
below twice as many it saves little."""

_PASSIVE = (
    ABSENT,
    SEQUENCE_EMPTY,
    SEQUENCE_GET,
    VARIABLE_READ,
    VARIABLE_WRITE,
    prims.CONSTANT,
    prims.DIM,
    prims.RESHAPE,
)
"""Ops that ask for no decision: they name places, or move numbers of the host and arrays of the device."""


def runs_of(block: Block, kernels: Mapping[Op, KernelText], plan: Plan) -> list[range]:
    """The runs of a block of at least `LEAST_CALLS` calls, as ranges of its ops, in order.

    Exact: no decision, no output, and after a write that outlives the program's end nothing that may stop it: the
    host's part may come first.
    """
    found: list[range] = []
    start = calls = 0
    writes = False
    for number, op in enumerate(block.ops):
        if not _goes_on(op, kernels) or writes and _may_stop(op, kernels):
            found.append(range(start, number))
            start, calls, writes = number + (not _goes_on(op, kernels)), 0, False
        elif is_call(op, kernels):
            calls += 1
            writes = writes or any(_outlives(result, plan) for result in op.results)
        elif op.declared is VARIABLE_WRITE:
            writes = True
    found.append(range(start, len(block.ops)))
    return [run for run in found if sum(is_call(block.ops[n], kernels) for n in run) >= LEAST_CALLS]


def is_call(op: Op, kernels: Mapping[Op, KernelText]) -> bool:
    """Return whether an op is a launch, or a call of a library, on the device."""
    if not op.declared.is_opaque or op.device == CPU:
        return False
    kernel = kernels.get(op)
    if type(kernel) is GpuKernel:
        return kernel.launch is not None and kernel.launch.items > 0
    return isinstance(kernel, LibraryCall)


def _goes_on(op: Op, kernels: Mapping[Op, KernelText]) -> bool:
    """Return whether an op can be part of a run."""
    if op.declared.is_opaque:
        kernel = kernels.get(op)
        if isinstance(kernel, LibraryCall):
            is_same = kernel.reading is not None or _takes_fixed_numbers(op)
            return kernel.can_be_captured and not op.attrs.get("dims") and is_same
        # Not one of the user's own, and none whose grid changes from iteration to iteration.
        return op.device == CPU or type(kernel) is GpuKernel and kernel.launch is not None and not kernel.launch.grid
    if op.blocks or any(effect.kind == "io" for effect in op.effects):
        return False
    if op.declared in _PASSIVE or any(view_of(result) is not None for result in op.results):
        return True
    values = (*op.operands, *op.results)
    if op.declared is COPY:
        return bool(op.attrs["source"] == op.device)  # to an aligned address: a call, too
    if op.declared.is_carrier or op.declared in (ASSERT, RAISE):
        return False
    return bool(op.results) and all(isinstance(v.type, TensorType) and not is_tensor(v) for v in values)


def _takes_fixed_numbers(op: Op) -> bool:
    """Return whether the numbers that a library is given are written in the text: it reads them when it is called, once
    for all.
    """
    numbers = [operand for operand in op.operands if not is_tensor(operand)]
    return all(value.made_by(prims.CONSTANT) for value in numbers)


def _may_stop(op: Op, kernels: Mapping[Op, KernelText]) -> bool:
    """Return whether the host may stop the program at an op: what was written before must have been written then."""
    kernel = kernels.get(op)
    if op.declared.is_opaque:
        return op.device == CPU and kernel is not None and kernel.can_fail
    return any(effect.kind == "fail" for effect in op.effects)


def _outlives(value: Value, plan: Plan) -> bool:
    """Return whether a result is visible if the program stops: in a Variable, or in an array of the caller's."""
    place = plan.place.get(value)
    return place is not None and (place.kind == "variable" or place.kind == "output")
