"""Labelled binary trees over words, in the bracket form of the Stanford Sentiment Treebank."""

from __future__ import annotations

import re
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError

_TOKEN = re.compile(r"[()]|[^\s()]+")
_LABEL = re.compile(r"[0-9]{1,19}")
_ENCODING = "give a file of trees, as UTF-8"


class Trees(NamedTuple):
    """Trees one after the other, each node after its children, so that the root is a tree's last node.

    Shapes: `labels`, `words`, `lefts` and `rights` (nodes,) i64, `starts` (trees + 1,) i64: the nodes of tree t are
    starts[t] .. starts[t + 1] - 1. A leaf has its word's place in `vocabulary` and -1 for its children, which otherwise
    are numbers of nodes; an inner node has -1 for its word.
    """

    labels: NDArray[np.int64]
    words: NDArray[np.int64]
    lefts: NDArray[np.int64]
    rights: NDArray[np.int64]
    starts: NDArray[np.int64]
    vocabulary: tuple[str, ...]


def treebank(file: str | PathLike[str], vocabulary: Sequence[str] | None = None) -> Trees:
    """The trees of a file with one per line: `(3 (2 It) (4 (2 works) (2 .)))`, a label before each word or pair.

    `vocabulary` names the words in order, such as those of another part of the data (words that it lacks are added at
    its end); without one the words are numbered in alphabetical order.
    Raises: DataError with the line if it is not a binary tree with a label at every node, or if the file is missing.
    Source: R. Socher et al., Recursive deep models for semantic compositionality over a sentiment treebank, 2013.
    """
    path = Path(file)
    try:
        content = path.read_bytes()
    except (OSError, ValueError) as error:  # a path with a NUL is a ValueError
        words = getattr(error, "strerror", None) or error
        raise DataError(f"{path} cannot be read: {words}", hint="give the path of a file of trees") from None
    try:
        lines = content.decode("utf-8").splitlines()
    except UnicodeDecodeError as error:
        at = content[: error.start].count(b"\n") + 1
        raise DataError(
            f"{path}, line {at}: byte {error.object[error.start]:02x} is not UTF-8", hint=_ENCODING
        ) from None
    nodes: list[tuple[int, str | None, int, int]] = []
    starts = [0]
    for number, line in enumerate(lines, 1):
        if line.strip():
            _parse(line, f"{path}, line {number}", nodes)
            starts.append(len(nodes))
    known = list(vocabulary) if vocabulary is not None else []
    listed = set(known)
    known += sorted({word for _, word, _, _ in nodes if word is not None and word not in listed})
    place: dict[str | None, int] = {word: index for index, word in enumerate(known)}
    place[None] = -1
    columns = [[label, place[word], left, right] for label, word, left, right in nodes]
    labels, words, lefts, rights = np.array(columns, np.int64).reshape(-1, 4).T.copy()
    return Trees(labels, words, lefts, rights, np.array(starts, np.int64), tuple(known))


def _parse(line: str, where: str, nodes: list[tuple[int, str | None, int, int]]) -> None:
    """Append the nodes of one tree, children first."""
    # What is open: a node's label (None: still to come) and what has been read of its inside.
    opened: list[tuple[list[int], list[str | int]]] = []
    done = False
    for token in _TOKEN.findall(line):
        if done:
            raise _not_a_tree(where, f"`{token}` after the end of the tree")
        if token == "(":
            opened.append(([], []))
        elif not opened:
            raise _not_a_tree(where, f"`{token}` outside of the tree")
        elif token != ")":
            label, inside = opened[-1]
            if label:
                inside.append(token)
            elif _LABEL.fullmatch(token) and int(token) < 1 << 63:
                label.append(int(token))
            else:
                raise _not_a_tree(where, f"`{token}` where a label is expected")
        else:
            label, inside = opened.pop()
            match label, inside:
                case [int(number)], [str(word)]:
                    nodes.append((number, word, -1, -1))
                case [int(number)], [int(left), int(right)]:
                    nodes.append((number, None, left, right))
                case _:
                    raise _not_a_tree(where, "a node with other than a label and a word, or a label and two nodes")
            done = not opened
            if opened:
                opened[-1][1].append(len(nodes) - 1)
    if not done:
        raise _not_a_tree(where, "brackets that stay open")


def _not_a_tree(where: str, what: str) -> DataError:
    return DataError(
        f"{where}: {what}, expected a tree",
        hint="a tree reads (3 (2 It) (4 (2 works) (2 .))): a label, then a word or two trees",
    )
