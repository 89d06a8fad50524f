"""The known alignment of values: buffers, views at offsets, elements of sequences, and parameters of functions."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from staged.backends.gpu.alignment import Alignments
from staged.ir.nodes import Effect, Function, Value, VariableRef
from staged.ir.sizes import Dim
from staged.ir.structure import SEQUENCE_GET, VARIABLE_READ
from staged.ir.types import TensorType, bf16, f32, f64, i64
from tests.ir_functions import Functions, assemble, define

N = Dim("N", 100)


def known(build: Any, *types: Any) -> int:
    """The alignment of what a program of these inputs returns."""
    program = assemble(define("main", types, build))
    return Alignments(program).of(returned(program))


def returned(function: Function) -> Value:
    return function.block.end.operands[0]


def part(p: Functions, x: Any, start: tuple[int, ...], shape: tuple[int, ...]) -> Any:
    """The piece of an array from `start` on."""
    stop = tuple(first + extent for first, extent in zip(start, shape, strict=True))
    attrs = {"start": start, "stop": stop, "step": (1,) * len(start)}
    op = p.builder.op("slice", p.values([x]), [TensorType(p.values([x])[0].tensor.dtype, shape)], attrs=attrs)
    return p.handles(op.results)[0]


@pytest.mark.parametrize(
    ("dtype", "start", "alignment"),
    [(f32, 0, 16), (f32, 1, 4), (f32, 2, 8), (f32, 4, 16), (f64, 1, 8), (bf16, 1, 2), (bf16, 8, 16)],
)
def test_a_view_begins_at_an_offset(dtype: Any, start: int, alignment: int) -> None:
    assert known(lambda p, x: [part(p, x, (start,), (8,))], TensorType(dtype, (64,))) == alignment


def test_offsets_add_up() -> None:
    def build(p: Functions, x: Any) -> list[Any]:
        return [part(p, part(p, x, (2, 0), (1, 6)), (0, 2), (1, 2))]

    assert known(build, TensorType(f32, (4, 6))) == 8  # rows of 24 bytes


def test_a_size_that_the_program_finds_leaves_elements() -> None:
    def build(p: Functions, x: Any) -> list[Any]:
        return [part(p, x, (1, 0), (1, 4))]

    assert known(build, TensorType(f32, (4, N))) == 4
    assert known(build, TensorType(f32, (N, 4))) == 16


def test_a_number_of_bytes_says_nothing_about_the_address() -> None:
    assert known(lambda p, x: [x], TensorType(f32, (3,))) == 16


@pytest.mark.parametrize(("width", "outer", "alignment"), [(6, False, 8), (8, False, 16), (6, True, 16)])
@pytest.mark.parametrize("is_whole", [False, True])
def test_a_member_is_where_the_caller_or_the_array_of_all_has_it(
    width: int, outer: bool, alignment: int, is_whole: bool
) -> None:
    members = tuple(VariableRef(f"w{k}", TensorType(f32, (width,)), outer) for k in range(3))
    family = replace(members[0], members=members)
    attrs, effects = {"variable": family}, (Effect("read", family),)

    def build(p: Functions, number: Any) -> list[Any]:
        index = p.values([number])
        if not is_whole:
            return p.handles(p.builder.op(VARIABLE_READ, index, [family.type], attrs=attrs, effects=effects).results)
        whole = p.builder.op(VARIABLE_READ, [], [family.sequence], attrs=attrs, effects=effects).result
        return p.handles(p.builder.op(SEQUENCE_GET, [whole, *index], [family.type]).results)

    assert known(build, TensorType(i64)) == alignment


def test_parameters_have_the_minimum_over_all_calls() -> None:
    type = TensorType(f32, (8,))

    def called(p: Functions, x: Any, n: Any) -> list[Any]:
        (y,) = p.call("other", [x, n], [type])
        return [y]

    def other(p: Functions, z: Any, n: Any) -> list[Any]:
        p.call("called", [part(p, z, (0,), (8,)), n], [type])
        return [z]

    def main(p: Functions, data: Any, n: Any) -> list[Any]:
        p.call("called", [part(p, data, (4,), (8,)), n], [type])
        p.call("called", [part(p, data, (2,), (8,)), n], [type])
        return [data]

    functions = [define(name, [type, TensorType(i64)], body) for name, body in (("called", called), ("other", other))]
    program = assemble(define("main", [TensorType(f32, (64,)), TensorType(i64)], main), *functions)
    alignments = Alignments(program)
    assert [alignments.of(each.params[0]) for each in (program, *program.functions)] == [16, 8, 8]
