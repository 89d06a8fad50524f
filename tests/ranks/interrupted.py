"""A training run for `test_failures.py`: arguments are the kind of the interruption, its step, its rank, and a folder."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

import staged as st

kind, place, victim, folder = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
w = st.Variable(np.full((30, 8), 0.01), name="w")


@st.function
def step(x, y, number, bad, victim):
    x, y = st.shard(x), st.shard(y)
    assert number != bad or victim != st.rank(), "planted"
    loss, d_w = st.value_and_grad(lambda: st.all_reduce(st.mean((st.tanh(x @ w) - y) ** 2), "mean"), wrt=w)()
    w.value = w.value - 0.1 * d_w
    return loss


@st.function
def log(value):
    with open("/dev/full", "w") as file:
        file.write(f"loss {value}\n")
    return st.all_reduce(st.sum(st.shard(st.ones(6))))


x, y = np.ones((66, 30)), np.ones((66, 8))
step(x, y, 0, -1, 0)
print(f"process {os.getpid()}", flush=True)
number = 0
while True:
    number += 1
    if number == place:
        (folder / f"begun_{os.getpid()}").write_text(str(time.monotonic()))
    if number == place and kind == "full_disk":
        log(1.0)
    step(x, y, number, place if kind == "assertion" else -1, victim)
