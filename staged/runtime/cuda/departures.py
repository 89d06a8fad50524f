"""Calls of programs that return before their work on a device is over: their order, their memory, and their errors.

    a call:  arrays of the host to pinned memory | its stream waits for the arrays it uses | work | departure | return
    a read:  wait for the departure of the call that made the value | copy | look at the reports of all calls up to it

Each program has its own stream. A departure is an event after the work of one call. Every array on a device knows the
event after its last use, and the next call that uses the array, or its memory, waits for this event on the device.
A kernel that fails writes a report. When the host learns of it, the calls made since then are void, too: Python would
not have made them if the error had come at once.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from threading import RLock
from typing import Any, Protocol
from weakref import WeakSet

import numpy as np

from staged.base.artifact import REPORT_BYTES
from staged.errors import ProgramError
from staged.runtime.cuda.arriving import Arrival, Pinned, PlacedCopy, Places, capacity_for
from staged.runtime.cuda.interface import Runtime, current_runtime
from staged.runtime.cuda.resident import TO_DEVICE, DeviceCopy, check_status, choose_device
from staged.runtime.guard import ffi
from staged.source import Position

MOST_CALLS = 1000
"""Calls whose work may be unfinished: the next one waits for half of them."""
MOST_STAGED = 64 << 20
"""In bytes: larger arrays of the host are copied directly, and the host waits for these copies."""
_MOST_PIECES = 16
_PAGE = 4096
_HINT = "arrays stay there while they are referenced: `del` those that are not needed"


class Explained(Protocol):
    """A program that departs."""

    def explained(self, report: Any, where: Position | None) -> ProgramError | None:
        """The error in a report of a call at `where`; None if no kernel failed."""


class Departure(Arrival):
    """The end of a call's work on a device."""

    is_of_call = True

    def __init__(
        self, calls: Departures, runtime: Runtime, device: str, program: Explained, where: Position | None
    ) -> None:
        super().__init__(runtime)
        self.calls = calls
        self.device = device
        self.program: Explained | None = program
        self.where = where
        self.number = 0
        """The place among the calls."""
        self.report: Any = ffi.NULL
        """The memory for the failure of a kernel; NULL if no kernel of the program can fail."""

    def check(self) -> None:
        """Raise the error that makes the results of this call void, if Python was told of it."""
        self.calls.check(self.number)


@dataclass
class _Failure:
    """A call that has failed. Its results are void, and those of the calls that were made before Python was told."""

    first: int
    error: ProgramError
    last: int | None = None
    """The last of these calls; None until the error is raised."""

    def again(self) -> ProgramError:
        """The error, another object each time: one that was raised holds the frames that it has left."""
        error = self.error
        return type(error)(error.message, where=error.where, details=error.details, hint=error.hint)

    def covers(self, number: int) -> bool:
        """Return whether the results of a call are void."""
        return self.first <= number and (self.last is None or number <= self.last)


class RemoteResult(PlacedCopy):
    """A result of a call that departs."""

    def __init__(self, places: Places, shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        super().__init__(places, math.prod(shape) * dtype.itemsize)
        self.shape = shape
        self.dtype = dtype


class Departures:
    """The calls of a region in plain Python, from its begin to its end. Several threads may make them."""

    def __init__(self) -> None:
        self._runtime = current_runtime()
        self._lock = RLock()
        self._pending: deque[Departure] = deque()
        self._failures: list[_Failure] = []
        self._made = 0
        self._places: dict[str, Places] = {}
        self._pieces: list[Pinned] = []
        self._pages: list[Pinned] = []
        self._reports: list[Any] = []
        """Reports that no call uses."""
        self._results: WeakSet[RemoteResult] = WeakSet()

    # ---- a call ----

    def advance(self) -> None:
        """Forget the calls that are over, before another one.

        It raises no error, or the call that raises it would depend on the speed of the device.
        """
        with self._lock:
            while self._pending and self._pending[0].is_over():
                self._note_over([self._pending[0]])
            if len(self._pending) >= MOST_CALLS:
                self.read([], self._pending[MOST_CALLS // 2].number)

    def begin(self, program: Explained, device: str, explains: bool, where: Position | None) -> Departure:
        """The departure of a new call."""
        with self._lock:
            choose_device(self._runtime, device)
            departure = Departure(self, self._runtime, device, program, where)
            if explains:
                departure.report = self._new_report()
            return departure

    def result(self, device: str, shape: tuple[int, ...], dtype: np.dtype[Any]) -> RemoteResult:
        """Memory for a result. Raises: ProgramMemoryError if the device is full."""
        with self._lock:
            choose_device(self._runtime, device)
            places = self._places.get(device)
            if places is None:
                places = self._places[device] = Places(self._runtime, device, "a result", _HINT)
            return RemoteResult(places, shape, dtype)

    def staged(self, arrays: Sequence[np.ndarray[Any, Any]]) -> tuple[Pinned, list[Any]]:
        """A piece of pinned memory with the elements of some arrays, and their addresses in it: the caller may change
        the arrays while a program that has returned still copies them. Give the piece to `depart` or `cancel`.
        """
        offsets, end = [], 0
        for array in arrays:
            offsets.append(end)
            end += -(-array.nbytes // 256) * 256
        with self._lock:
            piece = self._taken_piece(end)
        for array, offset in zip(arrays, offsets, strict=True):
            np.copyto(piece.part(offset, array), array, casting="equiv")
        return piece, [piece.address + offset for offset in offsets]

    def depart(
        self, departure: Departure, piece: Pinned | None, read: Sequence[Any], written: Sequence[DeviceCopy]
    ) -> None:
        """The program of a call has returned: what it reads and writes may be used by others after the departure."""
        with self._lock:
            self._made += 1
            departure.number = self._made
            self._pending.append(departure)
            for copy in (*read, *written):
                if isinstance(copy, DeviceCopy):
                    copy.arrival = departure
            for copy in written:
                copy.written_by = departure
            self.keep(written)
            if piece is not None:
                piece.last = departure
                self._pieces.append(piece)

    def keep(self, written: Sequence[DeviceCopy]) -> None:
        """Note results that stay on a device: the end of the region copies them to the host."""
        with self._lock:
            self._results.update(each for each in written if isinstance(each, RemoteResult))

    def cancel(self, departure: Departure, piece: Pinned | None) -> None:
        """The program has stopped with an error, and its work is over."""
        with self._lock:
            self._free_report(departure)
            if piece is not None:
                self._pieces.append(piece)

    def upload(self, copy: Any, host: np.ndarray[Any, Any]) -> None:
        """Copy the elements of an array that stays on a device there, unless they are: the host does not wait, and may
        change the array.
        """
        if copy.is_current or not isinstance(copy, DeviceCopy) or not 0 < copy.nbytes <= MOST_STAGED:
            copy.update(host)
            return
        piece, (source,) = self.staged([host])
        with self._lock:
            choose_device(self._runtime, copy.device)
            if copy.arrival is not None:
                copy.arrival.hold(ffi.NULL)
            type = "int (*)(void *, const void *, size_t, int, void *)"
            self._call("cudaMemcpyAsync", type, copy.address, source, copy.nbytes, TO_DEVICE, ffi.NULL)
            arrival = Arrival(self._runtime)
            arrival.record(ffi.NULL)
            copy.arrival = copy.written_by = piece.last = arrival
            copy.is_current, copy.is_ahead = True, False
            self._pieces.append(piece)

    # ---- what the host learns ----

    def read(self, copies: Sequence[tuple[DeviceCopy, np.ndarray[Any, Any]]], until: int) -> None:
        """Copy elements to the host after the calls up to number `until`, and look at the reports of these calls. The
        host waits once for each device.
        """
        with self._lock:
            over = [each for each in self._pending if each.number <= until]
            for device in dict.fromkeys([each.device for each in over] + [copy.device for copy, _ in copies]):
                choose_device(self._runtime, device)
                for each in over:
                    if each.device == device:
                        each.hold(ffi.NULL)
                for copy, host in copies:
                    if copy.device == device:
                        copy.start_fetch(host)
                self._call("cudaStreamSynchronize", "int (*)(void *)", ffi.NULL)
            self._note_over(over)

    def tell(self, until: int) -> None:
        """Raise the error of a call up to number `until`, if Python was not told of it."""
        with self._lock:
            for failure in self._failures:
                if failure.last is None and failure.first <= until:
                    failure.last = self._made
                    raise failure.again()

    def check(self, number: int) -> None:
        """Raise the error that makes the results of a call void, if Python was told of it."""
        for failure in self._failures:
            if failure.last is not None and failure.covers(number):
                raise failure.again()

    def settle(self) -> None:
        """Wait for all calls. Raises: the error of a call that Python was not told of."""
        if self._pending:
            self.read([], self._made)
        self.tell(self._made)

    def end(self) -> None:
        """Wait for all calls, copy the results that are still referenced to the host, and free the unused
        memory. Raises: the error of a call that Python was not told of.
        """
        with self._lock:
            unread = [(each, np.empty(each.shape, each.dtype)) for each in self._results if not each.is_read]
            self.read(unread, self._made)
            for copy, host in unread:
                number = 0 if copy.written_by is None else copy.written_by.number
                if not any(each.covers(number) for each in self._failures):
                    copy.keep(host)
            for piece in (*self._pieces, *self._pages):
                piece.free()
            for places in self._places.values():
                places.close()
            self._pieces, self._pages, self._reports, self._places = [], [], [], {}
        self.tell(self._made)

    def _note_over(self, calls: Sequence[Departure]) -> None:
        for each in calls:
            self._pending.remove(each)
            program, each.program = each.program, None  # its memory goes with it
            if program is None or each.report == ffi.NULL:
                continue
            is_void = any(known.covers(each.number) for known in self._failures)
            error = None if is_void else program.explained(each.report, each.where)
            if error is not None:
                self._failures.append(_Failure(each.number, error))
            self._free_report(each)

    # ---- memory ----

    def _taken_piece(self, nbytes: int) -> Pinned:
        """Pinned memory that no copy reads any more. It is not among the pieces until it is given back."""
        for piece in self._pieces:
            if piece.capacity >= nbytes and (piece.last is None or piece.last.is_over()):
                self._pieces.remove(piece)
                break
        else:
            full = len(self._pieces) >= _MOST_PIECES
            piece = self._pieces.pop(0) if full else Pinned(self._runtime, "arrays on their way to the GPU", _HINT)
        piece.reserve(capacity_for(nbytes))
        return piece

    def _new_report(self) -> Any:
        if not self._reports:
            page = Pinned(self._runtime, "reports of calls", _HINT)
            page.reserve(_PAGE)
            self._pages.append(page)
            self._reports += [page.address + offset for offset in range(0, _PAGE, REPORT_BYTES)]
        report = self._reports.pop()
        ffi.memmove(report, bytes(REPORT_BYTES), REPORT_BYTES)
        return report

    def _free_report(self, departure: Departure) -> None:
        if departure.report != ffi.NULL:
            self._reports.append(departure.report)
            departure.report = ffi.NULL

    def _call(self, name: str, type: str, *arguments: Any) -> None:
        check_status(self._runtime, self._runtime.function(name, type)(*arguments), name)
