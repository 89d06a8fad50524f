"""IR to one C program: kernels, the memory plan, and the structure around them, written as one readable file.

Tested by `tests/backends/native/test_golden.py` and `tests/backends/native/test_functions.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, Self, runtime_checkable

from staged.backends.contract import Emitted, Planner
from staged.backends.host.argument_fields import ArgumentField, argument_fields, result_fields
from staged.backends.host.body import BodyEmitter
from staged.backends.host.buffer_groups import BufferGroups, Group, slots_of
from staged.backends.host.buffer_structs import BASE, State, describe, note_of, place_in
from staged.backends.host.calls import Signature
from staged.backends.host.constants import ConstantInputs
from staged.backends.host.custom import functions_of, libraries, names_in
from staged.backends.host.file import ProgramFile
from staged.backends.host.frames import field_names, storing_functions
from staged.backends.host.functions import (
    CFunction,
    arena_offsets,
    called_functions,
    make_signature,
    place_values,
    returned_values,
    with_functions,
)
from staged.backends.host.interface import (
    as_complex,
    header_text,
    in_field_order,
    layer_types,
    make_parameter,
    own_names,
    result_tensors,
    struct_entries,
    variable_parameter,
    variables_set_first,
    written_variables,
)
from staged.backends.host.product_sizes import filled_sizes
from staged.backends.host.ranks import IN_PLACE, in_place
from staged.backends.host.residuals import kept_names
from staged.backends.host.sections import calls_of_kernels
from staged.backends.host.shared_loops import parameter_types, sharing_of
from staged.backends.host.standalone.words import words_of_folder
from staged.backends.host.structure import ControlFlow
from staged.backends.host.variable_state import declare_inner_scalars, family_fields
from staged.base.artifact import Artifact, Parameter, Site
from staged.code.expr import Expr, Infix, Literal, Member, Name, Prefix, member
from staged.code.kernel_text import KernelText, by_name, phases_text
from staged.code.support.team import NEED_TEAM, Shared
from staged.code.writer import Names, c_identifier
from staged.errors import located
from staged.ir.buffers import Buffer, Called, Plan, Stack, aligned
from staged.ir.declaration import prims
from staged.ir.functions import every_function, function_table
from staged.ir.machine import Machine
from staged.ir.nodes import End, Function, Op, Value, VariableRef
from staged.ir.storage import structural_ops
from staged.ir.transfers import Transfer
from staged.ir.types import CPU, Device
from staged.source import Position


class KernelSource(Protocol):
    """The source of a back end's kernels."""

    def kernel(self, op: Op) -> KernelText:
        """The text for a `kernel` or `contraction` op."""


@runtime_checkable
class SharingSource(KernelSource, Protocol):
    """The source of kernels that can share a function although they differ in numbers."""

    def shared(self, kernels: Mapping[Op, KernelText], places: Mapping[Value, Buffer]) -> dict[Op, KernelText]:
        """The kernels of a program with the functions that they share. `places` has the buffer of each value."""


HEAD = 64
"""Bytes in the arena for each thing that grows outside of it."""
MakeKernels = Callable[[Machine, Names, Callable[[Position | None], int]], KernelSource]


class ProgramEmitter:
    """Makes one program. A back end gives its kernels, and overrides how they are called and where buffers are."""

    backend = "native"
    language = "c"
    body_class: type[BodyEmitter] = BodyEmitter
    reserve = 1 << 20
    """Bytes of the stack that recursion leaves alone: kernels, prints and what they call back have room there."""
    departs = False
    """True if a call returns before the work on the device is over."""
    explains = False
    """True if a kernel may fail after such a call has returned."""
    release_comment = "Gives back what loops without a bound have grown; call it before the arena goes."

    def __init__(self, function: Function, machine: Machine, make_kernels: MakeKernels, check_nan: bool) -> None:
        self.make_kernels = make_kernels
        self.check_nan = check_nan
        self.function = function
        self.machine = machine
        self.name = c_identifier(function.name)
        if self.name in words_of_folder():
            self.name += "_"
        self.names = Names()
        words = "Buffers base buffers offsets m place_buffers place_layers STACK_RESERVE SCRATCH_BYTES"
        self.names.used |= {*own_names(self.name), f"{self.name.upper()}_ARENA_BYTES", *words.split()}
        self.sites: list[Site] = []
        self.site_index: dict[Position | None, int] = {}
        self.parameters: list[Parameter] = []
        self.layer_types: dict[str, str] = {}
        """By array of structs in the argument struct, the type of a layer."""
        self.fields = Names()
        self.constant_inputs = ConstantInputs()
        self.shared: dict[str, Shared] = {}
        """The kernels that a team calls, by name."""
        self.scratch_bytes = 0
        self.functions: dict[str, CFunction] = {}
        self.frame_names = {record.name: self.names.fresh(record.name) for record in function.frames}
        self.frame_fields = {record.name: field_names(record) for record in function.frames}
        self.storing: frozenset[str] = frozenset()
        self.uses_store = False
        self.is_recursive = False
        self.stacks: list[Stack] = []
        self.kept_names: dict[Stack, str] = {}
        self.state: list[State] = []
        self.groups: list[Group] = []
        """The structs inside of `Buffers`."""
        self.state_fields: dict[object, str] = {}
        self.state_names = Names()
        self.buffers_bytes = 0
        self.offsets: dict[Device, dict[str, int]] = {}
        """By device and function, where the function's buffers start in the arena there."""
        self.argument_fields: dict[VariableRef, ArgumentField] = {}
        """By Variable of the caller, and by family of them: the place in the argument struct."""
        self.family_fields: dict[VariableRef, str] = {}
        """By family that the program creates, the field of `Buffers` that has its members."""
        self.device_values: dict[Device, int] = {}
        """Bytes of buffers in the arena of each other device."""

    # ---- sizes ----

    def has_release(self) -> bool:
        """Return whether the program keeps things between calls that the arena itself does not hold."""
        return bool(self.stacks) or self.is_recursive or self.uses_store

    def arena_bytes(self) -> int:
        """Buffers, then one scratch area per thread, then the heads of what grows."""
        return self.frames_offset() + HEAD * self.uses_store

    def stacks_offset(self) -> int:
        return self.buffers_bytes + self.scratch_bytes * max(1, self.machine.cores)

    def own_stack_offset(self) -> int:
        return self.stacks_offset() + HEAD * len(self.stacks)

    def frames_offset(self) -> int:
        return self.own_stack_offset() + HEAD * self.is_recursive

    def makers_of_frames(self) -> list[str]:
        """Functions that make frames, where a back end has them."""
        return []

    # ---- the steps ----

    def run(self, planner: Planner, file_of: Callable[[Self], ProgramFile] = ProgramFile) -> Emitted:
        """The program; `file_of` gives what writes its file, when all of it is known."""
        self.names.used |= names_in(own := functions_of(self.function))
        # Functions have the first choice of names: kernels are called after the lines that call them.
        self.c_names = {called.name: self.names.fresh(called.name) for called in self.function.functions}
        self.names.used |= (calls := calls_of_kernels(self.function) - self.names.used)  # names of the host's functions
        kernel_source = self.make_kernels(self.machine, self.names, self.site)
        kernels = self.kernels = dict[Op, KernelText]()
        ops = (op for function in every_function(self.function) for op in structural_ops(function.block))
        for op in (op for op in ops if op.declared.is_opaque):
            with located(op.where):
                kernels[op] = kernel_source.kernel(op)
        called = called_functions(self.function)
        table = function_table(self.function)
        sharing = sharing_of(self.machine, kernels, self.check_nan)
        plans = {name: planner(table[name], self.aliases, how, sharing) for name, how in called.items()}
        plan = self.plan = planner(self.function, self.aliases, None, sharing)
        if isinstance(kernel_source, SharingSource):
            places = {value: place for each in (*plans.values(), plan) for value, place in each.place.items()}
            kernels.update(kernel_source.shared(kernels, places))
        self.names.used -= calls
        self.scratch_bytes = aligned(max((kernel.scratch_bytes for kernel in kernels.values()), default=0))
        self.stacks = [stack for each in (*plans.values(), plan) for stack in each.stacks]
        for number, stack in enumerate(self.stacks):
            stack.index = number
        self.kept_names = kept_names(self.stacks, self.names)
        self.is_recursive = any(how.recursive for how in called.values())
        self.storing = storing_functions(self.function, plans)
        structure = self.new_structure(self.function, plan)
        state = (("const Buffers *", "m"), ("st_host *", "host"))
        structure.parameters = parameter_types(((f"const {self.name}_args *", "args"), *state))
        input_fields = self.declare_parameters(structure)
        for param, field in input_fields.items():
            if not param.tensor.shape:
                structure.scalars[param] = self.constant_inputs.place(param) or Member(Name("args"), field)
        self.uses_store = bool(self.function.frames or self.storing) or structure.takes_store(self.function.block)
        self.name_buffers(structure)
        inner = declare_inner_scalars(structure)
        self.make_functions(called, table, plans, structure)
        signatures = {name: made.signature for name, made in self.functions.items()}
        for name_, made in self.functions.items():
            if name_ in self.storing and not made.plan.handles.refer(returned_values(made.signature.function)):
                made.structure.mark = made.structure.keep_store("kept")
            made.structure.begin_function()
            self.control_flow(made.structure, signatures).emit(made.signature.function)
        self.control_flow(structure, signatures).emit(self.function)
        structures = [*(made.structure for made in self.functions.values()), structure]
        for each in structures:
            structure.text.snippets = each.text.snippets | structure.text.snippets
        ordered = by_name(kernels[op] for each in structures for op in each.text.called)
        parallel = any(name in structure.text.snippets for name in NEED_TEAM)
        file = file_of(self)
        source = file.assemble(structure, ordered, inner)
        artifact = Artifact(
            name=self.name,
            source=source,
            header=header_text(
                self.name,
                self.parameters,
                self.arena_bytes(),
                self.release_comment if self.has_release() else None,
                parallel,
                self.names.used,
                self.machine.is_iso_c,
                self.departs,
                self.explains,
                self.function.exported,
                self.layer_types,
            ),
            support=file.support,
            pieces=tuple((each.name, each.text, each.needs) for each in file.pieces if self.function.exported),
            data=self.constant_inputs.data_text(self.name),
            grows=self.has_release(),
            language=self.language,
            parameters=tuple(
                replace(parameter, is_uploaded=True) if parameter.place in structure.uploaded else parameter
                for parameter in self.parameters
            ),
            arena_bytes=self.arena_bytes(),
            threads=0 if parallel else 1,
            sites=tuple(self.sites),
            target=self.machine.name,
            flags=self.machine.flags,
            contracts=self.machine.contracts,
            recursive=self.is_recursive,
            has_ranks=any(each.name == "ranks" for each in file.pieces),
            departs=self.departs,
            link=(*self.link(), *libraries(own), *dict.fromkeys(flag for kernel in ordered for flag in kernel.link)),
        )
        copies: dict[Op | End | None, Sequence[Transfer]] = {}
        for each in structures:
            copies.update(each.own_copies)
        return Emitted(artifact, self.whole_plan(), len(ordered), kernels, self.function, copies)

    def link(self) -> tuple[str, ...]:
        """Linker flags for what the program calls besides libm and pthreads."""
        return ()

    def whole_plan(self) -> Plan:
        """The plan of the program with the buffers of its functions, for people."""
        plan = with_functions(self.plan, self.functions.values())
        peak = min(plan.peak_bytes, self.buffers_bytes) if self.functions else plan.peak_bytes
        return replace(
            plan,
            stacks=self.stacks,
            arena_bytes=self.buffers_bytes,
            peak_bytes=peak,
            keeps_frames=self.uses_store,
        )

    def aliases(self, op: Op) -> Iterable[tuple[int, int]]:
        """The (result, operand) pairs of an op that may share a buffer."""
        if op.declared in IN_PLACE:
            return in_place(op)
        return self.kernels[op].may_alias if op in self.kernels else ()

    def new_structure(self, function: Function, plan: Plan) -> BodyEmitter:
        structure = self.body_class(
            function, plan, self.kernels, self.names, self.call_kernel, self.site, self.check_nan
        )
        structure.has_team = self.machine.cores > 1
        structure.frame_names, structure.frame_fields = self.frame_names, self.frame_fields
        structure.kept_names, structure.storing = self.kept_names, self.storing
        structure.family_fields, structure.argument_fields = self.family_fields, self.argument_fields
        structure.records = {record.name: record for record in self.function.frames}
        return structure

    def control_flow(self, structure: BodyEmitter, signatures: Mapping[str, Signature]) -> ControlFlow:
        """The emitter of the ops in a function's blocks."""
        return ControlFlow(structure, signatures)

    def make_functions(
        self, called: dict[str, Called], table: dict[str, Function], plans: dict[str, Plan], entry: BodyEmitter
    ) -> None:
        """Signatures and emitters of the program's functions; `state` then has the fields they share with the entry."""
        self.offsets[CPU], self.buffers_bytes = arena_offsets(self.function, plans, self.plan)
        for device in dict.fromkeys(device for each in (self.plan, *plans.values()) for device in each.device_bytes):
            self.offsets[device], self.device_values[device] = arena_offsets(self.function, plans, self.plan, device)
        self.add_state(entry, called, plans)
        for name, how in called.items():
            function, plan = table[name], plans[name]
            signature, local = make_signature(
                function, how, self.c_names[name], self.names, self.frame_names, self.function_state()
            )
            structure = self.new_structure(function, plan)
            structure.local_names = local
            structure.args = Member(Name("m"), "args")
            for variable in function.variables:
                if not variable.type.shape and not variable.members:
                    structure.scalar_variables[variable] = self.scalar_place(variable, entry)
            for buffer in plan.buffers:
                if buffer.element is not None:
                    continue  # a member of a family, which `Buffers` has
                if buffer.variable is not None:
                    structure.places[buffer] = self.variable_place(buffer.variable, entry)
                elif buffer.kind == "constant":
                    structure.places[buffer] = Name(self.names.fresh(buffer.name))
                elif buffer in self.state_fields:
                    structure.fields[buffer] = self.state_fields[buffer]
            structure.fields.update((stack, self.state_fields[stack]) for stack in plan.stacks)
            structure.parameters = parameter_types(signature.declared())
            place_values(structure, signature, plan)
            self.place_of_function(structure, plan)
            locals_type = self.names.fresh(f"{name}_buffers") if plan.unions else ""
            self.functions[name] = CFunction(signature, plan, structure, self.offsets[CPU][name], locals_type)

    def function_state(self) -> tuple[tuple[str, str], ...]:
        """(C type, name) of what each function of the program takes first."""
        return (("const Buffers *", "m"),) if self.state else ()

    def place_of_function(self, structure: BodyEmitter, plan: Plan) -> None:
        """Note the places of a function's values, for a back end, once each has one."""

    def buffer_state(self, buffer: Buffer, name: str, function: str = "") -> State:
        """The field of `Buffers` for a buffer of an arena: of a function of this name, or of the program itself."""
        c_type = buffer.type.dtype.c_name
        offset = buffer.offset + self.offsets[buffer.device].get(function, 0)
        start = self.arena_start(buffer.device)
        return State(f"{c_type} *", name, place_in(start, c_type, offset or None), describe(buffer), buffer.device)

    def arena_start(self, device: Device) -> Expr:
        """The start of a device's arena."""
        assert device == CPU
        return BASE

    def variable_place(self, variable: VariableRef, entry: BodyEmitter) -> Expr:
        """The expression by which a function accesses an array Variable of the program."""
        if variable.outer:
            return self.argument_fields[variable].at(Member(Name("m"), "args"))
        return entry.variable_array(variable)

    def scalar_place(self, variable: VariableRef, entry: BodyEmitter) -> Expr:
        """The expression by which a function accesses a number that is a Variable of the program."""
        if variable.outer:
            return Prefix("*", self.argument_fields[variable].at(Member(Name("m"), "args")))
        return Prefix("*", Member(Name("m"), self.state_fields[variable]))

    def add_state(self, entry: BodyEmitter, called: dict[str, Called], plans: dict[str, Plan]) -> None:
        """The fields of `Buffers`, with the values that the entry gives them."""

        def field(key: object, hint: str) -> str:
            self.state_fields[key] = self.state_names.fresh(hint)
            return self.state_fields[key]

        for buffer in self.plan.arena_buffers():
            self.state.append(self.buffer_state(buffer, entry.fields[buffer]))
        for name, plan in plans.items():
            for buffer in plan.arena_buffers():
                self.state.append(self.buffer_state(buffer, field(buffer, f"{name}_{buffer.name}"), name))
        self.family_fields.update(family_fields(entry))
        heads = self.stacks_offset()
        for stack in self.stacks:
            made = entry.fields[stack] if stack in entry.fields else field(stack, stack.name)
            note = f"grows: {self.kept_names.get(stack, stack.element)} per turn of a loop"
            self.state.append(State("st_stack *", made, place_in(BASE, "st_stack", heads + HEAD * stack.index), note))
        touched = {variable for function in self.function.functions for variable in function.variables}
        if any(variable.outer for variable in touched):
            self.state.append(State(f"const {self.name}_args *", "args", Name("args"), "what the caller gave"))
        for variable, expression in entry.scalar_variables.items():
            if variable in touched:
                made = field(variable, variable.name)
                note = note_of(str(variable.type.dtype), variable.purpose, variable.where)
                self.state.append(State(f"{variable.type.dtype.c_name} *", made, Prefix("&", expression), note))
        if self.is_recursive:
            entry.asked_at = self.function.functions[0].where
            entry.need("own_stack", "stop")
            head = place_in(BASE, "st_own_stack", self.own_stack_offset())
            self.state.append(State("const st_own_stack *", "stack", head, "what recursive functions run on"))
        if self.uses_store:
            entry.need("frames")
            head = place_in(BASE, "st_frames", self.frames_offset())
            self.state.append(State("st_frames *", "frames", head, "grows: what is kept for gradients of calls"))
        if self.scratch_bytes:
            start = Infix("+", BASE, Literal(str(self.buffers_bytes)))
            self.state.append(State("unsigned char *", "scratch", start, "workspace, one part per thread"))

    def site(self, position: Position | None) -> int:
        """The number of a Python position in the program's table."""
        if position not in self.site_index:
            self.site_index[position] = len(self.sites)
            p = position or Position("<unknown>", 0, 0, 0, 0, "")
            self.sites.append(Site(p.file, p.line, p.column, p.end_column, p.function, p.text))
        return self.site_index[position]

    # ---- parameters ----

    def declare_parameters(self, structure: BodyEmitter) -> dict[Value, str]:
        function = self.function
        fields: dict[Value, str] = {}
        sizes = {op.operands[0]: op.attrs["dim"] for op in function.block.ops if op.declared is prims.DIM}
        for index, param in enumerate(function.params):
            path = function.param_paths[index] if index < len(function.param_paths) else param.hint or f"input_{index}"
            fields[param] = field = self.fields.fresh(path)
            if function.param_data and function.param_data[index] is not None:
                self.constant_inputs.add(param, self.names.fresh(f"{self.name}_{field}"), function.param_data[index])
                continue
            device = function.param_devices[index] if function.param_devices else CPU
            place, is_scalar, dim = ArgumentField(field), not param.tensor.shape, sizes.get(param)
            made = make_parameter(place, path, param.tensor, "input", is_scalar, device, dim=dim)
            self.parameters.append(as_complex(made) if ("input", index) in function.complex_edges else made)
        has_structs = function.exported is None
        self.argument_fields.update(argument_fields(function.variables, self.fields, has_structs))
        written, set_first = written_variables(function), variables_set_first(function)
        for variable in function.variables:
            if variable.outer and not variable.members:
                place = self.argument_fields[variable]
                self.parameters.append(variable_parameter(function, variable, place, written, set_first))
        types, paths = result_tensors(function), [*function.result_paths]
        paths += [f"result_{index}" for index in range(len(paths), len(types))]
        own = {} if function.exported is not None else {n: each.name for each, n in self.plan.returned.items()}
        labels = [own.get(index, path) for index, path in enumerate(paths)]  # an exported header names the results
        places, kept = result_fields(labels, self.plan.returned, function.variables, self.fields, has_structs)
        self.argument_fields.update(kept)
        structure.results = [self.result_place(each.at(Name("args")), index) for index, each in enumerate(places)]
        for index, (type, path, place) in enumerate(zip(types, paths, places, strict=True)):
            device = function.result_devices[index] if function.result_devices else CPU
            made = make_parameter(place, path, type, "output", False, device)
            self.parameters.append(as_complex(made) if ("output", index) in function.complex_edges else made)
        self.parameters = in_field_order(self.parameters, function)
        self.layer_types = layer_types(self.name, struct_entries(self.parameters), self.names)
        self.input_fields = fields
        return fields

    def result_place(self, place: Expr, index: int) -> Expr:
        """The expression for the caller's memory of the program's result `index`."""
        return place

    def name_buffers(self, structure: BodyEmitter) -> None:
        """A field for every buffer: of `Buffers` for the arena's, of the arguments for the caller's."""
        names = self.state_names
        own = {"stack": self.is_recursive, "frames": self.uses_store, "scratch": self.scratch_bytes}
        names.used |= {name for name, is_there in own.items() if is_there}  # see `add_state`
        groups = BufferGroups(self.function, self.plan, self.names)
        names.used |= groups.inside.keys()
        for buffer in self.plan.buffers:
            if buffer.kind == "input":
                param = self.function.params[buffer.index]
                structure.fields[buffer] = self.input_fields[param]
                constant = self.constant_inputs.place(param)
                if constant is not None:
                    structure.places[buffer] = constant
            elif buffer.kind == "output":
                structure.places[buffer] = structure.results[buffer.index]
            elif buffer.kind == "constant":
                structure.fields[buffer] = self.names.fresh(buffer.name)
            elif buffer.kind not in ("variable", "frame", "slot"):
                structure.fields[buffer] = groups.fresh(buffer, names)
        self.groups = groups.structs
        structure.slots = slots_of(self.groups)
        structure.fields.update((stack, names.fresh(stack.name)) for stack in self.plan.stacks)

    # ---- calls of kernels ----

    def call_kernel(self, structure: BodyEmitter, op: Op, inputs: list[Expr], outputs: list[Expr]) -> None:
        kernel, given = self.kernels[op], [*inputs, *outputs]
        structure.need(*kernel.snippets)
        items, sizes = kernel.items_of(given), filled_sizes(structure.local, kernel, given)
        arguments = [*kernel.passed(inputs, outputs), *sizes, *kernel.numbers, *[Name("host")] * kernel.can_fail]
        if kernel.is_shared and self.machine.cores > 1:
            structure.need("share")
            self.shared[kernel.name] = kernel.shared
            scratch = [SCRATCH] if kernel.scratch_bytes else []
            share = member("host", "team"), items, kernel.chunk, Name(kernel.name)
            structure.code.do("ST_SHARE", *share, *arguments, *scratch, note=phases_text(op))
        else:
            scratch = [structure.scratch(kernel.scratch_type)] if kernel.scratch_bytes else []
            span = (Literal("0"), items) if kernel.has_range else ()
            structure.code.do(kernel.name, *arguments, *scratch, *span, note=phases_text(op))
        if kernel.can_fail:
            structure.fail_check()


SCRATCH = member("m", "scratch")
