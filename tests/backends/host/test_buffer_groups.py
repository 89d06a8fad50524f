"""The buffers of a large program are in structs by role and layer, each with few fields."""

from __future__ import annotations

import re

import numpy as np

import staged as st
from staged import nn, optim
from staged.backends.host import buffer_groups

X = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(4, 4)


class Pair(nn.Module):
    def __init__(self, size: int) -> None:
        self.up, self.down = nn.Linear(4, size), nn.Linear(size, 4)

    def forward(self, x):
        return self.down(st.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        self.first, self.second, self.third = Pair(5), Pair(6), Pair(7)

    def forward(self, x):
        return self.third(self.second(self.first(x)))


def train(x, steps):
    st.seed(1)
    net = Net()
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    loss = 0.0
    for _ in st.range(steps):
        loss, grads = st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net)(x)
        optimizer.step(grads)
    return st.sum(net(x[:2]) ** 2), loss


def test_no_struct_of_a_large_program_has_many_fields(monkeypatch) -> None:
    whole = st.function(train, target="portable")
    expected = whole(X, 3)
    monkeypatch.setattr(buffer_groups, "MOST_FIELDS", 12)
    monkeypatch.setattr(buffer_groups, "LEAST_FIELDS", 2)
    divided = st.function(lambda x, steps: train(x, steps), target="portable")
    source = divided.stage(X, 3).source
    structs = {name: len(re.findall(r"[,;]", rows)) for rows, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", source)}
    assert {"Gradients", "MeanFirst", "VarianceThird"} <= structs.keys()
    assert max(count for name, count in structs.items() if name != "Buffers") <= 12
    assert "m->mean_first.up_weight" in source
    assert "VarianceThird variance_third;" in source
    np.testing.assert_array_equal(divided(X, 3), expected)


def test_layers_with_equal_fields_have_structs_even_if_they_are_small(monkeypatch) -> None:
    monkeypatch.setattr(buffer_groups, "MOST_FIELDS", 12)
    monkeypatch.setattr(buffer_groups, "LEAST_FIELDS", 99)
    source = st.function(train, target="portable").stage(X, 3).source
    fields = {name: re.findall(r"\w+(?=[,;])", rows) for rows, name in re.findall(r"typedef struct \{([^}]*)\} (\w+);", source)}
    assert fields["MeanFirst"] == fields["VarianceThird"] == ["up_weight", "up_bias", "down_weight", "down_bias"]
    assert "Variables" not in fields
