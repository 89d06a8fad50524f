"""JAX on the CPU: `jax` jits a step or an op, `jax-loop` jits the whole training loop (`lax.fori_loop`).

Parameters are donated, images lie in JAX's preferred layout (channels last), and a run waits for its last step only, so
that steps may be dispatched ahead.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax, nn

from benchmarks.frameworks import jax_recurrent
from benchmarks.rows import BATCHES, LEARNING_RATE, Row, parameters
from benchmarks.workload import NotWritten, Workload

Parameters = dict[str, jax.Array]


def conv2d(x: jax.Array, w: jax.Array, padding: int = 0) -> jax.Array:
    return lax.conv_general_dilated(x, w, (1, 1), [(padding, padding)] * 2, dimension_numbers=("NHWC", "HWIO", "NHWC"))


def layer_norm(x: jax.Array, gain: jax.Array, bias: jax.Array) -> jax.Array:
    centred = x - x.mean(-1, keepdims=True)
    return centred * lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + bias


OPS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: nn.softmax(x, -1),
    "layer_norm": layer_norm,
    "row_sum": lambda x, y, z: (jnp.exp(x) + y * z).sum(1),
    "sgemm_64": jnp.matmul,
    "sgemm_256": jnp.matmul,
    "sgemm_1024": jnp.matmul,
    "conv2d": partial(conv2d, padding=1),
}


def mlp(p: Parameters, x: jax.Array) -> jax.Array:
    x = nn.relu(x @ p["fc1.weight"] + p["fc1.bias"])
    x = nn.relu(x @ p["fc2.weight"] + p["fc2.bias"])
    return x @ p["fc3.weight"] + p["fc3.bias"]


def max_pool(x: jax.Array) -> jax.Array:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")


def cnn(p: Parameters, x: jax.Array) -> jax.Array:
    # Pool, then relu: the same values as relu, then pool, for less work.
    x = nn.relu(max_pool(conv2d(x, p["conv1.weight"]) + p["conv1.bias"]))
    x = nn.relu(max_pool(conv2d(x, p["conv2.weight"]) + p["conv2.bias"]))
    x = x.transpose(0, 3, 1, 2).reshape(x.shape[0], -1)  # the weights of fc1 are in PyTorch's order
    return nn.relu(x @ p["fc1.weight"] + p["fc1.bias"]) @ p["fc2.weight"] + p["fc2.bias"]


MODELS = {"mlp_mnist": mlp, "cnn_mnist": cnn}


def in_jax_layout(name: str, value: np.ndarray) -> jax.Array:
    if name.startswith("conv") and value.ndim == 4:
        value = value.transpose(2, 3, 1, 0)
    elif value.ndim == 2:
        value = value.T
    return jnp.asarray(np.ascontiguousarray(value))


def build(framework: str, row: Row, threads: int, data: Any) -> Workload:
    # XLA sizes its thread pool by the processor affinity, which the worker has set.
    if row.kind == "train":
        return training(row, data, whole_loop=framework == "jax-loop")
    if row.kind in ("recurrent", "trees"):
        return jax_recurrent.build(row, data, whole_loop=framework == "jax-loop")
    if framework == "jax-loop":
        raise NotWritten
    return op(row, data)


def training(row: Row, data: tuple[Any, ...], *, whole_loop: bool) -> Workload:
    images = data[0].transpose(0, 1, 3, 4, 2) if data[0].ndim == 5 else data[0]
    images, labels = jnp.asarray(np.ascontiguousarray(images)), jnp.asarray(data[1])
    state = [{name: in_jax_layout(name, value) for name, value in parameters(row).items()}]

    def loss_of(p: Parameters, x: jax.Array, y: jax.Array) -> jax.Array:
        return -jnp.take_along_axis(nn.log_softmax(MODELS[row.name](p, x)), y[:, None], 1).mean()

    def step(p: Parameters, x: jax.Array, y: jax.Array) -> tuple[Parameters, jax.Array]:
        loss, gradients = jax.value_and_grad(loss_of)(p, x, y)
        return jax.tree.map(lambda value, gradient: value - LEARNING_RATE * gradient, p, gradients), loss

    if whole_loop:

        @partial(jax.jit, donate_argnums=0)
        def train(
            p: Parameters, steps: jax.Array, images: jax.Array, labels: jax.Array
        ) -> tuple[Parameters, jax.Array]:
            def body(i: jax.Array, carried: tuple[Parameters, jax.Array]) -> tuple[Parameters, jax.Array]:
                return step(carried[0], images[i % BATCHES], labels[i % BATCHES])

            return lax.fori_loop(0, steps, body, (p, jnp.float32(0)))

        def run(steps: int) -> jax.Array:
            state[0], loss = train(state[0], jnp.int32(steps), images, labels)
            return jax.block_until_ready(loss)

        return Workload(run)

    jitted = jax.jit(step, donate_argnums=0)
    batches = [(images[i], labels[i]) for i in range(BATCHES)]

    def run_steps(steps: int) -> jax.Array:
        for i in range(steps):
            state[0], loss = jitted(state[0], *batches[i % BATCHES])
        return jax.block_until_ready((state[0], loss))[1]

    return Workload(run_steps)


def op(row: Row, data: tuple[Any, ...]) -> Workload:
    function = jax.jit(OPS[row.name])
    channels_last = row.name == "conv2d"
    if channels_last:
        data = data[0].transpose(0, 2, 3, 1), data[1].transpose(2, 3, 1, 0)
    inputs = [jnp.asarray(np.ascontiguousarray(value)) for value in data]

    def run(calls: int) -> jax.Array:
        for _ in range(calls):
            result = jax.block_until_ready(function(*inputs))
        return result

    return Workload(run, lambda result: result.transpose(0, 3, 1, 2) if channels_last else result)
