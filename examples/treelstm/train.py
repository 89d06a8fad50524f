"""Train a tree LSTM on sentences; the epochs, and the recursion over each tree, are one generated C program.

python -m examples.treelstm.train                               # sixty sentences that lie beside this file
python -m examples.treelstm.train --data FILE                   # a file of trees, such as the treebank's dev.txt
python -m examples.treelstm.train --data FILE --vectors FILE    # word vectors in GloVe's text format
python -m examples.treelstm.train --show                        # print the generated C and stop
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/treelstm/train.py`

import staged as st
from examples.command_line import add_flags, run
from examples.treelstm.model import TreeLSTM
from examples.treelstm.vectors import word_vectors
from staged import data, optim

CLASSES = 5  # from very negative to very positive
MAX_EPOCHS = 100


@st.function(static=("hidden", "dtype"))
def train(labels, words, lefts, rights, starts, table, trees, epochs, lr, seed, hidden=150, dtype=st.f32):
    """Train on the first `trees` trees, one per step, with Adagrad; the loss is the sum of those of a tree's nodes.

    The arrays are those of `staged.data.Trees`; `table` holds a vector for each word and is not trained.
    Returns the weights, the mean loss per tree of every epoch, and the loss of each tree in the last epoch.
    """
    st.seed(seed)
    net = TreeLSTM(table.shape[1], hidden, CLASSES, dtype=dtype)
    opt = optim.Adagrad(net.parameters(), lr=lr)
    means = st.zeros(MAX_EPOCHS, dtype=dtype)
    losses = st.zeros(starts.shape[0] - 1, dtype=dtype)
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"

    @st.function
    def visit(node):
        if lefts[node] < 0:
            h, c = net.leaf(table[words[node]])
            below = st.zeros((), dtype=dtype)
        else:
            left, loss_l = visit(lefts[node])
            right, loss_r = visit(rights[node])
            h, c = net.node(left, right)
            below = loss_l + loss_r
        loss = st.cross_entropy(st.reshape(net.out(h), (1, CLASSES)), st.reshape(labels[node], (1,)))
        return (h, c), below + loss

    def loss_fn(root):
        return visit(root)[1]

    for epoch in st.range(epochs):
        total = 0.0
        for tree in st.range(trees):
            loss, grads = st.value_and_grad(loss_fn, wrt=net)(starts[tree + 1] - 1)
            opt.step(grads)
            losses[tree] = loss
            total += loss
        means[epoch] = total / trees
        print(f"epoch {epoch + 1}: loss {total / trees:.4f} per tree")
    return net.state_dict(), means, losses


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", metavar="FILE", default=Path(__file__).parent / "sentences.txt", help="trees, one per line"
    )
    parser.add_argument("--vectors", metavar="FILE", help="word vectors as text; without it they are drawn")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--hidden", type=int, default=150)
    add_flags(parser)
    options = parser.parse_args()

    trees = data.treebank(options.data)
    table = word_vectors(trees.vocabulary, 300, options.vectors)
    count = len(trees.starts) - 1
    given = (*trees[:5], table, count, options.epochs, options.lr, options.seed)
    if not options.show:
        print(f"{count} trees, {len(trees.labels)} nodes, {len(trees.vocabulary)} words")
    weights, _, _ = run(options, train, *given, hidden=options.hidden)
    out = Path(__file__).parent / "out"
    out.mkdir(parents=True, exist_ok=True)
    np.savez(out / "weights.npz", **weights)
    print(f"weights: {out / 'weights.npz'}")


if __name__ == "__main__":
    main()
