"""The names of values for which the user has none."""

from __future__ import annotations

import pytest

from staged.ir.builder import Builder
from staged.ir.names import name_of
from staged.ir.nodes import Op
from staged.ir.nouns import noun_of
from staged.ir.types import TensorType, bool_, f32

TYPE = TensorType(f32, (3,))


def op(name: str, *operands, hint: str = "", **attrs):
    made = Op(name, operands, [TYPE], attrs=attrs)
    made.result.hint = hint
    return made.result


@pytest.mark.parametrize(
    ("build", "name"),
    [
        (lambda x: op("exp", x, hint="y"), "y"),
        (lambda x: op("exp", x), "x_exponential"),
        (lambda x: op("cast", x), "x"),
        (lambda x: op("reshape", op("cast", op("add", x, x))), "x_total"),
        (lambda x: op("index_check", x), "x_index"),
        (lambda x: op("constant", value=1.0), ""),
        (lambda x: op("if", x), ""),
    ],
)
def test_the_users_word_else_what_makes_it(build, name):
    builder = Builder()
    with builder.block([TYPE], ["x"]) as body:
        builder.end("yield", [])
    assert name_of(build(body.params[0])) == name


def test_a_sum_of_truths_is_a_count():
    builder = Builder()
    with builder.block([TensorType(bool_, (3,)), TYPE], ["holds", "x"]) as body:
        builder.end("yield", [])
    holds, x = body.params
    for value, name in ((holds, "count"), (x, "total")):
        cast = Op("cast", [value], [TYPE])
        assert noun_of(Op("sum", [cast.result], [TYPE])) == name
