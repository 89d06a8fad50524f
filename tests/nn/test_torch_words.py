"""Signatures and printing of layers, losses, optimisers and functions, held against what torch says of itself (recorded)."""

import inspect
import json
from operator import attrgetter

import pytest

import staged as st
from staged import nn, optim
from tests.nn import record_torch

RECORD = json.loads(record_torch.RECORD.read_text())

# Arguments of torch's by their names here, where these differ.
OURS = {
    "dim": "axis", "dims": "axis", "keepdim": "keepdims", "end": "stop", "steps": "num", "diagonal": "k", "size": "shape",
    "n": "n_rows", "m": "n_cols", "shifts": "shift", "tensors": "arrays", "axis0": "axis1", "running_mean": "mean",
    "running_var": "var", "p": "ord", "parameters": "grads",
}  # fmt: skip
# Functions whose argument of torch's name is another here.
NAMED_OTHERWISE = {
    ("st.swapaxes", "axis1"): "axis2",
    ("st.tensordot", "dims"): "axes",
    ("st.tile", "dims"): "repetitions",
    ("st.normalize", "p"): "p",
    ("st.dropout", "p"): "p",
    ("st.unsqueeze", "dim"): "dim",
    ("nn.Softmax", "dim"): "dim",
    ("nn.LogSoftmax", "dim"): "dim",
    ("nn.Dropout", "p"): "p",
}
# Arguments at the start are arrays, which each library calls as it likes: input, x, a, logits, ...
ARRAYS = {
    "input", "other", "target", "x", "y", "a", "b", "vec2", "condition", "log_probs", "targets", "input_lengths",
    "target_lengths", "input1", "input2", "x1", "x2",
}  # fmt: skip
# Defaults that differ, and why.
DEFAULTS = {
    ("nn.CrossEntropyLoss", "ignore_index"): "nothing is ignored unless asked for: a negative label is an error",
    ("nn.NLLLoss", "ignore_index"): "as above",
    ("st.cross_entropy", "ignore_index"): "as above",
    ("st.nll_loss", "ignore_index"): "as above",
    ("nn.Softmax", "dim"): "torch warns of a choice of its own; ours is the last axis",
    ("nn.LogSoftmax", "dim"): "as above",
    ("nn.Softmin", "dim"): "as above",
}


def ours(name):
    space, _, attribute = name.partition(".")
    function = attrgetter(attribute)({"st": st, "nn": nn, "optim": optim}[space])
    return function.__init__ if inspect.isclass(function) else function


@pytest.mark.parametrize("name", RECORD["signatures"])
def test_a_position_means_what_it_means_in_torch(name):
    """Every argument that can be given by position stands where torch has it, or is refused there."""
    theirs = RECORD["signatures"][name]
    theirs = theirs[: theirs.index(["*"])] if ["*"] in theirs else theirs
    parameters = [p for p in inspect.signature(ours(name)).parameters.values() if p.name != "self"]
    positional = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD]
    assert not set(positional) & {"dtype", "device"} or not name.startswith("nn.")
    for place, mine in enumerate(positional):
        if place >= len(theirs):
            # Beyond torch's last one there is no meaning that ours could differ from.
            assert not any(kind.kind is kind.VAR_POSITIONAL for kind in parameters)
            continue
        word = theirs[place][0]
        if word in ARRAYS or (place == 0 and name.startswith("st.")) or word in ("args", "kwargs"):
            continue
        assert mine == NAMED_OTHERWISE.get((name, word), OURS.get(word, word)) or mine == word, (name, place, mine, word)


@pytest.mark.parametrize("name", RECORD["signatures"])
def test_defaults_are_torchs(name):
    known = dict(row for row in RECORD["signatures"][name] if len(row) == 2)
    for parameter in inspect.signature(ours(name)).parameters.values():
        if parameter.name != "dtype" and parameter.name in known and parameter.default is not parameter.empty:
            mine = list(parameter.default) if isinstance(parameter.default, tuple) else parameter.default
            assert (mine == known[parameter.name]) != ((name, parameter.name) in DEFAULTS), (name, parameter.name)


@pytest.mark.parametrize("row", record_torch.PRINTED)
def test_a_layer_prints_as_torchs(row):
    made = eval(f"nn.{row.split()[0]}({record_torch.PRINTED[row]})", {"nn": nn})
    assert repr(made) == RECORD["printed"][row]


def test_a_network_prints_as_torchs():
    assert str(record_torch.network(nn)) == RECORD["printed"]["network"]


def test_the_record_is_what_torch_says_today(library):
    torch = library("torch")
    if torch.__version__.partition("+")[0] != RECORD["torch"]:
        pytest.skip(f"the record is of torch {RECORD['torch']}")
    assert json.loads(json.dumps(record_torch.record())) == RECORD
