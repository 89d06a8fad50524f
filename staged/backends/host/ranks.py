"""Collectives: calls of the support functions that exchange arrays between ranks.

Tested by `tests/ranks/test_collectives.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from staged.backends.host.body import LEAVE, OK, BodyEmitter
from staged.code.expr import Expr, Infix, Literal, Member, Name, Prefix, call, literal
from staged.code.tree import Block, CodeBuilder, If
from staged.code.writer import c_string
from staged.ir.buffers import aligned
from staged.ir.declaration import prims
from staged.ir.names import name_of
from staged.ir.nodes import Function, Op, Value
from staged.ir.op_table import OpTable
from staged.ir.storage import is_tensor
from staged.ir.structure import REDUCE_START, REDUCE_WAIT
from staged.ir.types import DType, TensorType
from staged.ops import ranks  # noqa: F401  (declares the collectives)
from staged.source import Position

WORLD = Name("st_world")
MOST_LISTED = 5
"""The number of arrays of a message that a comment lists."""
IN_PLACE = (prims.ALL_REDUCE, prims.BROADCAST, REDUCE_START, REDUCE_WAIT)
"""Ops whose results may have the addresses of the operands."""


def in_place(op: Op) -> list[tuple[int, int]]:
    """The (result, operand) pairs of such an op that may share a buffer; a message is not an array."""
    first_result, first_operand = op.declared is REDUCE_START, op.declared is REDUCE_WAIT
    count = min(len(op.operands), len(op.results))
    return [(number + first_result, number + first_operand) for number in range(count)]


def support_of(program: Function) -> set[str]:
    """The support functions that an exported program with ranks needs besides those of its collectives."""
    exported = program.exported
    if exported is None or not exported.has_ranks:
        return set()
    return {"ranks", "check_ranks"} if exported.ranks is not None else {"ranks"}


def begin(code: CodeBuilder, program: Function, site: Callable[[Position | None], int]) -> None:
    """Join the other ranks at the entry of a program. If sizes of an exported program depend on their number, check it.

    A program that Python runs was traced in the same job.
    """
    code.add(If(Infix("!=", call("st_ranks_begin", "host", site(program.where)), OK), (LEAVE,)))
    if program.exported is not None and program.exported.ranks is not None:
        count, where = program.exported.ranks
        code.add(If(Infix("!=", call("st_check_ranks", "host", site(where), count), OK), (LEAVE,)))


def emit_compare(body: BodyEmitter, op: Op) -> None:
    """Compare the program with those of the other ranks."""
    body.where(op.where)
    body.need("compare_ranks")
    digest = Literal(f"UINT64_C(0x{op.attrs['program']:016x})")
    place = Literal(c_string(op.attrs["place"]))
    width: int = op.attrs["vector_bytes"]
    body.try_(call("st_compare_ranks", "host", body.site_of(op.where), digest, width, place))


@contextmanager
def on_its_ranks(body: BodyEmitter, op: Op, prints: bool = False) -> Iterator[None]:
    """The block with the statements of an op, which rank 0 runs, or each rank. A line of each begins with its rank."""
    by = op.attrs.get("by")
    if by is None:
        yield
        return
    body.need("ranks")
    if by == "first":
        with body.code.nested() as inner:
            yield
        if len(inner) == 1 and isinstance(inner[0], Block):
            inner = list(inner[0].body)  # the branch has braces itself
        body.code.add(If(Infix("==", Member(WORLD, "rank", arrow=False), Literal("0")), tuple(inner)))
        return
    if prints:
        body.need("rank_line")
        ends = str(op.attrs["end"]).endswith("\n")
        body.code.do("st_rank_line", "host", Literal("true" if ends else "false"))
    yield


def emit_number(body: BodyEmitter, op: Op) -> None:
    """The number of this rank, or of all."""
    body.need("ranks")
    body.scalars[op.result] = Member(WORLD, op.name, arrow=False)


def emit_collective(body: BodyEmitter, op: Op) -> None:
    body.where(op.where)
    body.need(op.name)
    COLLECTIVES[op.declared](body, op)


def _places(body: BodyEmitter, op: Op) -> list[tuple[Expr, Expr]]:
    """The addresses of each operand and result."""
    return [_place(body, *pair) for pair in zip(op.operands, op.results, strict=True)]


def _place(body: BodyEmitter, operand: Value, result: Value) -> tuple[Expr, Expr]:
    """The addresses of an operand and of the result. A number is copied to a local first."""
    given = _address(body, operand)
    if is_tensor(result):
        return given, body.pointer(result)
    begun = literal(0, result.tensor.dtype)
    name = body.scalars[result] = body.changing(name_of(result), body.c_type(result), begun)
    return given, Prefix("&", name)


def _address(body: BodyEmitter, value: Value) -> Expr:
    """The address of an array, or of a local that has the number."""
    if is_tensor(value):
        return body.pointer(value)
    return Prefix("&", body.local(f"own_{name_of(value)}", body.c_type(value), body.scalar(value)))


def _number(dtype: DType) -> Expr:
    return Name(f"ST_{'U8' if dtype.name == 'bool' else dtype.name.upper()}")


def _all_reduce(body: BodyEmitter, op: Op) -> None:
    """One message for the arrays that are adjacent, and one for each of the others."""
    for place, count, number, by in _messages(body, op, op.results):
        body.code.do("st_all_reduce", *place, count, number, by)


Message = tuple[tuple[Expr, Expr], Expr, Expr, Expr]
"""The addresses of the arrays and of the results, the number of elements, their type, the reduction."""


def _messages(body: BodyEmitter, op: Op, results: Sequence[Value]) -> list[Message]:
    found: list[Message] = []
    bucket = body.plan.buckets.get(op, ())
    by = Name(f"ST_{op.attrs['by'].upper()}")
    dtype = results[0].tensor.dtype
    if bucket:
        names = [buffer.name for buffer in bucket]
        listed = ", ".join(names) if len(names) <= MOST_LISTED else f"{names[0]} to {names[-1]}, {len(names)} arrays"
        body.code.comment(f"one message: {listed}")
        first = body.field(bucket[0])
        nbytes = sum(aligned(buffer.nbytes) for buffer in bucket[:-1]) + bucket[-1].nbytes
        found.append(((first, first), Literal(str(nbytes // dtype.size)), _number(dtype), by))
    for operand, result in zip(op.operands, results, strict=True):
        if body.plan.place.get(result) not in bucket:
            found.append((_place(body, operand, result), body.count(result.tensor), _number(dtype), by))
    return found


def emit_start(body: BodyEmitter, op: Op) -> None:
    """Start the message of adjacent arrays, after one for each of the others; kernels that follow poll it."""
    body.where(op.where)
    body.need("reduce_start")
    (place, count, number, by), *others = _messages(body, op, op.results[1:])
    for address, *rest in others:  # of results, or of arrays that are used later
        body.code.do("st_all_reduce", *address, *rest)
    body.declare(op.results[0], call("st_reduce_start", *place, count, number, by), has_effects=True)
    body.messages += 1


def emit_wait(body: BodyEmitter, op: Op) -> None:
    body.where(op.where)
    body.code.do("st_reduce_wait", body.scalar(op.operands[0]))
    body.messages -= 1


def _reduce_scatter(body: BodyEmitter, op: Op) -> None:
    ((given, made),) = _places(body, op)
    type = op.result.tensor
    body.code.do("st_reduce_scatter", given, made, body.count(type), _number(type.dtype))


def _all_gather(body: BodyEmitter, op: Op) -> None:
    ((given, made),) = _places(body, op)
    body.code.do("st_all_gather", given, made, body.nbytes(op.operands[0].tensor))


def _all_to_all(body: BodyEmitter, op: Op) -> None:
    ((given, made),) = _places(body, op)
    type = op.result.tensor
    row = TensorType(type.dtype, type.shape[1:])
    body.code.do("st_all_to_all", given, made, body.nbytes(row))


def _broadcast(body: BodyEmitter, op: Op) -> None:
    ((given, made),) = _places(body, op)
    body.code.do("st_broadcast", given, made, body.nbytes(op.result.tensor), op.attrs["root"])


def _shift(body: BodyEmitter, op: Op) -> None:
    ((given, made),) = _places(body, op)
    wraps = Literal("true" if op.attrs["wrap"] else "false")
    body.code.do("st_shift_ranks", given, made, body.nbytes(op.result.tensor), op.attrs["shift"], wraps)


COLLECTIVES: OpTable[Callable[[BodyEmitter, Op], None]] = OpTable(
    {
        prims.ALL_REDUCE: _all_reduce,
        prims.REDUCE_SCATTER: _reduce_scatter,
        prims.ALL_GATHER: _all_gather,
        prims.ALL_TO_ALL: _all_to_all,
        prims.BROADCAST: _broadcast,
        prims.SHIFT_RANKS: _shift,
    }
)
