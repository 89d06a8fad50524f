"""Iterations of loops as CUDA graphs: what a run gives to the device is captured once and then launched as one.

    const train_turn_values turn = {x, t_4};                  // the host's part is done: what kernels read of this turn
    CUDA_CHECK(3, launch_set_train_turn(gpu, turn));          // goes to the device as the arguments of a launch
    if (repeat(gpu, host, 3, &gpu->train_turn_graph, do_train_turn, args, d) != ST_OK) {
        return host->error_kind;
    }

A graph keeps the arguments that its kernels were captured with. So what differs between the iterations stands in a
struct on the device, one per run, and kernels are given the addresses of its fields (`GpuKernel.reading`). The host
computes these values, as it does without graphs, so they are the same bits. What a library reads or writes at a
changing address goes through a place that stays. The first time a run is done as it stands: libraries load what they
need at the first call.

A loop of known length in a run is called while the stream captures, so that the graph has the calls of all its
iterations (`steps.py`). A value that depends on its index and differs between launches is an array in the struct.

A graph is for one set of sizes. If the program finds sizes, a run has a graph for each of the last sets.
Addresses of the caller's arrays on the device stay, call after call, or the graphs are made anew (`graph_arguments`).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from staged.backends.cublas_cudnn import graph_text
from staged.backends.cublas_cudnn.device import STREAM, DevicePart
from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.cublas_cudnn.graph_text import Iteration
from staged.backends.cublas_cudnn.library.call import LibraryCall, factor_name
from staged.backends.cublas_cudnn.steps import (
    LEAST_CALLS,
    UNREADABLE,
    CallStep,
    Changing,
    CopyStep,
    LoopStep,
    Step,
    add_lines,
    arguments_of,
    can_be_graph,
    captured_loop,
    changing_arguments,
    count_calls,
    is_fixed,
    is_written_out,
    lines_of,
    loops_of,
    single_steps,
)
from staged.backends.gpu.addresses import field_of
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.host.body import BodyEmitter
from staged.base.artifact import Parameter
from staged.code.expr import (
    Expr,
    Group,
    Items,
    Literal,
    Name,
    Variable,
    call,
    size_of,
    substituted,
)
from staged.code.kernel_text import KernelText
from staged.code.printer import print_body
from staged.code.tree import CodeBuilder, Declare, Statement
from staged.code.types import INDEX, word
from staged.code.unused import drop_unused_locals, names_used
from staged.code.uses import mentioned
from staged.code.writer import Names, Writer
from staged.ir.buffers import DEVICE_ALIGNMENT, Buffer, aligned
from staged.ir.names import name_of
from staged.ir.nodes import Op, Value
from staged.ir.sizes import product
from staged.ir.storage import is_tensor
from staged.ir.types import Device, DType, TensorType
from staged.source import Position


class Program(Protocol):
    """The part of the program writer that the writing of graphs uses. The program has one device."""

    name: str
    names: Names
    state_names: Names
    kernels: dict[Op, KernelText]
    parameters: list[Parameter]

    def use_kernel(self, op: Op, kernel: KernelText) -> None:
        """Let an op be done by another kernel."""

    def call_kernel(self, structure: BodyEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None: ...


class Graphs:
    """The graphs of a program: their functions, what changes between iterations, and where that is on the device."""

    def __init__(self, program: Program, device: Device) -> None:
        self.program = program
        self.device = device
        self.iterations: list[Iteration] = []
        self.work: list[str] = []
        self.buffers: list[Buffer] = []
        """Places for what libraries read and write at changing addresses."""
        self.copied: list[DType] = []
        self.arguments: dict[str, None] = {}
        self.calls: dict[str, LibraryCall] = {}
        self.reading: dict[tuple[str, tuple[int, ...]], GpuKernel] = {}
        self.captured: set[Expr] = set()
        """The variables of loops in the functions that are captured."""
        self.loops: tuple[LoopStep, ...] = ()
        """The loops around the step that is written."""
        self.has_device_buffers = True
        self.has_sizes = False
        """Whether graphs may be for certain sizes: the program finds some."""

    # ---- the loop ----

    def write(self, structure: BodyEmitter, steps: Sequence[Step]) -> None:
        """A run: `steps` are its calls, whose host's part has been written. It becomes one graph. If it is too much for
        one, there are several.
        """
        run: list[Step] = []
        calls, changing = 0, Changing()
        sizes = {size for size in structure.sizes.values() if isinstance(size, Variable)}
        self.captured |= sizes
        for step in steps:
            if isinstance(step, LoopStep):
                step = captured_loop(step, sizes)
                add_lines(structure.code.body, step.before)
                self.captured |= step.variables
            own_calls, own = count_calls([step]), self.changing(step, ())
            if not can_be_graph(calls + own_calls, changing | own):
                self.write_run(structure, run)
                run, calls, changing = [], 0, {}
            if can_be_graph(own_calls, own):
                run.append(step)
                calls += own_calls
                changing |= own
            elif isinstance(step, LoopStep):
                self.captured -= step.variables - sizes
                self.write_loop(structure, step)
            else:
                structure.code.comment("not in a graph: too much of what it reads differs between turns")
                self.write_step(structure, step, None)
        self.write_run(structure, run)

    def write_loop(self, structure: BodyEmitter, step: LoopStep) -> None:
        """A loop that is not captured as a whole: the calls of its body are a run."""
        structure.where(step.where)
        layer, structure.layer = structure.layer, step.layer or structure.layer
        with structure.code.nested() as inner:
            inner += step.loop.body
            self.write(structure, step.steps)
        structure.layer = layer
        structure.code.add(replace(step.loop, body=tuple(inner)))
        structure.last_where = None

    def write_run(self, structure: BodyEmitter, steps: Sequence[Step]) -> None:
        """Calls that one graph can have, as a graph if they are enough."""
        calls = count_calls(steps)
        if calls < LEAST_CALLS:
            for step in steps:
                self.write_step(structure, step, None)
            return
        where = next(single_steps(steps)).where
        iteration = Iteration(self.program.names.fresh(f"{self.program.name}_turn"), where, lines_of(steps))
        self.program.names.used |= {
            iteration.type,
            f"{iteration.graph}",
            f"do_{iteration.name}",
            f"launch_set_{iteration.name}",
        }
        self.iterations.append(iteration)
        structure.last_where = None
        layer, structure.layer = structure.layer, None  # a variable of the function around
        with structure.code.nested() as inner:
            for step in steps:
                self.write_step(structure, step, iteration)
        structure.last_where, structure.layer = None, layer
        used = mentioned(inner)
        found = dict.fromkeys(structure.sizes.values())
        iteration.sizes = [size for size in found if isinstance(size, Variable) and size in used]
        self.work.append(self.function(iteration, inner, calls))
        site = structure.site_of(where)
        structure.where(where)
        structure.code.comment(f"the device's part of the turn: {calls} calls, one graph from the second time on")
        if iteration.fields:
            local = Variable(structure.name("turn"), word(iteration.type))
            values = Items(tuple(value for _, value in iteration.members()))
            fills = list(iteration.fills(local, steps))
            structure.code.add(Declare(local, values, is_const=not fills))
            structure.code.body += fills
            structure.code.do("CUDA_CHECK", site, call(f"launch_set_{iteration.name}", "gpu", local))
        sizes = Variable(structure.name("turn_sizes"), INDEX) if iteration.sizes else None
        if sizes is not None:
            structure.code.add(Declare(sizes, Items(tuple(iteration.sizes)), sizes=(Literal(""),)))
        structure.try_(graph_text.repeated(iteration, site, self.shared(), sizes))

    def changing(self, step: Step, loops: tuple[LoopStep, ...]) -> Changing:
        """The values that a step inside of `loops` reads in the struct of its iteration.

        Exact: a value that many calls read is one field of the struct, as `Iteration.address` has it.
        """
        if isinstance(step, LoopStep):
            inside = [self.changing(each, (*loops, step)) for each in step.steps]
            return {key: number for found in inside for key, number in found.items()}
        changing: Changing = {}
        for key, argument in self.changing_reads(step):
            around = loops_of(argument, loops)
            has_room = argument is not None and all(min(loop.indices) >= 0 for loop in around)
            changing[key] = math.prod(loop.room for loop in around) if has_room else UNREADABLE
        return changing

    def changing_reads(self, step: CallStep | CopyStep) -> list[tuple[tuple[object, str], Expr | None]]:
        """The values of its iteration that a call reads: the C type or use and the C code of each, and the expression.
        The expression may depend on loops; it is None if the host must know the value.
        """
        if isinstance(step, CopyStep):
            ends = () if self.stays(step.source, step.target) else (("from", step.source), ("to", step.target))
            return [((way, str(end)), end) for way, end in ends]
        arguments = arguments_of(step)
        kernel = self.program.kernels[step.op]
        if isinstance(kernel, GpuKernel):
            positions = changing_arguments(kernel, arguments, self.captured)
            can_read = not positions or kernel.can_read(positions)
            changing = [(kernel.parameters[position][0], arguments[position]) for position in positions]
            return [((c_type, str(argument)), argument if can_read else None) for c_type, argument in changing]
        assert isinstance(kernel, LibraryCall)
        pairs = list(zip([*step.op.operands, *step.op.results], arguments, strict=True))
        moved = [(value, each) for value, each in pairs if is_tensor(value) and not self.stays(each)]
        # An array is copied to a place of this call's, and from there; numbers are in the factors.
        found: list[tuple[tuple[object, str], Expr | None]] = [
            ((value, way), each if self.has_device_buffers else None)
            for value, each in moved
            for way in ("to", "of", "from", "back")
        ]
        if kernel.factors is not None and self.reads_factors(step.op, kernel, step.inputs):
            numbers = Items(tuple(argument for value, argument in pairs if not is_tensor(value)))
            found += [((factor, str(numbers)), numbers) for factor in kernel.factors]
        return found

    def address(self, iteration: Iteration, c_type: str, expression: Expr, hint: str) -> Expr:
        """The address on the device of a value that the host has in each iteration."""
        return iteration.address(c_type, expression, hint, loops_of(expression, self.loops))

    def stays(self, *addresses: Expr) -> bool:
        """Return whether addresses are the same whenever a graph is launched."""
        return all(is_fixed(address, self.captured) for address in addresses)

    def reads_factors(self, op: Op, kernel: LibraryCall, inputs: Sequence[Expr]) -> bool:
        """Return whether a library finds its factors on the device, because they differ between iterations."""
        numbers = [given for value, given in zip(op.operands, inputs, strict=True) if not is_tensor(value)]
        return (
            kernel.factors is not None
            and kernel.reading is not None
            and not all(is_written_out(number, self.captured) for number in numbers)
        )

    def shared(self) -> list[str]:
        """The parameters of the functions of graphs besides the device and the host."""
        return ["args", *(["d"] if self.has_device_buffers else []), *([graph_text.SIZES] if self.has_sizes else [])]

    def parameters(self) -> list[str]:
        """The parameters of a graph's function."""
        buffers = ["const DeviceBuffers *d"] if self.has_device_buffers else []
        sizes = [f"const int64_t *{graph_text.SIZES}"] if self.has_sizes else []
        return ["const Device *gpu", "st_host *host", f"const {self.program.name}_args *args", *buffers, *sizes]

    def function(self, iteration: Iteration, body: Sequence[Statement], calls: int) -> str:
        """The function whose calls are captured: those noted since the last one."""
        w = Writer()
        body = [*iteration.known_sizes(), *drop_unused_locals(body)]
        named = names_used(body)
        w.comment(f"{calls} calls of a loop's turn{iteration.lines}, captured as a graph")
        with w.block(f"static int do_{iteration.name}({', '.join(self.parameters())})"):
            for name in self.shared():
                if name not in named:
                    w.line(f"(void){name};")
            w.lines += print_body(body)
            w.line("return ST_OK;")
        return str(w)

    # ---- one call ----

    def write_step(self, structure: BodyEmitter, step: Step, iteration: Iteration | None) -> None:
        """The lines of one call; with an `iteration`, such that it can be captured."""
        structure.where(step.where)
        if isinstance(step, LoopStep):
            self.write_captured(structure, step, iteration)
            return
        if isinstance(step, CopyStep):
            self.copy(structure, iteration, step.target, step.source, step.type, step.where)
            return
        kernel = self.program.kernels[step.op]
        if iteration is None:
            self.program.call_kernel(structure, step.op, step.inputs, step.outputs)
        elif isinstance(kernel, GpuKernel):
            self.launch(structure, iteration, step, kernel)
        else:
            assert isinstance(kernel, LibraryCall)
            self.library(structure, iteration, step, kernel)

    def write_captured(self, structure: BodyEmitter, step: LoopStep, iteration: Iteration | None) -> None:
        """A loop of calls."""
        structure.last_where = None
        if iteration is not None:
            self.note([each.value for each in step.own if isinstance(each, Declare) and each.value is not None])
        around, self.loops = self.loops, (*self.loops, step)
        layer, structure.layer = structure.layer, step.layer or structure.layer
        with structure.code.nested() as inner:
            inner += step.loop.body if iteration is None else step.own
            for each in step.steps:
                self.write_step(structure, each, iteration)
        self.loops, structure.layer = around, layer
        structure.code.add(replace(step.loop, body=tuple(inner)))
        structure.last_where = None

    def launch(self, structure: BodyEmitter, iteration: Iteration, step: CallStep, kernel: GpuKernel) -> None:
        """A kernel that finds what changes in the struct of its iteration."""
        arguments = [*step.inputs, *step.outputs]
        changing = changing_arguments(kernel, arguments, self.captured)
        for number in changing:
            c_type, hint = kernel.parameters[number]
            arguments[number] = self.address(iteration, c_type, arguments[number], hint)
        if changing:
            key = (kernel.name, changing)
            if key not in self.reading:
                name = self.program.names.fresh(f"{kernel.name.removesuffix('_kernel')}_of_turn", "_kernel")
                self.reading[key] = kernel.reading(changing, name, CUDA)
            self.program.use_kernel(step.op, self.reading[key])
        self.note(arguments)
        count = len(step.inputs)
        self.program.call_kernel(structure, step.op, arguments[:count], arguments[count:])

    def library(self, structure: BodyEmitter, iteration: Iteration, step: CallStep, kernel: LibraryCall) -> None:
        """A library's call: what is at a changing address is copied to a place that stays, and from there."""
        op, inputs, outputs = step.op, list(step.inputs), list(step.outputs)
        back: list[tuple[Expr, Expr, TensorType]] = []
        moved: dict[str, Expr] = {}
        for number, result in enumerate(op.results):
            if not self.stays(outputs[number]):
                place = self.place(structure, iteration, result)
                moved[str(outputs[number])] = place
                back.append((outputs[number], place, result.tensor))
                outputs[number] = place
        begins = {operand: result for result, operand in kernel.begins_as}
        for number, operand in enumerate(op.operands):
            source = inputs[number]
            if number in begins:
                target = outputs[begins[number]]
                if source != target:
                    self.copy(structure, iteration, target, source, operand.tensor, op.where)
                inputs[number] = target
            elif is_tensor(operand) and str(source) in moved:
                inputs[number] = moved[str(source)]
                self.copy(structure, iteration, inputs[number], source, operand.tensor, op.where)
            elif is_tensor(operand) and not self.stays(source):
                if operand not in iteration.slices:
                    inputs[number] = self.place(structure, iteration, operand)
                    self.copy(structure, iteration, inputs[number], source, operand.tensor, op.where)
                else:
                    inputs[number] = structure.field(iteration.slices[operand])
        if self.reads_factors(op, kernel, step.inputs):
            inputs = self.read_factors(iteration, op, kernel, inputs)
        self.note([*inputs, *outputs])
        self.program.call_kernel(structure, op, inputs, outputs)
        for target, place, type in back:
            self.copy(structure, iteration, target, place, type, op.where)

    def read_factors(self, iteration: Iteration, op: Op, kernel: LibraryCall, inputs: list[Expr]) -> list[Expr]:
        """The inputs of the call that finds its factors in the struct of its iteration, which `op` then becomes."""
        assert kernel.factors is not None and kernel.reading is not None
        if kernel.name not in self.calls:
            made = kernel.reading(self.program.names.fresh(f"{kernel.name}_of_turn"))
            self.calls[kernel.name] = replace(made, begins_as=())  # what it begins as has been copied
        self.program.use_kernel(op, self.calls[kernel.name])
        c_type = f"{op.results[0].tensor.dtype.c_name} "
        arrays = [
            text
            for number, (operand, text) in enumerate(zip(op.operands, inputs, strict=True))
            if is_tensor(operand) and number not in [begun for _, begun in kernel.begins_as]
        ]
        sizes = inputs[len(inputs) - len(op.attrs.get("dims", ())) :]
        numbers = {
            factor_name(number): value if isinstance(value, Name | Literal) else Group(value)
            for number, value in enumerate(inputs[1:])
        }
        values = [substituted(factor, numbers) for factor in kernel.factors]
        return [
            *arrays,
            *sizes,
            *(
                self.address(iteration, c_type, value, hint)
                for value, hint in zip(values, ("alpha", "beta"), strict=True)
            ),
        ]

    def place(self, structure: BodyEmitter, iteration: Iteration, value: Value) -> Expr:
        """The fixed place, in every iteration, of an array at a changing address, for libraries."""
        type = value.tensor
        name = self.program.state_names.fresh(f"{name_of(value) or 'array'}_of_turn")
        buffer = Buffer(
            name,
            type,
            "arena",
            type.nbytes,
            self.device,
            where=iteration.where,
            purpose="an array of this turn, for a library",
        )
        buffer.offset = iteration.slice_bytes
        iteration.slice_bytes += aligned(type.nbytes, DEVICE_ALIGNMENT)
        iteration.slices[value] = buffer
        self.buffers.append(buffer)
        structure.fields[buffer] = name
        return structure.field(buffer)

    def copy(
        self,
        structure: BodyEmitter,
        iteration: Iteration | None,
        target: Expr,
        source: Expr,
        type: TensorType,
        where: Position | None,
    ) -> None:
        """The elements of an array of the device, from one place there to another."""
        if not type.size:
            return
        site, c_type = structure.site_of(where), type.dtype.c_name
        if iteration is None or self.stays(target, source):
            self.note([target, source])
            nbytes = size_of(type.size, c_type) if type.is_static else structure.nbytes(type)
            copy = call("cudaMemcpyAsync", target, source, nbytes, "cudaMemcpyDeviceToDevice", STREAM)
        else:
            if type.dtype not in self.copied:
                self.copied.append(type.dtype)
            given = (
                self.address(iteration, f"const {c_type} *", source, "source"),
                self.address(iteration, f"{c_type} *", target, "target"),
            )
            copy = call(f"launch_copy_of_turn_{type.dtype}", "gpu", *given, structure.extent(product(type.shape)))
        structure.code.do("CUDA_CHECK", site, copy)

    def note(self, arguments: Sequence[Expr]) -> None:
        """Remember which of the caller's addresses graphs know."""
        for argument in arguments:
            field = field_of(argument)
            if field is not None and field.base == Name("args"):
                self.arguments[field.field] = None

    # ---- the device's arena ----

    @property
    def nbytes(self) -> int:
        """Of the device's arena: the structs, then what libraries read; one run's at a time."""
        return self.iteration_bytes + max((iteration.slice_bytes for iteration in self.iterations), default=0)

    @property
    def iteration_bytes(self) -> int:
        """Of that, the structs."""
        return sum(aligned(iteration.nbytes, DEVICE_ALIGNMENT) for iteration in self.iterations)

    def settle(self, offset: int) -> None:
        """Give the places of arrays their offsets, once it is known where the part of the arena for graphs begins."""
        for buffer in self.buffers:
            buffer.offset += offset + self.iteration_bytes

    # ---- the file ----

    def types(self) -> list[str]:
        """The types that kernels and host share."""
        return graph_text.types(self.iterations)

    def kernel_names(self) -> list[str]:
        """Kernels beside those of the program."""
        return graph_text.kernel_names(self.iterations, self.copied)

    def kernel_texts(self) -> list[str]:
        """Their text."""
        return graph_text.kernel_texts(self.iterations, self.copied)

    def functions(self) -> list[str]:
        """The functions of the host's part, in order."""
        if not self.iterations:
            return []
        names = ["gpu", "host", *self.shared()]
        return [
            *graph_text.launchers(self.iterations, self.copied),
            *self.work,
            graph_text.repeat_text(self.parameters(), names),
            *([graph_text.SIZED_FUNCTIONS] if any(iteration.sizes for iteration in self.iterations) else []),
        ]

    def parts(self, offset: int) -> list[DevicePart]:
        """The parts that are created once, with the part of the arena for graphs at `offset`."""
        arguments, layers = self.known
        tables = {graph_text.KNOWN: len(arguments)} if arguments else {}
        entries = [each.entry for each in self.program.parameters]
        tables |= {name: entries.count(array) for name, array in layers.items()}
        return graph_text.parts(self.iterations, tables, offset)

    @property
    def known(self) -> tuple[list[str], dict[str, str]]:
        """The fields of the argument struct whose addresses graphs know: single ones, and by name of their table those
        that are arrays for layers.
        """
        arrays = {each.entry for each in self.program.parameters if each.index is not None}
        layers = {f"known_{name}": name for name in self.arguments if name in arrays}
        return [name for name in self.arguments if name not in arrays], layers

    def add_check_of_arguments(self, code: CodeBuilder) -> None:
        """Add a check to the entry: graphs that know other addresses than this call's are made anew."""
        graph_text.add_check_of_arguments(code, self.iterations, *self.known)
