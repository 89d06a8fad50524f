"""Layers of different sizes share functions of the host, with the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host import buffer_groups, outlining
from staged.backends.host.equal_functions import EqualFunctions
from staged.backends.host.outlining import Outlined
from staged.code.expr import Infix, Literal, Member, Name, Variable, call, size_of
from staged.code.printer import print_body
from staged.code.tree import Comment, Do
from staged.code.types import CType, word
from staged.code.writer import Names

STRICT = "-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Wstrict-prototypes -Werror"
X = np.linspace(-1.0, 1.0, 16, dtype=np.float32).reshape(4, 4)


class Pair(nn.Module):
    def __init__(self, size: int) -> None:
        self.up, self.down = nn.Linear(4, size), nn.Linear(size, 4)

    def forward(self, x):
        return self.down(st.tanh(self.up(x)))


class Net(nn.Module):
    def __init__(self) -> None:
        self.pair1, self.pair2, self.pair3 = Pair(32), Pair(48), Pair(80)

    def forward(self, x):
        return self.pair3(self.pair2(self.pair1(x)))


def train(x, steps):
    st.seed(1)
    net = Net()
    optimizer = optim.AdamW(net.parameters(), lr=0.01)
    loss = 0.0
    for _ in st.range(steps):
        loss, grads = st.value_and_grad(lambda x: st.mean(net(x) ** 2), wrt=net)(x)
        optimizer.step(grads)
    return net.state_dict(), loss


def results(program) -> list[bytes]:
    state, loss = program(X, 3)
    return [np.asarray(each).tobytes() for each in (*state.values(), loss)]


@pytest.mark.parametrize("target", ["native", "portable"])
def test_layers_of_different_sizes_share_functions(target, monkeypatch) -> None:
    monkeypatch.setattr(buffer_groups, "MOST_FIELDS", 12)
    monkeypatch.setattr(buffer_groups, "LEAST_FIELDS", 2)
    for name, lines in {"MOST": 10, "LEAST": 3, "LEAST_OF_SECTION": 3}.items():
        monkeypatch.setattr(outlining, name, lines)
    monkeypatch.setenv("STAGED_CFLAGS", STRICT)
    shared = st.function(train, target=target)
    source = shared.stage(X, 3).source
    assert len(re.findall(r"^    initialize_pair\(.*&args->pair[123], ", source, re.M)) >= 2
    assert re.search(r"typedef struct \{[^}]*\} MeanPair;", source)
    assert "place_mean_pair(base, mean_pair3_offsets)" in source
    monkeypatch.setattr(EqualFunctions, "merged", lambda self, functions, rest: (list(functions), rest))
    whole = st.function(lambda x, steps: train(x, steps), target=target)
    assert "initialize_pair(" not in whole.stage(X, 3).source
    assert results(shared) == results(whole)


ARGS, M, HOST = (Variable(name, word(f"const {name}")) for name in ("args", "m", "host"))
POINTER = CType("float *", is_pointer=True)
FIELDS = {f"m->{name}": POINTER for name in ("layer1.x", "layer1.y", "layer2.x", "layer2.y", "c", "d")}
FIELDS |= {"&m->layer1": CType("const Pair *", is_pointer=True), "&m->layer2": CType("const Pair *", is_pointer=True)}
KERNELS = {"scale": (("const float *", "x"), ("float *", "y"), ("int64_t", "begin"), ("int64_t", "end"))}


def outlined(name: str, x: str, y: str, count: int, *more) -> Outlined:
    places = Member(Name("m"), x), Member(Name("m"), y)
    clear = call("memset", places[1], 0, size_of(count, "float"))
    body = Comment(name), Do(clear), Do(call("scale", *places, 0, count)), *more
    return Outlined(name, "", (M,), body, False, None)


def merged(*functions: Outlined) -> tuple[list[Outlined], list[str]]:
    names = Names()
    equal = EqualFunctions(FIELDS, KERNELS, names.fresh, Names(names).fresh)
    calls = tuple(Do(call(each.name, "m")) for each in functions)
    made, rest = equal.merged(functions, calls)
    return made, [line.strip() for line in print_body(rest)]


def test_numbers_and_structs_become_parameters() -> None:
    (made,), calls = merged(outlined("run_layer1", "layer1.x", "layer1.y", 64), outlined("run_layer2", "layer2.x", "layer2.y", 96))
    assert calls == ["run_layer(&m->layer1, 64);", "run_layer(&m->layer2, 96);"]
    assert [f"{each.type.before_name}{each.text}" for each in made.parameters] == ["const Pair *layer", "int64_t size"]
    assert [line.strip() for line in print_body(made.body)] == [
        "// run_layer1",
        "memset(layer->y, 0, (size_t)size * sizeof(float));",
        "scale(layer->x, layer->y, 0, size);",
    ]


def test_buffers_of_no_struct_are_pointers_and_what_a_kernel_writes_is_not_constant() -> None:
    (made,), calls = merged(outlined("run_layer1", "c", "d", 64), outlined("run_layer2", "layer1.x", "d", 64))
    assert calls == ["run_layer(m, m->c);", "run_layer(m, m->layer1.x);"]
    assert made.parameters[1].type.text == "const float *"


def test_other_kernels_are_other_functions() -> None:
    other = Do(call("shift", Member(Name("m"), "c"), Infix("*", Literal("2"), Literal("3"))))
    functions = outlined("run_layer1", "layer1.x", "layer1.y", 64, other), outlined("run_layer2", "layer2.x", "layer2.y", 96)
    assert merged(*functions)[0] == [*functions]
