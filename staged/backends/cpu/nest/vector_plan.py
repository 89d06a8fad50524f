"""The plan of a vectorised loop: the totals that it feeds, and the treatment of items that do not fill a vector."""

from __future__ import annotations

from staged.backends.cpu.nest.vectors import VectorSpeller
from staged.ir.loops import (
    Accumulate,
    ArrayRef,
    Compute,
    Load,
    LoadPair,
    Loop,
    PositionOf,
    Reduction,
    Store,
    StorePair,
    Tile,
    walk,
)
from staged.ir.schedule import Schedule


def may_repeat(loop: Loop, speller: VectorSpeller, pays: bool = False) -> bool:
    """Return whether the last vector of a loop may cover elements a second time, and pays: it calls functions, or takes
    totals. `pays` skips the second condition.

    Nothing may be read that the loop writes; `kernel.in_place_pairs` then says that no result lies where an operand
    does.

    Exact: elements that are computed twice are equal: no random numbers, nothing read that the loop writes, sums mask
    the lanes that they have.
    """
    read: set[ArrayRef] = set()
    written: set[ArrayRef] = set()
    for s in loop.body:
        match s:
            case Compute() if s.op.kind == "random":
                return False
            case Compute(target, op):
                pays = pays or speller.has_function(op.name, target.dtype)
            case Load(_, array, _, guards) if not guards:
                read.add(array)
            case Store(array):
                written.add(array)
            case Accumulate(reduction) if reduction.op.vector != "never":
                pays = True
            case PositionOf():
                pass
            case _:
                return False
    return pays and not read & written


def may_be_part(loop: Loop) -> bool:
    """Return whether the last vector of a loop may have fewer items than lanes: the loop does not accumulate."""
    return all(isinstance(s, Load | Store | Compute | PositionOf) for s in loop.body)


def masks_last(loop: Loop) -> bool:
    """Return whether the items of the last vector have a mask: only the program finds their number."""
    return not loop.axis.is_static and all(
        isinstance(s, Load | Store | LoadPair | StorePair | Compute | PositionOf)
        or isinstance(s, Accumulate)
        and s.reduction.op.vector != "never"
        and not s.reduction.op.is_position
        for s in loop.body
    )


def feeds(loop: Loop, reduction: Reduction) -> bool:
    """Return whether the iterations of a loop, or of loops inside it, add to a reduction that starts outside of it."""
    return any(isinstance(s, Accumulate) and s.reduction is reduction for s in walk(loop.body))


def feeding_loop(reduction: Reduction, loop: Loop | Tile, schedule: Schedule) -> Loop | None:
    """The vectorised loop (this one or one inside) whose iterations a reduction takes in."""
    inner = [s for s in walk(loop.body) if isinstance(s, Loop)]
    own = [loop] if isinstance(loop, Loop) else []
    return next((s for s in (*own, *inner) if s in schedule.vectorised and feeds(s, reduction)), None)
