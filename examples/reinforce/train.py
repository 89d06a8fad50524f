"""Learn to balance a pole on a cart; the cart, the episodes and training are one generated C program.

python -m examples.reinforce.train           # train until the pole stands
python -m examples.reinforce.train --show    # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/reinforce/train.py`

import staged as st
from examples.command_line import read_flags, run
from staged import nn, optim

GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02
MAX_UPDATES = 1000


def moved(state, action):
    """The state (x, x', angle, angle') (batch, 4) after a push to the left (action 0) or right (1), and whether it fell.

    Source: Barto, Sutton and Anderson, Neuronlike adaptive elements, 1983, in the constants of Gym's CartPole-v1.
    """
    x, dx, angle, turning = (state[:, each] for each in range(4))
    force = st.where(action == 1, FORCE, -FORCE)
    sine, cosine = st.sin(angle), st.cos(angle)
    mass = CART + POLE
    push = (force + POLE * HALF_LENGTH * turning**2 * sine) / mass
    ddangle = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / mass))
    ddx = push - POLE * HALF_LENGTH * ddangle * cosine / mass
    new = st.stack(
        [x + SECONDS * dx, dx + SECONDS * ddx, angle + SECONDS * turning, turning + SECONDS * ddangle], axis=1
    )
    fell = (st.abs(new[:, 0]) > 2.4) | (st.abs(new[:, 2]) > 0.20943951)
    return new, fell


class Policy(nn.Module):
    """Scores of both pushes, 4-32-2."""

    def __init__(self, hidden=32, dtype=st.f32):
        self.fc1 = nn.Linear(4, hidden, dtype=dtype)
        self.fc2 = nn.Linear(hidden, 2, dtype=dtype)

    def forward(self, state):
        return self.fc2(st.tanh(self.fc1(state)))

    def loss(self, states, actions, gains):
        """Minus the mean over all places of log p(action) times its gain, whose slope is that of the expected reward.

        Source: Williams, Simple statistical gradient-following algorithms (REINFORCE), 1992.
        """
        scores = self(states.reshape(-1, 4))
        unlikely = st.cross_entropy(scores, actions.reshape(-1), reduction="none")
        return st.mean(unlikely * gains.reshape(-1))


def episodes(policy, draws, carts, longest, dtype):
    """Let `carts` carts run until the pole falls, at most `longest` steps.

    Returns states (longest, carts, 4), actions and whether the pole still stood (longest, carts).
    """
    state = draws.uniform((carts, 4), low=-0.05, high=0.05, dtype=dtype)
    stands = st.ones((carts,), dtype=st.bool_)
    states = st.zeros((longest, carts, 4), dtype=dtype)
    actions = st.zeros((longest, carts), dtype=st.i64)
    standing = st.zeros((longest, carts), dtype=dtype)
    step = 0
    while step < longest and st.any(stands):
        action = draws.categorical(policy(state))
        states[step], actions[step], standing[step] = state, action, st.astype(stands, dtype)
        state, fell = moved(state, action)
        stands = stands & ~fell
        step += 1
    return states, actions, standing


def gains_of(standing, discount):
    """The discounted sum of the rewards from each step on, less its mean over the carts that stand, in deviations."""
    gains = st.zeros_like(standing)
    after = st.zeros_like(standing[0])
    longest = standing.shape[0]
    for back in st.range(longest):
        place = longest - 1 - back
        after = standing[place] * (1.0 + discount * after)
        gains[place] = after
    count = st.sum(standing)
    mean = st.sum(gains) / count
    deviation = st.sqrt(st.sum(standing * (gains - mean) ** 2) / count)
    return standing * (gains - mean) / (deviation + 1e-6)


@st.function(static=("carts", "longest", "report", "dtype"))
def train(updates, lr, seed, carts=16, longest=500, report=20, dtype=st.f32):
    """Train with Adam; one update is by the episodes of `carts` carts. Prints how long the pole stands.

    Returns the weights, and the mean number of steps of the episodes of each update.
    """
    st.seed(seed)
    policy = Policy(dtype=dtype)
    opt = optim.Adam(policy.parameters(), lr=lr)
    draws = st.random.Generator(seed)
    lengths = st.zeros(MAX_UPDATES, dtype=dtype)
    assert updates <= MAX_UPDATES, f"at most {MAX_UPDATES} updates, got {updates}"
    for update in st.range(updates):
        states, actions, standing = episodes(policy, draws, carts, longest, dtype)
        grads = st.grad(policy.loss, wrt=policy)(states, actions, gains_of(standing, 0.99))
        opt.step(grads)
        lengths[update] = st.sum(standing) / carts
        if (update + 1) % report == 0:
            print(f"update {update + 1}: the pole stands for {lengths[update]:.0f} steps")
    return policy.state_dict(), lengths


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, updates=200, lr=1e-2, seed=0)
    run(flags, train, flags.updates, flags.lr, flags.seed)


if __name__ == "__main__":
    main()
