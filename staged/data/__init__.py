"""Data for a training program: read files to NumPy arrays, normalise and split them; augment batches in the program.

Readers and what prepares data run in plain Python, before a program starts. Batches and shuffling belong to the program
itself (`st.batches`), and so do augmentations: `random_crop`, `random_flip`, `normalize_channels`.
"""

from staged.data.arrays import normalize, train_test_split
from staged.data.augment import normalize_channels, random_crop, random_flip
from staged.data.cifar import CIFAR10_MEAN, CIFAR10_STD, FASHION_MEAN, FASHION_STD, cifar10, fashion_mnist
from staged.data.digits import digits
from staged.data.idx import read_idx
from staged.data.mnist import MNIST_MEAN, MNIST_STD, Split, mnist, mnist_split
from staged.data.sound import Utterance, librispeech, read_manifest, read_wav
from staged.data.synthetic import synthetic_images
from staged.data.tables import read_csv, read_npy, read_npz
from staged.data.tokens import read_tokens, write_tokens
from staged.data.treebank import Trees, treebank

__all__ = [
    "CIFAR10_MEAN",
    "CIFAR10_STD",
    "FASHION_MEAN",
    "FASHION_STD",
    "MNIST_MEAN",
    "MNIST_STD",
    "Split",
    "Trees",
    "Utterance",
    "cifar10",
    "digits",
    "fashion_mnist",
    "librispeech",
    "mnist",
    "mnist_split",
    "normalize",
    "normalize_channels",
    "random_crop",
    "random_flip",
    "read_csv",
    "read_idx",
    "read_manifest",
    "read_npy",
    "read_npz",
    "read_tokens",
    "read_wav",
    "synthetic_images",
    "train_test_split",
    "treebank",
    "write_tokens",
]


def __dir__() -> list[str]:
    return __all__
