"""What a call gives a program that has arguments on a device: addresses of arrays that stay there between calls."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from staged.artifact import Parameter
from staged.frontend.variable import Variable
from staged.runtime.cuda.resident import DeviceCopy


def variable_places(variables: Sequence[Variable], parameters: Sequence[Parameter]) -> list[Any]:
    """Where a program finds the outer Variables: the host's buffer of each, or its elements on a device, up to date."""
    taken = [parameter for parameter in parameters if parameter.role == "variable"]
    places: list[Any] = []
    for variable, parameter in zip(variables, taken, strict=True):
        if parameter.device == "cpu":
            places.append(variable.buffer(parameter.written))
            continue
        place = variable.remote(partial(DeviceCopy, parameter.device), parameter.device)
        assert isinstance(place, DeviceCopy)
        if parameter.written:
            place.written()  # now: a program that stops half way may have written it, too
        places.append(place)
    return places
