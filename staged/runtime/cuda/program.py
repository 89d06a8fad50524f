"""A loaded program with kernels: the differences from one that runs on the host alone."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from staged.errors import ProgramError
from staged.runtime.cuda.borrowed import BorrowedPlace
from staged.runtime.cuda.departures import Departures
from staged.runtime.cuda.resident import DeviceCopy, note_stop
from staged.runtime.guard import APART_MODE, ffi
from staged.runtime.native import NativeProgram
from staged.source import Position, excerpt

# The words of a kernel that went astray, in this call or in an earlier one: CUDA repeats them from then on.
_LOST = re.compile(
    r"illegal memory access|unspecified launch failure|misaligned address|illegal instruction|stack error"
)
_HINT_OF_LOST = (
    "CUDA can do nothing more in this process, so start it anew; `compute-sanitizer python ...` names the kernel and "
    "the "
    "address that went astray, and so does STAGED_CUDA=emulate"
)


class CudaProgram(NativeProgram):
    """A program with kernels, called like one without."""

    load_mode = APART_MODE
    may_be_short = False

    def finish_devices(self) -> None:
        """Wait for the devices."""
        note_stop()
        choose, finish = self.library.symbol("cudaSetDevice"), self.library.symbol("cudaDeviceSynchronize")
        if choose != ffi.NULL and finish != ffi.NULL:
            for number in self.artifact.gpus:
                if ffi.cast("int (*)(int)", choose)(number) == 0:
                    ffi.cast("int (*)(void)", finish)()  # the program has reported the error

    @property
    def device(self) -> str:
        """The device of a program that departs: it has one alone."""
        (number,) = self.artifact.gpus
        return f"gpu({number})" if number else "gpu"

    def depart(self, values: Sequence[Any], departures: Departures, where: Position | None) -> tuple[Any, ...]:
        """Run with results that stay on a device, in a call at `where`, which `departures` notes."""
        return self._run(values, departures, where)

    def explained(self, report: Any, where: Position | None) -> ProgramError | None:
        """The error in the report of a call at `where` that has departed; None if no kernel failed."""
        host = ffi.new("st_host *")
        explain = ffi.cast("int (*)(const void *, st_host *)", self.library.symbol(f"{self.artifact.name}_explain"))
        status = explain(report, host)
        if not status:
            return None
        call = [] if where is None else [f"in this call of `{self.artifact.name}`, whose work was still under way:"]
        return self.error_of(status, host, [*call, *([] if where is None else [excerpt(where)])])

    def hint_of(self, status: int, message: str) -> str | None:
        """A remedy for the error that stopped the program."""
        return _HINT_OF_LOST if _LOST.search(message) else super().hint_of(status, message)

    def memory_of(self, device: str) -> str:
        """CUDA's memory has the device's name."""
        return device

    def place_on(self, device: str, nbytes: int) -> DeviceCopy:
        """New memory there for an array. Raises: ProgramMemoryError if the device has no room."""
        return DeviceCopy(device, nbytes)

    def borrowed(
        self, device: str, address: int, nbytes: int, stream: int | None, alignment: int, owner: Any
    ) -> BorrowedPlace:
        """Another library's array on the device, to be read after the work of `stream`. `owner` keeps it alive.

        Raises: ProgramMemoryError if a copy of a misaligned array does not fit on the device.
        """
        return BorrowedPlace(device, address, nbytes, stream, alignment, owner)
