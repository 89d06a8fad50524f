"""Train SqueezeNet; the whole of training is one generated C program.

python -m examples.squeezenet.train                # synthetic images of 32 x 32
python -m examples.squeezenet.train --data FOLDER  # CIFAR-10 in its binary form
python -m examples.squeezenet.train --size 224     # synthetic images in the size of ImageNet's
python -m examples.squeezenet.train --show         # print the generated C and stop
"""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/squeezenet/train.py`

import staged as st
from examples.command_line import read_flags, run
from examples.images import CLASSES, load
from examples.squeezenet.model import SqueezeNet
from staged import nn, optim

MAX_EPOCHS = 200


@st.function(static=("model", "batch", "dtype"))
def train(images, labels, test_images, test_labels, epochs, lr, seed, model=SqueezeNet, batch=32, dtype=st.f32):
    """Train with AdamW at a rate that falls as a cosine; prints each epoch.

    Returns the weights, the mean loss of each epoch and the test accuracy after each.
    """
    st.seed(seed)
    net = model(size=images.shape[2], classes=CLASSES, dtype=dtype)
    opt = optim.AdamW(net.parameters(), lr=lr, weight_decay=5e-4)
    steps = images.shape[0] // batch
    losses, accuracies = st.zeros(MAX_EPOCHS, dtype=dtype), st.zeros(MAX_EPOCHS, dtype=dtype)
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"
    step = 0
    for epoch in st.range(epochs):
        total = 0.0
        net.train()
        for x, y in st.batches(images, labels, size=batch, shuffle=True):
            opt.lr = 0.5 * lr * (1.0 + st.cos(st.pi * step / (epochs * steps)))
            loss, grads = st.value_and_grad(lambda x, y: st.cross_entropy(net(x), y), wrt=net)(x, y)
            opt.step(grads)
            total += loss
            step += 1
        correct = 0
        net.eval()
        for x, y in st.batches(test_images, test_labels, size=batch):
            correct += st.sum(st.argmax(net(x), axis=1) == y)
        losses[epoch] = total / steps
        accuracies[epoch] = correct / (test_images.shape[0] // batch * batch)
        print(f"epoch {epoch + 1}: loss {losses[epoch]:.4f}, test accuracy {100 * accuracies[epoch]:.2f} %")
    return net.state_dict(), losses, accuracies


def main(model: type[nn.Module], doc: str | None, lr: float) -> None:
    """The command line, of one of the networks for images."""
    flags = read_flags(doc, data=None, size=32, count=1024, epochs=10, batch=32, lr=lr, seed=0)
    given = (*load(flags.data, flags.size, flags.count), flags.epochs, flags.lr, flags.seed)
    run(flags, train, *given, model=model, batch=flags.batch)


if __name__ == "__main__":
    main(SqueezeNet, __doc__, 1e-3)
