"""`Runnable`: the part of a program that calls use."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from staged.base.launcher import this_job
from staged.call.residency import departures_of_region, input_places, variable_places
from staged.errors import ProgramNanError
from staged.frontend.devices.resident import BorrowedArray, ResidentArray
from staged.frontend.trace_function import TracedFunction
from staged.frontend.values.join import Leaf, Static, Template
from staged.frontend.values.variable import host_buffers
from staged.ir.functions import every_function
from staged.ir.nodes import IO, Function, walk_ops
from staged.ir.structure import CLOCK, PRINT
from staged.ir.types import Device, TensorType
from staged.runtime.cuda.departures import Departures
from staged.runtime.languages import LoadedProgram, ProgramOnDevices
from staged.runtime.prepared import speaks
from staged.source import here


class Runnable:
    """The part of a program that calls use, without the trace, which holds the user's arrays and models."""

    def __init__(self, native: LoadedProgram, traced: TracedFunction, check_nan: bool = False) -> None:
        self.native = native
        self.check_nan = check_nan
        self.repeats = check_nan and _repeats(traced.function)
        """True if a call may run again, from the Variables before it, to find a NaN."""
        self.call = native.short([], native) or native
        """The program, by the fast path if it has one."""
        self.result = traced.result
        weak = tuple(leaf.weak for leaf in traced.result.leaves if isinstance(leaf, TensorType))
        self.weak = weak if any(weak) else ()
        """For each result, whether it is a Python number; empty if none is."""
        self.variables = tuple(parameter for parameter in native.artifact.parameters if parameter.role == "variable")
        """The parameters that are outer Variables."""
        self.is_on_host = all(parameter.device == "cpu" for parameter in self.variables)
        """True if these are all on the host."""
        outputs = [parameter.device for parameter in native.artifact.parameters if parameter.role == "output"]
        self.returned = tuple(None if device == "cpu" else _device_named(device) for device in outputs)
        """For each result the device that it stays on, None for one on the host."""
        self.departs = native.artifact.departs or any(self.returned)
        """True if results stay on a device, or the work there may not be over when a call returns."""
        self.tells = self.departs and (not native.artifact.departs or speaks(native.artifact))
        """True if such a call prints or goes to Python, or waits for its work."""
        self.numbers = tuple(not leaf.shape for leaf in traced.result.leaves if isinstance(leaf, TensorType))
        """For each result, True for a number: on a device it is an array of one element."""
        self.devices = tuple(traced.function.param_devices or ())
        """The device of each input; empty if all are on the host."""
        self.where = traced.function.where
        self.rebuild: Callable[[Sequence[Any]], Any] = partial(_rebuild, self.result, self.weak, traced.copied)
        """Build the function's result from the program's arrays. Not a method, which would form a reference cycle."""
        self.is_single = traced.result.spec.is_leaf() and isinstance(traced.result.leaves[0], TensorType)
        """True if the function's result is one array, or one number."""
        if self.is_single:
            self.rebuild = (lambda outputs: outputs[0].item()) if self.weak else (lambda outputs: outputs[0])
        self._direct: dict[frozenset[int], Callable[..., Any]] = {}

    def serves(self, traced: TracedFunction) -> bool:
        """Return whether a later trace of the same program needs no other: its result has the same form, and is nothing
        but arrays.
        """
        form = self.result.spec
        return (
            (self.is_single or (form.type is tuple and form.is_one_level()))
            and form == traced.result.spec
            and self.result.leaves == traced.result.leaves
            and all(isinstance(leaf, TensorType) for leaf in self.result.leaves)
            and self.devices == tuple(traced.function.param_devices)
            and self.where == traced.function.where
        )

    def direct(self, known: frozenset[int]) -> Callable[..., Any]:
        """The fast call of a plain program; its caller has compared the shapes of the parameters `known`."""
        made = self._direct.get(known)
        if made is None:
            made = self._direct[known] = self._made_direct(known)
        return made

    def _made_direct(self, known: frozenset[int]) -> Callable[..., Any]:
        native = self.native
        if self.is_single and not self.weak:
            short = native.short([], lambda *values: native(*values)[0], is_single=True, known=known)
            if short is not None:
                return short
        call, rebuild = native.short([], native, known=known) or native, self.rebuild
        return lambda *values: rebuild(call(*values))

    @property
    def on_devices(self) -> ProgramOnDevices:
        """The program as one that takes arrays on devices."""
        return cast(ProgramOnDevices, self.native)

    @property
    def is_plain(self) -> bool:
        """Return whether a call has no Variables, no arrays on devices, and results on the host."""
        return not (self.devices or self.variables or self.departs or self.check_nan)

    def __call__(self, values: Sequence[Any], variables: Sequence[Any] = ()) -> Any:
        """Run on one value per parameter and the outer Variables."""
        if not self.repeats:
            return self.rebuild(self.outputs(values, variables))
        before = [(variable, variable.numpy()) for variable in variables]
        try:
            return self.rebuild(self.outputs(values, variables))
        except ProgramNanError as error:
            error.variables = before
            raise

    def outputs(self, values: Sequence[Any], variables: Sequence[Any] = ()) -> Sequence[Any]:
        """Run, and return the program's output arrays."""
        if self.departs:
            return self.departed(values, variables)
        if self.devices:
            values = input_places(values, self.devices, self.on_devices, self.where)
        outputs: Sequence[Any] = self.call(*values, *self.places(variables)) if variables else self.call(*values)
        return outputs

    def departed(self, values: Sequence[Any], variables: Sequence[Any]) -> Sequence[Any]:
        """Run a program that leaves results on a device; outside of a region wait for its work."""
        artifact = self.native.artifact
        around = departures_of_region()
        departures = Departures() if around is None else around
        departures.advance()
        if self.tells:
            departures.settle()  # an error of an earlier call comes before whatever this call prints
        given = values
        if self.devices:
            values = input_places(values, self.devices, self.on_devices, self.where, departures.upload)
        if variables:
            where, update = self.where, departures.upload
            places = variable_places(variables, self.variables, self.on_devices, where, update)
            values = [*values, *places]
        where = here() if artifact.explains else None
        outputs = self.on_devices.depart(values, departures, where)
        results = [
            output if device is None else ResidentArray(() if is_number else output.shape, output.dtype, device, output)
            for output, device, is_number in zip(outputs, self.returned, self.numbers, strict=True)
        ]
        if around is None:
            departures.end()
        elif any(isinstance(value, BorrowedArray) for value in given):
            departures.settle()  # the other library may reuse the memory when the call has returned
        return results

    def places(self, variables: Sequence[Any]) -> Sequence[Any]:
        """The address of each outer Variable, or its place on a device."""
        buffers = host_buffers(variables) if self.is_on_host else None
        return variable_places(variables, self.variables, self.on_devices, self.where) if buffers is None else buffers


def _repeats(program: Function) -> bool:
    """Return whether a program has no effects outside but prints and readings of a clock, and needs no other rank."""
    ops = [op for function in every_function(program) for op in walk_ops(function.block)]
    if this_job().ranks > 1 and any(op.declared.kind == "collective" for op in ops):
        return False  # eager mode has one rank
    return all(IO[0] not in op.effects or op.declared in (CLOCK, PRINT) for op in ops)


def _device_named(name: str) -> Device:
    """The device of a parameter: `gpu` or `gpu(1)`."""
    kind, _, number = name.removesuffix(")").partition("(")
    return Device(kind, int(number or 0))


class Loaded:
    """A loaded program, and the `Runnable` of the last trace that yielded it."""

    __slots__ = ("key", "native", "runnable")

    def __init__(self, native: LoadedProgram, key: Any) -> None:
        self.native = native
        self.key = key
        """Of the equal ones the one that all traces use: keys are long, and two are compared element by element."""
        self.runnable: Runnable | None = None


def _rebuild(result: Template, weak: tuple[bool, ...], copied: frozenset[int], outputs: Sequence[Any]) -> Any:
    """The function's result as the user wrote it; a Python number that was computed with comes back as one."""
    if copied:
        result = Template(result.spec, tuple(_leaf(leaf, at in copied) for at, leaf in enumerate(result.leaves)))
    if weak:
        outputs = [output.item() if is_weak else output for output, is_weak in zip(outputs, weak, strict=True)]
    return result.rebuild(list(outputs))


def _leaf(leaf: Leaf, is_copied: bool) -> Leaf:
    return Static(leaf.value.copy()) if is_copied and isinstance(leaf, Static) else leaf
