"""Train a digit classifier with the loop in Python: only the step is a program, and batches come from anywhere.

python -m examples.mnist.python_loop                      # batches of a torch DataLoader; scikit-learn's digits
python -m examples.mnist.python_loop --mapped             # batches of files mapped into memory, without PyTorch
python -m examples.mnist.python_loop --data FOLDER        # MNIST's IDX files
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/mnist/python_loop.py`

import staged as st
from examples.command_line import add_flags, region, run
from examples.mnist.models import MODELS
from examples.mnist.train import load
from staged import optim


@st.function(static=("dropout",))
def step(model, optimizer, x, y, dropout=0.5):
    """One step of training; returns the loss."""
    loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x, dropout=dropout), y), wrt=model)()
    optimizer.step(grads)
    return loss


@st.function
def correct(model, x, y):
    """The number of images that get their label."""
    return st.sum(st.argmax(model(x), axis=1) == y)


def train(model, optimizer, batches, epochs, dropout=0.5):
    """Go through `batches` so often; returns the mean loss and the seconds of each epoch."""
    losses, seconds = [], []
    for epoch in range(epochs):
        begin, total, steps = time.perf_counter(), 0.0, 0
        for x, y in st.loader(batches):  # the next batches are fetched while the program computes
            total += float(step(model, optimizer, x, y, dropout=dropout))
            steps += 1
        losses.append(total / steps)
        seconds.append(time.perf_counter() - begin)
        print(f"epoch {epoch + 1}: loss {losses[-1]:.4f}, {1e3 * seconds[-1] / steps:.2f} ms a step")
    return losses, seconds


def accuracy(model, images, labels, batch=100):
    """The share of images that get their label."""
    pieces = range(0, len(images), batch)
    return sum(int(correct(model, images[i : i + batch], labels[i : i + batch])) for i in pieces) / len(images)


class Mapped:
    """Batches of arrays that lie in files, which may be larger than memory: a batch is read when it is its turn."""

    def __init__(self, folder, batch):
        self.images = np.load(Path(folder) / "images.npy", mmap_mode="r")
        self.labels = np.load(Path(folder) / "labels.npy", mmap_mode="r")
        self.batch = batch

    def __len__(self):
        return len(self.images) // self.batch

    def __iter__(self):
        for number in range(len(self)):
            piece = slice(number * self.batch, (number + 1) * self.batch)
            yield self.images[piece], self.labels[piece]


def data_loader(images, labels, batch):
    """A DataLoader of PyTorch's: shuffled, in batches of tensors, which `step` reads in place."""
    import torch

    dataset = torch.utils.data.TensorDataset(torch.from_numpy(images), torch.from_numpy(labels))
    return torch.utils.data.DataLoader(dataset, batch_size=batch, shuffle=True, drop_last=True)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with MNIST's IDX files (default: scikit-learn's digits)"
    )
    parser.add_argument(
        "--mapped", action="store_true", help="batches of memory-mapped files instead of a DataLoader's"
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    add_flags(parser)
    arguments = parser.parse_args()

    images, labels, test_images, test_labels = load(arguments.data)
    batch = 100 if arguments.data else 32
    model = MODELS[arguments.model]()
    optimizer = optim.SGD(model.parameters(), lr=arguments.lr, momentum=0.9)
    if arguments.show:
        run(arguments, step, model, optimizer, images[:batch], labels[:batch])
    with tempfile.TemporaryDirectory() as folder, region(arguments):
        if arguments.mapped:
            np.save(Path(folder) / "images.npy", images)
            np.save(Path(folder) / "labels.npy", labels)
            batches = Mapped(folder, batch)
        else:
            batches = data_loader(images, labels, batch)
        train(model, optimizer, batches, arguments.epochs)
        print(f"test accuracy {100 * accuracy(model, test_images, test_labels):.2f} %")


if __name__ == "__main__":
    main()
