"""Loops over layers have pointers to the structs of a layer, if that makes them shorter."""

from __future__ import annotations

from staged.backends.host.layer_pointers import with_layer_pointers
from staged.code.expr import Index, Infix, Literal, Member, Name, Variable, call, member
from staged.code.printer import print_body
from staged.code.tree import Comment, Declare, Do, For, If, Jump
from staged.code.types import INDEX, CType, scalar
from staged.ir.types import f32

LAYER = Variable("layer", INDEX)
TYPES = {"args->blocks": CType("const train_block *", is_pointer=True)}
LONG = [f"the_name_of_weight_{number}" for number in range(12)]


def loop(array, fields, index=LAYER):
    stop = If(call("st_stop_requested", "host"), (Jump("return"),))
    first = Declare(Variable("rate", scalar(f32)), Name("lr"))
    update = Do(call("update", *(Member(Index(array, index), field, False) for field in fields)))
    return For(LAYER, Literal("0"), Literal("4"), (stop, first, Comment("model.py:1"), update))


def lines_of(statement):
    return [line.strip() for line in print_body(with_layer_pointers([statement], TYPES, lambda hint: hint))]


def test_the_pointer_is_declared_behind_the_first_declarations_of_the_loop() -> None:
    lines = lines_of(loop(member("args", "blocks"), LONG))
    at = lines.index("const train_block *const blocks = &args->blocks[layer];")
    assert lines[at - 1] == "const float rate = lr;" and lines[at + 1] == "// model.py:1"
    assert "blocks->the_name_of_weight_0" in lines[at + 2] and "args->blocks[layer]." not in "".join(lines)


def test_a_loop_that_would_be_longer_has_no_pointer() -> None:
    for each in (
        loop(member("args", "blocks"), LONG[:3]),
        loop(member("args", "blocks"), "abcd"),
        loop(member("args", "others"), LONG),
        loop(member("args", "blocks"), LONG, Infix("+", LAYER, Literal("1"))),
    ):
        assert not any("&" in line for line in lines_of(each))
