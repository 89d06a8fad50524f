"""Probes of loops: a captured loop, many iterations without a wait, Ctrl-C while the queue is full."""

from __future__ import annotations

import os
import signal
import threading
import time
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim
from tests.gpu_check.probes.book import EXACT, Book, on_device

SOON = 20.0
"""Seconds after which an interrupt must have ended the program."""


def captured(book: Book) -> None:
    """A training loop as a CUDA graph: batches, AdamW's factors and random numbers change between the iterations."""
    turns, batch, inputs, hidden = (6, 8, 12, 16) if book.small else (300, 64, 96, 128)
    data, wanted = book.normal(4, batch, inputs), book.normal(4, batch, 8)

    def train(data: Any, wanted: Any, turns: Any) -> Any:
        st.seed(3)
        net = nn.Sequential(nn.Linear(inputs, hidden), nn.ReLU(), nn.Dropout(0.2), nn.Linear(hidden, 8))
        adam = optim.AdamW(net.parameters(), lr=1e-3)
        losses = st.zeros((400,))
        for turn in st.range(turns):
            x, y = data[turn % 4], wanted[turn % 4]
            loss, grads = st.value_and_grad(lambda: st.mean((net(x) - y) ** 2), wrt=net)()  # noqa: B023
            adam.step(optim.clip_grad_norm(grads, 1.0)[0])
            losses[turn] = loss
        return losses, net.state_dict()

    few = 5
    with st.eager():
        eager = on_device(train)(data, wanted, few) if not book.prepares else None
    book.check("the first iterations", on_device(train), data, wanted, few, tolerance=2e-4, expected=eager)
    single = None if book.prepares else on_device(train, graphs=False)(data, wanted, turns)
    book.check("as without a graph", on_device(train), data, wanted, turns, tolerance=EXACT, expected=single, captures=True)


def many_iterations(book: Book) -> None:
    """A loop that the host enqueues without a wait: 100,000 launches of one graph, whose result is known exactly."""
    turns, n = 2_000 if book.small else 100_000, 8
    order = np.roll(np.arange(n), 3)
    permutation = np.eye(n, dtype=np.float32)[order]
    x = np.arange(n * n, dtype=np.float32).reshape(n, n)

    def turn_over(x: Any, permutation: Any, turns: Any) -> Any:
        count, weighted = st.zeros((n, n)), st.zeros((n,))
        for turn in st.range(turns):
            x = x @ permutation
            count = (count @ permutation) + 1.0
            weighted = weighted * 0.5 + st.max(x, axis=0) * (turn % 2)
        return x, count, weighted

    expected_x = x
    for _ in range(turns % n):
        expected_x = expected_x @ permutation
    weighted = np.zeros(n)
    for turn in range(turns - 60 - turns % 2, turns):
        columns = x
        for _ in range((turn + 1) % n):
            columns = columns @ permutation
        weighted = weighted * 0.5 + columns.max(0) * (turn % 2)
    expected = expected_x, np.full((n, n), float(turns)), weighted
    function = on_device(turn_over)
    book.check(f"{turns} iterations", function, x, permutation, turns, tolerance=1e-6, expected=expected, captures=True)
    with book.attempt("the time of an iteration") as entry:
        if entry is not None and not book.prepares:
            begin = time.perf_counter()
            function(x, permutation, turns)
            entry["value"] = round((time.perf_counter() - begin) / turns * 1e6, 3)
            entry["unit"] = "microseconds per iteration"


def interrupt(book: Book) -> None:
    """Ctrl-C ends a program whose queue is full, and the device computes correctly afterwards."""
    n = 16 if book.small else 2048
    x, w = np.eye(n, dtype=np.float32), np.eye(n, dtype=np.float32)

    def endless(x: Any, w: Any, turns: Any) -> Any:
        for _ in st.range(turns):
            x = st.tanh(x @ w) @ w
            x = st.sin(x @ w) @ w
        return x

    function = on_device(endless)
    book.check("a few iterations", function, x, w, 3, tolerance=1e-4, expected=endless_in_numpy(x, 3))
    with book.attempt("Ctrl-C") as entry:
        if entry is not None and not book.prepares:
            sent: list[float] = []

            def send() -> None:
                sent.append(time.monotonic())
                os.kill(os.getpid(), signal.SIGINT)

            threading.Timer(1.0, send).start()
            try:
                function(x, w, 1 << 40)
                entry |= {"ok": False, "words": "the program returned without an exception"}
            except KeyboardInterrupt:
                entry["value"] = round(time.monotonic() - sent[0], 3)
                entry["unit"] = "seconds from the signal to the exception"
                entry["ok"] = entry["value"] < SOON
    book.check("afterwards", function, x, w, 3, tolerance=1e-4, expected=endless_in_numpy(x, 3))


def endless_in_numpy(x: Any, turns: int) -> Any:
    """The same with identities as weights, in f64."""
    x = np.asarray(x, np.float64)
    for _ in range(turns):
        x = np.sin(np.tanh(x))
    return x
