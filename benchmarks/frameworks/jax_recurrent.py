"""JAX, recurrent rows: `lax.scan` over the characters; `jax` jits a step, `jax-loop` the loop over steps too.

There is no recursion under `jit`, so no tree LSTM of one tree at a time.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax, nn

from benchmarks.rows import BATCHES, CLIP, HIDDEN, RECURRENT_RATE, Row, parameters
from benchmarks.workload import NotWritten, Workload

Tree = dict[str, jax.Array]


def build(row: Row, data: Any, *, whole_loop: bool) -> Workload:
    if row.kind == "trees":
        raise NotWritten
    texts = jnp.asarray(data)
    weights = {name: jnp.asarray(value) for name, value in parameters(row).items()}
    state = [weights, {name: jnp.zeros_like(value) for name, value in weights.items()}]
    is_lstm = row.name == "char_lstm"

    def loss_of(p: Tree, text: jax.Array) -> jax.Array:
        def turn(carried: tuple[jax.Array, jax.Array], x: jax.Array) -> tuple[Any, jax.Array]:
            h, c = carried
            gates = p["embed"][x] + h @ p["recur"] + p["bias"]
            if not is_lstm:
                h = jnp.tanh(gates)
                return (h, c), h
            i, f, g, o = jnp.split(gates, 4, axis=1)
            c = nn.sigmoid(f) * c + nn.sigmoid(i) * jnp.tanh(g)
            h = nn.sigmoid(o) * jnp.tanh(c)
            return (h, c), h

        zeros = jnp.zeros((row.batch, HIDDEN))
        _, states = lax.scan(turn, (zeros, zeros), text[:-1])
        scores = nn.log_softmax(states @ p["out.weight"].T + p["out.bias"])
        return -jnp.take_along_axis(scores, text[1:, :, None], 2).mean()

    def step(p: Tree, totals: Tree, text: jax.Array) -> tuple[Tree, Tree, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(p, text)
        gradients = jax.tree.map(lambda g: jnp.clip(g, -CLIP, CLIP), gradients)
        totals = jax.tree.map(lambda total, g: total + g * g, totals, gradients)
        p = jax.tree.map(lambda w, g, total: w - RECURRENT_RATE * g / (jnp.sqrt(total) + 1e-10), p, gradients, totals)
        return p, totals, loss

    if whole_loop:

        @partial(jax.jit, donate_argnums=(0, 1))
        def train(p: Tree, totals: Tree, steps: jax.Array, texts: jax.Array) -> tuple[Tree, Tree, jax.Array]:
            def body(i: jax.Array, carried: tuple[Tree, Tree, jax.Array]) -> tuple[Tree, Tree, jax.Array]:
                return step(carried[0], carried[1], texts[i % BATCHES])

            return lax.fori_loop(0, steps, body, (p, totals, jnp.float32(0)))

        def run(steps: int) -> jax.Array:
            state[0], state[1], loss = train(state[0], state[1], jnp.int32(steps), texts)
            return jax.block_until_ready(loss)

        return Workload(run)

    jitted = jax.jit(step, donate_argnums=(0, 1))
    batches = [texts[i] for i in range(BATCHES)]

    def run_steps(steps: int) -> jax.Array:
        for i in range(steps):
            state[0], state[1], loss = jitted(state[0], state[1], batches[i % BATCHES])
        return jax.block_until_ready((state, loss))[1]

    return Workload(run_steps)
