"""Trees in bracket form become arrays."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from staged.data import treebank
from staged.errors import DataError


def write(folder: Path, *lines: str) -> Path:
    path = folder / "trees.txt"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_children_come_before_parents_and_trees_one_after_the_other(tmp_path: Path) -> None:
    trees = treebank(write(tmp_path, "(3 (2 It) (4 (2 works) (1 .)))", "", "(0 (1 It) (2 fails))"))
    assert trees.vocabulary == (".", "It", "fails", "works")
    assert trees.labels.tolist() == [2, 2, 1, 4, 3, 1, 2, 0]
    assert trees.words.tolist() == [1, 3, 0, -1, -1, 1, 2, -1]
    assert trees.lefts.tolist() == [-1, -1, -1, 1, 0, -1, -1, 5]
    assert trees.rights.tolist() == [-1, -1, -1, 2, 3, -1, -1, 6]
    assert trees.starts.tolist() == [0, 5, 8]
    assert {array.dtype for array in trees[:5]} == {np.dtype(np.int64)}


def test_a_vocabulary_numbers_the_words_and_new_ones_come_after_it(tmp_path: Path) -> None:
    trees = treebank(write(tmp_path, "(3 (2 b) (4 (2 a) (1 c)))"), vocabulary=["c", "b"])
    assert trees.vocabulary == ("c", "b", "a") and trees.words.tolist() == [1, 2, 0, -1, -1]


def test_a_tree_of_one_word_and_a_file_without_trees(tmp_path: Path) -> None:
    assert treebank(write(tmp_path, "(4 Great)")).starts.tolist() == [0, 1]
    empty = treebank(write(tmp_path, ""))
    assert empty.labels.shape == (0,) and empty.starts.tolist() == [0]


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("(3 (2 It) (4 works)", "brackets that stay open"),
        ("(3 (2 It) (4 works)) (2 .)", "after the end"),
        ("3 (2 It)", "outside of the tree"),
        ("(3 (2 It))", "other than a label and a word"),
        ("(3 (2 It) (2 a) (2 b))", "other than a label and a word"),
        ("(3 It works)", "other than a label and a word"),
        ("(x It)", "where a label is expected"),
        ("()", "other than a label and a word"),
        ("(² It)", "where a label is expected"),
        ("(٣ It)", "where a label is expected"),
        ("(" + "7" * 5000 + " It)", "where a label is expected"),
        ("(9223372036854775808 It)", "where a label is expected"),
    ],
)
def test_what_is_no_tree_is_refused_with_the_line(line: str, words: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=f"line 2: .*{words}"):
        treebank(write(tmp_path, "(2 fine)", line))


def test_the_largest_label_is_one(tmp_path: Path) -> None:
    assert treebank(write(tmp_path, "(9223372036854775807 fine)")).labels.tolist() == [2**63 - 1]


def test_a_file_that_is_no_text_is_named_with_the_line(tmp_path: Path) -> None:
    (tmp_path / "latin.txt").write_bytes(b"(2 fine)\n(2 caf\xe9)\n")
    with pytest.raises(DataError, match=r"latin\.txt, line 2: .*is not UTF-8"):
        treebank(tmp_path / "latin.txt")
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        treebank("a\0b")


def test_a_file_that_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"absent\.txt cannot be read"):
        treebank(tmp_path / "absent.txt")


def test_the_stanford_sentiment_treebank_has_the_shapes_of_its_array_form(data_folder: Callable[[str], Path]) -> None:
    folder = data_folder("sst")
    trees = treebank(folder / "dev.txt")
    lines = (folder / "array_tree.txt").read_text().splitlines()
    assert len(trees.starts) == int(lines[0]) + 1 and len(trees.labels) == 41_447

    def shape(tree: int) -> tuple[object, ...]:
        def visit(node: int) -> tuple[object, ...]:
            below = (visit(trees.lefts[node]), visit(trees.rights[node])) if trees.lefts[node] >= 0 else ()
            return int(trees.labels[node]), *below

        return visit(trees.starts[tree + 1] - 1)

    for tree in range(0, 1101, 10):
        labels, _, lefts, rights = ([int(word) for word in line.split()] for line in lines[5 * tree + 2 : 5 * tree + 6])

        def array_shape(node: int, labels=labels, lefts=lefts, rights=rights) -> tuple[object, ...]:  # type: ignore[no-untyped-def]
            below = (array_shape(lefts[node]), array_shape(rights[node])) if lefts[node] >= 0 else ()
            return labels[node], *below

        assert shape(tree) == array_shape(0)
