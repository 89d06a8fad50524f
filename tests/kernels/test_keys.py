"""Equal groups of ops have one key, are lowered once and become one function; groups that differ in anything do not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.ir.builder import Builder
from staged.ir.types import DType, TensorType, f32, f64
from staged.kernels import fuse
from staged.kernels.keys import Key, Keys

KEYS = Keys()


def key(
    places: tuple[int, int, int] = (0, 1, 2),
    last: str = "multiply",
    names: str = "xyz",
    results: int = 1,
    size: int = 8,
    dtype: DType = f32,
    **attrs: Any,
) -> Key:
    """The key of last(add(a, b), c), where a, b and c are parameters with these places; of two results if so asked."""
    builder, type = Builder(), TensorType(dtype, (size,))
    with builder.block([type] * 3, list(names)) as block:
        a, b, c = (block.params[place] for place in places)
        first = builder.op("add", [a, b], [type])
        second = builder.op(last, [first.result, c], [type], attrs=attrs)
        builder.end("yield", [second.result])
    made = [first.result, second.result]
    return KEYS.group([first, second], made[-results:], lambda value: value in block.params)[0]


def test_names_do_not_count() -> None:
    assert key() == key(names="uvw")


def test_all_else_counts() -> None:
    groups = [
        key(),
        key(last="subtract"),
        key((0, 1, 1)),
        key((0, 0, 1)),
        key((0, 1, 0)),
        key(results=2),
        key(size=9),
        key(dtype=f64),
        key(side=1),
        key(side=True),
        key(side=0.0),
        key(side=-0.0),
    ]
    assert len(set(groups)) == len(groups)


class Mlp(nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 32) for _ in range(layers)])

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = st.layer_norm(st.gelu(layer(x)), (32,))
        return st.sum(x)


def program_of(layers: int) -> str:
    """The program of a training step of an MLP of equal layers."""
    st.seed(0)
    model = Mlp(layers)
    optimizer = optim.AdamW(model.parameters())

    @st.function(target="x86-64-v3")
    def step(x: Any) -> Any:
        loss, grads = st.value_and_grad(lambda x: model(x), wrt=model)(x)
        optimizer.step(grads)
        return loss

    return str(step.stage(np.ones((4, 32), np.float32)).source)


def test_equal_layers_are_lowered_once_and_have_the_functions_of_fewer_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    lowered: list[str] = []

    def counting(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            lowered.append(real.__name__)
            return real(*args)

        return call

    monkeypatch.setattr(fuse, "lower", counting(fuse.lower))
    monkeypatch.setattr(fuse, "product_kernel", counting(fuse.product_kernel))
    counts = []
    for layers in (4, 8):
        lowered.clear()
        functions = program_of(layers).count("\nstatic void ")
        counts.append((len(lowered), functions))
    assert lowered and counts[0] == counts[1]


def test_equal_kernels_that_stop_the_program_do_so_at_their_own_lines() -> None:
    @st.function
    def run(table: Any, one: Any, other: Any) -> Any:
        first = st.sum(st.take(table, one, axis=0))
        second = st.sum(st.take(table, other, axis=0))
        return first, second

    table, right, wrong = np.ones((3, 4), np.float32), np.zeros(5, np.int32), np.full(5, 7, np.int32)
    with pytest.raises(st.StagedError, match="take\\(table, one"):
        run(table, wrong, right)
    with pytest.raises(st.StagedError, match="take\\(table, other"):
        run(table, right, wrong)
