"""`roll`: equal layers become a loop, with the results of the program without it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import pipeline
from staged.frontend.trace_function import trace
from staged.ir.functions import every_function
from staged.ir.nodes import Function, walk_ops
from staged.ir.structure import FOR
from staged.ir.verifier import verify
from staged.passes.rolling.names import common_name
from staged.passes.rolling.roll import roll
from tests.passes.rolling.programs import PROGRAMS

LOSS_IN_LAST_LAYER = {"batch_norm_in_each_layer", "transformer_layers"}
"""Programs whose copies compute the loss in a kernel with the last layer: it adds in another order there."""


def loops_over_layers(program: Function) -> int:
    ops = (op for function in every_function(program) for op in walk_ops(function.block))
    return sum(op.declared is FOR and op.attrs["label"].name == "layer" for op in ops)


def state_of(owner: Any) -> list[np.ndarray]:
    if isinstance(owner, list):
        return [np.asarray(variable) for variable in owner]
    return [np.atleast_1d(np.asarray(value)) for value in owner.state_dict().values()]


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (tuple, list)):
        return [leaf for item in value for leaf in leaves(item)]
    return [np.atleast_1d(np.asarray(value))]


def answers(name: str, capsys: pytest.CaptureFixture[str]) -> tuple[list[np.ndarray], str]:
    """All results and Variables after two calls, and what was printed."""
    st.seed(11)
    np.random.seed(0)
    function, arguments, owner = PROGRAMS[name][0]()
    found = [leaf for _ in range(2) for leaf in leaves(function(*arguments))]
    return [*found, *state_of(owner)], capsys.readouterr().out


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_loops_has_the_bits_of_one_of_copies(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    rolled = answers(name, capsys)
    monkeypatch.setattr(pipeline, "PASSES", tuple(row for row in pipeline.PASSES if row[0] != "roll"))
    monkeypatch.setattr("staged.call.program.find_artifact", lambda *_: None)
    monkeypatch.setattr("staged.call.program.store_artifact", lambda *_: None)
    copies = answers(name, capsys)
    assert rolled[1] == copies[1]
    for left, right in zip(rolled[0], copies[0], strict=True):
        if name in LOSS_IN_LAST_LAYER and left.shape == (3,):
            np.testing.assert_allclose(left, right, rtol=3e-7)
        else:
            np.testing.assert_array_equal(left.view(np.uint8), right.view(np.uint8))


@pytest.mark.parametrize("name", PROGRAMS)
def test_equal_layers_are_a_loop(name: str) -> None:
    make, loops = PROGRAMS[name]
    function, arguments, _ = make()
    rolled = roll(trace(function.__wrapped__, arguments).function)
    verify(rolled, "roll")
    assert loops_over_layers(rolled) == loops


@pytest.mark.parametrize(
    ("names", "common"),
    [
        (["blocks.block0.attn.weight", "blocks.block1.attn.weight"], "blocks.attn.weight"),
        (["h_0_x", "h_1_x", "h_2_x"], "h_x"),
        (["weight", "weight"], "weight"),
        (["w0", "w1"], "w0"),
        (["a.b", "a.b.c"], "a.b"),
    ],
)
def test_layers_have_one_name(names: list[str], common: str) -> None:
    assert common_name(names) == common
