"""Copies of arrays to a device that overlap its work: through pinned memory, on a stream of their own.

    a thread of the host:  fill pinned memory, start the copies, record an event | the next arrays ...
    its stream:            .....................................  ==copies==> event
    a program's stream:    work on the arrays before ............  wait for the event, work on these

Copies from pageable memory may be delayed by the driver and block the host. There are two pieces of pinned memory, each
as large as the largest set of arrays so far: one is filled while the other is being copied. Memory on the device is
reused once its array is unreferenced.
"""

from __future__ import annotations

import os
import weakref
from bisect import bisect_left, insort
from collections.abc import Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from staged.errors import ProgramMemoryError
from staged.runtime.cuda.interface import Runtime, current_runtime
from staged.runtime.cuda.resident import TO_DEVICE, DeviceCopy, Uses, check_status, choose_device
from staged.runtime.guard import ffi

_ALIGNMENT = 256
_NON_BLOCKING = 1  # cudaStreamNonBlocking
_EVENT_FLAGS = 1 | 2  # cudaEventBlockingSync, cudaEventDisableTiming: who waits for it sleeps
_NOT_READY = 600  # cudaErrorNotReady


class Arrival:
    """An event after the copies of some arrays; it is destroyed when it is unreferenced."""

    is_of_call = False
    """True for the end of a call's work."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        place = ffi.new("void **")
        make = runtime.function("cudaEventCreateWithFlags", "int (*)(void **, unsigned)")
        check_status(runtime, make(place, _EVENT_FLAGS), "cudaEventCreateWithFlags")
        self.event = place[0]
        weakref.finalize(self, _give_back, runtime, "cudaEventDestroy", self.event, os.getpid()).atexit = False

    def record(self, stream: Any) -> None:
        """Record the event behind all work that `stream` has received so far."""
        record = self._runtime.function("cudaEventRecord", "int (*)(void *, void *)")
        check_status(self._runtime, record(self.event, stream), "cudaEventRecord")

    def hold(self, stream: Any) -> None:
        """Let the later work of `stream` wait for the event."""
        wait = self._runtime.function("cudaStreamWaitEvent", "int (*)(void *, void *, unsigned)")
        check_status(self._runtime, wait(stream, self.event, 0), "cudaStreamWaitEvent")

    def is_over(self) -> bool:
        """Return whether it has come, without waiting for it."""
        status = self._runtime.function("cudaEventQuery", "int (*)(void *)")(self.event)
        if status == _NOT_READY:
            _forget_error(self._runtime)
            return False
        check_status(self._runtime, status, "cudaEventQuery")
        return True

    def wait(self) -> None:
        """Let the host wait for it, if it is still to come."""
        if self.is_over():
            return
        wait = self._runtime.function("cudaEventSynchronize", "int (*)(void *)")
        check_status(self._runtime, wait(self.event), "cudaEventSynchronize")


class PlacedCopy(DeviceCopy):
    """The elements of one array that is made on a device, or copied there, in reusable memory. They never change."""

    def __init__(self, places: Places, nbytes: int) -> None:
        self._begin(places.runtime, places.device, nbytes)
        self.is_current = True
        capacity, self.address, self.uses = places.take(nbytes)
        self._host: np.ndarray[Any, Any] | None = None
        weakref.finalize(self, places.give_back, capacity, self.address, self.uses, os.getpid()).atexit = False

    def elements(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The elements on the host, read-only; they are copied once.

        Raises: the error of the call that made them, or of an earlier call that has failed.
        """
        if self._host is None:
            self.check()
            host = np.empty(shape, dtype)
            self.fetch(host)
            self.check()
            self.keep(host)
        assert self._host is not None
        return self._host.reshape(shape)

    def keep(self, host: np.ndarray[Any, Any]) -> None:
        """Note the elements as an array of the host."""
        host.flags.writeable = False
        self._host = host

    @property
    def is_read(self) -> bool:
        """Return whether the host has the elements."""
        return self._host is not None

    def check(self) -> None:
        """Raise the error that makes the elements void, if Python was told of it."""
        if self.written_by is not None and self.written_by.is_of_call:
            self.written_by.check()


class Arrivals:
    """A copier of arrays to a device. One thread uses and closes it.

    Raises: DependencyError without a device; ProgramError or ProgramMemoryError if CUDA reports an error.
    """

    def __init__(self, device: str) -> None:
        self._runtime = current_runtime()
        self._device = device
        choose_device(self._runtime, device)
        self._places = Places(self._runtime, device, "a batch of `st.loader`", _FEWER)
        self._pieces = [Pinned(self._runtime, "a batch of `st.loader`", _FEWER) for _ in range(2)]
        place = ffi.new("void **")
        self._call("cudaStreamCreateWithFlags", "int (*)(void **, unsigned)", place, _NON_BLOCKING)
        self._stream: Any = place[0]

    def put(self, arrays: Sequence[np.ndarray[Any, Any]]) -> list[PlacedCopy]:
        """Start the copies of some arrays. The arrays may be changed after this returns.

        Exact: elements are copied in C order and in the machine's byte order. A piece of pinned memory is rewritten
        only after the copies out of it have finished. Device memory is reused only when unreferenced: copies to it wait
        for the calls that used it, and later copies follow on the same stream.
        """
        choose_device(self._runtime, self._device)  # what the thread does between the arrays may have chosen another
        piece = self._pieces.pop(0)
        self._pieces.append(piece)
        offsets, end = [], 0
        for array in arrays:
            offsets.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        piece.reserve(end)
        for array, offset in zip(arrays, offsets, strict=True):
            np.copyto(piece.part(offset, array), array, casting="equiv")
        arrival = Arrival(self._runtime)
        copies = [PlacedCopy(self._places, array.nbytes) for array in arrays]
        type = "int (*)(void *, const void *, size_t, int, void *)"
        for copy, offset in zip(copies, offsets, strict=True):
            if copy.arrival is not None:
                copy.arrival.hold(self._stream)
            if copy.nbytes:
                self._call(
                    "cudaMemcpyAsync", type, copy.address, piece.address + offset, copy.nbytes, TO_DEVICE, self._stream
                )
        arrival.record(self._stream)
        for copy in copies:
            copy.arrival = copy.written_by = arrival
        piece.last = arrival
        return copies

    def close(self) -> None:
        """Wait for running copies, then free the stream and the pinned memory. Arrays on the device stay."""
        if self._stream is None:
            return
        stream, self._stream = self._stream, None
        # Nothing can be told of an error here; what refuses to work has said so before.
        self._runtime.function("cudaStreamSynchronize", "int (*)(void *)")(stream)
        self._runtime.function("cudaStreamDestroy", "int (*)(void *)")(stream)
        for piece in self._pieces:
            piece.free()
        self._places.close()

    def _call(self, name: str, type: str, *arguments: Any) -> None:
        check_status(self._runtime, self._runtime.function(name, type)(*arguments), name)


def capacity_for(nbytes: int) -> int:
    """The bytes of the place that an array gets: at most a quarter more, so that arrays of similar sizes have places of
    one size.
    """
    if nbytes <= _ALIGNMENT:
        return _ALIGNMENT
    step = max(1 << ((nbytes - 1).bit_length() - 3), _ALIGNMENT)
    return -(-nbytes // step) * step


class Pinned:
    """A piece of pinned memory, which grows."""

    def __init__(self, runtime: Runtime, what: str, hint: str) -> None:
        self._runtime = runtime
        self._words = what, hint
        self.address: Any = ffi.NULL
        self.capacity = 0
        self.last: Arrival | None = None
        """The end of the last copies out of this piece."""

    def reserve(self, nbytes: int) -> None:
        """Wait until the memory may be overwritten, and enlarge it if necessary."""
        if self.last is not None:
            self.last.wait()
            self.last = None
        if nbytes > self.capacity:
            self.free()
            place = ffi.new("void **")
            status = self._runtime.function("cudaMallocHost", "int (*)(void **, size_t)")(place, nbytes)
            check_room(self._runtime, status, f"cudaMallocHost of {nbytes:,} bytes", "in pinned memory", *self._words)
            self.address, self.capacity = ffi.cast("char *", place[0]), nbytes

    def part(self, offset: int, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """The memory from `offset` on as an array of the same shape, in C's order and the machine's byte order."""
        dtype = array.dtype.newbyteorder("=")
        if not array.nbytes:
            return np.empty(array.shape, dtype)
        return np.frombuffer(ffi.buffer(self.address + offset, array.nbytes), dtype).reshape(array.shape)

    def free(self) -> None:
        """Give the memory back; nothing is copied out of it any more."""
        self.last = None
        if self.capacity:
            self._runtime.function("cudaFreeHost", "int (*)(void *)")(self.address)
            self.address, self.capacity = ffi.NULL, 0


class Places:
    """Reusable memory on a device. One thread takes pieces; any thread returns them, even after `close`.

    `what` and `hint` are the words of an error if the device is full.
    """

    def __init__(self, runtime: Runtime, device: str, what: str, hint: str) -> None:
        self.runtime = runtime
        self.device = device
        self._words = what, hint
        self._uses: dict[int, Uses] = {}
        """By address of an idle piece, its last use."""
        self._idle: list[tuple[int, int]] = []
        """(capacity, address) of each idle piece, sorted; used by the taking thread only."""
        self._returned: SimpleQueue[tuple[int, int, Uses]] = SimpleQueue()  # its `put` may interrupt anything
        self._is_closed = False

    def take(self, needed: int) -> tuple[int, Any, Uses]:
        """The bytes of a place of so many or more, its address, and its last use. Raises ProgramMemoryError."""
        for size, address, uses in self._drained():
            insort(self._idle, (size, address))
            self._uses[address] = uses
        capacity = capacity_for(needed)
        at = bisect_left(self._idle, (capacity, 0))
        # One of up to twice the size will do, or batches of many sizes would have places of each; larger ones are for
        # larger arrays.
        if at < len(self._idle) and self._idle[at][0] <= 2 * capacity:
            capacity, address = self._idle.pop(at)
            return capacity, ffi.cast("void *", address), self._uses.pop(address)
        place = ffi.new("void **")
        allocate = self.runtime.function("cudaMalloc", "int (*)(void **, size_t)")
        if allocate(place, capacity):
            _forget_error(self.runtime)
            self._free_idle()  # places of other sizes may be what takes the room
            status, call = allocate(place, capacity), f"cudaMalloc of {capacity:,} bytes"
            check_room(self.runtime, status, call, f"on the {self.device.upper()}", *self._words)
        return capacity, place[0], Uses()

    def give_back(self, capacity: int, address: Any, uses: Uses, process: int) -> None:
        """Return a piece that is unreferenced."""
        if os.getpid() == process:
            self._returned.put((capacity, int(ffi.cast("uintptr_t", address)), uses))
            if self._is_closed:  # else `close` is still to come, and finds it
                self._free_returned()

    def close(self) -> None:
        """Free the idle pieces. Pieces in use are freed when they are returned."""
        self._free_idle()
        self._is_closed = True
        self._free_returned()

    def _drained(self) -> list[tuple[int, int, Uses]]:
        found = []
        try:
            while True:
                found.append(self._returned.get_nowait())
        except Empty:
            return found

    def _free_idle(self) -> None:
        for _, address in self._idle:
            _free(self.runtime, address)
        self._idle.clear()
        self._uses.clear()

    def _free_returned(self) -> None:
        for _, address, _ in self._drained():
            _free(self.runtime, address)


_FEWER = "smaller batches, or fewer of them beforehand: `st.loader(batches, ahead=1)`"


def check_room(runtime: Runtime, status: int, call: str, where: str, what: str, hint: str) -> None:
    """Raise ProgramError if a call returned an error, ProgramMemoryError if the memory for `what` is too small."""
    try:
        check_status(runtime, status, call)
    except ProgramMemoryError as error:
        raise ProgramMemoryError(
            f"no room for {what} {where}: {error.message}",
            hint=hint,
        ) from None


def _forget_error(runtime: Runtime) -> None:
    """Clear CUDA's last error, which has been handled, so that later calls of this thread do not report it."""
    runtime.function("cudaGetLastError", "int (*)(void)")()


def _free(runtime: Runtime, address: int) -> None:
    # CUDA waits for the device before it frees: pending work on the memory ends first.
    runtime.function("cudaFree", "int (*)(void *)")(ffi.cast("void *", address))


def _give_back(runtime: Runtime, function: str, handle: Any, process: int) -> None:
    if os.getpid() == process:
        runtime.function(function, "int (*)(void *)")(handle)  # nothing can be told of an error
