"""A loop has a struct for each iteration, with the addresses of what the backward pass needs."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.backends.host import buffer_structs, loop_structs

X = np.random.default_rng(0).normal(size=(4, 6))
W = np.random.default_rng(1).normal(size=(6, 6))


def cell(x, w, count=5):
    h = x
    for _ in st.range(count):
        a = st.tanh(h @ w)
        b = st.sigmoid(a @ w)
        c = st.tanh(b * a) @ w
        h = st.sigmoid(c) * b + st.tanh(c) * a
    return st.sum(h * h)


def gradient(count):
    return lambda x, w: st.value_and_grad(lambda x, w: cell(x, w, count), argnums=(0, 1))(x, w)


def program_of(count=5):
    return st.function(lambda x, w: gradient(count)(x, w), target="portable")


@pytest.fixture(autouse=True)
def few_fields(monkeypatch) -> None:
    monkeypatch.setattr(loop_structs, "LEAST_FIELDS", 5)


def test_a_loop_uses_the_struct_of_its_iteration_instead_of_an_address_for_each_value() -> None:
    program = program_of()
    source = program.stage(X, W).source
    fields = re.search(r"typedef struct \{\s*double (\*[^}]*);\s*\} Residuals;", source)
    assert fields is not None
    names = {name.strip(" *\n") for name in fields[1].split(",")}
    assert {"h", "a", "b"} < names == {*re.findall(r"kept->(\w+)", source)}
    assert "    Residuals residuals[5];" in source and "_history + " not in source
    heads = re.findall(r"const Residuals \*const kept = (.*);", source)
    assert len(heads) == 2 and all(re.fullmatch(r"&m->residuals\[\w+\]", head) for head in heads)
    assert " < 4 ? m->residuals[t + 1].h : m->h;" in source and "memcpy(m->residuals[0].h, args->x" in source
    loss, gradients = program(X, W)
    with st.eager():
        expected, wanted = gradient(5)(X, W)
    np.testing.assert_allclose(loss, expected, rtol=1e-12)
    for one, other in zip(gradients, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-9)


def test_a_separate_function_sets_the_structs_if_there_are_many_buffers(monkeypatch) -> None:
    monkeypatch.setattr(buffer_structs, "LONGEST", 4)
    program = program_of()
    source = program.stage(X, W).source
    assert "    place_layers(base, &buffers);" in source
    assert "        buffers->residuals[iteration] = place_residuals(base, iteration);" in source
    np.testing.assert_allclose(program(X, W)[0], cell(X, W), rtol=1e-12)


@pytest.mark.parametrize("limit", [("LEAST_FIELDS", 99), ("MOST_ADDRESSES", 10)])
def test_a_loop_with_few_values_or_many_iterations_has_arrays_alone(limit, monkeypatch) -> None:
    expected = program_of()(X, W)
    monkeypatch.setattr(loop_structs, *limit)
    program = program_of()
    source = program.stage(X, W).source
    assert "m->h_history + " in source and "kept->" not in source
    loss, gradients = program(X, W)
    assert loss == expected[0]
    for one, other in zip(gradients, expected[1], strict=True):
        np.testing.assert_array_equal(one, other)


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        self.norm, self.up, self.down = nn.LayerNorm(size), nn.Linear(size, 2 * size), nn.Linear(2 * size, size)

    def forward(self, x):
        return x + self.down(st.gelu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self) -> None:
        self.stage1 = nn.Sequential(nn.Linear(4, 4), *(Block(4) for _ in range(6)))
        self.stage2 = nn.Sequential(nn.Linear(4, 8), *(Block(8) for _ in range(5)))

    def forward(self, x):
        return self.stage2(self.stage1(x))


def test_layers_of_different_sizes_have_structs_of_one_type() -> None:
    st.seed(0)
    net = Net()

    def step(x):
        return st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net)(x)

    x = np.linspace(-1.0, 1.0, 12, dtype=np.float32).reshape(3, 4)
    source = st.function(step, target="portable").stage(x).source
    assert "    StageResiduals stage1_residuals[6], stage2_residuals[5];" in source
    assert "    StageGradients stage1_gradients[6], stage2_gradients[5];" in source
    assert "place_stage_gradients(base, stage2_gradients_offsets, stage2_gradients_sizes, layer);" in source
    assert {"down_weight", "norm_bias"} < {*re.findall(r" d_stage1->(\w+)", source)}  # the names of the weights
