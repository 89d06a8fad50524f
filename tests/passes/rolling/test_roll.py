"""`roll`: equal layers become a loop, with the results of the program without it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, pipeline
from staged.errors import ProgramIndexError
from staged.frontend.trace_function import trace
from staged.ir.functions import every_function
from staged.ir.nodes import Function, walk_ops
from staged.ir.structure import FOR
from staged.ir.verifier import verify
from staged.passes.rolling.names import common_name, layer_name
from staged.passes.rolling.roll import roll
from tests.exported import compile_c
from tests.passes.rolling.programs import PROGRAMS

LOSS_IN_LAST_LAYER = {"batch_norm_in_each_layer", "transformer_layers", "weights_that_are_read_backwards"}
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


@pytest.mark.parametrize(
    ("names", "found"),
    [
        (["blocks.block2.fc", "blocks.block3.fc"], ("blocks[", 2, "]")),
        (["net.layer1.bottleneck1", "net.layer1.bottleneck2", "net.layer1.bottleneck3"], ("net.layer1[", 1, "]")),
        (["linear0", "linear1"], ("linear", 0, "")),
        (["linear3.x", "linear4.x"], ("linear", 3, "")),
        (["blocks.block0", "blocks.block2"], None),
        (["layer1.block3", "layer2.block0"], None),
        (["blocks.a", "blocks.b"], None),
    ],
)
def test_the_name_of_a_layer_in_a_loop(names: list[str], found: tuple[str, int, str] | None) -> None:
    assert layer_name(names) == found


@pytest.mark.parametrize("is_gradient", [False, True])
def test_an_error_in_a_layer_names_the_layer(is_gradient: bool) -> None:
    tables = nn.ModuleList([nn.Embedding(7, 6) for _ in range(4)])

    class Net(nn.Module):
        def __init__(self) -> None:
            self.tables = tables

        def forward(self, x: Any, index: Any) -> Any:
            for table in self.tables:
                x = st.tanh(x + table(index))
                index = index + 2
            return st.sum(x)

    net = Net()
    forward = lambda x, index: net(x, index)  # noqa: E731
    run = st.function(st.grad(forward, wrt=list(net.parameters())) if is_gradient else forward)
    with pytest.raises(ProgramIndexError, match=r"index 7 is out of range .* \(in tables\[2\]\)"):
        run(np.ones((4, 6), np.float32), np.array([1, 2, 3, 1]))


def test_an_error_in_a_layer_of_a_model_without_a_name_names_the_layer() -> None:
    class Look(nn.Module):
        def __init__(self) -> None:
            self.table = st.Variable(np.ones((7, 6), np.float32))

        def forward(self, pair: Any) -> Any:
            x, index = pair
            return st.tanh(x + self.table.value[index]), index + 2

    net = nn.Sequential(*(Look() for _ in range(4)))
    run = st.function(lambda x, index: net((x, index))[0])
    with pytest.raises(ProgramIndexError, match=r"index 7 is out of range .* \(in look2\)"):
        run(np.ones((4, 6), np.float32), np.array([1, 2, 3, 1]))


def test_families_have_names_that_differ_in_one_number() -> None:
    function, arguments, _ = PROGRAMS["a_residual_stage_that_the_program_makes"][0]()
    rolled = roll(trace(function.__wrapped__, arguments).function)
    families = [variable for variable in rolled.variables if variable.members]
    names = [[member.name for member in family.members] for family in families]
    assert len(names) == 6 + 6 + 2 * 6  # parameters, statistics, two moments of each parameter
    for each in names:
        first = each[0].partition("residual1")
        assert each == [f"{first[0]}residual{number}{first[2]}" for number in (1, 2, 3)]


def test_a_loop_after_a_step_stops_at_ctrl_c() -> None:
    weights = [st.Variable(np.full((6, 6), 0.1 * number, np.float32)) for number in range(4)]

    @st.function
    def run(x: Any) -> Any:
        for weight in weights:
            weight.value = weight.value * 0.9
        for _ in st.range(10):
            x = st.tanh(x @ weights[0])
        return x

    source = run.stage(np.ones((2, 6), np.float32)).source
    assert source.count("st_stop_requested(host)") == 1


def test_a_layer_keeps_its_weight_if_a_loop_before_the_write_stops() -> None:
    weights = [st.Variable(np.ones(6, np.float32)) for _ in range(4)]

    @st.function
    def run(x: Any) -> Any:
        for weight in weights:
            following = weight.value * 0.9
            for i in st.range(3):
                assert x[i] > 0.0
            weight.value = following

    with pytest.raises(AssertionError):
        run(np.array([1, 1, -1], np.float32))
    np.testing.assert_array_equal(np.array(weights), np.ones((4, 6), np.float32))


def test_only_the_initial_value_of_transformer_layers_is_copied() -> None:
    function, arguments, _ = PROGRAMS["transformer_layers"][0]()
    source = function.stage(*arguments).source
    assert re.findall(r"memcpy\(m->(.*), 80 \*", source) == ["layers_residuals[0].x, args->x"]
    assert "m->new_" not in source


def test_weights_that_a_program_only_reads_are_constants_of_it(tmp_path: Path) -> None:
    function, arguments, _ = PROGRAMS["forward_of_a_list"][0]()
    function.stage(*arguments).export(tmp_path / "folder", target="portable")
    texts = [file.name for file in (tmp_path / "folder").glob("*.c")]
    compile_c(tmp_path / "folder", "-fsyntax-only", "-Wconversion", "-Wshadow", "-Wpedantic", *texts)


def test_layers_with_sizes_that_the_program_finds_become_a_loop() -> None:
    net = nn.Sequential(*[nn.Sequential(nn.LayerNorm(6), nn.Linear(6, 6), nn.Tanh()) for _ in range(4)])

    def gradients(x: Any) -> Any:
        return st.value_and_grad(lambda x: st.sum(st.square(net(x))), wrt=net)(x)

    source = st.function(dims={"x": ("N <= 8", 6)})(gradients).stage(np.ones((2, 6), np.float32)).source
    assert source.count("for (int64_t layer") == 2
