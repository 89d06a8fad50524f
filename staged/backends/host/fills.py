"""Zeros in arrays that follow one another in memory, written by one statement.

    memset(m->mean_w, 0, 4096 * sizeof(float));
    memset(m->mean_b, 0, 64 * sizeof(float));    ->    memset(m->mean_w, 0, 33024);  // up to m->variance_b
    ...

The plan places the Variables of a program one after another, so that an optimiser's state is one piece of memory.

Tested by `tests/backends/host/test_fills.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from staged.backends.host.buffer_structs import ELEMENT_BYTES
from staged.backends.host.sections import Origin, key_of
from staged.backends.host.short_kernels import CLEARED_BYTES, MOST_BYTES
from staged.code.expr import Call, Expr, Infix, Literal, Member, Name, Sizeof, call, member
from staged.code.tree import Comment, Do, ForAny, Statement
from staged.ir.buffers import aligned

Arrays = Mapping[str, tuple[int, int]]


@dataclass(frozen=True)
class Fill:
    """Zeros in the bytes of an array from its first one."""

    array: Expr
    begin: int
    end: int


def joined_fills(
    body: Sequence[Statement], arrays: Arrays, has_clear: bool, origins: dict[object, Origin]
) -> tuple[Statement, ...]:
    """Statements in which one stands for all fills of a run that follow one another in memory.

    `arrays` has the offsets of arrays in the arena, and the bytes of an element, by their C expression.
    `has_clear`: the program has `st_clear` for large arrays.
    """
    found = list[Statement]()
    begin = 0
    while begin < len(body):
        end = begin
        while end < len(body) and (isinstance(body[end], Comment) or _fills(body[end], arrays)):
            end += 1
        run = body[begin:end]
        joined = _joined(run, arrays, has_clear) if run else [body[begin]]
        origin = next((origins[key] for each in run if (key := key_of(each)) in origins), None)
        if origin is not None:
            origins.update((each, origin) for each in joined if each not in run)
        found += joined
        begin = max(end, begin + 1)
    return tuple(found)


def _joined(run: Sequence[Statement], arrays: Arrays, has_clear: bool) -> list[Statement]:
    """A run of fills and comments with fewer fills."""
    fills = {each: _fills(each, arrays) for each in run if not isinstance(each, Comment)}
    left = dict(fills)
    while True:
        pieces = _pieces(fill for each in left.values() for fill in each)
        alone = {fill for piece in pieces if len(piece) == 1 for fill in piece}
        kept = {each: own for each, own in left.items() if alone.isdisjoint(own)}
        if len(kept) == len(left):
            break
        left = kept
    if not left:
        return list(run)
    rest = list[Statement]()
    for statement, following in zip(run, [*run[1:], None], strict=True):
        if statement in left or (isinstance(statement, Comment) and following in left and rest):
            continue
        rest.append(statement)
    first = 1 if rest and isinstance(rest[0], Comment) else 0
    return [*rest[:first], *(_statement(piece, has_clear) for piece in pieces), *rest[first:]]


def _statement(piece: Sequence[Fill], has_clear: bool) -> Do:
    """The statement that fills a piece of memory."""
    array, size = piece[0].array, piece[-1].end - piece[0].begin
    note = f"up to the end of {piece[-1].array}"
    if has_clear and size > MOST_BYTES:
        return Do(call("st_parallel", member("host", "team"), size, CLEARED_BYTES, "st_clear", array), note)
    return Do(call("memset", array, 0, size), note)


def _pieces(fills: Iterable[Fill]) -> list[list[Fill]]:
    """Fills that follow one another, up to the gaps that align arrays."""
    pieces: list[list[Fill]] = []
    for fill in sorted(fills, key=lambda each: each.begin):
        if pieces and aligned(pieces[-1][-1].end) == fill.begin:
            pieces[-1].append(fill)
        else:
            pieces.append([fill])
    return pieces


def _fills(statement: Statement, arrays: Arrays) -> tuple[Fill, ...]:
    """The fills of a statement that does nothing else; a loop over layers fills the arrays of all layers."""
    match statement:
        case ForAny(index, Literal("0"), Infix("<", Name(), Literal(count)), _, body):
            inner = [_fill(each, arrays, index.text, int(count)) for each in body if not isinstance(each, Comment)]
            return tuple(each for each in inner if each is not None) if None not in inner else ()
        case Do() if (fill := _fill(statement, arrays)) is not None:
            return (fill,)
    return ()


def _fill(statement: Statement, arrays: Arrays, index: str = "", count: int = 1) -> Fill | None:
    """The fill of one statement; in a loop of so many layers with an `index`, that of all layers."""
    match statement:
        case Do(Call("memset", (target, Literal("0"), Infix("*", Literal(number), Sizeof(type)))), ""):
            size_of_one = int(number) * ELEMENT_BYTES.get(type, 0)
        case Do(Call("memset", (target, Literal("0"), Sizeof(type))), ""):
            size_of_one = ELEMENT_BYTES.get(type, 0)
        case Do(Call("st_parallel", (_, Literal(text), _, Name("st_clear"), target)), ""):
            size_of_one = int(text)
        case _:
            return None
    stride: Expr | None = None
    match target:
        case Infix("+", Member() as array, Infix("*", Name(by), Literal() as stride)) if by == index:
            target = array
        case Infix("+", Member() as array, Name(by)) if by == index:
            target, stride = array, Literal("1")
    place = arrays.get(str(target))
    if place is None or (stride is None) == bool(index) or (stride and int(str(stride)) * place[1] != size_of_one):
        return None
    return Fill(target, place[0], place[0] + size_of_one * count)
