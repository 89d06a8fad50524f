"""Reinforcement learning with the environment in the program: REINFORCE on CartPole, deep Q-learning with a replay buffer."""

from typing import NamedTuple

import numpy as np

import staged as st
from staged import nn, optim

# ---- CartPole, by REINFORCE ----


class State(NamedTuple):
    x: float
    v: float
    angle: float
    spin: float


def push(s, right):
    """One step of 0.02 s: Barto, Sutton and Anderson's equations."""
    force = 10.0 if right else -10.0
    c, sn = st.cos(s.angle), st.sin(s.angle)
    a = (force + 0.05 * s.spin**2 * sn) / 1.1
    spin_rate = (9.8 * sn - c * a) / (0.5 * (4.0 / 3.0 - 0.1 * c**2 / 1.1))
    rate = a - 0.05 * spin_rate * c / 1.1
    return State(s.x + 0.02 * s.v, s.v + 0.02 * rate, s.angle + 0.02 * s.spin, s.spin + 0.02 * spin_rate)


def alive(s):
    return abs(s.x) < 2.4 and abs(s.angle) < 0.2095


@st.function(seed=3)
def reinforce(episodes, limit=200):
    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))
    opt = optim.Adam(policy.parameters(), lr=0.01)
    lengths = st.zeros(300, dtype=st.i64)
    baseline = 0.0
    for episode in st.range(episodes):
        seen, chosen = st.zeros((limit, 4)), st.zeros(limit, dtype=st.i64)
        s = State(*st.random.uniform((4,), low=-0.05, high=0.05))
        t = 0
        while t < limit and alive(s):
            seen[t] = st.stack(s)
            chosen[t] = st.random.categorical(policy(seen[t]))
            s = push(s, chosen[t] == 1)
            t += 1
        taken = st.arange(limit) < t
        returns = st.where(taken, t - st.arange(limit), 0) / 100.0
        baseline = 0.9 * baseline + 0.1 * (t / 200.0)

        def loss():
            scores = st.log_softmax(policy(seen))[st.arange(limit), chosen]
            return -st.sum(st.where(taken, scores * (returns - baseline), 0.0)) / t

        opt.step(st.grad(loss, wrt=policy)())
        lengths[episode] = t
    return lengths


def test_cartpole_is_balanced():
    lengths = reinforce(250)[:250]
    assert lengths[:20].mean() < 60 and lengths[-50:].mean() > 120, (lengths[:20].mean(), lengths[-50:].mean())


# ---- a corridor of known values, by deep Q-learning ----

CELLS, DISCOUNT = 6, 0.9


@st.function(seed=0)
def q_learning(steps, capacity=64):
    make = lambda: nn.Linear(CELLS, 2)
    online, target = make(), make()
    target.load_state_dict(online.state_dict())
    opt = optim.Adam(online.parameters(), lr=0.05)
    cells, actions = st.zeros(capacity, dtype=st.i64), st.zeros(capacity, dtype=st.i64)
    rewards, nexts, ends = st.zeros(capacity), st.zeros(capacity, dtype=st.i64), st.zeros(capacity, dtype=bool)
    cell = 0
    for step in st.range(steps):
        action = st.random.integers(2) if st.random.uniform() < 0.5 else st.argmax(online(st.one_hot(cell, CELLS)))
        after = max(0, cell - 1) if action == 0 else cell + 1
        end = after == CELLS - 1
        slot = step % capacity
        cells[slot], actions[slot], nexts[slot], ends[slot] = cell, action, after, end
        rewards[slot] = 1.0 if end else 0.0
        cell = 0 if end else after
        if step >= capacity:
            pick = st.random.integers(0, capacity, (16,))
            best = st.max(target(st.one_hot(nexts[pick], CELLS)), axis=1)
            goal = rewards[pick] + DISCOUNT * st.where(ends[pick], 0.0, best)

            def loss():
                q = online(st.one_hot(cells[pick], CELLS))
                return st.huber_loss(st.take_along_axis(q, actions[pick][:, None], axis=1)[:, 0], goal)

            opt.lr = 0.05 * (1.0 - step / steps)  # to 0: the values settle, whatever a processor's last bits choose
            opt.step(st.grad(loss, wrt=online)())
        if step % 50 == 0:
            target.load_state_dict(online.state_dict())
    return online(st.eye(CELLS))


def test_q_learning_finds_the_values_of_the_corridor():
    q = q_learning(4000)[: CELLS - 1]
    distance = CELLS - 2 - np.arange(CELLS - 1)
    right = DISCOUNT**distance
    left = DISCOUNT * np.concatenate([right[:1], right[:-1]])
    np.testing.assert_allclose(q, np.stack([left, right], axis=1), atol=0.02)
