"""Learn a differential equation from a path of it; solver, derivatives and training are one generated C program.

python -m examples.neural_ode.train              # learn a spiral
python -m examples.neural_ode.train --adjoint 1  # with derivatives by the adjoint equation
python -m examples.neural_ode.train --show       # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/neural_ode/train.py`

import staged as st
from examples.command_line import read_flags, run
from staged import nn, optim

MAX_STEPS = 10_000


class Slope(nn.Module):
    """y' as a network of y: 2-50-2 on the cubes, as in the demonstration of the source.

    Source: Chen et al., Neural ordinary differential equations, 2018.
    """

    def __init__(self, hidden=50, dtype=st.f64):
        self.fc1 = nn.Linear(2, hidden, dtype=dtype)
        self.fc2 = nn.Linear(hidden, 2, dtype=dtype)

    def forward(self, y):
        return self.fc2(st.tanh(self.fc1(y**3)))


def spiral(count: int = 200) -> tuple[np.ndarray, np.ndarray]:
    """(times, path): y' = (y**3) A from (2, 0), at `count` times from 0 to 10. Synthetic data."""
    matrix = np.array([[-0.1, 2.0], [-2.0, -0.1]])
    times = np.linspace(0.0, 10.0, count)
    path = st.integrate.odeint(lambda y, t: y**3 @ matrix, np.array([2.0, 0.0]), times, rtol=1e-9)
    return times, np.asarray(path)


def paths(slope, begins, times, adjoint=False):
    """The solutions from `begins` (batch, 2) at `times` (n,): (n, batch, 2), in steps as long as the errors allow.

    With `adjoint` derivatives are the solution of another equation, which takes the weights as an argument.
    """
    if not adjoint:
        return st.integrate.odeint(lambda y, t: slope(y), begins, times, rtol=1e-6, atol=1e-8)
    weights = [parameter.value for parameter in slope.parameters()]

    def field(y, t, weights):
        w1, b1, w2, b2 = weights
        return st.tanh(y**3 @ w1.T + b1) @ w2.T + b2

    return st.integrate.odeint(field, begins, times, weights, rtol=1e-6, atol=1e-8, adjoint=True)


def loss_of(slope, begins, times, wanted, adjoint=False):
    """The mean distance of the paths from `wanted` (n, batch, 2), along each axis."""
    return st.mean(st.abs(paths(slope, begins, times, adjoint) - wanted))


@st.function(static=("batch", "window", "adjoint", "hidden"))
def train(times, path, steps, lr, seed, batch=16, window=10, adjoint=False, hidden=50):
    """Train with RMSprop on pieces of `window` points of the path; prints how far the whole path is from the true one.

    Returns the weights, the loss of each step, and the learned path.
    """
    st.seed(seed)
    slope = Slope(hidden)
    opt = optim.RMSprop(slope.parameters(), lr=lr)
    draws = st.random.Generator(seed)
    losses = st.zeros(MAX_STEPS, dtype=st.f64)
    assert steps <= MAX_STEPS, f"at most {MAX_STEPS} steps, got {steps}"
    for step in st.range(steps):
        first = draws.integers(0, path.shape[0] - window, (batch,))
        wanted = path[first + st.arange(window).reshape(-1, 1)]
        value_and_grad = st.value_and_grad(loss_of, wrt=slope)
        loss, grads = value_and_grad(slope, path[first], times[:window], wanted, adjoint)
        opt.step(grads)
        losses[step] = loss
        if (step + 1) % 200 == 0:
            off = loss_of(slope, path[:1], times, path.reshape(-1, 1, 2))
            print(f"step {step + 1}: loss {loss:.4f}, the whole path is off by {off:.3f}")
    return slope.state_dict(), losses, paths(slope, path[:1], times)[:, 0]


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, steps=1000, lr=1e-3, seed=0, adjoint=0)
    run(flags, train, *spiral(), flags.steps, flags.lr, flags.seed, adjoint=bool(flags.adjoint))


if __name__ == "__main__":
    main()
