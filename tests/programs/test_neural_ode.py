"""The neural differential equation of the examples: loss and gradients against PyTorch's, and the path it learns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.integrate import solve_ivp

import staged as st
from examples.neural_ode.train import Slope, loss_of, paths, spiral, train
from tests.torch_reference import reference

TIMES, PATH = spiral(101)
BEGINS = PATH[[0, 20, 50]]
WANTED = PATH[np.array([0, 20, 50]) + np.arange(6)[:, None]]


def by_torch(torch: Any, weights: dict[str, np.ndarray], begins: np.ndarray, times: np.ndarray, wanted: np.ndarray) -> list[Any]:
    """The loss and its gradients through the classical Runge-Kutta formula in very short steps."""
    state = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    F = torch.nn.functional

    def slope(y: Any) -> Any:
        return F.linear(torch.tanh(F.linear(y**3, state["fc1.weight"], state["fc1.bias"])), state["fc2.weight"], state["fc2.bias"])

    y, found, parts = torch.tensor(begins), [torch.tensor(begins)], 40
    for h in np.diff(times) / parts:
        for _ in range(parts):
            k1 = slope(y)
            k2 = slope(y + 0.5 * h * k1)
            k3 = slope(y + 0.5 * h * k2)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + slope(y + h * k3))
        found.append(y)
    loss = (torch.stack(found) - torch.tensor(wanted)).abs().mean()
    loss.backward()
    return [loss.detach(), *(each.grad for each in state.values())]


def test_the_data_are_the_solution() -> None:
    matrix = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    found = solve_ivp(lambda t, y: y**3 @ matrix, (0.0, 10.0), [2.0, 0.0], t_eval=TIMES, rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(PATH, found.y.T, atol=1e-5)


@pytest.mark.parametrize("adjoint", [False, True])
def test_the_loss_and_its_gradients_are_torchs(adjoint: bool) -> None:
    st.seed(4)
    slope = Slope(hidden=8)
    loss, grads = st.function(
        lambda begins, times, wanted: st.value_and_grad(loss_of, wrt=slope)(slope, begins, times, wanted, adjoint)
    )(BEGINS, TIMES[:6], WANTED)
    expected = reference(by_torch, slope.state_dict(), BEGINS, TIMES[:6], WANTED, computed=True)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-5)
    for (name, _), gradient, wanted in zip(slope.named_parameters(), grads.values(), expected[1:], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=1e-6, err_msg=name)


def test_training_learns_the_path() -> None:
    weights, losses, learned = train(TIMES, PATH, 150, 3e-3, 0, batch=8, window=5, hidden=16)
    assert np.mean(losses[130:150]) < 0.5 * np.mean(losses[:20])
    slope = Slope(hidden=16)
    slope.load_state_dict(weights)
    np.testing.assert_allclose(learned, np.asarray(paths(slope, PATH[:1], TIMES))[:, 0], rtol=1e-9)
