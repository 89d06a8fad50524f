"""Saves the state of an optimiser in pieces again and again, by turns from Python and from a program: `FILE`."""

from __future__ import annotations

import sys

import staged as st
from staged import optim

PATH = sys.argv[1]
weights = st.Variable(st.zeros(200_000), name="weights")
optimizer = optim.AdamW([weights], shard=True)


@st.function
def step():
    optimizer.step([st.all_reduce(st.ones(200_000), "mean")])
    st.save(PATH, {"weights": weights, "optimizer": optimizer})
    return st.asarray(0)


for count in range(10_000):
    step()
    st.save(PATH, {"weights": weights, "optimizer": optimizer})
    if count == 1:
        print("ready", flush=True)
