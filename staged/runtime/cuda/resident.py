"""Arrays that stay on a device between calls of programs: their memory, and the copies between it and the host's."""

from __future__ import annotations

import os
import re
import weakref
from typing import Any

import numpy as np

from staged.errors import ProgramError, ProgramMemoryError
from staged.runtime.cuda.interface import Runtime, current_runtime
from staged.runtime.guard import ffi

_OUT_OF_MEMORY = 2  # cudaErrorMemoryAllocation
TO_DEVICE, _TO_HOST, _BETWEEN_DEVICES = 1, 2, 3  # cudaMemcpyHostToDevice, ...DeviceToHost, ...DeviceToDevice


_stops = 0


def note_stop() -> None:
    """A program with kernels has stopped with an error: it may leave work on its stream, for which other copies then
    wait.
    """
    global _stops
    _stops += 1


def check_status(runtime: Runtime, status: int, call: str) -> None:
    """Raise ProgramError, or ProgramMemoryError, if `call` returned an error status."""
    if status:
        words = ffi.string(runtime.function("cudaGetErrorString", "const char *(*)(int)")(status)).decode(
            errors="replace"
        )
        error = ProgramMemoryError if status == _OUT_OF_MEMORY else ProgramError
        raise error(f"{call}: {words}")


def choose_device(runtime: Runtime, device: str) -> None:
    """Set the device of this thread's following CUDA calls: `gpu` or `gpu(1)`."""
    number = int((re.findall(r"\d+", device) or ["0"])[0])
    check_status(runtime, runtime.function("cudaSetDevice", "int (*)(int)")(number), f"cudaSetDevice({number})")


def _free(runtime: Runtime, address: Any, process: int) -> None:
    if os.getpid() == process:
        runtime.function("cudaFree", "int (*)(void *)")(address)  # too late to report an error


class Uses:
    """The last use of some memory on a device."""

    __slots__ = ("last",)

    def __init__(self) -> None:
        self.last: Any = None
        """The event after it; None if it is over."""


class DeviceCopy:
    """The elements of one array on a device, in memory that is allocated here and freed when the object is
    unreferenced.

    It and the host's array are two copies of one value: `update` and `fetch` copy in one direction if that side is
    outdated, and do nothing otherwise.
    Raises: ProgramMemoryError if the device has no room; DependencyError without a device.
    """

    def __init__(self, device: str, nbytes: int) -> None:
        self._begin(current_runtime(), device, nbytes)
        choose_device(self._runtime, device)
        place = ffi.new("void **")
        status = self._runtime.function("cudaMalloc", "int (*)(void **, size_t)")(place, max(nbytes, 1))
        check_status(self._runtime, status, f"cudaMalloc of {nbytes:,} bytes")
        self.address = place[0]
        weakref.finalize(self, _free, self._runtime, self.address, os.getpid()).atexit = False

    def _begin(self, runtime: Runtime, device: str, nbytes: int) -> None:
        """The state of elements that are nowhere yet."""
        self.device = device
        self.nbytes = nbytes
        self.uses = Uses()
        self.written_by: Any = None
        """The event after the last write of the elements: an `Arrival`, of a call a `Departure`. None if it is over."""
        self.is_current = False
        """True if the elements are the host's, or newer."""
        self.is_ahead = False
        """True if they are newer."""
        self._stops = _stops
        self._runtime = runtime

    @property
    def arrival(self) -> Any:
        """The event after which the elements may be used and overwritten (`arrival.event`, CUDA's): the end of a
        running copy to the device, or of the last call that uses them. None without one.
        """
        return self.uses.last

    @arrival.setter
    def arrival(self, value: Any) -> None:
        self.uses.last = value

    def update(self, host: np.ndarray[Any, Any]) -> None:
        """Copy the elements from the host, unless they are there."""
        if not self.is_current:
            self._copy(self.address, ffi.from_buffer(np.ascontiguousarray(host)), TO_DEVICE)
            self.is_current, self.is_ahead = True, False

    def fetch(self, host: np.ndarray[Any, Any]) -> None:
        """Copy the elements to the host's array. Raises: the error of a call that has failed since."""
        if self.written_by is not None and self.written_by.is_of_call:
            calls = self.written_by.calls
            calls.read([(self, host)], self.written_by.number)
            calls.tell(self.written_by.number)
        else:
            self._copy(ffi.from_buffer(host), self.address, _TO_HOST)
        self.is_ahead = False

    def start_fetch(self, host: np.ndarray[Any, Any]) -> None:
        """Start the copy to the host on the null stream, which waits for the last write."""
        self._settle()
        if self.nbytes:
            type = "int (*)(void *, const void *, size_t, int, void *)"
            self._call("cudaMemcpyAsync", type, ffi.from_buffer(host), self.address, self.nbytes, _TO_HOST, ffi.NULL)

    def take(self, other: Any) -> None:
        """Copy the elements from another device, through the host if that one is of another runtime."""
        if not isinstance(other, DeviceCopy):
            host = np.empty(self.nbytes, np.uint8)
            other.fetch(host)
            self._copy(self.address, ffi.from_buffer(host), TO_DEVICE)
            self.written()
            return
        other._settle()
        if other.arrival is not None:
            other.arrival.wait()
        self._copy(self.address, other.address, _BETWEEN_DEVICES)
        self.written()

    def take_from(self, address: Any) -> None:
        """Let the device copy the elements from one of its addresses, after the work of the null stream.

        Returns before that is done: work on other streams waits for an event that is recorded afterwards.
        """
        copy = self._runtime.function("cudaMemcpyAsync", "int (*)(void *, const void *, size_t, int, void *)")
        status = copy(self.address, address, self.nbytes, _BETWEEN_DEVICES, ffi.NULL)
        check_status(self._runtime, status, f"cudaMemcpyAsync of {self.nbytes:,} bytes")
        self.written()

    def outdate(self) -> None:
        """The host's array has changed."""
        self.is_current = self.is_ahead = False

    def written(self) -> None:
        """A program writes the elements on the device."""
        self.is_current = self.is_ahead = True

    def _copy(self, target: Any, source: Any, kind: int) -> None:
        if not self.nbytes:
            return
        choose_device(self._runtime, self.device)
        self._settle()
        if self.arrival is not None:
            self.arrival.wait()
        copy = self._runtime.function("cudaMemcpy", "int (*)(void *, const void *, size_t, int)")
        check_status(self._runtime, copy(target, source, self.nbytes, kind), f"cudaMemcpy of {self.nbytes:,} bytes")
        if kind != _TO_HOST:
            # Such a copy may still be under way, on the null stream, for which a program's own stream does not wait.
            self._call("cudaStreamSynchronize", "int (*)(void *)", ffi.NULL)

    def _settle(self) -> None:
        """Wait for work that a stopped program may have left on its own stream.

        Only then: waiting for a device fails while another thread captures one of its streams.
        """
        if self._stops != _stops:
            self._stops = _stops
            choose_device(self._runtime, self.device)
            self._call("cudaDeviceSynchronize", "int (*)(void)")

    def _call(self, name: str, type: str, *arguments: Any) -> None:
        check_status(self._runtime, self._runtime.function(name, type)(*arguments), name)

    def __repr__(self) -> str:
        return f"<{self.nbytes:,} bytes on {self.device}>"
