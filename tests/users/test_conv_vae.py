"""A convolutional variational autoencoder: its loss and every gradient are torch's, and it learns."""

import numpy as np

import staged as st
from staged import data, nn, optim
from tests.torch_reference import reference


def define(nn, F):
    class VAE(nn.Module):
        def __init__(self, latent=4):
            super().__init__()
            self.enc = nn.Sequential(
                nn.Conv2d(1, 8, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Conv2d(8, 8, 3, stride=2, padding=1),
                nn.ReLU(),
                nn.Flatten(),
            )
            self.mu, self.logvar = nn.Linear(32, latent), nn.Linear(32, latent)
            self.up = nn.Linear(latent, 32)
            self.dec = nn.Sequential(
                nn.ReLU(),
                nn.Unflatten(1, (8, 2, 2)),
                nn.ConvTranspose2d(8, 8, 4, stride=2, padding=1),
                nn.ReLU(),
                nn.ConvTranspose2d(8, 1, 4, stride=2, padding=1),
            )

        def negative_elbo(self, x, noise):
            h = self.enc(x)
            mu, logvar = self.mu(h), self.logvar(h)
            logits = self.dec(self.up(mu + noise * (0.5 * logvar).exp()))
            recon = F.binary_cross_entropy_with_logits(logits, x, reduction="sum")
            kl = -0.5 * (1 + logvar - mu**2 - logvar.exp()).sum()
            return (recon + kl) / len(x)

    return VAE


VAE = define(nn, st)


def torch_gradients(torch, weights, x, noise):
    model = define(torch.nn, torch.nn.functional)()
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    loss = model.negative_elbo(torch.tensor(x), torch.tensor(noise))
    loss.backward()
    return loss, {name: p.grad for name, p in model.named_parameters()}


def test_loss_and_gradients_are_torchs():
    st.seed(0)
    model = VAE()
    x = data.digits()[0][:8].reshape(8, 1, 8, 8)
    noise = np.random.default_rng(1).normal(size=(8, 4)).astype(np.float32)
    expected, slopes = reference(torch_gradients, model.state_dict(), x, noise)

    @st.function
    def gradients(x, noise):
        return st.value_and_grad(model.negative_elbo, wrt=model)(x, noise)

    loss, grads = gradients(x, noise)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert list(grads) == list(slopes)
    for name, grad in grads.items():
        np.testing.assert_allclose(grad, slopes[name], rtol=1e-3, atol=1e-4, err_msg=name)


@st.function(static=("epochs",))
def train(images, epochs):
    st.seed(2)
    model = VAE()
    opt = optim.Adam(model.parameters(), lr=3e-3)
    losses = st.zeros(epochs)
    for epoch in st.range(epochs):
        count = 0
        for x in st.batches(images, size=16):
            loss, grads = st.value_and_grad(model.negative_elbo, wrt=model)(x, st.random.normal((16, 4)))
            opt.step(grads)
            losses[epoch] += loss
            count += 1
        losses[epoch] /= count
    return losses


def test_it_learns_digits():
    losses = train(data.digits()[0][:256].reshape(-1, 1, 8, 8), 12)
    assert losses[-1] < losses[0] - 5 and np.all(np.isfinite(losses))
