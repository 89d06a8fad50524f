"""The tree LSTM with many trees per step: the nodes of one height, of all trees of a batch, are computed together.

python -m examples.treelstm.batched                   # sixty sentences that lie beside this file
python -m examples.treelstm.batched --data FILE       # a file of trees, such as the treebank's dev.txt
python -m examples.treelstm.batched --show            # print the generated C and stop
"""

from __future__ import annotations

import argparse
import itertools
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/treelstm/batched.py`

import staged as st
from examples.command_line import add_flags, run
from examples.treelstm.model import TreeLSTM
from examples.treelstm.train import CLASSES, MAX_EPOCHS
from examples.treelstm.vectors import word_vectors
from staged import data, optim


class Levels(NamedTuple):
    """Batches of trees, their nodes in order of height.

    `labels`, `words`, `lefts` and `rights` are those of the nodes, batch after batch, and in each by height: leaves
    first. Children are counted from the batch's first node. Batch b begins at `begins[b]` and has `heights[b]` levels;
    its level k begins `starts[b, k]` nodes later. `widest` and `largest` bound the nodes of a level and of a batch.
    """

    labels: np.ndarray
    words: np.ndarray
    lefts: np.ndarray
    rights: np.ndarray
    begins: np.ndarray
    heights: np.ndarray
    starts: np.ndarray
    widest: int
    largest: int


def by_level(trees: data.Trees, batch: int) -> Levels:
    """The trees in batches of `batch`; those that do not fill one are left out."""
    count = (len(trees.starts) - 1) // batch
    height = np.zeros(len(trees.labels), np.int64)
    for node, (left, right) in enumerate(zip(trees.lefts, trees.rights, strict=True)):
        if left >= 0:
            height[node] = 1 + max(height[left], height[right])
    bounds = trees.starts[: count * batch + 1 : batch]
    pieces = [height[first:last] for first, last in itertools.pairwise(bounds)]
    order = np.concatenate(
        [first + np.argsort(piece, kind="stable") for first, piece in zip(bounds, pieces, strict=False)]
    )
    place = np.empty(len(trees.labels), np.int64)
    place[order] = np.concatenate([np.arange(len(piece)) for piece in pieces])
    sizes = [np.bincount(piece) for piece in pieces]
    heights = np.array([len(levels) for levels in sizes])
    starts = np.zeros((count, heights.max() + 1), np.int64)
    for row, levels in zip(starts, sizes, strict=True):
        row[1:] = levels.sum()
        row[1 : len(levels) + 1] = np.cumsum(levels)
    inner = trees.lefts[order] >= 0
    return Levels(
        trees.labels[order],
        trees.words[order],
        np.where(inner, place[trees.lefts[order]], -1),
        np.where(inner, place[trees.rights[order]], -1),
        bounds[:-1],
        heights,
        starts,
        max(int(levels.max()) for levels in sizes),
        int(np.diff(bounds).max()),
    )


def batch_loss(net, table, levels, batch):
    """The loss of all nodes of a batch, summed.

    A level has as many rows as it has nodes, known when the program runs and at most `levels.widest`.
    """
    labels, words, lefts, rights, begins, heights, starts, widest, largest = levels

    def loss_of(h, first, n):
        return st.sum(st.cross_entropy(net.out(h), labels[first : first + n], reduction="none"))

    begin = begins[batch]
    n = st.dim("leaves", starts[batch, 1], max=widest)
    h_leaf, c_leaf = net.leaf(table[words[begin : begin + n]])
    total = loss_of(h_leaf, begin, n)
    hidden, dtype = h_leaf.shape[1], h_leaf.dtype
    h, c = st.zeros((largest, hidden), dtype=dtype), st.zeros((largest, hidden), dtype=dtype)
    h[:n] = h_leaf
    c[:n] = c_leaf
    for level in st.range(1, heights[batch]):
        start = starts[batch, level]
        n = st.dim("nodes", starts[batch, level + 1] - start, max=widest)
        left, right = lefts[begin + start : begin + start + n], rights[begin + start : begin + start + n]
        h_node, c_node = net.node((h[left], c[left]), (h[right], c[right]))
        total += loss_of(h_node, begin + start, n)
        h[start : start + n] = h_node
        c[start : start + n] = c_node
    return total


@st.function(static=("widest", "largest", "trees", "hidden", "dtype"))
def train(
    labels, words, lefts, rights, begins, heights, starts, table, epochs, lr, seed, widest, largest, trees,
    hidden=150, dtype=st.f32,
):  # fmt: skip
    """Train with Adagrad on batches as `by_level` makes them, of `trees` trees each; the loss is a tree's mean.

    Returns the weights, and the mean loss per tree of every epoch.
    """
    st.seed(seed)
    net = TreeLSTM(table.shape[1], hidden, CLASSES, dtype=dtype)
    opt = optim.Adagrad(net.parameters(), lr=lr)
    levels = Levels(labels, words, lefts, rights, begins, heights, starts, widest, largest)
    means = st.zeros(MAX_EPOCHS, dtype=dtype)
    assert epochs <= MAX_EPOCHS, f"at most {MAX_EPOCHS} epochs, got {epochs}"

    def loss_fn(batch):
        return batch_loss(net, table, levels, batch) / trees

    for epoch in st.range(epochs):
        total = 0.0
        for batch in st.range(begins.shape[0]):
            loss, grads = st.value_and_grad(loss_fn, wrt=net)(batch)
            opt.step(grads)
            total += loss
        means[epoch] = total / begins.shape[0]
        print(f"epoch {epoch + 1}: loss {total / begins.shape[0]:.4f} per tree")
    return net.state_dict(), means


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--data", metavar="FILE", default=Path(__file__).parent / "sentences.txt", help="trees, one per line"
    )
    parser.add_argument("--vectors", metavar="FILE", help="word vectors as text; without it they are drawn")
    parser.add_argument("--batch", type=int, default=20, help="trees of one step")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--lr", type=float, default=0.05)
    parser.add_argument("--hidden", type=int, default=150)
    add_flags(parser)
    options = parser.parse_args()

    trees = data.treebank(options.data)
    levels = by_level(trees, options.batch)
    table = word_vectors(trees.vocabulary, 300, options.vectors)
    given = (*levels[:7], table, options.epochs, options.lr, 0, levels.widest, levels.largest, options.batch)
    run(options, train, *given, hidden=options.hidden)


if __name__ == "__main__":
    main()
