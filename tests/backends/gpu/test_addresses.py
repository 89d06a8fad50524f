"""Facts about an address, from the expression that it is and not from its text."""

from __future__ import annotations

import pytest

from staged.backends.cublas_cudnn.steps import is_fixed, is_written_out
from staged.backends.gpu.addresses import bare, device_of, field_of
from staged.code.expr import (
    Cast,
    Conditional,
    Expr,
    Group,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Place,
    Prefix,
    literal,
)
from staged.ir.types import CPU, Device, f32

GPU = Device("gpu")
FIELD = Member(Name("args"), "x")
THERE = Place(FIELD, GPU)
FIVE, I = Literal("5"), Name("i")  # noqa: E741


@pytest.mark.parametrize(
    ("address", "device"),
    [
        (FIELD, CPU),
        (THERE, GPU),
        (Infix("+", THERE, FIVE), GPU),
        (Infix("+", Infix("+", THERE, I), FIVE), GPU),
        (Group(Infix("+", THERE, I)), GPU),
        (Cast("float *", THERE), GPU),
        (Prefix("&", Name("loss")), CPU),
        (Name("args->x"), CPU),
    ],
)
def test_the_device_of_an_address_is_that_of_the_array_it_begins_with(address: Expr, device: object) -> None:
    assert device_of(address) == device


@pytest.mark.parametrize(
    ("address", "fixed"),
    [
        (THERE, True),
        (Member(Name("d"), "h"), True),
        (Infix("+", THERE, FIVE), True),
        (Infix("+", THERE, I), False),
        (Infix("+", Infix("+", THERE, I), FIVE), False),
        (Member(Name("m"), "h"), False),
        (Member(Name("args"), "h", arrow=False), False),
        (Place(Name("view"), GPU), False),
        (Member(Index(Member(Name("args"), "blocks"), FIVE), "weight", arrow=False), True),
        (Member(Index(Member(Name("args"), "blocks"), I), "weight", arrow=False), False),
        (Index(Member(Name("args"), "weights"), FIVE), True),
        (Index(Member(Name("m"), "weights"), FIVE), False),
        (Conditional(Infix("<", FIVE, FIVE), THERE, THERE), True),
        (Conditional(Infix("<", I, FIVE), THERE, THERE), False),
    ],
)
def test_an_address_is_fixed_where_nothing_in_it_changes(address: Expr, fixed: bool) -> None:
    assert is_fixed(address) is fixed


@pytest.mark.parametrize(
    ("number", "written_out"),
    [(literal(0.5, f32), True), (literal(-0.5, f32), True), (Prefix("-", FIVE), True), (I, False), (FIELD, False)],
)
def test_a_number_is_written_out_where_it_is_a_literal(number: Expr, written_out: bool) -> None:
    assert is_written_out(number) is written_out


def test_addresses_know_the_field_that_they_begin_with_and_print_as_it_is() -> None:
    assert field_of(Infix("+", THERE, I)) is FIELD and field_of(Name("x")) is None
    assert bare(THERE) is FIELD and bare(I) is I
    assert str(Infix("+", THERE, I)) == "args->x + i"
