"""Train a digit classifier; the whole of training is one generated C program.

python examples/mnist/train.py                        # scikit-learn's digits, offline
python examples/mnist/train.py --data FOLDER          # MNIST's IDX files
python examples/mnist/train.py --model mlp --epochs 5
python examples/mnist/train.py --show                 # print the generated C and stop

mpiexec -n 4 python examples/mnist/train.py --shard   # on four MPI ranks
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/mnist/train.py`

import staged as st
from examples.command_line import add_flags, run
from examples.mnist.models import MODELS
from staged import data, optim

MAX_EPOCHS = 100


@st.function(static=("model", "batch", "dropout", "shard"))
def train(images, labels, test_images, test_labels, epochs, lr, seed, model="cnn", batch=100, dropout=0.5, shard=False):
    """Train with SGD; returns the weights, the mean loss of each epoch and the test accuracy after each."""
    st.seed(seed)
    net = MODELS[model]()
    opt = optim.SGD(net.parameters(), lr=lr, momentum=0.9)
    losses = st.zeros(MAX_EPOCHS)
    accuracies = st.zeros(MAX_EPOCHS)
    steps = images.shape[0] // batch
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"

    if shard:
        images, labels = st.shard(images), st.shard(labels)

    def loss_fn(x, y):
        loss = st.cross_entropy(net(x, dropout=dropout), y)
        return st.all_reduce(loss, "mean") if shard else loss

    for epoch in st.range(epochs):
        total = 0.0
        epoch_batches = st.batches(images, labels, size=batch, shuffle=True)
        for x, y in st.progress(epoch_batches, desc=f"epoch {epoch + 1}", show=("loss:.3f",)):
            loss, grads = st.value_and_grad(loss_fn, wrt=net)(x, y)
            opt.step(grads)
            total += loss
        correct = 0
        for x, y in st.batches(test_images, test_labels, size=batch):
            correct += st.sum(st.argmax(net(x), axis=1) == y)
        accuracy = correct / (test_images.shape[0] // batch * batch)
        losses[epoch] = total / steps
        accuracies[epoch] = accuracy
        print(f"epoch {epoch + 1}: loss {total / steps:.4f}, test accuracy {100 * accuracy:.2f} %")
    return net.state_dict(), losses, accuracies


def load(folder: str | None) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(images, labels, test images, test labels): MNIST's files, or the digits set split in a fixed, shuffled way."""
    if folder is not None:
        return data.mnist_split(folder)
    return data.train_test_split(*data.digits(size=28), test=0.2, seed=0)


def save(folder: Path, weights: dict, losses: np.ndarray) -> None:
    """Write `weights.safetensors`, and `loss.png` where matplotlib is installed."""
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: np.ascontiguousarray(value) for name, value in weights.items()}, folder / "weights.safetensors")
    print(f"weights: {folder / 'weights.safetensors'}")
    try:
        import matplotlib
    except ImportError:
        print("no plot: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6, 4), layout="constrained")
    axes.plot(np.arange(1, len(losses) + 1), losses, marker="o")
    axes.set(xlabel="epoch", ylabel="mean training loss (nats)", title="MNIST in one generated C program")
    axes.grid(alpha=0.3)
    figure.savefig(folder / "loss.png", dpi=120)
    print(f"plot: {folder / 'loss.png'}")


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", metavar="FOLDER", help="folder with MNIST's IDX files (default: scikit-learn's digits)"
    )
    parser.add_argument("--model", choices=sorted(MODELS), default="cnn")
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seeds", type=int, default=1, help="train from this many seeds and print the mean accuracy")
    parser.add_argument("--out", metavar="FOLDER", default=str(Path(__file__).parent / "out"), help="where weights and plot go")
    parser.add_argument("--shard", action="store_true", help="divide every batch among the ranks of an MPI job")
    add_flags(parser)
    arguments = parser.parse_args()

    images, labels, test_images, test_labels = load(arguments.data)
    given = (images, labels, test_images, test_labels, arguments.epochs, arguments.lr)
    batch = 100 if arguments.data else 32
    final = []
    for seed in range(arguments.seeds):
        options = {"model": arguments.model, "batch": batch, "shard": arguments.shard}
        weights, losses, accuracies = run(arguments, train, *given, seed, **options)
        final.append(accuracies[arguments.epochs - 1])
    if arguments.seeds > 1:
        print(f"mean test accuracy over {arguments.seeds} seeds: {100 * np.mean(final):.2f} %")
    if st.rank() == 0:
        save(Path(arguments.out), weights, losses[: arguments.epochs])


if __name__ == "__main__":
    main()
