"""`staged.loader`: the next batches are fetched in another thread while a program computes with this one."""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Iterable, Iterator
from contextvars import Context, copy_context
from typing import Any, Generic, TypeVar

import numpy as np

from staged.eager import drawn
from staged.errors import ArgumentError
from staged.frontend import trees
from staged.frontend.generator import default_of_thread
from staged.frontend.tracing import current_trace
from staged.ops.random import words
from staged.source import here

T = TypeVar("T")


class Loader(Generic[T]):
    """What `loader` gives: to be gone through any number of times, each from the beginning of its iterable."""

    def __init__(self, iterable: Iterable[T], ahead: int) -> None:
        self.iterable = iterable
        self.ahead = ahead

    def __iter__(self) -> Iterator[T]:
        return _Ahead(self.iterable, self.ahead)

    def __len__(self) -> int:
        return len(self.iterable)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        return f"loader({self.iterable!r}, ahead={self.ahead})"


def loader(iterable: Iterable[T], ahead: int = 2) -> Loader[T]:
    """Go through `iterable` with up to `ahead` items fetched beforehand, in a thread of its own.

    It is for data that Python reads or makes: a torch DataLoader, a generator, files mapped into memory. A program runs without
    Python's lock, so that fetching the next batch takes no time of it. Errors of the iterable are raised where the item would have
    come; leaving the loop early ends the thread, and what it has fetched beforehand of a generator is gone. Pieces of a
    memory-mapped file (`np.load(path, mmap_mode="r")[i:j]`) are read from it in the thread, and come as arrays in memory.
    The thread sees the `with` blocks around the loop. What the iterable draws by `st.random` comes from the thread's generator,
    whose seed is drawn from the caller's each time.

        for x, y in st.loader(batches()):
            loss = step(x, y)

    Raises: ArgumentError where `ahead` is no positive integer, or `iterable` cannot be gone through.
    """
    if not isinstance(ahead, int) or isinstance(ahead, bool) or ahead < 1:
        raise ArgumentError(f"loader takes `ahead` of 1 or more items, got {ahead!r}", where=here())
    if not hasattr(iterable, "__iter__") and not hasattr(iterable, "__getitem__"):
        raise ArgumentError(f"loader takes what a `for` goes through, got a {type(iterable).__name__}", where=here())
    return Loader(iterable, ahead)


class _Ahead(Iterator[T]):
    """One way through an iterable, with a thread ahead of it."""

    def __init__(self, iterable: Iterable[T], ahead: int) -> None:
        self._items: queue.Queue[tuple[str, Any]] = queue.Queue(ahead)
        self._stop = threading.Event()
        self._ended = False
        # The thread's random numbers are others in every epoch, and the same in every run from the same seed.
        seed, counter = drawn(default_of_thread())
        own = int(words(seed, 1, counter, 1)[0])
        # A trace is this thread's: it must not record what another one does.
        around = copy_context() if current_trace() is None else Context()
        given = (_fetch, iterable, self._items, self._stop, own)
        thread = threading.Thread(target=around.run, args=given, name="staged-loader", daemon=True)
        weakref.finalize(self, _end, self._items, self._stop)
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


def _fetch(iterable: Iterable[Any], items: queue.Queue[tuple[str, Any]], stop: threading.Event, seed: int) -> None:
    """In the thread: put the items into the queue until they end, or nobody wants them any more."""
    try:
        default_of_thread().start(seed)
        for item in iterable:
            items.put(("item", _read(item)))
            if stop.is_set():
                return
        items.put(("end", None))
    except BaseException as error:
        items.put(("error", error))


def _read(item: Any) -> Any:
    """An item whose arrays are in memory: of a mapped file the pages come as they are looked at, which is to be done here."""
    leaves, spec = trees.flatten(item)
    if not any(isinstance(leaf, np.memmap) for leaf in leaves):
        return item
    return trees.unflatten(spec, [np.array(leaf) if isinstance(leaf, np.memmap) else leaf for leaf in leaves])


def _end(items: queue.Queue[tuple[str, Any]], stop: threading.Event) -> None:
    """Let the thread go: it may wait for room in the queue."""
    stop.set()
    while True:
        try:
            items.get_nowait()
        except queue.Empty:
            return
