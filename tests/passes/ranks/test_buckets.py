"""Buckets: which reductions over ranks share a message, and where it starts."""

from __future__ import annotations

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import COMM, Block, Function, Op, Value
from staged.ir.structure import REDUCE_START, REDUCE_WAIT
from staged.ir.types import TensorType, f32, f64
from staged.ir.verifier import verify
from staged.passes.ranks.buckets import bucket_reductions

ARRAY, NUMBER = TensorType(f64, (100,)), TensorType(f64)


class Program:
    """A function of one array, written op by op."""

    def __init__(self) -> None:
        self.builder = Builder()

    def made(self, write: object) -> Function:
        with self.builder.block([ARRAY], ["x"]) as opened:
            results = write(self, opened.params[0])  # type: ignore[operator]
            self.builder.end("return", results)
        return Function("f", opened.block, result_paths=[f"result[{number}]" for number in range(len(results))])

    def unary(self, declared: object, x: Value) -> Value:
        return self.builder.op(declared, [x], [x.type]).result

    def reduced(self, x: Value, by: str = "sum") -> Value:
        op = Op(prims.ALL_REDUCE, [x], [x.type], attrs={"by": by}, effects=COMM)
        return self.builder.append(op).result

    def summed(self, x: Value) -> Value:
        return self.builder.op(prims.SUM, [x], [NUMBER], attrs={"axes": (0,)}).result

    def shifted(self, x: Value) -> Value:
        op = Op(prims.SHIFT_RANKS, [x], [x.type], attrs={"shift": 1, "wrap": True}, effects=COMM)
        return self.builder.append(op).result


def names(block: Block) -> list[str]:
    return [op.name for op in block.ops]


def bucketed(write: object, most: int = 4 << 20, overlaps: bool = False) -> Block:
    function = bucket_reductions(Program().made(write), most, overlaps)
    verify(function, "buckets")
    return function.block


def two(p: Program, x: Value) -> list[Value]:
    loss = p.reduced(p.summed(x))
    scaled = p.unary(prims.NEGATIVE, loss)
    return [scaled, p.reduced(p.unary(prims.EXP, x))]


def test_a_number_and_an_array_share_a_message_and_what_uses_them_waits() -> None:
    block = bucketed(two)
    assert names(block) == ["sum", "exp", "reshape", "all_reduce", "reshape", "negative"]
    (reduction,) = [op for op in block.ops if op.declared is prims.ALL_REDUCE]
    assert [value.tensor.shape for value in reduction.results] == [(1,), (100,)]


def test_a_bucket_has_a_largest_size() -> None:
    assert names(bucketed(two, most=100)).count("all_reduce") == 2


def test_other_messages_keep_their_order() -> None:
    def write(p: Program, x: Value) -> list[Value]:
        first = p.reduced(x)
        return [first, p.shifted(x), p.reduced(p.unary(prims.EXP, x))]

    assert names(bucketed(write)) == ["all_reduce", "shift_ranks", "exp", "all_reduce"]


def test_a_reduction_of_a_reduction_is_a_message_of_its_own() -> None:
    assert names(bucketed(lambda p, x: [p.reduced(p.unary(prims.EXP, p.reduced(x)))])) == ["all_reduce", "exp", "all_reduce"]


def test_dtypes_and_reductions_are_apart() -> None:
    def write(p: Program, x: Value) -> list[Value]:
        cast = p.builder.op(prims.CAST, [x], [TensorType(f32, (100,))], attrs={"dtype": f32, "weak": False}).result
        return [p.reduced(x), p.reduced(cast), p.reduced(x, "max")]

    assert names(bucketed(write)).count("all_reduce") == 3


def test_with_overlap_a_message_starts_as_soon_as_its_array_is_complete() -> None:
    def write(p: Program, x: Value) -> list[Value]:
        first, second = p.unary(prims.EXP, x), p.unary(prims.SIN, x)
        third = p.unary(prims.COS, second)
        a, b = p.reduced(first), p.reduced(second)
        return [p.unary(prims.NEGATIVE, b), p.unary(prims.NEGATIVE, a), third]

    block = bucketed(write, most=800, overlaps=True)
    assert names(block)[:5] == ["exp", "reduce_start", "sin", "reduce_start", "cos"]
    starts = [op for op in block.ops if op.declared is REDUCE_START]
    waits = [op for op in block.ops if op.declared is REDUCE_WAIT]
    assert {op.operands[0] for op in waits} == {op.results[0] for op in starts}
