"""A training of a tiny GPT that may be killed: `restarting.py FOLDER BEGIN_ANEW KILLED_STEP UNTIL`, under mpiexec.

Each rank appends the digest of the whole batch and the loss of each step to its file. The checkpoint has the model, the
optimiser, the generator of the batches, the permutation and the place in it.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
from pathlib import Path

import numpy as np

import staged as st
from staged import nn, optim, random
from staged.base.launcher import this_job

VOCABULARY, LENGTH, WIDTH, BATCH, ROWS, EVERY = 13, 8, 12, 12, 36, 3


class Block(nn.Module):
    """Attention and an MLP, each with a residual."""

    def __init__(self) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH, dtype=st.f64), nn.LayerNorm(WIDTH, dtype=st.f64)
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH, dtype=st.f64)
        self.out = nn.Linear(WIDTH, WIDTH, dtype=st.f64)
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH, dtype=st.f64), nn.Linear(2 * WIDTH, WIDTH, dtype=st.f64)

    def forward(self, x):
        q, k, v = st.split(self.qkv(self.norm1(x)), 3, axis=-1)
        scores = q @ st.swapaxes(k, -1, -2) / WIDTH**0.5
        mask = st.tril(st.ones((LENGTH, LENGTH), dtype=st.f64))
        x = x + self.out(st.softmax(st.where(mask > 0.0, scores, -1e9), axis=-1) @ v)
        return x + self.down(st.gelu(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Two blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH, dtype=st.f64)
        self.places = nn.Embedding(LENGTH, WIDTH, dtype=st.f64)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, VOCABULARY, dtype=st.f64)

    def forward(self, tokens):
        x = self.tokens(tokens) + self.places(st.arange(LENGTH))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def data_of() -> np.ndarray:
    """The sequences to learn."""
    return np.random.default_rng(0).integers(0, VOCABULARY, (ROWS, LENGTH + 1))


def stepping():
    """One step, as a staged function."""

    @st.function
    def step(model, optimizer, tokens):
        own = st.shard(tokens)

        def loss_fn():
            logits = model(own[:, :-1])
            return st.all_reduce(st.cross_entropy(st.reshape(logits, (-1, VOCABULARY)), st.reshape(own[:, 1:], (-1,))), "mean")

        loss, grads = st.value_and_grad(loss_fn, wrt=model)()
        optimizer.step(grads)
        return loss

    return step


def main(folder: Path, begins_anew: bool, killed: int, until: int) -> None:
    job = this_job()
    st.seed(0)
    model = Gpt()
    optimizer = optim.AdamW(model.parameters(), lr=0.01, shard=True)
    order = random.Generator(7)
    data, step = data_of(), stepping()
    checkpoint = folder / "checkpoint.safetensors"
    state = {"step": 0, "place": 0, "rows": np.asarray(random.permutation(ROWS, generator=order))}
    if not begins_anew and checkpoint.exists():
        saved = st.load(checkpoint)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        order.load_state_dict(saved["order"])
        state = {name: saved[name] for name in state}

    log = (folder / f"log.{job.rank}").open("a")
    for at in range(state["step"], until):
        if state["place"] == ROWS:
            state |= {"place": 0, "rows": np.asarray(random.permutation(ROWS, generator=order))}
        batch = data[state["rows"][state["place"] : state["place"] + BATCH]]
        if at == killed and job.rank == job.ranks - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        loss = float(step(model, optimizer, batch))
        print(json.dumps([at, hashlib.sha256(batch.tobytes()).hexdigest()[:12], loss]), file=log, flush=True)
        state |= {"step": at + 1, "place": state["place"] + BATCH}
        if (at + 1) % EVERY == 0:
            st.save(checkpoint, {"model": model, "optimizer": optimizer, "order": order, **state})


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2] == "anew", int(sys.argv[3]), int(sys.argv[4]))
