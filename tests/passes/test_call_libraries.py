"""Ops that a library of the back end makes in one piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from staged.ir.nodes import Block, Op, walk_ops
from staged.ir.storage import where_made
from staged.ir.types import TensorType, f64
from staged.ir.users import users_of
from staged.ir.verifier import verify
from staged.ops.array import METHODS, Array
from staged.ops.library_calls import Way, library_call
from staged.ops.record import RecordContext
from staged.passes.call_libraries import call_libraries
from staged.passes.inline_blocks import inline_composites
from tests.ir_programs import Program, function

V = TensorType(f64, (2, 3))


def softmax_and_half(op: Op, block: Block) -> Way | None:
    """A library with a softmax, twice as large as it should be."""
    if op.attrs.get("name") != "softmax":
        return None

    def write(context: RecordContext, x: Array) -> Sequence[Array]:
        (doubled,) = library_call("twice_softmax", [x], [x.type], axis=op.attrs["axis"])
        return (doubled * 0.5,)

    return Way(write)


def names(made: Any) -> list[str]:
    return [op.name for op in walk_ops(made.block)]


def test_a_call_and_what_is_left_to_do_take_the_place_of_a_composite() -> None:
    before = function(lambda p, x: (METHODS["softmax"](METHODS["sigmoid"](x)),), V)
    after = call_libraries(before, softmax_and_half)
    verify(after, "call_libraries")
    (call,) = [op for op in walk_ops(after.block) if op.name == "library"]
    assert (call.attrs["call"], call.attrs["axis"], call.where) == ("twice_softmax", 1, before.block.ops[-1].where)
    assert after.block.end.operands[0].producer.name == "multiply"  # type: ignore[union-attr]
    assert [op.attrs["name"] for op in walk_ops(after.block) if op.name == "composite"] == ["sigmoid"]
    assert where_made(call.result) == call.where
    inlined = inline_composites(after)
    assert "composite" not in names(inlined) and names(inlined).count("library") == 1


def test_calls_in_loops_and_branches() -> None:
    def f(p: Program, x: Any) -> Any:
        def body(loop: Any, i: Any, h: Any) -> Any:
            return p.if_(i < 2, lambda: (METHODS["softmax"](h) * x,), lambda: (METHODS["softmax"](h + x),))

        return tuple(p.for_(4, [x], body))

    after = call_libraries(function(f, V), softmax_and_half)
    verify(after, "call_libraries")
    assert names(after).count("library") == 2 and "composite" not in names(after)


def test_a_way_may_take_values_from_before_the_op() -> None:
    def sums(op: Op, block: Block) -> Way | None:
        if op.name != "cos":
            return None
        first = block.ops[0].result
        return Way(lambda context, x, y: library_call("sum", [x, y], [x.type]), (first,))

    def f(p: Program, x: Any) -> Any:
        y = METHODS["exp"](x)
        return (METHODS["cos"](x) + y,)

    after = call_libraries(function(f, V), sums)
    verify(after, "call_libraries")
    exp, call, _ = after.block.ops
    assert call.operands == (after.params[0], exp.result)


def test_users_of_values() -> None:
    def f(p: Program, x: Any) -> Any:
        y = METHODS["exp"](x)
        (z,) = p.if_(METHODS["sum"](x) > 0.0, lambda: (METHODS["sin"](y),), lambda: (y,))
        return (z + y, METHODS["cos"](x))

    block = function(f, V).block
    users = users_of(block)
    names = {
        op.name: sorted("end" if user is None else user.name for user in users.get(op.results[0], ()))
        for op in block.ops
    }
    assert names["exp"] == ["add", "end", "sin"] and names["cos"] == names["add"] == ["end"]


def test_a_way_that_gives_another_type_is_a_bug_of_ours() -> None:
    def wrong(op: Op, block: Block) -> Way | None:
        if op.name != "exp":
            return None
        return Way(lambda context, x: library_call("exp", [x], [TensorType(f64, (3, 2))]))

    with pytest.raises(AssertionError, match="gives f64"):
        call_libraries(function(lambda p, x: (METHODS["exp"](x),), V), wrong)
