"""Train a network to be the solution of the heat equation; all of training is one generated C program.

python -m examples.pinn.train           # train, and compare with the exact solution
python -m examples.pinn.train --show    # print the generated C and stop
"""

from __future__ import annotations

import math
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/pinn/train.py`

import staged as st
from examples.command_line import read_flags, run
from staged import nn, optim

CONDUCTIVITY, MAX_REPORTS = 0.1, 100


class Field(nn.Module):
    """The temperature u(x, t) of a rod, by a network of `layers` hidden layers."""

    def __init__(self, width=32, layers=3, dtype=st.f64):
        sizes = [2, *[width] * layers, 1]
        self.layers = nn.ModuleList([nn.Linear(a, b, dtype=dtype) for a, b in zip(sizes, sizes[1:], strict=False)])

    def forward(self, x, t):
        """u at the points (x, t), each (n,)."""
        h = st.stack([x, t], axis=1)
        for layer in self.layers[:-1]:
            h = st.tanh(layer(h))
        return self.layers[-1](h)[:, 0]

    def loss(self, x, t):
        """The mean square of u_t - a u_xx at (x, t), of u - sin(pi x) at (x, 0), and of u at both ends.

        Source: Raissi, Perdikaris and Karniadakis, Physics-informed neural networks, 2019.
        """
        ones, zeros = st.ones_like(x), st.zeros_like(x)
        _, u_t = st.jvp(lambda t: self(x, t), (t,), (ones,))
        _, u_xx = st.jvp(lambda x: st.jvp(lambda x: self(x, t), (x,), (ones,))[1], (x,), (ones,))
        equation = st.mean((u_t - CONDUCTIVITY * u_xx) ** 2)
        start = st.mean((self(x, zeros) - st.sin(math.pi * x)) ** 2)
        ends = st.mean(self(zeros, t) ** 2 + self(ones, t) ** 2)
        return equation + start + ends


def exact(x, t):
    """The solution: a half wave that decays."""
    return st.exp(-CONDUCTIVITY * math.pi**2 * t) * st.sin(math.pi * x)


@st.function(static=("points", "width", "report", "dtype"))
def train(steps, lr, seed, points=256, width=32, report=500, dtype=st.f64):
    """Train with Adam on points that are drawn anew for each step, at a rate that falls to a hundredth.

    Returns the weights, the loss of the last step before each report, and the largest error on a grid.
    """
    st.seed(seed)
    field = Field(width, dtype=dtype)
    opt = optim.Adam(field.parameters(), lr=lr)
    draws = st.random.Generator(seed)
    losses = st.zeros(MAX_REPORTS, dtype=dtype)
    assert steps // report <= MAX_REPORTS, f"at most {MAX_REPORTS} reports, got {steps // report}"
    for step in st.range(steps):
        opt.lr = lr * 0.01 ** (step / steps)
        x, t = draws.uniform((points,), dtype=dtype), draws.uniform((points,), dtype=dtype)
        loss, grads = st.value_and_grad(field.loss, wrt=field)(x, t)
        opt.step(grads)
        if (step + 1) % report == 0:
            losses[step // report] = loss
            print(f"step {step + 1}: loss {loss:.2e}")
    x, t = (
        part.reshape(-1)
        for part in st.meshgrid(st.linspace(0.0, 1.0, 21, dtype=dtype), st.linspace(0.0, 1.0, 21, dtype=dtype))
    )
    error = st.max(st.abs(field(x, t) - exact(x, t)))
    print(f"largest error: {error:.1e}")
    return field.state_dict(), losses, error


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, steps=3000, lr=3e-3, seed=0)
    run(flags, train, flags.steps, flags.lr, flags.seed)


if __name__ == "__main__":
    main()
