"""Inputs and Variables on a device, as a program takes them: addresses of arrays that stay there between calls."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from staged.artifact import Parameter
from staged.errors import ProgramMemoryError
from staged.frontend.devices.resident import BorrowedArray, DeviceArray, LoadedArray, find_kept, set_dlpack_reader
from staged.frontend.values.variable import Variable
from staged.ir.types import CPU, Device, shape_text
from staged.remote import Remote
from staged.runtime.cuda.borrowed import device_interface
from staged.runtime.guard import ffi
from staged.runtime.languages import ProgramOnDevices
from staged.source import Position

set_dlpack_reader(device_interface)


class _Unread:
    """The place of an array that a program does not read."""

    address = ffi.NULL
    arrival = None


_UNREAD = _Unread()


def input_places(
    values: Sequence[Any], devices: Sequence[Device], program: ProgramOnDevices, where: Position | None
) -> list[Any]:
    """The inputs as the program takes them: for one on a device, the resident copy, or a copy for this call.

    Raises: ProgramMemoryError if a device has no room, with the parameter's name and the program's line.
    """
    if not hasattr(program, "place_on"):
        # One of the host alone: its inputs on a device have no elements, or no use.
        return [value if device == CPU else _UNREAD for value, device in zip(values, devices, strict=False)]
    return [
        value if device == CPU else _input_place(value, device, parameter, program, where)
        for value, device, parameter in zip(values, devices, program.artifact.parameters, strict=False)
    ]


def _input_place(
    value: Any, device: Device, parameter: Parameter, program: ProgramOnDevices, where: Position | None
) -> Any:
    if isinstance(value, BorrowedArray) and value.device == device:
        alignment = max(parameter.alignment, value.dtype.itemsize)
        with _naming_the_array(str(device), f"a copy of `{parameter.label}`", value.shape, where):
            return program.borrowed(str(device), value.address, value.nbytes, value.stream, alignment, value)
    memory = program.memory_of(str(device))
    if isinstance(value, LoadedArray) and value.remote.device == memory:
        return value.remote
    if not isinstance(value, DeviceArray) or isinstance(value, LoadedArray) or value.device != device:
        host = np.asarray(value)
        value = find_kept(host, device) or DeviceArray(host, device)
    if value.remote is None or value.remote.device != memory:
        value.remote = _new_place(program, str(device), value.host.nbytes, f"`{parameter.label}`", value.shape, where)
    value.remote.update(value.host)
    return value.remote


def variable_places(
    variables: Sequence[Variable], parameters: Sequence[Parameter], program: ProgramOnDevices, where: Position | None
) -> list[Any]:
    """The outer Variables as the program takes them, one for each of `parameters`: a host buffer, or elements on a
    device.

    Raises: ProgramMemoryError if a device has no room, with the Variable's name and the program's line.
    """
    with _one_at_a_time:
        return [
            _variable_place(variable, parameter, program, where)
            for variable, parameter in zip(variables, parameters, strict=True)
        ]


def _variable_place(variable: Variable, parameter: Parameter, program: ProgramOnDevices, where: Position | None) -> Any:
    if parameter.device == "cpu":
        return variable.buffer(parameter.written)
    what = f"the Variable `{variable.name}`"
    make = partial(_new_place, program, parameter.device, what=what, shape=variable.shape, where=where)
    place: Remote = variable.remote(make, program.memory_of(parameter.device))
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
