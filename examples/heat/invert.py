"""Find the heat conductivity of a rod from temperatures, by gradients through the heat equation.

python -m examples.heat.invert                    # one process
mpiexec -n 4 python -m examples.heat.invert       # four MPI ranks, each with a part of the rod
python -m examples.heat.invert --show             # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/heat/invert.py`

import staged as st
from examples.command_line import read_flags, run
from staged import optim

CELLS, STEPS, PARTS = 240, 40, 6
"""Cells of the rod, steps between two measurements, measurements."""


def step(u, k):
    """One explicit step of du/dt = d/dx (k du/dx), with insulated ends. The flux between two cells has their mean k."""
    u_beyond, k_beyond = st.exchange_halo(u, edge="nearest"), st.exchange_halo(k, edge="nearest")
    flux = 0.5 * (k_beyond[1:] + k_beyond[:-1]) * (u_beyond[1:] - u_beyond[:-1])
    return u + flux[1:] - flux[:-1]


def misfit(k, start, measured):
    """Half the squared distance from the measured temperatures (PARTS, cells of this rank), over all ranks."""
    u, total = start, 0.0
    for part in st.range(PARTS):
        for _ in st.range(STEPS):
            u = step(u, k)
        total += 0.5 * st.sum((u - measured[part]) ** 2)
    return st.all_reduce(total)


@st.function
def invert(start, measured, guess, iterations, lr):
    """Return the conductivity of all cells, found with Adam from a guess; arrays are those of the whole rod."""
    start, measured = st.shard(start), st.shard(measured, axis=1)
    k = st.Variable(st.shard(guess), local=True)
    optimizer = optim.Adam([k], lr=lr)
    for iteration in st.range(iterations):
        distance, (d_k,) = st.value_and_grad(lambda: misfit(k, start, measured), wrt=[k])()
        optimizer.step([d_k])
        if (iteration + 1) % 100 == 0:
            print(f"iteration {iteration + 1}: misfit {distance:.2e}")
    return st.all_gather(k.value)


@st.function
def measure(start, k):
    """Return the temperatures (PARTS, CELLS) after each STEPS steps; arrays are those of the whole rod."""
    u, k = st.shard(start), st.shard(k)
    measured = []
    for _ in range(PARTS):
        for _ in st.range(STEPS):
            u = step(u, k)
        measured.append(st.all_gather(u))
    return st.stack(measured)


def rod():
    """A rod of two materials: its temperatures at the start, and the conductivity of each cell."""
    x = (np.arange(CELLS) + 0.5) / CELLS
    return np.sin(24 * np.pi * x) + 0.5 * x, np.where((x > 0.35) & (x < 0.6), 0.1, 0.4)


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, iterations=400, lr=0.01)
    start, truth = rod()
    found = run(flags, invert, start, measure(start, truth), np.full(CELLS, 0.25), flags.iterations, flags.lr)
    if st.rank() == 0:
        print(f"the mean error of the conductivity is {np.abs(found - truth).mean():.4f}, that of the guess was 0.15")


if __name__ == "__main__":
    main()
