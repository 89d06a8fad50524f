"""A loaded program with kernels: the differences from one that runs on the host alone."""

from __future__ import annotations

import re
from typing import Any

from staged.runtime.cuda.borrowed import BorrowedPlace
from staged.runtime.cuda.resident import DeviceCopy, note_stop
from staged.runtime.guard import APART_MODE, ffi
from staged.runtime.native import NativeProgram

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
        choose, finish = self._library.symbol("cudaSetDevice"), self._library.symbol("cudaDeviceSynchronize")
        if choose != ffi.NULL and finish != ffi.NULL:
            for number in self.artifact.gpus:
                if ffi.cast("int (*)(int)", choose)(number) == 0:
                    ffi.cast("int (*)(void)", finish)()  # the program has reported the error

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
