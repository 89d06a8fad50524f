"""Probes with planted faults, for the tests of the step that runs probes."""

from __future__ import annotations

import os
import signal
import time

import numpy as np

from tests.gpu_check.probes.book import EXACT, Book, Skipped, on_device

X = np.arange(6, dtype=np.float32)


def dies(book: Book) -> None:
    """The second of three checks ends its process."""
    for number in range(3):
        with book.attempt(f"check {number}") as entry:
            if entry is not None and number == 1:
                print("the last line before the end", flush=True)
                os.kill(os.getpid(), signal.SIGSEGV)


def is_wrong(book: Book) -> None:
    """The program of the second check differs from what is expected in one element, that of the third one in its bits."""
    double = on_device(lambda x: x * 2.0)
    book.check("right", double, X, tolerance=EXACT)
    book.check("wrong", double, X, tolerance=1e-3, expected=np.array([0, 2, 4, 6.5, 8, 10]))
    book.check("no graph", double, X, tolerance=EXACT, captures=True)
    with book.attempt("raises") as entry:
        if entry is not None:
            raise ValueError("planted")


def skips(book: Book) -> None:
    """Something is missing."""
    raise Skipped("nothing to be found here")


def hangs(book: Book) -> None:
    """The first of two checks does not end."""
    with book.attempt("endless") as entry:
        if entry is not None:
            time.sleep(600)
    with book.attempt("short"):
        pass


def logs(book: Book) -> None:
    """A failure with large logs and sources."""
    for name in ("CUDNN_LOGDEST_DBG", "CUBLASLT_LOG_FILE"):
        with open(os.environ[name], "w") as file:
            file.write("begin" + "." * 3_000_000 + "end")
    with book.attempt("failed"):
        (book.folder / "00_large.cu").write_text("x" * 3_000_000)
        print("y" * 100_000, flush=True)
        raise ValueError("planted")
