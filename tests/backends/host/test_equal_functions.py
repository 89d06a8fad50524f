"""Layers of different sizes share functions of the host, with the same results."""

from __future__ import annotations

import re

import numpy as np
import pytest

import staged as st
from staged import nn, optim
from staged.backends.host import argument_structs, buffer_groups, equal_functions, outlining
from staged.backends.host.equal_functions import EqualFunctions
from staged.backends.host.outlining import Outlined
from staged.code.expr import Infix, Literal, Member, Name, Variable, call, size_of
from staged.code.printer import print_body
from staged.code.tree import Comment, Do, For, If
from staged.code.types import INDEX, CType, word
from staged.code.writer import Names
from tests.backends.host.test_buffer_groups import Pair, X

STRICT = "-O1 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Wstrict-prototypes -Werror"


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
    monkeypatch.setattr(argument_structs, "MOST", 3)
    monkeypatch.setenv("STAGED_CFLAGS", STRICT)
    shared = st.function(train, target=target)
    source = shared.stage(X, 3).source
    assert re.search(r"^    \w+_pair\(.*&\(\w+Pair\)\{\.", source, re.M)
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


def test_arrays_become_parameters_whatever_their_number() -> None:
    x, n = Variable("x", POINTER), Variable("n", INDEX)

    def function(name: str, place, parameters) -> Outlined:
        c, d = (Member(Name("m"), field) for field in "cd")
        body = [Do(call("scale", x, y, 0, end)) for x, y, end in ((place, d, n), (d, c, 64), (d, c, 64))]
        return Outlined(name, "", parameters, tuple(body), False, None)

    first = function("run_layer1", Member(Name("m"), "c"), (M, n))
    second = function("run_layer2", Name("x"), (M, x, n))
    names = Names()
    equal = EqualFunctions(FIELDS, KERNELS, names.fresh, Names(names).fresh)
    (made,), calls = equal.merged([first, second], (Do(call("run_layer1", "m", 8)), Do(call("run_layer2", "m", "x", 9))))
    assert [line.strip() for line in print_body(calls)] == ["run_layer(m, 8, m->c);", "run_layer(m, 9, x);"]
    assert [line.strip() for line in print_body(made.body)][0] == f"scale({made.parameters[2]}, m->d, 0, n);"


def test_other_kernels_are_other_functions() -> None:
    other = Do(call("shift", Member(Name("m"), "c"), Infix("*", Literal("2"), Literal("3"))))
    functions = outlined("run_layer1", "layer1.x", "layer1.y", 64, other), outlined("run_layer2", "layer2.x", "layer2.y", 96)
    assert merged(*functions)[0] == [*functions]


def test_layers_with_too_many_other_fields_stay_apart(monkeypatch) -> None:
    monkeypatch.setattr(equal_functions, "MOST", 2)
    first, *others = (
        outlined(f"run_layer{number}", *fields, size)
        for number, fields, size in ((1, "cd", 64), (2, ("layer1.x", "layer1.y"), 96), (3, ("layer2.x", "layer2.y"), 32))
    )
    made, calls = merged(first, *others)
    assert first in made and len(made) == 2
    assert calls[1:] == ["run_layer(&m->layer1, 96);", "run_layer(&m->layer2, 32);"]


def test_numbers_of_layers_are_not_computed_from_sizes() -> None:
    layer = Variable("layer", INDEX)

    def function(number: int) -> Outlined:
        tests = (If(Infix("<", layer, Literal(str(last))), (Do(call("shift", layer)),)) for last in (number, number - 1))
        loop = For(layer, Literal("0"), Literal("9"), tuple(tests))
        return outlined(f"run_layer{number}", f"layer{number - 3}.x", f"layer{number - 3}.y", 2 * number, loop)

    (made,), _ = merged(function(4), function(5))
    text = "\n".join(print_body(made.body))
    assert "if (layer < last) {" in text and "if (layer < last - 1) {" in text


def test_equal_loops_of_the_backward_pass_share_a_function(monkeypatch) -> None:
    monkeypatch.setattr(outlining, "MOST", 20)
    monkeypatch.setattr(outlining, "LONG_LOOP", 8)
    monkeypatch.setattr(outlining, "LEAST", 8)

    def fly(speed, end):
        time, x, y = 0.0, 1.0, 2.0
        while time < end:
            x, y, speed = x + 0.1 * st.sin(y), y * st.cos(x) + 0.01 * speed, speed * st.cos(y)
            time += 0.1
        return x, y

    def slopes(speed, end):
        return st.grad(lambda speed: fly(speed, end)[0])(speed), st.grad(lambda speed: fly(speed, end)[1])(speed)

    program = st.function(slopes)
    source = str(program.stage(0.25, 1.0).source)
    assert source.count(" fly_backward(") == 1 and source.count("(fly_backward(") == 2 and "1.0, 0.0)" in source, source
    assert re.search(r"// Backward pass: .*\nstatic int fly_backward\(", source), source
    with st.eager():
        expected = slopes(0.25, 1.0)
    np.testing.assert_allclose(np.asarray(program(0.25, 1.0)), np.asarray(expected), rtol=1e-12)
