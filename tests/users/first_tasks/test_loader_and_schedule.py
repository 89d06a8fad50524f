"""Batches from outside, with a smaller last batch, and a schedule of the learning rate.

Follows README.md#your-loop-may-stay-in-python, docs/calls.md#arrays-of-other-libraries and docs/guide.md#networks-and-optimisers.
"""

import numpy as np
import pytest

import staged as st
from staged import nn, optim

X = np.random.default_rng(0).normal(size=(10, 3)).astype(np.float32)
Y = X @ np.array([[1.0], [-2.0], [0.5]], np.float32)


class Tensor:
    """An array of another library."""

    def __init__(self, array):
        self.array = array

    def __array__(self, dtype=None, copy=None):
        return np.asarray(self.array, dtype)


def batches():
    for first in range(0, 10, 4):
        yield Tensor(X[first : first + 4]), Tensor(Y[first : first + 4])


def train(epochs, batches):
    model = nn.Linear(3, 1, bias=False)
    model.load_state_dict({"weight": np.zeros((1, 3), np.float32)})
    opt = optim.SGD(model.parameters(), lr=0.2, momentum=0.9)
    schedule = optim.lr_scheduler.StepLR(opt, step_size=2, gamma=0.5)

    @st.function
    def step(x, y):
        loss, grads = st.value_and_grad(lambda: st.mse_loss(model(x), y), wrt=model)()
        opt.step(grads)
        return loss

    rates = []
    for _ in range(epochs):
        for x, y in batches():
            step(x, y)
        schedule.step()
        rates.append(float(opt.lr.value))
    return np.asarray(model.state_dict()["weight"]), rates, step


def by_hand(epochs):
    w, velocity, rate = np.zeros((3, 1)), np.zeros((3, 1)), 0.2
    for epoch in range(epochs):
        for first in range(0, 10, 4):
            x, y = X[first : first + 4], Y[first : first + 4]
            velocity = 0.9 * velocity + 2 * x.T @ (x @ w - y) / len(x)
            w = w - rate * velocity
        if epoch % 2 == 1:
            rate *= 0.5
    return w.T


def test_training_is_that_of_numpy():
    weight, rates, step = train(5, batches)
    np.testing.assert_allclose(weight, by_hand(5), rtol=1e-4, atol=1e-5)
    assert np.allclose(rates, [0.2, 0.1, 0.1, 0.05, 0.05])
    assert sorted(program.calls for program in step.programs) == [5, 10]  # one program for each size of a batch


@pytest.mark.live
def test_batches_of_torchs_loader(library):
    torch = library("torch")
    dataset = torch.utils.data.TensorDataset(torch.tensor(X), torch.tensor(Y))
    weight, _, _ = train(5, lambda: torch.utils.data.DataLoader(dataset, batch_size=4))
    np.testing.assert_allclose(weight, by_hand(5), rtol=1e-4, atol=1e-5)
