"""Data for a training program: read files to NumPy arrays, normalise and split them.

Everything here runs in plain Python, before a program starts. Batches and shuffling belong to the program itself:
`st.batches`.
"""

from staged.data.arrays import normalize, train_test_split
from staged.data.digits import digits
from staged.data.idx import read_idx
from staged.data.mnist import MNIST_MEAN, MNIST_STD, Split, mnist, mnist_split
from staged.data.treebank import Trees, treebank

__all__ = [
    "MNIST_MEAN",
    "MNIST_STD",
    "Split",
    "Trees",
    "digits",
    "mnist",
    "mnist_split",
    "normalize",
    "read_idx",
    "train_test_split",
    "treebank",
]
