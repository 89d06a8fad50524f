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
(`graphs.py`). A loop of known length can be part of it: its iterations follow one another in the graph.

Tested by `tests/backends/cublas_cudnn/test_graphs.py` and `tests/backends/cublas_cudnn/test_graphs_of_loops.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.backends.cublas_cudnn.library.call import LibraryCall
from staged.backends.cublas_cudnn.steps import LEAST_CALLS, MOST_CALLS
from staged.backends.gpu.kernel_text import GpuKernel
from staged.code.kernel_text import KernelText
from staged.ir.buffers import Buffer, Plan
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Op, Value
from staged.ir.storage import is_tensor, root_of, view_of
from staged.ir.structure import (
    ABSENT,
    ASSERT,
    COPY,
    FOR,
    RAISE,
    SEQUENCE_EMPTY,
    SEQUENCE_GET,
    VARIABLE_READ,
    VARIABLE_WRITE,
)
from staged.ir.trips import constant_of, static_trip_count
from staged.ir.types import CPU, SequenceType, TensorType
from staged.ir.views import Loop

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
    """The runs of a block with calls enough for a graph, as ranges of its ops, in order.

    Exact: no decision, no output, and after a write that outlives the program's end nothing that may stop it: the
    host's part may come first.
    """
    found: list[range] = []
    start = 0
    writes = False
    for number, op in enumerate(block.ops):
        if not _goes_on(op, kernels, plan) or writes and _may_stop(op, kernels):
            found.append(range(start, number))
            start, writes = number + (not _goes_on(op, kernels, plan)), False
        else:
            writes = writes or _writes(op, kernels, plan)
    found.append(range(start, len(block.ops)))
    return [run for run in found if sum(calls_of(block.ops[n], kernels) for n in run) >= LEAST_CALLS]


def calls_of(op: Op, kernels: Mapping[Op, KernelText]) -> int:
    """The number of calls on the device that an op of a run stands for."""
    if op.declared is not FOR:
        return int(is_call(op, kernels))
    return (static_trip_count(op) or 0) * sum(calls_of(each, kernels) for each in Loop(op).body.ops)


def can_capture(op: Op, kernels: Mapping[Op, KernelText], plan: Plan) -> bool:
    """Return whether a `for` can be part of a run, as the calls of all its iterations.

    Exact: the host only counts and says where arrays are, in an order that is known; nothing grows, and the calls are
    not too many for one graph.
    """
    loop = Loop(op)
    if not static_trip_count(op) or op in plan.shared or loop.body.end.kind != "yield":
        return False
    storages = [plan.sequences.get(result) for result in loop.collected]
    if not all(isinstance(each, Buffer) and each.device != CPU for each in storages):
        return False
    if any(result in plan.handles.values for result in loop.collected):
        return False
    if storages and constant_of(loop.bounds[2]) not in (1, -1):
        return False  # a variable counts the iterations
    if not all(_is_on_device(value, plan) for value in loop.carried):
        return False
    if not all(_is_repeated(each, kernels, plan) for each in loop.body.ops):
        return False
    return 0 < calls_of(op, kernels) <= MOST_CALLS


def _is_repeated(op: Op, kernels: Mapping[Op, KernelText], plan: Plan) -> bool:
    """Return whether an op can be part of a loop that is captured. The host reads none of its memory there: by the end
    of its part of the run there may be other numbers.
    """
    if op.effects and not op.declared.is_opaque and op.declared not in (VARIABLE_READ, VARIABLE_WRITE):
        return False
    values = [value for value in (*op.operands, *op.results) if isinstance(value.type, TensorType)]
    if not _goes_on(op, kernels, plan):
        return False
    if op.declared.is_opaque:
        return op.device != CPU
    if op.declared is SEQUENCE_GET:
        return isinstance(op.result.type, SequenceType) or is_tensor(op.result)
    if op.declared in (VARIABLE_READ, VARIABLE_WRITE):
        return op.device != CPU
    return op.declared is not prims.DIM and (op.declared is not prims.RESHAPE or all(map(is_tensor, values)))


def _is_on_device(value: Value, plan: Plan) -> bool:
    """Return whether a value is an array of a device, so that its copies are calls of a run."""
    place = plan.place.get(root_of(value))
    return is_tensor(value) and place is not None and place.device != CPU


def is_call(op: Op, kernels: Mapping[Op, KernelText]) -> bool:
    """Return whether an op is a launch, or a call of a library, on the device."""
    if not op.declared.is_opaque or op.device == CPU:
        return False
    kernel = kernels.get(op)
    if type(kernel) is GpuKernel:
        return kernel.launch is not None and kernel.launch.items > 0
    return isinstance(kernel, LibraryCall)


def _goes_on(op: Op, kernels: Mapping[Op, KernelText], plan: Plan) -> bool:
    """Return whether an op can be part of a run."""
    if op.declared is FOR:
        return can_capture(op, kernels, plan)
    if op.declared.is_opaque:
        kernel = kernels.get(op)
        if isinstance(kernel, LibraryCall):
            is_same = kernel.reading is not None or _takes_fixed_numbers(op)
            return kernel.can_be_captured and is_same
        # Not one of the user's own.
        return op.device == CPU or type(kernel) is GpuKernel and kernel.launch is not None
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


def _writes(op: Op, kernels: Mapping[Op, KernelText], plan: Plan) -> bool:
    """Return whether an op, or one in its loop, changes what is visible if the program stops."""
    if op.declared is FOR:
        inside = any(_writes(each, kernels, plan) for each in Loop(op).body.ops)
        return inside or any(_outlives(result, plan) for result in op.results)
    if op.declared is VARIABLE_WRITE:
        return True
    return is_call(op, kernels) and any(_outlives(result, plan) for result in op.results)


def _takes_fixed_numbers(op: Op) -> bool:
    """Return whether the numbers that a library is given are sizes, or written in the text: it reads them when it is
    called, once for all launches of a graph.
    """
    given = op.operands[: len(op.operands) - len(op.attrs.get("dims", ()))]
    return all(value.made_by(prims.CONSTANT) for value in given if not is_tensor(value))


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
