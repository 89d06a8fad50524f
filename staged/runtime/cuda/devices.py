"""The GPUs of this machine, or why there is none."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from staged.errors import DependencyError, UnsupportedError

EMULATE = "emulate"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU: number, name, compute capability, memory in bytes."""

    index: int
    name: str
    capability: tuple[int, int]
    memory: int

    def __str__(self) -> str:
        major, minor = self.capability
        return f"{self.name} (compute capability {major}.{minor}, {self.memory / 1e9:.0f} GB)"


def is_emulated() -> bool:
    """Return whether `STAGED_CUDA=emulate` chooses the emulated device.

    Raises: UnsupportedError for another value of the variable.
    """
    chosen = os.environ.get("STAGED_CUDA", "")
    if chosen not in ("", EMULATE):
        raise UnsupportedError(
            f"STAGED_CUDA={chosen} means nothing",
            hint="STAGED_CUDA=emulate for the emulated device, else leave it unset",
        )
    return chosen == EMULATE


def gpu_count() -> tuple[int, str]:
    """(number of GPUs, reason if 0), from the CUDA runtime of the extra `cuda`. Never raises."""
    count, reason = _asked("cudaGetDeviceCount")
    return (int(count), "") if not reason else (0, reason)


def gpus() -> tuple[Gpu, ...]:
    """The GPUs in the CUDA runtime's order, or an empty list. Never raises."""
    count, _ = gpu_count()
    found = []
    for index in range(count):
        properties, reason = _asked("cudaGetDeviceProperties", index)
        if not reason:
            name = properties.name.decode(errors="replace").rstrip("\0")
            capability = (int(properties.major), int(properties.minor))
            found.append(Gpu(index, name, capability, int(properties.totalGlobalMem)))
    return tuple(found)


def driver_version() -> tuple[int, int] | None:
    """The newest CUDA version that the driver supports, such as (13, 0); None without a driver."""
    version, reason = _asked("cudaDriverGetVersion")
    return None if reason or not version else (int(version) // 1000, int(version) % 1000 // 10)


def needed_gpu(index: int = 0) -> Gpu:
    """The GPU of this number, in the CUDA runtime's order (`CUDA_VISIBLE_DEVICES` selects).

    Raises: DependencyError with the CUDA runtime's reason if it is missing.
    """
    found = gpus()
    if index < len(found):
        return found[index]
    if found:
        raise DependencyError(
            f"the program runs on GPU({index}), and this machine has {len(found)} GPU{'s' if len(found) > 1 else ''}",
            hint="use `GPU`, the first one",
        )
    _, reason = gpu_count()
    raise DependencyError(
        "the program has a GPU region, and no GPU was found",
        details=[in_words(reason)],
        hint="set STAGED_CUDA=emulate to run it on the emulated device, or take the GPU region out",
    )


def in_words(reason: str) -> str:
    """A readable reason why there is no GPU, with a remedy."""
    if reason == "cudaErrorInsufficientDriver":
        return "the CUDA runtime finds no driver, or one that is too old: CUDA 13 needs NVIDIA's driver 580 or later"
    if reason.startswith("ModuleNotFoundError"):
        return f'CUDA for Python is not installed ({reason}): pip install ".[cuda]" in the clone'
    return f"the CUDA runtime says: {reason}"


def _asked(function: str, *arguments: Any) -> tuple[Any, str]:
    """(result of a function of the CUDA runtime, reason if there is none)."""
    try:
        from cuda.bindings import runtime  # only here: importing it takes a tenth of a second

        error, *answer = getattr(runtime, function)(*arguments)
    except (ImportError, RuntimeError) as failure:  # not installed, or its library is not found
        return None, f"{type(failure).__name__}: {failure}"
    return (answer[0], "") if int(error) == 0 else (None, str(error.name))
