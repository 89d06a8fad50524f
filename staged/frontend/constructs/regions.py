"""`with_backend`: the device of the ops traced in its extent; and `to`, which moves one array on its own."""

from __future__ import annotations

import inspect
import weakref
from collections.abc import Callable, Iterator
from copy import copy
from functools import partial
from types import BuiltinFunctionType, FunctionType, TracebackType
from typing import Any

import numpy as np

from staged.errors import StagingError
from staged.frontend.calls.call import call
from staged.frontend.devices.device_options import RegionOptions, checked_options, joined_options
from staged.frontend.devices.resident import (
    DeviceArray,
    Region,
    ambient_device,
    enter_region,
    leave_region,
    note_copies,
    open_regions,
)
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.strict import Named, Strict
from staged.frontend.values import trees
from staged.ir.options import Algorithms
from staged.ir.types import CPU, Device
from staged.ops.array import Array
from staged.ops.choice import to_device
from staged.ops.context import context_or_none
from staged.source import here

GPU = Device("gpu")
"""The first GPU; `GPU(1)` is the second one."""


class with_backend:
    """Generate code for a device: `with with_backend(GPU, x) as xs: ...`, or `with_backend(GPU, x)(f)`, which calls `f`
    on `x` there.

    Inside a staged function it sets the device of the ops traced in its extent. In plain Python it sets the device of
    the staged calls in its extent: the arrays that it names are copied there once, are recognised by identity, and are
    read-only meanwhile. `inputs` are the arrays that the region uses (any tree); arrays that it uses without naming
    them are found, or refused with `strict=True`. `as` binds the inputs (one alone, or a tuple), in plain Python as
    arrays on the device. The earlier device is restored on every way out.

    Options of a GPU's region hold for all of the program: `tf32=True` lets libraries round the factors of f32 products
    to 10 bits; `deterministic=False` lets scatters add by atomics, and convolutions use algorithms whose order of
    additions varies; `algorithms="timed"` measures, once, which algorithm of a convolution is fastest, instead of
    asking the library's "heuristic"; `graphs=False` gives each launch of a loop's iteration to the device by itself,
    and none as part of a CUDA graph; `using` names the back end that writes the program. An unset option takes its
    value from the program's other regions.

    Raises: StagingError for a device that is none, for inputs without arrays, for options of the host's regions, and
    where two regions of a program disagree; with `strict`, at the first use of an array or Variable from outside that
    the region does not name.
    """

    def __init__(
        self,
        device: Device,
        *inputs: Any,
        strict: bool = False,
        tf32: bool | None = None,
        deterministic: bool | None = None,
        algorithms: Algorithms | None = None,
        graphs: bool | None = None,
        using: str | None = None,
    ) -> None:
        self.device = checked_device(device, "with_backend")
        self.options = checked_options(
            self.device, tf32=tf32, deterministic=deterministic, algorithms=algorithms, graphs=graphs, using=using
        )
        for given in inputs:
            _check_input(given)
        if not isinstance(strict, bool):
            raise StagingError(f"with_backend takes strict=True or strict=False, got {strict!r}", where=here())
        self.inputs = inputs
        self.strict = strict
        self._restore: list[Callable[[bool], None]] = []
        """By nesting, the function that ends a region. Its argument is True if an exception leaves the region."""
        self._is_call = False
        """True in the function form, which holds the inputs itself."""

    def __enter__(self) -> Any:
        trace = current_trace()
        inputs = self.inputs
        if trace is not None:
            self._restore.append(self._enter_trace(trace))
        else:
            region = Region(self.device, self.strict, self.options)
            made: list[weakref.ref[DeviceArray]] = []
            region.work.begin()
            if context_or_none() is None:  # eager mode computes with the arrays themselves
                inputs = tuple(trees.map_leaves(partial(_keep, region, made), given) for given in inputs)
            enter_region(region)
            self._restore.append(partial(_leave, region, [] if self._is_call else made))
        return inputs[0] if len(inputs) == 1 else inputs

    def _enter_trace(self, trace: TraceContext) -> Callable[[bool], None]:
        trace.put(RegionOptions(joined_options(trace.of(RegionOptions).said, self.options)))
        builder, before, named = trace.builder, (trace.builder.device, trace.strict), trace.of(Named)

        def restore(_: bool) -> None:
            builder.device, trace.strict = before
            trace.put(named)

        builder.device = self.device
        leaves = trees.flatten(list(self.inputs))[0]
        trace.strict = Strict(self.device, leaves) if self.strict else None
        around = named.inputs.named if named.inputs is not None and named.inputs.device == self.device else []
        trace.put(Named(Strict(self.device, [*around, *leaves])))
        return restore

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._restore.pop()(kind is not None)

    def __call__(self, function: Callable[..., Any]) -> Any:
        """Call `function` in a region, on the inputs as the region sees them, and return its result.

        A function without required parameters is called without arguments. A region without inputs calls nothing: the
        result is the function with a region around each call, as for `@with_backend(GPU)`. Several threads may call it.

        Raises: StagingError if `function` is not callable, or if it does not accept as many arguments as there are
        inputs.
        """
        if not callable(function):
            raise StagingError(
                f"a region is given a function to call in it, got {type(function).__name__}",
                where=here(),
                hint="`with_backend(GPU, x)(f)` calls `f` on `x` in a region; arrays are named before: "
                "`with_backend(GPU, x, y)(f)`",
            )
        if self.inputs:
            return self._run(function, self.inputs if _accepts(function, self.inputs) else ())

        def on_device(*args: Any, **kwargs: Any) -> Any:
            return self._run(function, None, *args, **kwargs)

        on_device.__staged_plain__ = True  # type: ignore[attr-defined]
        on_device.__name__ = getattr(function, "__name__", "on_device")
        return on_device

    def _run(self, function: Callable[..., Any], inputs: tuple[Any, ...] | None, *args: Any, **kwargs: Any) -> Any:
        region = copy(self)
        region._restore, region._is_call = [], True
        with region as given:
            if inputs:
                args = (given,) if len(inputs) == 1 else given
            return function(*args, **kwargs) if context_or_none() is None else call(function, *args, **kwargs)


def to(x: Any, device: Device) -> Any:
    """`x`, a tree of arrays, on `device`: arrays that are elsewhere are copied, others are not.

    Inside a staged function the copy stands before its first use, outside of the loops in which the array does not
    change; the gradient is copied back to where `x` is. In plain Python the result is an array that stays on the
    device, for the staged calls that take it; `to(x, CPU)` copies it back.

    Raises: StagingError if `device` is not a device.
    """
    checked_device(device, "to")
    trace = current_trace()
    if trace is not None:
        builder, before = trace.builder, trace.builder.device
        builder.device = device
        try:
            return trees.map_leaves(lambda leaf: to_device(leaf) if _is_array(leaf) else leaf, x)
        finally:
            builder.device = before
    if context_or_none() is not None:
        return x
    if device == CPU:
        return trees.map_leaves(lambda leaf: leaf.host if isinstance(leaf, DeviceArray) else leaf, x)
    note_copies(device)
    region = Region(device)
    return trees.map_leaves(region.kept, x)


def _keep(region: Region, made: list[weakref.ref[DeviceArray]], leaf: Any) -> Any:
    """`region.keep`, with a note of the arrays that the region has on its device instead of the caller's."""
    kept = region.keep(leaf)
    if kept is not leaf and isinstance(kept, DeviceArray):
        made.append(weakref.ref(kept))
    return kept


def _leave(region: Region, made: list[weakref.ref[DeviceArray]], has_failed: bool) -> None:
    """End a region of plain Python, and warn if nothing ran on its device."""
    leave_region(region)
    region.arrays.clear()
    region.named.clear()
    if has_failed:
        return
    region.work.has_copies |= any(array() is not None for array in made)
    if region.work.end(region.device):
        for around in open_regions():
            around.work.where = None  # one warning is enough


def _accepts(function: Callable[..., Any], inputs: tuple[Any, ...]) -> bool:
    """Return whether the function form passes the inputs; False for a function without required parameters.

    Raises: StagingError if the function does not accept as many arguments.
    """
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # a function of C
        return True
    places = [each for each in parameters if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    takes_any = any(each.kind is each.VAR_POSITIONAL for each in parameters)
    required = sum(each.default is each.empty for each in places)
    if not required and not takes_any:
        return False
    if required > len(inputs) or (len(places) < len(inputs) and not takes_any):
        name = getattr(function, "__name__", type(function).__name__)
        raise StagingError(
            f"`{name}` must accept the inputs of the region: parameters ({', '.join(map(str, parameters))}), "
            f"number of inputs {len(inputs)}",
            where=here(),
            hint="name one input for each parameter: `with_backend(GPU, x, y)(f)` calls `f(x, y)`",
        )
    return True


def _check_input(given: Any) -> None:
    """Refuse what is no tree of arrays, numbers and Variables, and no object that holds them."""
    if isinstance(given, str | bytes | Device | type | FunctionType | BuiltinFunctionType | np.ufunc | Iterator):
        hint = "arrays, or trees of them: `with_backend(GPU, x, model)`"
        if isinstance(given, Device):
            hint = "a region has one device; regions may stand inside of each other"
        elif isinstance(given, FunctionType | BuiltinFunctionType | np.ufunc):
            hint = "the function form has the function in brackets of its own: `with_backend(GPU, x)(f)`"
        raise StagingError(
            f"with_backend takes the arrays that a region uses, got {type(given).__name__}", where=here(), hint=hint
        )


def _is_array(leaf: Any) -> bool:
    return isinstance(leaf, Array | np.ndarray | DeviceArray)


_EXAMPLES = {
    "with_backend": "`with_backend(GPU, x)` or `with_backend(CPU, x)`",
    "to": "`to(x, GPU)` or `to(x, CPU)`",
    "loader": "`loader(batches, device=GPU)` or `loader(batches, device=CPU)`",
}


def checked_device(device: Any, asker: str) -> Device:
    """`device`. Raises StagingError, in the words of `asker`, for anything else than a device."""
    if not isinstance(device, Device):
        raise StagingError(
            f"{asker} takes a device, got {type(device).__name__}",
            where=here(),
            hint=_EXAMPLES[asker],
        )
    return device


__all__ = ["GPU", "DeviceArray", "ambient_device", "to", "with_backend"]
