"""Train a variational autoencoder on handwritten digits, and draw new ones; all of it is one generated C program.

python -m examples.vae.train                  # scikit-learn's digits, offline
python -m examples.vae.train --data FOLDER    # MNIST's IDX files
python -m examples.vae.train --show           # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/vae/train.py`

import staged as st
from examples.command_line import read_flags, run
from staged import data, nn, optim

PIXELS, MAX_EPOCHS, SHADES = 784, 100, " .:-=+*#%@"


class VAE(nn.Module):
    """784-400-20-400-784: an image becomes a normal distribution over 20 numbers, and a draw from it an image.

    Source: Kingma and Welling, Auto-encoding variational Bayes, 2014, in the sizes of PyTorch's example.
    """

    def __init__(self, hidden=400, latent=20, dtype=st.f32):
        self.latent, self.dtype = latent, dtype
        self.fc1 = nn.Linear(PIXELS, hidden, dtype=dtype)
        self.fc21 = nn.Linear(hidden, latent, dtype=dtype)
        self.fc22 = nn.Linear(hidden, latent, dtype=dtype)
        self.fc3 = nn.Linear(latent, hidden, dtype=dtype)
        self.fc4 = nn.Linear(hidden, PIXELS, dtype=dtype)

    def decoded(self, z):
        """Scores of each pixel to be white."""
        return self.fc4(st.relu(self.fc3(z)))

    def loss(self, x, noise):
        """Minus the bound of log p(x), in nats per image, by one draw: `noise` (batch, latent) is from N(0, 1)."""
        h = st.relu(self.fc1(x))
        mean, log_variance = self.fc21(h), self.fc22(h)
        scores = self.decoded(mean + noise * st.exp(0.5 * log_variance))
        unlikely = st.binary_cross_entropy_with_logits(scores, x, reduction="sum")
        divergence = -0.5 * st.sum(1.0 + log_variance - mean**2 - st.exp(log_variance))
        return (unlikely + divergence) / x.shape[0]


@st.function(static=("batch", "hidden", "dtype"))
def train(images, epochs, lr, seed, batch=64, hidden=400, dtype=st.f32):
    """Train with Adam; prints the loss of each epoch, and two digits that it draws at the end.

    Returns the weights, the mean loss of each epoch, and 16 images that were drawn.
    """
    st.seed(seed)
    model = VAE(hidden, dtype=dtype)
    opt = optim.Adam(model.parameters(), lr=lr)
    draws = st.random.Generator(seed)
    losses = st.zeros(MAX_EPOCHS, dtype=dtype)
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"
    for epoch in st.range(epochs):
        total = 0.0
        for x in st.batches(images, size=batch, shuffle=True, generator=draws):
            noise = draws.normal((batch, model.latent), dtype=dtype)
            loss, grads = st.value_and_grad(model.loss, wrt=model)(x, noise)
            opt.step(grads)
            total += loss
        losses[epoch] = total / (images.shape[0] // batch)
        print(f"epoch {epoch + 1}: {losses[epoch]:.2f} nats per image")
    drawn = st.sigmoid(model.decoded(draws.normal((16, model.latent), dtype=dtype)))
    return model.state_dict(), losses, drawn


def picture(image: np.ndarray) -> str:
    """An image (784,) in [0, 1] as 14 lines of text."""
    rows = image.reshape(14, 2, 28).mean(axis=1)
    return "\n".join("".join(SHADES[int(9.99 * shade)] for shade in row) for row in rows)


def load(folder: str | None) -> np.ndarray:
    """Images (n, 784) in [0, 1]: MNIST's of `folder`, or scikit-learn's digits."""
    if folder is None:
        return data.digits(size=28)[0].reshape(-1, PIXELS)
    try:
        images, _ = data.mnist(folder, "train", normalized=False)
    except data.DataError:
        images, _ = data.mnist(folder, "test", normalized=False)  # where only the small files are there
    return images.reshape(-1, PIXELS).astype(np.float32) / 255.0


def main() -> None:
    """The command line."""
    flags = read_flags(__doc__, data=None, epochs=20, lr=1e-3, seed=0)
    _, _, drawn = run(flags, train, load(flags.data), flags.epochs, flags.lr, flags.seed)
    for image in drawn[:2]:
        print(picture(image))


if __name__ == "__main__":
    main()
