"""The tree LSTM: the numbers of PyTorch's recursion, memory that stays flat, text whose size no tree changes."""

from __future__ import annotations

import importlib.util
import inspect
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from examples.treelstm import batched
from examples.treelstm.train import train
from examples.treelstm.vectors import word_vectors
from staged import data
from tests.programs import promises
from tests.programs.tree_reference import torch_losses

LR = 0.05
SENTENCES = Path(__file__).parents[2] / "examples" / "treelstm" / "sentences.txt"


@pytest.fixture
def treebank(data_folder: Callable[[str], Path]) -> data.Trees:
    """The dev part of the Stanford Sentiment Treebank."""
    return data.treebank(data_folder("sst") / "dev.txt")


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [(st.f64, 50, 1e-8), (st.f32, 20, 1e-4)], ids=str)
def test_training_gives_the_losses_of_pytorch(dtype: Any, steps: int, tolerance: float, treebank: data.Trees) -> None:
    table = word_vectors(treebank.vocabulary).astype(dtype.numpy)
    start, _, _ = train(*treebank[:5], table, 1, 0, LR, 3, dtype=dtype)
    _, _, losses = train(*treebank[:5], table, steps, 1, LR, 3, dtype=dtype)
    np.testing.assert_allclose(losses[:steps], torch_losses(start, treebank, table, steps, LR), rtol=tolerance)


def test_eager_mode_gives_the_losses_of_the_program() -> None:
    trees = data.treebank(SENTENCES)
    table = word_vectors(trees.vocabulary, 6).astype(np.float64)
    options: dict[str, Any] = {"hidden": 4, "dtype": st.f64}
    weights, _, losses = train(*trees[:5], table, 3, 2, LR, 0, **options)
    with st.eager():
        expected, _, expected_losses = train(*trees[:5], table, 3, 2, LR, 0, **options)
    np.testing.assert_allclose(losses, expected_losses, rtol=1e-12)
    for name, value in weights.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-12)


def test_the_sentences_are_learned() -> None:
    trees = data.treebank(SENTENCES)
    table = word_vectors(trees.vocabulary, 50)
    _, means, _ = train(*trees[:5], table, len(trees.starts) - 1, 20, LR, 0, hidden=30)
    assert means[19] < 0.05 * means[0]


def test_lines_do_not_depend_on_the_trees(treebank: data.Trees) -> None:
    short = data.treebank(SENTENCES)
    table = np.zeros((len(treebank.vocabulary), 20), np.float32)
    sources = [train.stage(*trees[:5], table, 10, 1, LR, 0, hidden=10).source for trees in (short, treebank)]
    assert len(sources[0].splitlines()) == len(sources[1].splitlines())


def test_memory_is_flat_over_an_epoch(treebank: data.Trees, tmp_path: Path) -> None:
    table = word_vectors(treebank.vocabulary)
    train.stage(*treebank[:5], table, 1, 1, LR, 0).export(tmp_path, target="native")
    promises.build(tmp_path, promises.STRICT + " -march=native")
    names = ("labels", "words", "lefts", "rights", "starts", "table")
    arrays = dict(zip(names, (*treebank[:5], table), strict=True))
    words = ["--lr", str(LR), "--seed", "0", "--trees"]
    # Frames and stacks have grown as far as they do within the first 300 trees.
    runs = [promises.run(tmp_path, "train", arrays, [*words, count, "--epochs", "1"]) for count in ("300", "1101")]
    assert "epoch 1: loss" in runs[1].output
    assert runs[0].allocations == runs[1].allocations > 0
    assert runs[1].resident - runs[0].resident < 1 << 20


# ---- on a GPU ------------------------------------------------------------------------------------


@pytest.fixture
def train_on_gpu(tmp_path: Path) -> Any:
    """`train` of the example with one line more: its body is a region."""
    source = Path(inspect.getfile(train.__wrapped__)).read_text()
    head, begin, body = source.partition("    st.seed(seed)\n")
    body, end, rest = body.partition("    return net.state_dict(), means, losses\n")
    assert begin and end
    region = "    with st.with_backend(st.GPU, table):\n" + textwrap.indent(begin + body + end, "    ")
    file = tmp_path / "train_on_gpu.py"
    file.write_text(head + region + rest)
    specification = importlib.util.spec_from_file_location("train_on_gpu", file)
    assert specification is not None and specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module.train


@pytest.mark.parametrize(("dtype", "steps", "tolerance"), [(st.f64, 50, 1e-8), (st.f32, 20, 1e-4)], ids=str)
def test_training_on_the_device_has_the_cpus_losses(
    dtype: Any, steps: int, tolerance: float, treebank: data.Trees, train_on_gpu: Any, emulated_device: Emulator
) -> None:
    """Of the size of Lantern's evaluation: 150 states, vectors of 300."""
    table = word_vectors(treebank.vocabulary).astype(dtype.numpy)
    given = (*treebank[:5], table, steps, 1, LR, 3)
    _, _, wanted = train(*given, dtype=dtype)
    before = emulated_device.counts()
    _, _, losses = train_on_gpu(*given, dtype=dtype)
    seen = emulated_device.counts() - before
    np.testing.assert_allclose(losses[:steps], wanted[:steps], rtol=tolerance)
    # The words' vectors and the labels go there once; what is printed, weights, means and losses come back once.
    reasons = {copy.why for copy in train_on_gpu.stage(*given, dtype=dtype).transfers()}
    assert reasons == {"input", "print", "result", "failure"}
    assert seen.copies_to_device == 2
    assert seen.copies_to_host <= 12, "none of them in the loop over trees"


# ---- many trees per step ------------------------------------------------------------------------


def arguments(trees: data.Trees, table: np.ndarray, epochs: int, batch: int) -> tuple[Any, ...]:
    levels = batched.by_level(trees, batch)
    return (*levels[:7], table, epochs, LR, 3, levels.widest, levels.largest, batch)


def first_trees(trees: data.Trees, count: int) -> data.Trees:
    nodes = trees.starts[count]
    return data.Trees(*(part[:nodes] for part in trees[:4]), trees.starts[: count + 1], trees.vocabulary)


def test_levels_hold_every_node_once_and_below_its_parent(treebank: data.Trees) -> None:
    levels = batched.by_level(treebank, 20)
    assert (len(levels.begins), levels.heights.max()) == (55, 28)
    for batch, begin in enumerate(levels.begins):
        starts = levels.starts[batch, : levels.heights[batch] + 1]
        nodes = starts[-1]
        words, lefts, rights = (part[begin : begin + nodes] for part in (levels.words, levels.lefts, levels.rights))
        assert (words[: starts[1]] >= 0).all() and (words[starts[1] :] == -1).all() and nodes <= levels.largest
        for first, last in zip(starts[1:-1], starts[2:], strict=True):
            assert max(lefts[first:last].max(), rights[first:last].max()) < first and last - first <= levels.widest
        children = np.concatenate([lefts[starts[1] :], rights[starts[1] :]])
        assert len(np.unique(children)) == len(children) == nodes - 20  # all but the roots are below one node


def test_batches_by_level_give_the_losses_of_pytorchs_recursion(treebank: data.Trees) -> None:
    trees = first_trees(treebank, 12)
    table = word_vectors(trees.vocabulary).astype(np.float64)
    start, _ = batched.train(*arguments(trees, table, 0, 12), hidden=40, dtype=st.f64)
    _, losses = batched.train(*arguments(trees, table, 15, 12), hidden=40, dtype=st.f64)
    np.testing.assert_allclose(losses[:15], torch_losses(start, trees, table, 15, LR, batch=12), rtol=1e-8)


def test_an_epoch_of_batches_is_that_of_eager_mode() -> None:
    trees = data.treebank(SENTENCES)
    table = word_vectors(trees.vocabulary, 6).astype(np.float64)
    given = arguments(trees, table, 2, 25)
    weights, means = batched.train(*given, hidden=4, dtype=st.f64)
    with st.eager():
        expected, expected_means = batched.train(*given, hidden=4, dtype=st.f64)
    np.testing.assert_allclose(means, expected_means, rtol=1e-12)
    for name, value in weights.items():
        np.testing.assert_allclose(value, expected[name], rtol=1e-9, atol=1e-12)


def test_batches_allocate_nothing_after_their_first_epoch(tmp_path: Path) -> None:
    trees = data.treebank(SENTENCES)
    levels = batched.by_level(trees, 20)
    table = word_vectors(trees.vocabulary, 50)
    batched.train.stage(*arguments(trees, table, 1, 20), hidden=30).export(tmp_path, target="portable")
    promises.build(tmp_path)
    names = ("labels", "words", "lefts", "rights", "begins", "heights", "starts", "table")
    arrays = dict(zip(names, (*levels[:7], table), strict=True))
    words = ["--lr", str(LR), "--seed", "0", "--epochs"]
    runs = [promises.run(tmp_path, "train", arrays, [*words, count]) for count in ("1", "20")]
    assert runs[0].allocations == runs[1].allocations > 0
    assert runs[1].resident - runs[0].resident < 1 << 20


# ---- word vectors -------------------------------------------------------------------------------


def test_vectors_of_a_file_are_found_as_written_then_in_lower_case(tmp_path: Path) -> None:
    file = tmp_path / "vectors.txt"
    file.write_text("the 1 2\nThe 3 4\nfilm 5 6\nunused 7 8\n")
    vectors = word_vectors(["The", "the", "Film", "absent"], 2, file)
    assert vectors[:3].tolist() == [[3, 4], [1, 2], [5, 6]]
    np.testing.assert_array_equal(vectors[3], word_vectors(["The", "the", "Film", "absent"], 2)[3])
    with pytest.raises(SystemExit, match="`the` has 2 numbers, expected 3"):
        word_vectors(["the"], 3, file)
