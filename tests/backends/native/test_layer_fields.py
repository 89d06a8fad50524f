"""Variables of equal layers are arrays of the argument struct."""

from __future__ import annotations

import re
import subprocess
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host.argument_fields import argument_fields
from staged.base.artifact import Parameter, in_struct_order
from staged.call.program import Program
from staged.code.expr import Name, print_expr
from staged.code.writer import Names
from staged.ir.nodes import VariableRef
from staged.ir.types import TensorType, f32
from staged.passes.rolling.names import common_name
from staged.runtime.arguments import POINTER, lay_out
from tests.exported import build, flags_of, run

X = np.ones((3, 2, 8), np.float32)
TYPE = TensorType(f32, (8,))


class Block(nn.Module):
    def __init__(self, size: int) -> None:
        self.linear, self.norm = nn.Linear(size, size), nn.LayerNorm(size)

    def forward(self, x):
        return x + st.relu(self.norm(self.linear(x)))


class Net(nn.Module):
    def __init__(self, layers: int) -> None:
        self.blocks = nn.ModuleList([Block(8) for _ in range(layers)])
        self.rnn = nn.RNN(8, 8, num_layers=layers)

    def forward(self, x):
        for block in self.blocks:
            x = block(x)
        return self.rnn(x)[0]


def training(layers: int) -> tuple[Net, Program]:
    st.seed(3)
    model = Net(layers)
    optimizer = optim.SGD(model.blocks.parameters(), lr=0.1, momentum=0.9)

    @st.function(target="portable")
    def train(x):
        loss, grads = st.value_and_grad(lambda x: st.mean(model(x) ** 2), wrt=model.blocks.parameters())(x)
        optimizer.step(grads)
        return loss

    return model, train.stage(X)


def family(*names: str) -> list[VariableRef]:
    members = tuple(VariableRef(name, TYPE, True) for name in names)
    return [*members, VariableRef(common_name(list(names)), TYPE, True, members=members)]


@pytest.mark.parametrize(
    ("names", "places"),
    [
        (["h.block0.up.weight", "h.block1.up.weight"], ["args->h[0].up_weight", "args->h[1].up_weight"]),
        (["mean_h.0.bias", "mean_h.1.bias"], ["args->mean_h[0].bias", "args->mean_h[1].bias"]),
        (["b0.norm.bias", "b1.norm.bias"], ["args->b[0].norm_bias", "args->b[1].norm_bias"]),
        (["rnn.weight_l0", "rnn.weight_l1"], ["args->rnn_weight[0]", "args->rnn_weight[1]"]),
        (["norm.bias", "norm.bias_2"], ["args->norm_bias[0]", "args->norm_bias[1]"]),
        (["0.bias", "1.bias"], ["args->layers[0].bias", "args->layers[1].bias"]),
    ],
)
def test_members_of_a_family_are_at_the_number_of_their_layer(names: list[str], places: list[str]) -> None:
    variables = family(*names)
    fields = argument_fields(variables, Names())
    assert [print_expr(fields[each].at(Name("args"))) for each in variables[:-1]] == places
    last = print_expr(fields[variables[-1]].at(Name("args"), Name("layer")))
    assert last == places[0].replace("[0]", "[layer]")


def test_a_field_that_is_no_layer_does_not_get_the_name_of_the_array() -> None:
    variables = [VariableRef("h", TYPE, True), *family("h.0.bias", "h.1.bias"), *family("h.0.weight", "h.1.weight")]
    fields = argument_fields(variables, Names())
    found = [print_expr(fields[each].at(Name("args"))) for each in variables if not each.members]
    assert found == ["args->h", "args->h_2[0].bias", "args->h_2[1].bias", "args->h_2[0].weight", "args->h_2[1].weight"]


def test_layers_of_another_place_have_another_array() -> None:
    variables = [*family("a.0.bias", "a.1.bias"), *family("b.0.bias", "b.1.bias"), *family("a.2.bias", "a.3.bias")]
    fields = argument_fields(variables, Names())
    found = [print_expr(fields[each].at(Name("args"), Name("i"))) for each in variables if each.members]
    assert found == ["args->a[i].bias", "args->b[i].bias", "args->a_2[i].bias"]


def test_the_struct_has_layer_after_layer_and_python_its_own_order() -> None:
    order = [("a", 0), ("b", 0), ("", None), ("b", 1), ("a", 1)]
    parameters = [
        Parameter(field or "x", "", "f32", (8,), "variable", index=index, array="h" if field else "")
        for field, index in order
    ]
    places = [each.place for each in in_struct_order(parameters)]
    assert places == ["h[0].a", "h[0].b", "h[1].a", "h[1].b", "x"]
    assert [offset // POINTER for offset in lay_out(parameters).offsets] == [0, 1, 4, 3, 2]


def test_neither_program_nor_header_grows_with_the_number_of_layers() -> None:
    programs = [training(layers)[1] for layers in (4, 5, 7)]
    for few, many in pairwise(programs):
        assert len(few.source.splitlines()) == len(many.source.splitlines())
        assert len(few.header.splitlines()) == len(many.header.splitlines())
    header = programs[0].header
    assert "train_blocks_layer blocks[4];" in header and "train_blocks_layer velocity_blocks[4];" in header
    assert "// The arrays of one layer of `blocks` and `velocity_blocks`.\n" in header
    assert re.search(r"float \*norm_weight; +// \(8,\)  variable  blocks\.block\*\.norm\.weight\n", header)
    sizes = re.findall(r"#define TRAIN_(\w+)_SIZE", header)
    assert "X" in sizes and "BLOCKS_NORM_WEIGHT" not in sizes, "Variables are in files"
    assert re.search(r"const float \*rnn_bias_ih\[4\]; +// \(8,\)  variable  rnn\.bias_ih_l0 to rnn\.bias_ih_l3\n", header)


def test_an_exported_program_trains_the_layers_that_its_files_have(tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    model, program = training(4)
    program.export(folder, target="portable")
    page = (folder / "README.md").read_text()
    (weight,) = [line for line in page.splitlines() if "blocks.block*.norm.weight" in line]
    assert weight.endswith("(default: weights.safetensors) (* is 0 to 3), and a result |"), "one line for both"
    build("train", folder)
    done = run(folder, "train.run", *flags_of(program, folder), "--out", str(folder))
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(folder / "result.npy"), program(X))
    for name, value in model.blocks.state_dict().items():
        np.testing.assert_array_equal(np.load(folder / f"blocks.{name}.npy"), value)
    assert run(folder, "times.run", str(folder)).returncode == 0
    # A flag names the array of one layer, by its number as it is written in the state_dict.
    changed, program = training(4)
    changed.blocks[2].norm.bias.value = np.full(8, 0.5, np.float32)
    np.save(folder / "bias.npy", np.full(8, 0.5, np.float32))
    words = [*flags_of(program, folder), "--out", str(folder)]
    done = run(folder, "train.run", *words, "--blocks.2.norm.bias", str(folder / "bias.npy"))
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(np.load(folder / "result.npy"), program(X))
    for layer in ("4", "02", "-1", "", "99999999999999999999"):
        done = run(folder, "train.run", *words, f"--blocks.{layer}.norm.bias=x")
        assert (done.returncode, f"there is no flag --blocks.{layer}.norm.bias;" in done.stderr) == (2, True)


def test_no_file_of_a_folder_grows_with_the_number_of_layers(tmp_path: Path) -> None:
    lines = []
    for layers in (4, 7):
        training(layers)[1].export(tmp_path / str(layers), target="portable")
        texts = {file.name: file for file in (tmp_path / str(layers)).iterdir() if file.suffix != ".safetensors"}
        lines.append({name: len(file.read_text().splitlines()) for name, file in texts.items()})
    assert lines[0] == lines[1]


def test_the_examples_of_a_folder_find_the_same_arrays(tmp_path: Path) -> None:
    training(4)[1].export(tmp_path / "folder", target="portable")
    subprocess.run(["make", "-s", "example", "lib", "CFLAGS=-O1"], cwd=tmp_path / "folder", check=True)
    texts = [
        subprocess.run(words, cwd=tmp_path / "folder", check=True, capture_output=True, text=True).stdout
        for words in (["./train_example"], ["python3", "train_example.py"])
    ]
    assert texts[0] == texts[1]
    assert "blocks[3].norm_weight[0] = " in texts[0]


def test_a_layer_without_its_array_is_an_error_with_its_number(tmp_path: Path) -> None:
    training(4)[1].export(tmp_path / "folder", target="portable")
    example = tmp_path / "folder" / "train_example.c"
    text = example.read_text()
    start = "void *const arena = "
    assert text.count(start) == 1
    example.write_text(text.replace(start, f"args.blocks[2].norm_bias = NULL;\n    {start}"))
    subprocess.run(["make", "-s", "example", "CFLAGS=-O1"], cwd=tmp_path / "folder", check=True)
    done = subprocess.run(["./train_example"], cwd=tmp_path / "folder", capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr == "`blocks[].norm_bias` of the arguments is NULL for layer 2\n"


class Scaled(nn.Module):
    def __init__(self, size: int) -> None:
        self.linear, self.scale = nn.Linear(size, size), nn.Parameter(np.float32(1.5))

    def forward(self, x):
        return x + st.tanh(self.linear(x)) * self.scale


def test_functions_of_the_program_and_single_layers_find_their_variables() -> None:
    blocks = nn.ModuleList([Scaled(8) for _ in range(5)])

    @st.function
    def net(x):
        for block in blocks:
            x = block(x)
        return x

    @st.function
    def again(x, n):
        if n > 0:
            return again(net(x), n - 1) * 0.5
        return x

    @st.function
    def run(x, n):
        y = again(x, n)
        total = st.sum(blocks[2].linear.weight) + blocks[3].scale
        blocks[4].scale.value = blocks[4].scale * 2.0
        for _ in st.range(n):
            for block in blocks:
                block.linear.bias.value = block.linear.bias * 0.9
                block.scale.value = block.scale * 0.9
        return y + total

    x = np.linspace(-1, 1, 32, dtype=np.float32).reshape(4, 8)
    before = [parameter.numpy().copy() for parameter in blocks.parameters()]
    source = run.stage(x, 2).source
    for place in ("= *m->args->", "[layer].linear_weight, m->args->", "[2].linear_weight, ", "[4].scale *= "):
        assert place in source, source
    staged = [np.asarray(run(x, 2)), *(parameter.numpy().copy() for parameter in blocks.parameters())]
    for parameter, value in zip(blocks.parameters(), before, strict=True):
        parameter.value = value
    with st.eager():
        eager = [np.asarray(run(x, 2)), *(parameter.numpy() for parameter in blocks.parameters())]
    for ours, theirs in zip(staged, eager, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
