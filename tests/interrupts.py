"""Ctrl-C for tests, at moments that do not depend on the load of the machine."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest


def interrupt_when(condition: Callable[[], bool]) -> tuple[threading.Thread, list[float]]:
    """Send a Ctrl-C to this process when a condition holds: the thread that sends it, and the processor time of that moment."""
    sent: list[float] = []

    def send() -> None:
        while not condition():
            time.sleep(0.001)
        sent.append(time.process_time())
        os.kill(os.getpid(), signal.SIGINT)

    sender = threading.Thread(target=send, daemon=True)
    sender.start()
    return sender, sent


def interrupt_after(seconds: float) -> tuple[threading.Thread, list[float]]:
    """Send a Ctrl-C when this process has computed for so many seconds from now on.

    Processor time: a program that is called next has begun by then, however long the machine stands still.
    """
    end = time.process_time() + seconds
    return interrupt_when(lambda: time.process_time() >= end)


@contextmanager
def stays_inside() -> Iterator[None]:
    """As a decorator of a test: a Ctrl-C at another moment than expected fails the test, and does not end the whole run.

    The test begins with Python's handler: one that a library has left, such as a compiler of OpenCL, may end the process.
    """
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt:
        pytest.fail("a Ctrl-C came where the test did not expect it")
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
