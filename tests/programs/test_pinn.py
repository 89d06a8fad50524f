"""The heat equation of the examples: loss and gradients against PyTorch's, the solution against the exact one."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.pinn.train import CONDUCTIVITY, Field, train
from tests.torch_reference import reference


def by_torch(torch: Any, weights: dict[str, np.ndarray], x: np.ndarray, t: np.ndarray) -> list[Any]:
    """The loss, and its gradient by each weight, with the derivatives of the field by `autograd.grad`."""
    state = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    layers = len(state) // 2

    def field(x: Any, t: Any) -> Any:
        h = torch.stack([x, t], dim=1)
        for layer in range(layers):
            h = torch.nn.functional.linear(h, state[f"layers.{layer}.weight"], state[f"layers.{layer}.bias"])
            h = torch.tanh(h) if layer < layers - 1 else h
        return h[:, 0]

    def slope(y: Any, x: Any) -> Any:
        return torch.autograd.grad(y.sum(), x, create_graph=True)[0]

    x, t = torch.tensor(x, requires_grad=True), torch.tensor(t, requires_grad=True)
    u = field(x, t)
    loss = ((slope(u, t) - CONDUCTIVITY * slope(slope(u, x), x)) ** 2).mean()
    loss = loss + ((field(x, 0 * t) - torch.sin(torch.pi * x)) ** 2).mean()
    loss = loss + (field(0 * x, t) ** 2).mean() + (field(0 * x + 1, t) ** 2).mean()
    loss.backward()
    return [loss.detach(), *(each.grad for each in state.values())]


def test_the_loss_and_its_gradients_are_torchs() -> None:
    st.seed(2)
    field = Field(width=8, layers=2)
    weights = field.state_dict()
    x, t = np.random.default_rng(0).uniform(size=(2, 12))
    expected = reference(by_torch, weights, x, t)
    loss, grads = st.function(lambda x, t: st.value_and_grad(field.loss, wrt=field)(x, t))(x, t)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-10)
    for (name, _), gradient, wanted in zip(field.named_parameters(), grads.values(), expected[1:], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-8, atol=1e-12, err_msg=name)


def test_training_finds_the_solution(capsys: Any) -> None:
    _, losses, error = train(1500, 5e-3, 0, points=64, width=16, report=500)
    assert losses[2] < 0.6 * losses[0] < 0.01
    assert error < 0.05  # of a solution between 0 and 1
    assert f"largest error: {error:.1e}" in capsys.readouterr().out
