"""Unused locals of the host's functions, by rows: the statements as they are made, and what is left of them."""

from __future__ import annotations

import pytest

from staged.code.expr import Expr, Index, Infix, Literal, Member, Name, Prefix, Variable, call
from staged.code.printer import print_body
from staged.code.tree import Assign, Declare, Do, For, If, Jump, Statement
from staged.code.types import INDEX, Space, pointer, scalar, word
from staged.code.unused import drop_unused_locals, drop_unused_variables, names_used, without_copies
from staged.ir.types import f64

OK = Jump("return", value=Name("ST_OK"))


def constant(name: str, value: Expr, **facts: bool) -> Declare:
    return Declare(Variable(name, INDEX), value, **facts)


def variable(name: str) -> Declare:
    return Declare(Variable(name, scalar(f64)), is_const=False)


def address(name: str, is_const: bool, **facts: bool) -> Declare:
    return Declare(Variable(name, pointer(word("Buffers"), Space.GLOBAL, is_const)), Name("all"), **facts)


CHECK = call("st_check_index", "host", 1)
SUM = Infix("+", Name("b"), Member(Name("m"), "a"))
ROWS: dict[str, tuple[list[Statement], list[str]]] = {
    "a constant goes, with those that only it reads": ([constant("b", Literal("2")), constant("c", SUM), OK], []),
    "a field of the same name is no read": (
        [constant("a", Literal("2")), Do(call("f", Member(Name("m"), "a")))],
        ["f(m->a);"],
    ),
    "of a value with effects its computation stays": (
        [constant("a", CHECK, has_effects=True)],
        ["st_check_index(host, 1);"],
    ),
    "what is only assigned to is marked": (
        [variable("t"), Assign(Name("t"), Member(Name("m"), "b"))],
        ["double t;", "(void)t;", "t = m->b;"],
    ),
    "what is added to is read": ([variable("t"), Assign(Name("t"), Literal("1.0"), "+")], ["double t;", "t += 1.0;"]),
    "what is written through is read": (
        [address("p", False), Assign(Prefix("*", Name("p")), Literal("1"))],
        ["Buffers *const p = all;", "*p = 1;"],
    ),
    "a pointer through which others may write is marked": (
        [address("gpu", False)],
        ["Buffers *const gpu = all;", "(void)gpu;"],
    ),
    "a pointer to what is only read goes": ([address("m", True)], []),
    "what is kept is marked": ([address("m", True, is_kept=True)], ["const Buffers *const m = all;", "(void)m;"]),
    "an array stays": (
        [Declare(Variable("known", INDEX), sizes=(Literal("2"),), is_const=False)],
        ["int64_t known[2];"],
    ),
    "reads are found in blocks, and so are declarations": (
        [
            constant("a", Literal("1")),
            For(Variable("i", INDEX), Literal("0"), Literal("3"), (constant("b", Literal("2")),)),
            If(Name("a"), (constant("c", Literal("3")), OK), (variable("t"),)),
        ],
        [
            "const int64_t a = 1;",
            "for (int64_t i = 0; i < 3; ++i) {",
            "}",
            "if (a) {",
            "return ST_OK;",
            "} else {",
            "double t;",
            "(void)t;",
            "}",
        ],
    ),
}


@pytest.mark.parametrize("row", ROWS)
def test_unused_locals(row: str) -> None:
    body, left = ROWS[row]
    ends = ["return ST_OK;"] if body[-1] is OK and not left else []
    assert [line.strip() for line in print_body(drop_unused_locals(body))] == [*left, *ends]


def test_variables_of_one_name_in_blocks_beside_one_another_are_known_by_their_identity() -> None:
    read, unread = Variable("key", INDEX), Variable("key", INDEX)
    body = [
        If(Name("a"), (Declare(read, Literal("1")), Do(call("f", read)))),
        If(Name("b"), (Declare(unread, Literal("2")), OK)),
    ]
    lines = [line.strip() for line in print_body(drop_unused_variables(body))]
    assert lines == ["if (a) {", "const int64_t key = 1;", "f(key);", "}", "if (b) {", "return ST_OK;", "}"]
    assert "const int64_t key = 2;" in "\n".join(print_body(drop_unused_locals(body)))


def test_names_that_are_assigned_to_are_used() -> None:
    assert names_used([variable("t"), Assign(Name("x"), Member(Name("m"), "t"))]) == {"x", "m"}


@pytest.mark.parametrize(("readers", "lines"), [(1, ["x[0] = b;"]), (2, ["const int64_t sum = b;", "x[0] = sum;", "f(sum);"])])
def test_a_constant_that_is_only_stored_is_stored_at_once(readers: int, lines: list[str]) -> None:
    total = Variable("sum", INDEX)
    stored = Assign(Index(Name("x"), Literal("0")), total)
    body = [Declare(total, Name("b")), stored, Do(call("f", total))][: readers + 1]
    assert [line.strip() for line in print_body(without_copies(body))] == lines
