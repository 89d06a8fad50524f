"""Functions of a program are named after layers and functions, else after an action and its results."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import staged as st
from staged import nn, optim

X = np.ones((4, 40), np.float32)
KERNEL = re.compile(r"^static void (\w+)\(([^{]*)\{", re.MULTILINE)


def functions_of(function: Any, *args: Any) -> dict[str, str]:
    """By function, its parameters."""
    source = st.function(function, target="portable").stage(*args).source
    return dict(KERNEL.findall(re.sub(r"//.*", "", source)))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(40)
        self.fc = nn.Linear(40, 40)

    def forward(self, x: Any) -> Any:
        return st.relu(self.fc(self.norm(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block = Block()
        self.out = nn.Linear(40, 5)

    def forward(self, x: Any) -> Any:
        x = self.block(x)
        return self.out(x)


def test_a_kernel_is_named_after_its_layers_and_its_parameters_do_not_repeat_them() -> None:
    net = Net()

    def predict(x: Any) -> Any:
        return net(x)

    functions = functions_of(predict, X)
    assert {"block_norm", "block_fc_relu", "out"} <= functions.keys()
    assert re.search(r"\bnorm_weight\b", functions["block_norm"]), functions["block_norm"]
    assert re.search(r"\bfc_weight\b", functions["block_fc_relu"]), functions["block_fc_relu"]


def test_steps_inside_a_layer_are_named_once() -> None:
    class Gate(Block):
        def forward(self, x: Any) -> Any:
            return self.fc(st.relu(x) * st.tanh(x) * 2.0)

    gate = nn.Sequential(Gate())

    def predict(x: Any) -> Any:
        return gate(x)

    for name in functions_of(predict, X):
        parts = name.split("_")
        assert all(part != after for part, after in zip(parts, parts[1:], strict=False)), name


def test_other_kernels_are_named_after_an_action_and_the_users_values() -> None:
    def program(table: Any, rows: Any, w: Any) -> Any:
        x = table[rows]
        h = st.tanh(x @ w) + x
        turned = st.permute_dims(h, (1, 0)) + 0.0
        return h, turned

    functions = functions_of(program, X, np.array([0, 2, 1]), np.ones((40, 40), np.float32))
    assert "gather_x" in functions and "tanh_h" in functions, functions.keys()


def test_the_evaluation_has_names_of_its_own() -> None:
    net = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 3))
    opt = optim.SGD(net.parameters(), lr=0.1)

    def train(x: Any) -> Any:
        def loss_fn(x: Any) -> Any:
            h = st.max_pool2d(x, 2)
            return st.mean(net(st.reshape(h, (2, 64))))

        for _ in st.range(3):
            _, grads = st.value_and_grad(loss_fn, wrt=net)(x)
            opt.step(grads)
        h = st.max_pool2d(x, 2)
        return net(st.reshape(h, (2, 64)))

    source = st.function(train).stage(np.ones((2, 4, 8, 8), np.float32)).source
    assert "evaluate_h" in source and "m->h_2" not in source, source


class Squeeze(nn.Module):
    """A layer whose variable has the name of the variables of other layers."""

    def __init__(self, inputs: int, outputs: int) -> None:
        self.first, self.second = nn.Linear(inputs, 20), nn.Linear(20, outputs)

    def forward(self, x: Any) -> Any:
        x = st.relu(self.first(x))
        return st.sum(x) + st.tanh(self.second(x))


def test_equal_names_of_arrays_are_told_apart_by_the_layers() -> None:
    net = nn.Sequential(Squeeze(40, 30), Squeeze(30, 10))
    opt = optim.AdamW(net.parameters(), lr=0.1)

    def train(x: Any) -> Any:
        x = st.sort(x - 1.0)
        loss, grads = st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net)(x)
        opt.step(grads)
        return loss, net(x)

    source = st.function(train, target="portable").stage(X).source
    fields = " ".join(re.findall(r"typedef struct \{([^}]*)\} \w+;", re.sub(r"//.*", "", source)))
    names = re.findall(r"\w+", fields)
    assert {"squeeze0_x", "squeeze1_x", "evaluate_squeeze0_x", "squeeze0"} <= {*names}, names
    assert not [name for name in names if re.fullmatch(r".*_\d", name)], names


def test_functions_that_differ_have_names_without_numbers() -> None:
    net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.ReLU())
    opt = optim.SGD(net.parameters(), lr=0.1)

    def train(x: Any) -> Any:
        loss, grads = st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net)(x)
        opt.step(grads)
        return loss, net(x)

    functions = functions_of(train, np.ones((2, 1, 10, 10), np.float32))
    assert not [name for name in functions if re.sub(r"_\d+$", "", name) in functions.keys() - {name}], functions.keys()


def test_a_number_is_described_by_the_value_that_it_comes_from() -> None:
    def program(n: Any) -> Any:
        total = st.zeros(())
        for epoch in st.range(n):
            print(f"epoch {epoch + 1}, {epoch + 1}")
            total = total + 0.5
        return total

    source = st.function(program).stage(3).source
    assert "epoch_plus_1 = epoch + 1" in source and "total_2" not in source, source


def test_a_long_name_keeps_its_end() -> None:
    from staged.code.writer import c_identifier

    name = "mean_decoder_layers_decoderlayer0_self_attention_output_projection_weight"
    assert c_identifier(name) == "mean_decoderlayer0_self_attention_output_projection_weight"
    assert c_identifier("a" * 70) == "a" * 60


def test_the_table_of_a_product_with_a_long_name_has_another_name_than_its_values() -> None:
    net = nn.ModuleDict({"layer_with_a_long_name_of_twenty_and_some_more_letters": nn.Linear(40, 40)})

    def program(x: Any) -> Any:
        return st.tanh(net["layer_with_a_long_name_of_twenty_and_some_more_letters"](x))

    source = st.function(program).stage(np.ones((40, 40), np.float32)).source
    tables = re.findall(r"static const st_product_f32 (\w+)", source)
    assert tables and all(name.endswith("_sizes") for name in tables), tables
