"""Calls that run at once."""

from collections.abc import Callable, Iterable
from threading import Thread


def run_at_once(calls: Iterable[Callable[[], object]]) -> None:
    """Run each call in its own thread, and return when all have ended."""
    threads = [Thread(target=call) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
