"""A physics-informed network: u_t = u_xx by derivatives of derivatives under vmap; its gradients are torch's."""

import numpy as np

import staged as st
from staged import nn, optim
from tests.torch_reference import reference

RNG = np.random.default_rng(0)
INNER = RNG.uniform(0, 1, (64, 2))
EDGE = np.concatenate(
    [np.stack([RNG.uniform(0, 1, 16), np.zeros(16)], 1), np.stack([np.repeat([0.0, 1.0], 8), RNG.uniform(0, 1, 16)], 1)]
)
RATE = 0.1


def make():
    model = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1))
    return model.double()


def exact(points):
    return np.exp(-RATE * np.pi**2 * points[:, 1]) * np.sin(np.pi * points[:, 0])


def curvature(model, points):
    u = lambda x, t: model(st.stack([x, t]))[0]
    return st.vmap(st.grad(st.grad(u)))(points[:, 0], points[:, 1])


def loss(model, points, edge, values):
    u = lambda x, t: model(st.stack([x, t]))[0]
    u_t = st.vmap(st.grad(u, argnums=1))(points[:, 0], points[:, 1])
    residual = u_t - RATE * curvature(model, points)
    return st.mean(residual**2) + st.mean((model(edge)[:, 0] - values) ** 2)


@st.function
def slopes(model, points, edge, values):
    value, grads = st.value_and_grad(loss, wrt=model)(model, points, edge, values)
    return curvature(model, points), value, grads


@st.function
def train(model, points, edge, values, steps):
    opt = optim.Adam(model.parameters(), lr=0.01)
    for _ in st.range(steps):
        opt.step(st.grad(loss, wrt=model)(model, points, edge, values))
    return model(points)[:, 0]


def in_torch(torch, weights, points, edge, values):
    state = {name: torch.tensor(value, requires_grad=True) for name, value in weights.items()}

    def net(x):
        for i in (0, 2, 4):
            x = x @ state[f"{i}.weight"].T + state[f"{i}.bias"]
            x = torch.tanh(x) if i < 4 else x
        return x[:, 0]

    points = torch.tensor(points, requires_grad=True)
    first = torch.autograd.grad(net(points).sum(), points, create_graph=True)[0]
    second = torch.autograd.grad(first[:, 0].sum(), points, create_graph=True)[0][:, 0]
    total = ((first[:, 1] - RATE * second) ** 2).mean() + ((net(torch.tensor(edge)) - torch.tensor(values)) ** 2).mean()
    return second, total, list(torch.autograd.grad(total, list(state.values())))


def test_second_derivatives_and_gradients_are_torchs():
    st.seed(0)
    model = make()
    u_xx, value, grads = reference(in_torch, model.state_dict(), INNER, EDGE, exact(EDGE))
    found = slopes(model, INNER, EDGE, exact(EDGE))
    np.testing.assert_allclose(found[0], u_xx, rtol=1e-9)
    np.testing.assert_allclose(found[1], value, rtol=1e-10)
    for ours, theirs in zip(found[2].values(), grads, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-12)


def test_the_solution_is_found():
    st.seed(0)
    found = train(make(), INNER, EDGE, exact(EDGE), 800)
    assert np.abs(found - exact(INNER)).max() < 0.03
