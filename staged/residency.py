"""What a call gives a program that has arguments on a device: addresses of arrays that stay there between calls."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np

from staged.artifact import Parameter
from staged.frontend.resident import DeviceArray, find_kept
from staged.frontend.variable import Variable
from staged.ir.types import CPU, Device
from staged.runtime.cuda.resident import DeviceCopy


def input_places(values: Sequence[Any], devices: Sequence[Device]) -> list[Any]:
    """The inputs as a program takes them: those that it has on a device as what is kept there, or a copy for this call."""
    return [
        value if device == CPU else _input_place(value, device) for value, device in zip(values, devices, strict=True)
    ]


def _input_place(value: Any, device: Device) -> DeviceCopy:
    if not isinstance(value, DeviceArray) or value.device != device:
        host = np.asarray(value)
        value = find_kept(host, device) or DeviceArray(host, device)
    if value.remote is None:
        value.remote = DeviceCopy(str(device), value.host.nbytes)
    value.remote.update(value.host)
    copy: DeviceCopy = value.remote
    return copy


def variable_places(variables: Sequence[Variable], parameters: Sequence[Parameter]) -> list[Any]:
    """Where a program finds the outer Variables, one of its `parameters` each: the host's buffer, or elements on a device."""
    with _one_at_a_time:
        return [_variable_place(variable, parameter) for variable, parameter in zip(variables, parameters, strict=True)]


def _variable_place(variable: Variable, parameter: Parameter) -> Any:
    if parameter.device == "cpu":
        return variable.buffer(parameter.written)
    place = variable.remote(partial(DeviceCopy, parameter.device), parameter.device)
    assert isinstance(place, DeviceCopy)
    if parameter.written:
        place.written()  # now: a program that stops half way may have written it, too
    return place


_one_at_a_time = threading.Lock()
"""Calls of several threads that share a Variable share its place on a device, too."""
