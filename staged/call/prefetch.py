"""`staged.loader`: the next batches are fetched in another thread while a program computes with this one."""

from __future__ import annotations

import atexit
import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextvars import Context, copy_context
from time import monotonic
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from staged.eager_mode.context import drawn
from staged.errors import ArgumentError, StagedError, article
from staged.frontend.calls.arguments import as_argument, staged_type
from staged.frontend.constructs.regions import checked_device
from staged.frontend.devices.device_options import device_options, takes_cuda_arrays
from staged.frontend.devices.resident import ResidentArray, ambient_device, ambient_options, find_kept, note_copies
from staged.frontend.trace.context import current_trace
from staged.frontend.values import trees
from staged.frontend.values.generator import default_of_thread
from staged.ir.types import CPU, Device
from staged.library.draws.philox import words
from staged.ops.context import context_or_none
from staged.runtime.cuda.arriving import Arrivals
from staged.source import here

T = TypeVar("T")


class Loader(Generic[T]):
    """The result of `loader`: an iterable that restarts from the beginning of its source in each loop."""

    def __init__(self, iterable: Iterable[T], ahead: int, device: Device | None = None) -> None:
        self.iterable = iterable
        self.ahead = ahead
        self.device = device
        """The device of the arrays; None for that of the region around the loop."""

    def __iter__(self) -> Iterator[T]:
        device = ambient_device() if self.device is None else self.device
        # Eager mode computes on the host, whatever is around; what a trace goes through becomes part of the program.
        if context_or_none() is not None or not takes_cuda_arrays(device, device_options(ambient_options())):
            device = CPU
        if device != CPU:
            note_copies(device)
        return _Ahead(self.iterable, self.ahead, device)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        device = "" if self.device is None else f", device={self.device}"
        return f"loader({self.iterable!r}, ahead={self.ahead}{device})"


def loader(iterable: Iterable[T], ahead: int = 2, device: Device | None = None) -> Loader[T]:
    """Iterate over `iterable` with up to `ahead` items fetched beforehand, in a thread of its own.

    Use it for data that Python reads or computes: a torch DataLoader, a generator, memory-mapped files. A program runs
    without the GIL, so the next batch is fetched meanwhile. Errors of the iterable are raised where the item would have
    come. Leaving the loop early ends the thread; items fetched from a generator by then are lost. Pieces of a
    memory-mapped file (`np.load(path, mmap_mode="r")[i:j]`) are read in the thread, and arrive as arrays in memory.
    Other arrays arrive as they are: an iterable that fills one array again and again has to yield copies.

    The thread sees the `with` blocks around the loop. Random numbers that the iterable draws by `st.random` come from
    the thread's generator, seeded from the caller's each time.

    In a `with_backend(GPU)` around the loop, or with `device=GPU`, the thread also copies each item to the device while
    the program computes: arrays of at least one axis arrive as `st.DeviceArray`, other leaves of the items unchanged.
    With `device=CPU` arrays stay on the host.

        for x, y in st.loader(batches()):
            loss = step(x, y)

    Raises: ArgumentError if `ahead` is not a positive integer or `iterable` is not iterable; StagingError if `device`
    is not a device.
    """
    if device is not None:
        checked_device(device, "loader")
    if not isinstance(ahead, int) or isinstance(ahead, bool) or ahead < 1:
        raise ArgumentError(f"loader takes `ahead` of 1 or more items, got {ahead!r}", where=here())
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise ArgumentError(
            f"loader takes what a `for` goes through, got {article(type(iterable).__name__)}", where=here()
        )
    return Loader(iterable, ahead, device)


class _Ahead(Iterator[T]):
    """One way through an iterable, with a thread ahead of it."""

    def __init__(self, iterable: Iterable[T], ahead: int, device: Device) -> None:
        self._items: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
        self._stop = threading.Event()
        self._ended = False
        # The thread's random numbers are others in every epoch, and the same in every run from the same seed.
        seed, counter = drawn(default_of_thread())
        own = int(words(seed, 1, counter, 1)[0])
        # A trace is this thread's: it must not record what another one does.
        around = copy_context() if current_trace() is None else Context()
        given = (_fetch, iterable, self._items, self._stop, own, device)
        thread = threading.Thread(target=around.run, args=given, name="staged-loader", daemon=True)
        weakref.finalize(self, _end, self._items, self._stop).atexit = False
        _threads[thread] = self._items, self._stop
        thread.start()

    def __next__(self) -> T:
        if self._ended:
            raise StopIteration
        kind, value = self._items.get()
        if kind == "item":
            item: T = value
            return item
        self._ended = True
        if kind == "error":
            raise value
        raise StopIteration


def _fetch(
    iterable: Iterable[Any], items: queue.Queue[tuple[str, Any]], stop: threading.Event, seed: int, device: Device
) -> None:
    """In the thread: put the items into the queue until they end or `stop` is set."""
    arrivals: Arrivals | None = None
    try:
        try:
            default_of_thread().start(seed)
            if device != CPU:
                arrivals = Arrivals(str(device))
            for item in iterable:
                items.put(("item", _read(item) if arrivals is None else _placed(item, device, arrivals)))
                if stop.is_set():
                    return
        finally:
            if arrivals is not None:
                arrivals.close()  # before the end is signalled: arrays that the loop has held on the device go with it
        items.put(("end", None))
    except BaseException as error:
        items.put(("error", error))


def _read(item: Any) -> Any:
    """An item with its arrays in memory: pages of mapped files are read here, in the thread."""
    leaves, spec = trees.flatten(item)
    if not any(isinstance(leaf, np.memmap) for leaf in leaves):
        return item
    return trees.unflatten(spec, [_in_memory(leaf) for leaf in leaves])


def _in_memory(leaf: Any) -> Any:
    return np.array(leaf) if isinstance(leaf, np.memmap) else leaf


def _placed(item: Any, device: Device, arrivals: Arrivals) -> Any:
    """An item whose arrays are on a device, or on their way there."""
    leaves, spec = trees.flatten(item)
    arrays: dict[int, np.ndarray[Any, Any]] = {}
    for place, leaf in enumerate(leaves):
        # Arrays that the region names are there already.
        kept = find_kept(leaf, device)
        array = _elements(leaf, device) if kept is None else None
        if kept is not None:
            leaves[place] = kept
        elif array is not None:
            arrays[place] = array
        else:
            leaves[place] = _in_memory(leaf)
    for (place, array), copy in zip(arrays.items(), arrivals.put(list(arrays.values())), strict=True):
        leaves[place] = ResidentArray(array.shape, array.dtype.newbyteorder("="), device, copy)
    return trees.unflatten(spec, leaves)


def _elements(leaf: Any, device: Device) -> np.ndarray[Any, Any] | None:
    """`leaf` as a host array, if programs accept it as an array that is not on `device` yet; otherwise None, and the
    call accepts it or raises an error.
    """
    try:
        array = leaf.numpy() if isinstance(leaf, ResidentArray) and leaf.device != device else as_argument(leaf)
        is_array = isinstance(array, np.ndarray) and array.ndim > 0 and staged_type(array) is not None
    except StagedError:
        return None
    return array if is_array else None


_threads: WeakKeyDictionary[threading.Thread, tuple[queue.Queue[tuple[str, Any]], threading.Event]] = (
    WeakKeyDictionary()
)
"""Those that may run."""

_SECONDS_TO_END = 2.0


@atexit.register
def _end_all() -> None:
    """Stop the threads before the interpreter exits: it would kill them inside C++ code, which treats that as a crash.

    A thread whose iterable does not return in time is left behind.
    """
    threads = [(thread, given) for thread, given in _threads.items() if thread.is_alive()]
    for _, given in threads:
        _end(*given)
    end = monotonic() + _SECONDS_TO_END
    for thread, _ in threads:
        thread.join(max(end - monotonic(), 0.0))


def _end(items: queue.Queue[tuple[str, Any]], stop: threading.Event) -> None:
    """Let the thread go: it may wait for room in the queue."""
    stop.set()
    while True:
        try:
            items.get_nowait()
        except queue.Empty:
            return
