"""JAX, one call of a jitted function at a time; a call whose result is the answer is waited for, a step of training is not."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

from benchmarks.frameworks import jax_xla  # first: it says which platform JAX takes

# isort: split
import jax
import jax.numpy as jnp
from jax import lax, nn

from benchmarks.call_rows import AHEAD, BLOCK_HEADS, BLOCK_RATE, TICK, block_parameters, control_parameters
from benchmarks.frameworks.jax_xla import Parameters, layer_norm
from benchmarks.rows import ROWS, Row
from benchmarks.workload import Workload


def build(framework: str, row: Row, threads: int, data: Any) -> Workload:
    if row.steps_of:
        return jax_xla.build(framework, replace(ROWS[row.steps_of], batch=row.batch), threads, data)
    if row.blocks:
        return blocks(row, data)
    if row.name == "call_add":
        return waited_for(jax.jit(lambda x: x + 1), [jnp.asarray(data)])
    return control(data)


def waited_for(function: Any, arguments: list[jax.Array]) -> Workload:
    def run(calls: int) -> jax.Array:
        for call in range(calls):
            result = function(arguments[call % len(arguments)]).block_until_ready()
        return result

    return Workload(run)


def block(p: Parameters, name: str, x: jax.Array) -> jax.Array:
    def linear(layer: str, x: jax.Array) -> jax.Array:
        return x @ p[f"{name}.{layer}.weight"].T + p[f"{name}.{layer}.bias"]

    def norm(layer: str, x: jax.Array) -> jax.Array:
        return layer_norm(x, p[f"{name}.{layer}.weight"], p[f"{name}.{layer}.bias"])

    batch, time, wide = x.shape
    size = wide // BLOCK_HEADS
    q, k, v = (
        part.reshape(batch, time, BLOCK_HEADS, size).transpose(0, 2, 1, 3)
        for part in jnp.split(linear("qkv", norm("norm1", x)), 3, axis=2)
    )
    seen = nn.softmax(q @ k.transpose(0, 1, 3, 2) / size**0.5, -1) @ v
    x = x + linear("out", seen.transpose(0, 2, 1, 3).reshape(batch, time, wide))
    return x + linear("down", nn.gelu(linear("up", norm("norm2", x)), approximate=False))


def blocks(row: Row, data: Any) -> Workload:
    """AdamW with PyTorch's defaults, whose weight decay is 0.01."""
    weights = {name: jnp.asarray(value) for name, value in block_parameters(row.blocks).items()}
    zeros = {name: jnp.zeros_like(value) for name, value in weights.items()}
    state = [weights, zeros, jax.tree.map(jnp.copy, zeros), jnp.float32(0)]
    x, y = map(jnp.asarray, data)

    def loss_of(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
        for number in range(row.blocks):
            x = block(p, f"blocks.{number}", x)
        return ((x - y) ** 2).mean()

    @partial(jax.jit, donate_argnums=(0, 1, 2, 3))
    def step(p: Parameters, m: Parameters, v: Parameters, t: jax.Array, x: jax.Array, y: jax.Array) -> Any:
        loss, grads = jax.value_and_grad(loss_of)(p, x, y)
        t = t + 1
        m = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g, m, grads)
        v = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * g * g, v, grads)
        size, root = BLOCK_RATE / (1 - 0.9**t), jnp.sqrt(1 - 0.999**t)
        p = jax.tree.map(lambda p, m, v: p * (1 - BLOCK_RATE * 0.01) - size * m / (jnp.sqrt(v) / root + 1e-8), p, m, v)
        return p, m, v, t, loss

    def run(steps: int) -> jax.Array:
        for _ in range(steps):
            *state[:], loss = step(*state, x, y)
        return jax.block_until_ready((state, loss))[1]

    return Workload(run)


def control(data: Any) -> Workload:
    w = {name: jnp.asarray(value) for name, value in control_parameters().items()}

    @jax.jit
    def cost(x: jax.Array) -> jax.Array:
        def tick(_: int, carried: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
            x, total = carried
            u = jnp.tanh(x @ w["w1"] + w["b1"]) @ w["w2"]
            x = x + TICK * (x @ w["drift"] + jnp.sin(x) @ w["pull"] + u @ w["push"])
            return x, total + (x * x).sum() + 0.1 * (u * u).sum()

        return lax.fori_loop(0, AHEAD, tick, (x, jnp.float32(0)))[1]

    return waited_for(cost, [jnp.asarray(state) for state in data])
