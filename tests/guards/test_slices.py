"""Slices of modules and of other objects: made while staging, so that calls are traced once and none is stale."""

from __future__ import annotations

import numpy as np

import staged as st
from staged import nn


class Halves(nn.Module):
    def __init__(self):
        self.layers = nn.Sequential(nn.Linear(3, 3), nn.Tanh(), nn.Linear(3, 3))
        self.listed = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 3)])

    def forward(self, x):
        x = self.layers[1:](self.layers[:1](x))
        for layer in self.listed[:2]:
            x = layer(x)
        return x


def test_slices_of_modules_are_traced_once() -> None:
    """Each call was another trace: a slice is an object that is made while staging."""
    st.seed(0)
    model, x = Halves(), np.ones((2, 3), np.float32)

    @st.function
    def step(x):
        return st.value_and_grad(lambda: st.sum(model(x) ** 2), wrt=model)()[0]

    for _ in range(3):
        np.testing.assert_allclose(step(x), st.sum(model(x) ** 2), rtol=1e-6)
    assert len(step.programs) == 1, step.why_traced()
    model.layers = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3))
    np.testing.assert_allclose(step(x), st.sum(model(x) ** 2), rtol=1e-6)
    model.listed.append(nn.Linear(3, 3))
    model.layers[0].weight.value = model.layers[0].weight.value * 2.0
    np.testing.assert_allclose(step(x), st.sum(model(x) ** 2), rtol=1e-6)


class Rows:
    """A user's class whose slices are views of an array, or older objects."""

    def __init__(self, array):
        self.array, self.older = array, {}

    def __getitem__(self, index):
        return self.array[index]


class Kept(Rows):
    def __getitem__(self, index):
        return self.older.setdefault(str(index), Rows(self.array[index]))


def test_slices_of_a_users_class_see_changes_of_its_array() -> None:
    rows, kept = Rows(np.arange(6.0)), Kept(np.arange(6.0))

    @st.function
    def total(x):
        return st.sum(rows[1:3] * x) + st.sum(kept[1:3].array * x)

    for _ in range(3):
        assert float(total(2.0)) == 2 * rows.array[1:3].sum() + 2 * kept.array[1:3].sum()
        rows.array[1] += 5.0
        kept.array[2] += 7.0
