"""The options of regions: what `with_backend(GPU, tf32=True)` says holds for the whole program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, get_args

from staged.backends.registry import back_ends, choose, names_for
from staged.errors import StagingError
from staged.frontend.trace.lifetimes import OfAttempt
from staged.ir.options import Algorithms, DeviceOptions
from staged.ir.types import CPU, Device
from staged.source import Position, here


@dataclass(frozen=True, slots=True)
class Said:
    """The value that one region gives to an option, and its position."""

    value: Any
    where: Position | None


Options = Mapping[str, Said]


@dataclass(frozen=True)
class RegionOptions(OfAttempt):
    """The options that the regions of a program have given so far."""

    said: Options = field(default_factory=dict)


def checked_options(device: Device, **options: Any) -> dict[str, Said]:
    """The options that a region gives, those that are None left out.

    Raises: StagingError for values that an option does not take, and for any option of a region of the host.
    """
    where = here()
    given = {name: Said(value, where) for name, value in options.items() if value is not None}
    for name, said in given.items():
        if device == CPU:
            raise StagingError(
                f"`{name}` is an option of a GPU's region, and this one is the host's",
                where=where,
                hint=f"say it where the GPU's region begins, `with_backend(GPU, x, {name}={said.value!r})`; it holds "
                "for the "
                "whole program",
            )
        allowed = _allowed(name, device)
        if not any(said.value is value or isinstance(said.value, str) and said.value == value for value in allowed):
            words = " or ".join(f"{name}={value!r}" for value in allowed)
            raise StagingError(
                f"with_backend takes {words}, got {said.value!r}", where=where, hint=f"`{name}={allowed[0]!r}`"
            )
    return given


def _allowed(option: str, device: Device) -> Sequence[Any]:
    """The values that an option takes in a region on this device."""
    if option == "using":
        return names_for(device.kind)
    return get_args(Algorithms) if option == "algorithms" else (True, False)


def joined_options(known: Options, more: Options) -> dict[str, Said]:
    """The options of two regions of one program together. Raises StagingError, with both lines, where they disagree."""
    for name, said in more.items():
        before = known.get(name)
        if before is not None and before.value != said.value:
            line = f"{before.where.short}  {before.where.text}" if before.where is not None else "a region around"
            raise StagingError(
                f"`{name}={said.value!r}` here and `{name}={before.value!r}` in another region of one program",
                where=said.where,
                details=[f"{name}={before.value!r}: {line}"],
                hint="it holds for the whole program: say it once, or make the parts programs of their own",
            )
    return {**more, **known}


def device_options(said: Options) -> DeviceOptions:
    """The options of a program whose regions say this; where none names a back end, `STAGED_BACKEND` may.

    Raises: StagingError if there is no back end of that name.
    """
    options = DeviceOptions(**{name: each.value for name, each in said.items()})
    using = options.using or os.environ.get("STAGED_BACKEND", "")
    if using and using not in back_ends():
        raise StagingError(f"STAGED_BACKEND names {using!r}, the back ends are {', '.join(back_ends())}", where=None)
    return replace(options, using=using)


def takes_cuda_arrays(device: Device, options: DeviceOptions) -> bool:
    """Return whether programs for a device with these options accept and return arrays in CUDA's memory."""
    return device != CPU and choose({device.kind}, options.using).takes_cuda_arrays
