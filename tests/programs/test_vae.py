"""The variational autoencoder of the examples: training steps against PyTorch's, and what it draws."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from examples.vae.train import load, picture, train
from tests.torch_reference import reference

HIDDEN, BATCH, LR = 16, 8, 1e-3
IMAGES = load(None)[:24].astype(np.float64)


def torch_losses(torch: Any, weights: dict[str, np.ndarray], images: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """The loss of each step of the same training, on the given batches and draws."""
    F = torch.nn.functional
    state = {name: torch.nn.Parameter(torch.tensor(value)) for name, value in weights.items()}
    optimizer = torch.optim.Adam(state.values(), lr=LR)

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, state[f"{name}.weight"], state[f"{name}.bias"])

    losses = []
    for x, draw in zip(torch.tensor(images), torch.tensor(noise), strict=True):
        h = F.relu(linear(x, "fc1"))
        posterior = torch.distributions.Normal(linear(h, "fc21"), torch.exp(0.5 * linear(h, "fc22")))
        scores = linear(F.relu(linear(posterior.mean + posterior.stddev * draw, "fc3")), "fc4")
        divergence = torch.distributions.kl_divergence(posterior, torch.distributions.Normal(0.0, 1.0)).sum()
        loss = (F.binary_cross_entropy(torch.sigmoid(scores), x, reduction="sum") + divergence) / len(x)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)


def test_training_has_torchs_losses() -> None:
    options: dict[str, Any] = {"batch": BATCH, "hidden": HIDDEN, "dtype": st.f64}
    weights = {name: np.array(value) for name, value in train(IMAGES, 0, LR, 3, **options)[0].items()}
    draws = st.random.Generator(3)
    expected = []
    order = np.asarray(draws.permutation(len(IMAGES)))
    batches = IMAGES[order].reshape(-1, BATCH, IMAGES.shape[1])
    noise = np.array([np.asarray(draws.normal((BATCH, 20), dtype=st.f64)) for _ in batches])
    expected = reference(torch_losses, weights, batches, noise, computed=True)
    _, losses, _ = train(IMAGES, 1, LR, 3, **options)
    np.testing.assert_allclose(losses[0], expected.mean(), rtol=1e-9)


def test_what_it_draws_after_training_is_nearer_to_digits_than_before(capsys: Any) -> None:
    images = load(None)[:512]
    _, losses, drawn = train(images, 6, 2e-3, 0, hidden=64)
    assert losses[5] < 0.6 * losses[0]
    assert "epoch 6:" in capsys.readouterr().out
    nearest = [float(((images - image) ** 2).sum(axis=1).min()) for image in drawn]
    _, _, before = train(images, 0, 2e-3, 0, hidden=64)
    assert np.mean(nearest) < 0.6 * np.mean([((images - image) ** 2).sum(axis=1).min() for image in before])
    lines = picture(drawn[0]).split("\n")
    assert len(lines) == 14 and {len(line) for line in lines} == {28}
