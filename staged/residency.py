"""What a call gives a program that has arguments on a device: addresses of arrays that stay there between calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from staged.artifact import Parameter
from staged.errors import ProgramMemoryError
from staged.frontend.resident import BorrowedArray, DeviceArray, LoadedArray, find_kept
from staged.frontend.variable import Variable
from staged.ir.types import CPU, Device, shape_text
from staged.runtime.cuda.resident import BorrowedPlace, DeviceCopy
from staged.source import Position


def input_places(
    values: Sequence[Any], devices: Sequence[Device], parameters: Sequence[Parameter], where: Position | None
) -> list[Any]:
    """The inputs as a program takes them: those that it has on a device as what is kept there, or a copy for this call.

    Raises: ProgramMemoryError if a device has no room, with the name from `parameters`, and the program's line.
    """
    return [
        value if device == CPU else _input_place(value, device, parameter, where)
        for value, device, parameter in zip(values, devices, parameters, strict=False)
    ]


def _input_place(
    value: Any, device: Device, parameter: Parameter, where: Position | None
) -> DeviceCopy | BorrowedPlace:
    if isinstance(value, BorrowedArray) and value.device == device:
        return BorrowedPlace(str(device), value.address, value.stream)
    if isinstance(value, LoadedArray) and value.device == device:
        assert isinstance(value.remote, DeviceCopy)
        return value.remote
    if not isinstance(value, DeviceArray) or value.device != device:
        host = np.asarray(value)
        value = find_kept(host, device) or DeviceArray(host, device)
    if value.remote is None:
        value.remote = _new_copy(str(device), value.host.nbytes, f"`{parameter.label}`", value.shape, where)
    value.remote.update(value.host)
    copy: DeviceCopy = value.remote
    return copy


def variable_places(
    variables: Sequence[Variable], parameters: Sequence[Parameter], where: Position | None
) -> list[Any]:
    """Where a program finds the outer Variables, one of its `parameters` each: the host's buffer, or elements on a device.

    Raises: ProgramMemoryError if a device has no room, with the Variable's name and the program's line.
    """
    with _one_at_a_time:
        return [
            _variable_place(variable, parameter, where)
            for variable, parameter in zip(variables, parameters, strict=True)
        ]


def _variable_place(variable: Variable, parameter: Parameter, where: Position | None) -> Any:
    if parameter.device == "cpu":
        return variable.buffer(parameter.written)
    what = f"the Variable `{variable.name}`"
    make = partial(_new_copy, parameter.device, what=what, shape=variable.shape, where=where)
    place = variable.remote(make, parameter.device)
    assert isinstance(place, DeviceCopy)
    if parameter.written:
        place.written()  # now: a program that stops half way may have written it, too
    return place


def _new_copy(device: str, nbytes: int, what: str, shape: Sequence[object], where: Position | None) -> DeviceCopy:
    try:
        return DeviceCopy(device, nbytes)
    except ProgramMemoryError as error:
        raise ProgramMemoryError(
            f"no room for {what} {shape_text(shape)} on the {device.upper()}: {error.message}",
            where=where,
            hint="arrays stay there until nobody holds them, and Variables as long as they live: `del` what is not needed",
        ) from None


_one_at_a_time = threading.Lock()
"""Calls of several threads that share a Variable share its place on a device, too."""
