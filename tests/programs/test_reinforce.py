"""The cart and pole of the examples: dynamics, gains and the policy's gradient against NumPy's and PyTorch's."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

import staged as st
from examples.reinforce.train import Policy, episodes, gains_of, moved, train
from tests.torch_reference import reference


def one_move(state: np.ndarray, action: int) -> np.ndarray:
    """Gym's CartPole-v1, by scalars."""
    x, dx, angle, turning = state
    temp = ((10.0 if action else -10.0) + 0.05 * turning**2 * math.sin(angle)) / 1.1
    ddangle = (9.8 * math.sin(angle) - math.cos(angle) * temp) / (0.5 * (4.0 / 3.0 - 0.1 * math.cos(angle) ** 2 / 1.1))
    ddx = temp - 0.05 * ddangle * math.cos(angle) / 1.1
    return np.array([x + 0.02 * dx, dx + 0.02 * ddx, angle + 0.02 * turning, turning + 0.02 * ddangle])


def test_the_cart_moves_as_gyms_and_falls_where_its_does() -> None:
    states = np.random.default_rng(0).normal(size=(20, 4)) * [2.0, 1.0, 0.2, 1.0]
    actions = np.arange(20) % 2
    new, fell = moved(states, actions)
    expected = np.array([one_move(*each) for each in zip(states, actions, strict=True)])
    np.testing.assert_allclose(new, expected, rtol=1e-12)
    wanted = (abs(expected[:, 0]) > 2.4) | (abs(expected[:, 2]) > 12 * math.pi / 180)
    np.testing.assert_array_equal(fell, wanted)
    assert 0 < wanted.sum() < 20


def test_gains_are_the_rewards_to_come_in_deviations() -> None:
    lengths = [4, 1, 6]
    standing = (np.arange(7)[:, None] < np.array(lengths)).astype(np.float64)
    to_come = np.array([[sum(0.9**k for k in range(n - t)) for n in lengths] for t in range(7)])
    there = to_come[standing == 1]
    expected = standing * (to_come - there.mean()) / there.std()
    np.testing.assert_allclose(st.function(gains_of)(standing, 0.9), expected, atol=1e-5)


def by_torch(torch: Any, weights: dict[str, np.ndarray], states: np.ndarray, actions: np.ndarray, gains: np.ndarray) -> list[Any]:
    state = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}
    F = torch.nn.functional
    h = torch.tanh(F.linear(torch.tensor(states), state["fc1.weight"], state["fc1.bias"]))
    policy = torch.distributions.Categorical(logits=F.linear(h, state["fc2.weight"], state["fc2.bias"]))
    loss = -(policy.log_prob(torch.tensor(actions)) * torch.tensor(gains)).mean()
    loss.backward()
    return [loss.detach(), *(each.grad for each in state.values())]


def test_the_gradient_of_the_policy_is_torchs() -> None:
    st.seed(1)
    policy, draws = Policy(hidden=6, dtype=st.f64), st.random.Generator(5)
    states, actions, standing = map(np.asarray, st.function(lambda: episodes(policy, draws, 3, 12, st.f64))())
    for n in range(11):
        for cart in range(3):
            if standing[n + 1, cart]:
                np.testing.assert_allclose(states[n + 1, cart], one_move(states[n, cart], actions[n, cart]), rtol=1e-9)
    # The reference has the same inputs on every processor: rounding removes the bits that depend on it.
    states, gains = np.round(states, 6), np.round(np.asarray(st.function(gains_of)(standing, 0.9)), 6)
    loss, grads = st.value_and_grad(policy.loss, wrt=policy)(states, actions, gains)
    expected = reference(by_torch, policy.state_dict(), states, actions, gains)
    np.testing.assert_allclose(loss, expected[0], rtol=1e-9, atol=1e-12)
    for (name, _), gradient, wanted in zip(policy.named_parameters(), grads.values(), expected[1:], strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-8, atol=1e-12, err_msg=name)


def test_the_pole_stands_longer_after_training() -> None:
    _, lengths = train(60, 1e-2, 0, carts=8, longest=200)
    assert np.mean(lengths[50:60]) > 120 > 40 > np.mean(lengths[:3])
