"""Zeros in arrays that follow one another are one statement."""

from __future__ import annotations

import pytest

from staged.backends.host.fills import joined_fills
from staged.backends.host.sections import Origin
from staged.code.expr import Infix, Literal, Member, Name, Variable, call, member, size_of
from staged.code.printer import print_body
from staged.code.tree import Assign, Comment, Do, ForAny, Statement
from staged.code.types import INDEX

ARRAYS = {"m->a": (0, 4), "m->b": (64, 4), "m->c": (192, 4), "m->d": (832, 4), "m->far": (4096, 4)}
LAYER = Variable("layer", INDEX)


def clear(name: str, count: int, layer: bool = False) -> Statement:
    array = Member(Name("m"), name)
    place = Infix("+", array, Infix("*", LAYER, Literal(str(count)))) if layer else array
    return Do(call("memset", place, 0, size_of(count, "float")))


def layers(*body: Statement) -> Statement:
    onwards = Do(call("++", LAYER))
    return ForAny(LAYER, Literal("0"), Infix("<", LAYER, Literal("2")), onwards, body)


def joined(*body: Statement) -> list[str]:
    return [line.strip() for line in print_body(joined_fills(body, ARRAYS, True, {}))]


def test_neighbours_are_filled_at_once() -> None:
    lines = joined(Comment("first"), clear("b", 32), Comment("second"), clear("a", 10), clear("far", 2))
    assert lines == ["// first", "memset(m->a, 0, 192);  // up to the end of m->b", "memset(m->far, 0, 2 * sizeof(float));"]


def test_a_loop_fills_the_arrays_of_all_layers() -> None:
    assert joined(clear("b", 32), layers(Comment("inside"), clear("c", 80, True))) == [
        "memset(m->b, 0, 768);  // up to the end of m->c"
    ]


def test_many_bytes_are_shared_by_threads() -> None:
    many = Do(call("st_parallel", member("host", "team"), 64 << 20, 262144, "st_clear", Member(Name("m"), "far")))
    assert joined(clear("d", 816), many) == [
        f"st_parallel(host->team, {4096 - 832 + (64 << 20)}, 262144, st_clear, m->d);  // up to the end of m->far"
    ]


@pytest.mark.parametrize(
    "body",
    [
        (clear("a", 10), Assign(Name("x"), Literal("1")), clear("b", 32)),
        (clear("a", 10), clear("c", 160)),
        (clear("b", 32), layers(clear("c", 80))),
        (clear("b", 32), layers(clear("c", 80, True), Assign(Name("x"), Literal("1")))),
    ],
    ids=["a statement between", "not neighbours", "one layer", "a loop with other statements"],
)
def test_other_fills_stay(body) -> None:
    assert joined_fills(body, ARRAYS, True, {}) == body


def test_the_new_statement_has_the_section_of_the_first_one() -> None:
    body = clear("a", 10), clear("b", 32)
    origins: dict[object, Origin] = {body[0]: Origin("initial values", "", None)}
    (new,) = joined_fills(body, ARRAYS, True, origins)
    assert origins[new].section == "initial values"
