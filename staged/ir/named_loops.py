"""The loops that a directive speaks of: each is found by its name and changed, wherever in the tree it stands.

Tested by `tests/kernels/test_rewrites.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.ir.dependences import Body
from staged.ir.loops import Affine, Axis, Guarded, Loop, Nest, Statement, Tile, map_indices, walk


class IllegalSchedule(ValueError):
    """A directive refers to a missing loop or array, or would change the result of a nest."""


class Elsewhere(IllegalSchedule):
    """The loops around or inside of one are others than a directive speaks of: it may speak of another of the same
    name.
    """


def illegal(directive: object, why: str) -> IllegalSchedule:
    return IllegalSchedule(f"`{directive}` is not possible: {why}")


def refused_here(directive: object, why: str) -> IllegalSchedule:
    return Elsewhere(f"`{directive}` is not possible: {why}")


def require_static(directive: object, axis: Axis) -> None:
    if not axis.is_static:
        raise illegal(directive, f"how many iterations {axis.name} has is found when the program runs")


def require_whole(directive: object, nest: Nest, axis: Axis) -> None:
    """Refuse an axis some of whose loops run over the pieces of a tile."""
    require_static(directive, axis)
    if any(isinstance(s, Tile) and s.axis is axis for s in walk(nest.body)):
        raise illegal(directive, f"{axis.name} is in pieces")


def with_axis(body: Body, axis: Axis, place: Affine) -> Body:
    """The body where an axis is at `place`."""

    def change(index: Affine) -> Affine:
        step = index.stride(axis)
        rest = Affine(tuple(term for term in index.terms if term[0] is not axis), index.offset)
        return rest + place * step if step != 0 else index

    return map_indices(body, change)


def with_body(s: Statement, change: Callable[[Body], Body]) -> Statement:
    """A statement with another body, if it has one."""
    match s:
        case Loop(axis, body, reductions):
            return Loop(axis, change(body), reductions)
        case Tile(axis, size, body, reductions):
            return Tile(axis, size, change(body), reductions)
        case Guarded(bounds, body):
            return Guarded(bounds, change(body))
    return s


def at_loops(directive: object, body: Body, name: str, change: Callable[[Loop], Body]) -> Body:
    """The tree with every loop of a name changed."""
    return at_chosen_loops(directive, body, lambda loop: loop.axis.name == name, change, name)


def at_chosen_loops(
    directive: object, body: Body, chosen: Callable[[Loop], bool], change: Callable[[Loop], Body], name: str = ""
) -> Body:
    """The tree with the chosen loops changed.

    Loops in other places are left. Raises: IllegalSchedule if none is changed.
    """
    found = False
    elsewhere: list[IllegalSchedule] = []

    def changed(body: Body) -> Body:
        nonlocal found
        out: list[Statement] = []
        for s in body:
            if isinstance(s, Loop) and chosen(s):
                try:
                    out += change(s)
                    found = True
                    continue
                except Elsewhere as refusal:
                    elsewhere.append(refusal)
            out.append(with_body(s, changed))
        return tuple(out)

    made = changed(body)
    if not found and elsewhere:
        raise elsewhere[0]
    if not found:
        names = dict.fromkeys(s.axis.name for s in walk(body) if isinstance(s, Loop))
        raise illegal(directive, f"no loop is called {name}; there are {', '.join(names) or 'none'}")
    return made


def loops_inside(directive: object, outer: Loop, names: Sequence[str]) -> tuple[list[Axis], Body]:
    """The axes of a loop and of those directly inside of it that have the other names, and their body."""
    axes, body = [outer.axis], outer.body
    if outer.reductions:
        raise illegal(directive, f"{outer.axis.name} keeps a total itself")
    for name in names[1:]:
        inner = body[0] if len(body) == 1 else None
        if not isinstance(inner, Loop) or inner.axis.name != name or inner.reductions:
            raise refused_here(directive, f"{axes[-1].name} has more in it than the loop {name}")
        axes.append(inner.axis)
        body = inner.body
    return axes, body


def nested(axes: Sequence[Axis], inside: Sequence[Statement]) -> Loop:
    """Loops over axes inside one another."""
    made: Body = tuple(inside)
    for axis in reversed(axes):
        made = (Loop(axis, made),)
    (nested,) = made
    assert isinstance(nested, Loop)
    return nested


def row_major_over(axes: Sequence[Axis]) -> tuple[Affine, int]:
    """The index of an element of a contiguous array over axes, and the number of elements."""
    index, size = Affine(), 1
    for axis in reversed(axes):
        index, size = Affine.of(axis, size) + index, size * axis.extent
    return index, size
