"""Probes of memory and processes: out of memory, two processes on one device, arrays of PyTorch in both directions."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from staged.errors import ProgramMemoryError
from staged.runtime.cuda.interface import current_runtime
from staged.runtime.cuda.resident import DeviceCopy, check_status
from staged.runtime.guard import ffi
from tests.gpu_check.probes.book import EXACT, Book, Skipped, on_device
from tests.gpu_check.setting import ROOT, exclusive

TWO = 2
"""Processes that share the device."""


def total_memory() -> int:
    """The bytes of the device's memory."""
    runtime, free, total = current_runtime(), ffi.new("size_t *"), ffi.new("size_t *")
    check_status(runtime, runtime.function("cudaMemGetInfo", "int (*)(size_t *, size_t *)")(free, total), "cudaMemGetInfo")
    return int(total[0])


def out_of_memory(book: Book) -> None:
    """A program that needs more memory than the device has raises ProgramMemoryError; the next one runs."""
    x = book.normal(64, 64)
    ordered = on_device(lambda x: st.sort(x * 2.0, axis=1))
    book.check("before", ordered, x, tolerance=EXACT, expected=np.sort(x * 2.0, axis=1))
    if book.prepares:
        return
    rows = 2 * total_memory() // (4 * 1024)

    def huge(x: Any) -> Any:
        y = st.random.normal((rows, 1024)) * st.sum(x)
        return st.sum(st.sort(y, axis=1)[:, 3])

    for what, run in {
        "an array": lambda: DeviceCopy("gpu", 2 * total_memory()),
        "a program": lambda: on_device(huge)(x),
    }.items():
        with book.attempt(what) as entry:
            if entry is None:
                continue
            try:
                run()
                entry |= {"ok": False, "words": "no error"}
            except ProgramMemoryError as error:
                entry["words"] = str(error)[:1000]
        book.check(f"after {what}", ordered, x, tolerance=EXACT, expected=np.sort(x * 2.0, axis=1))


def two_processes(book: Book) -> None:
    """Two processes train at the same time on the device; both have the results of one alone."""
    if exclusive() and not book.small:
        raise Skipped("the GPU accepts one process at a time (its compute mode)")
    if book.prepares:
        training(book)
        return
    with book.attempt(f"{TWO} processes") as entry:
        if entry is None:
            return
        command = [sys.executable, "-m", "tests.gpu_check.probes", "tests.gpu_check.probes.memory:training"]
        started = [
            subprocess.Popen(
                [*command, str(book.folder / f"process_{number}"), *(["--small"] if book.small else [])],
                cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            )
            for number in range(TWO)
        ]  # fmt: skip
        said = [process.communicate()[0] for process in started]
        journals = [(book.folder / f"process_{number}" / "journal.jsonl").read_text() for number in range(TWO)]
        entry["ok"] = all(process.returncode == 0 for process in started)
        entry["ok"] = entry["ok"] and all('"ok": true' in text and '"ok": false' not in text for text in journals)
        if not entry["ok"]:
            entry["words"] = "\n".join(text[-1500:] for text in [*said, *journals])


def training(book: Book) -> None:
    """Train in one of the two processes."""
    data, w = book.normal(4, 64, 32), book.normal(32, 32, scale=0.1)

    def fit(data: Any, w: Any, turns: Any) -> Any:
        for turn in st.range(turns):
            x = data[turn % 4]
            w = w - 0.1 * st.grad(lambda w: st.mean((st.tanh(x @ w) - x) ** 2))(w)  # noqa: B023
        return w

    book.check("training", on_device(fit), data, w, 50 if book.small else 2_000, tolerance=1e-3)


def dlpack(book: Book) -> None:
    """Arrays of PyTorch on the device are read in place, from any stream; results go to PyTorch."""
    x = book.normal(257, 33)
    double = st.function(lambda x: x * 2.0 + 1.0, target="portable")
    if book.prepares:
        with with_backend(GPU):
            book.staged(double, x)
        return
    try:
        import torch
    except ModuleNotFoundError as missing:
        raise Skipped(f"PyTorch is not installed: {missing}") from None
    if not torch.cuda.is_available():
        raise Skipped("PyTorch has no GPU here")

    n = 64 if book.small else 4096
    x_there = torch.from_numpy(x).cuda()

    def late() -> Any:
        """The array, after some milliseconds of work that the device still has to do."""
        factor = torch.ones(n, n).cuda()
        for _ in range(20):
            factor = factor @ factor / n
        return x_there * factor[0, 0]

    def on_a_stream() -> Any:
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):  # it is the current stream while the program asks for the array
            return read(late())

    def read(tensor: Any) -> Any:
        """The result for a tensor, and NumPy's for the same elements."""
        with with_backend(GPU):
            found = np.asarray(double(tensor))
        return found, tensor.cpu().numpy() * np.float32(2.0) + np.float32(1.0)

    for what, make in {
        "whole": lambda: read(x_there),
        "a slice, one element late": lambda: read(x_there.reshape(-1)[1:]),
        "pending work": lambda: read(late()),
        "pending work of another stream": on_a_stream,
        "a wide array": lambda: read(torch.ones(n, n).cuda()),
    }.items():
        with book.attempt(f"from PyTorch: {what}") as entry:
            if entry is not None:
                found, expected = make()
                entry |= book.same(found, expected, 1e-6)
    with book.attempt("to PyTorch") as entry:
        if entry is not None:
            with with_backend(GPU, x) as on_x:
                result = double(on_x)
                entry["by"] = type(result).__name__
                is_there = hasattr(result, "__dlpack_device__") and result.__dlpack_device__()[0] == 2
                tensor = torch.from_dlpack(result) if is_there else torch.from_dlpack(np.array(result))
                entry["device"] = str(tensor.device)
                entry |= book.same((tensor.cpu() + 0.0).numpy(), x * 2.0 + 1.0, 1e-6)
    with book.attempt("PyTorch still computes") as entry:
        if entry is not None:
            entry |= book.same((x_there @ x_there.T).cpu().numpy(), x.astype(np.float64) @ x.T.astype(np.float64), 1e-2)
    with book.attempt("cuDNN of both") as entry:
        if entry is not None:
            image, kernel = book.normal(2, 3, 8, 8), book.normal(4, 3, 3, 3)
            ours = np.asarray(on_device(lambda x, w: st.conv2d(x, w))(image, kernel))
            theirs = torch.nn.functional.conv2d(torch.from_numpy(image).cuda(), torch.from_numpy(kernel).cuda())
            entry["version"] = torch.backends.cudnn.version()
            entry |= book.same(ours, theirs.cpu().numpy(), 5e-3)
