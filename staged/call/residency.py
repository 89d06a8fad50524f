"""Inputs and Variables on a device, as a program takes them: addresses of arrays that stay there between calls."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from staged.base.artifact import Parameter
from staged.base.remote import Remote
from staged.errors import ProgramMemoryError
from staged.frontend.devices.resident import (
    BorrowedArray,
    DeviceArray,
    ResidentArray,
    find_kept,
    open_regions,
)
from staged.frontend.values.variable import Variable
from staged.ir.types import CPU, Device, shape_text
from staged.runtime.cuda.departures import Departures
from staged.runtime.guard import ffi
from staged.runtime.languages import ProgramOnDevices
from staged.source import Position


def departures_of_region() -> Departures | None:
    """The record of the calls that depart in the outermost region of a GPU in plain Python; None outside of regions."""
    region = next((region for region in open_regions() if region.device != CPU), None)
    if region is None:
        return None
    if region.departures is None:
        region.departures = Departures()
    found: Departures = region.departures
    return found


class _Unread:
    """The place of an array that a program does not read."""

    address = ffi.NULL
    arrival = None


_UNREAD = _Unread()


Update = Callable[[Remote, np.ndarray[Any, Any]], None]


def update_now(place: Remote, host: np.ndarray[Any, Any]) -> None:
    """Copy the elements of an array to its place on a device, unless they are there, and wait for the copy."""
    place.update(host)


def input_places(
    values: Sequence[Any],
    devices: Sequence[Device],
    program: ProgramOnDevices,
    where: Position | None,
    update: Update = update_now,
) -> list[Any]:
    """The inputs in the form that the program accepts: for one on a device, the resident copy, or a copy for this
    call, which `update` makes.

    Raises: ProgramMemoryError if a device has no room, with the parameter's name and the program's line.
    """
    if not hasattr(program, "place_on"):
        # One of the host alone: its inputs on a device have no elements, or no use.
        return [value if device == CPU else _UNREAD for value, device in zip(values, devices, strict=False)]
    return [
        value if device == CPU else _input_place(value, device, parameter, program, where, update)
        for value, device, parameter in zip(values, devices, program.artifact.parameters, strict=False)
    ]


def _input_place(
    value: Any,
    device: Device,
    parameter: Parameter,
    program: ProgramOnDevices,
    where: Position | None,
    update: Update,
) -> Any:
    if isinstance(value, BorrowedArray) and value.device == device:
        alignment = max(parameter.alignment, value.dtype.itemsize)
        with _naming_the_array(str(device), f"a copy of `{parameter.label}`", value.shape, where):
            return program.borrowed(str(device), value.address, value.nbytes, value.stream, alignment, value)
    memory = program.memory_of(str(device))
    if isinstance(value, ResidentArray) and value.remote.device == memory:
        value.remote.check()
        return value.remote
    if not isinstance(value, DeviceArray) or isinstance(value, ResidentArray) or value.device != device:
        host = np.asarray(value)
        kept = find_kept(host, device)
        value = DeviceArray(host, device) if kept is None else kept
    if value.remote is None or value.remote.device != memory:
        value.remote = _new_place(program, str(device), value.host.nbytes, f"`{parameter.label}`", value.shape, where)
    update(value.remote, value.host)
    return value.remote


def variable_places(
    variables: Sequence[Variable],
    parameters: Sequence[Parameter],
    program: ProgramOnDevices,
    where: Position | None,
    update: Update = update_now,
) -> list[Any]:
    """The outer Variables in the form that the program accepts, one for each of `parameters`: a host buffer, or
    elements on a device, brought up to date by `update`.

    Raises: ProgramMemoryError if a device has no room, with the Variable's name and the program's line.
    """
    with _one_at_a_time:
        return [
            _variable_place(variable, parameter, program, where, update)
            for variable, parameter in zip(variables, parameters, strict=True)
        ]


def _variable_place(
    variable: Variable, parameter: Parameter, program: ProgramOnDevices, where: Position | None, update: Update
) -> Any:
    if parameter.device == "cpu":
        return variable.buffer(parameter.written)
    what = f"the Variable `{variable.name}`"
    make = partial(_new_place, program, parameter.device, what=what, shape=variable.shape, where=where)
    place: Remote = variable.remote(make, program.memory_of(parameter.device), update)
    if parameter.written:
        place.written()  # now: a program that stops half way may have written it, too
    return place


def _new_place(
    program: ProgramOnDevices, device: str, nbytes: int, what: str, shape: Sequence[object], where: Position | None
) -> Remote:
    with _naming_the_array(device, what, shape, where):
        return program.place_on(device, nbytes)


@contextmanager
def _naming_the_array(device: str, what: str, shape: Sequence[object], where: Position | None) -> Iterator[None]:
    """Name the array for which a device does not have room."""
    try:
        yield
    except ProgramMemoryError as error:
        raise ProgramMemoryError(
            f"no room for {what} {shape_text(shape)} on the {device.upper()}: {error.message}",
            where=where,
            hint="arrays stay there until nobody holds them, and Variables as long as they live: `del` what is not "
            "needed",
        ) from None


_one_at_a_time = threading.Lock()
"""Calls of several threads that share a Variable share its place on a device, too."""
