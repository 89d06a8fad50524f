"""Variables whose last values are results of the program are kept in the memory of these results."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.call.program import Program

X = np.linspace(-1.0, 1.0, 8, dtype=np.float32).reshape(2, 4)


class Block(nn.Module):
    def __init__(self) -> None:
        self.linear, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x):
        return x + st.relu(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        self.blocks = nn.ModuleList([Block() for _ in range(layers)])

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return x


def train(x, steps):
    st.seed(1)
    net = Net(4)
    for _ in st.range(steps):
        _, grads = st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net.parameters())(x)
        for parameter, grad in zip(net.parameters(), grads, strict=True):
            parameter.value = parameter.value - 0.1 * grad
    return net.state_dict()


def body(program: Program) -> str:
    """The functions of the program, without its kernels."""
    return program.source[program.source.index("---- entry points") :]


def copies(program: Program) -> list[str]:
    return re.findall(r"memcpy\((.*)\);", body(program))


def test_the_weights_of_a_network_are_computed_in_the_results() -> None:
    staged = st.function(train, target="portable")
    program = staged.stage(X, 3)
    assert [each.split(",")[0] for each in copies(program)] == ["m->x_history"]
    assert "args->blocks[layer].linear_weight" in program.source
    assert "*args->blocks[layer].norm_num_batches_tracked =" in program.source
    with st.eager():
        expected = train(X, 3)
    for name, value in staged(X, 3).items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-3, atol=1e-5)


def test_the_header_of_an_exported_program_names_each_result(tmp_path: Path) -> None:
    program = st.function(train, target="portable").stage(X, 3)
    assert "train_blocks_layer blocks[4];" in program.header
    program.export(tmp_path, target="portable")
    header = (tmp_path / "train.h").read_text()
    assert all(re.search(rf"\*blocks_{number}_norm_num_batches_tracked;", header) for number in range(4))


def again(v):
    v.value = v.value + 1.0
    return v.value, v.value


def changed_after(v):
    before = v.value
    v.value = before * 2.0
    return before, v.value


def swapped(v):
    w = st.Variable(v.value * 3.0)
    for _ in st.range(3):
        v.value, w.value = w.value, v.value
    return w.value, v.value


def in_one_branch(v):
    if v.value[0] > 0.5:
        v.value = v.value * 2.0
        return v.value, v.value + 1.0
    return v.value - 1.0, v.value


def in_a_function(v):
    def bump(x):
        v.value = v.value + x
        return v.value

    first = st.function(bump)(1.0)
    return first, v.value


@pytest.mark.parametrize("function", [again, changed_after, swapped, in_one_branch, in_a_function])
@pytest.mark.parametrize("shape", [(3,), ()])
def test_results_are_the_values_of_the_end(function: Any, shape: tuple[int, ...]) -> None:
    def program(x):
        return function(st.Variable(st.reshape(x * 1.0, shape) if shape == () else x * 1.0))

    if function is in_one_branch and shape == ():
        pytest.skip("it has no elements")
    x = np.array([0.75, -2.0, 4.0]) if shape else np.array([0.75])
    with st.eager():
        expected = program(x)
    for found, value in zip(st.function(program, target="portable")(x), expected, strict=True):
        np.testing.assert_array_equal(found, value)


def test_statistics_are_updated_where_they_are() -> None:
    def step(x, steps):
        layer, weight = nn.BatchNorm1d(4), st.Variable(st.ones(4))
        for _ in st.range(steps):
            _, grad = st.value_and_grad(lambda x: st.mean(layer(x * weight.value) ** 2), wrt=weight)(x)
            for _ in st.range(steps):  # Ctrl-C may stop the program here, but no one sees the Variables then
                grad = st.sin(grad)
            weight.value = weight.value - grad
        return layer.running_mean.value, layer.running_var.value, layer.num_batches_tracked.value, weight.value

    program = st.function(step, target="portable").stage(X, 3)
    assert "m->new_" not in body(program)
    assert not re.search(r"int64_t \w*num_batches_tracked", body(program))
    assert not any("running" in each for each in copies(program))
