"""Items that several threads share: rows to be reduced, by a warp or a block each; columns, by a block for 32 of them.

    for i: (for j: total += x[i, j]); y[i] = total      a block for each i; its threads take every 256th j, then bring
                                                        their totals together

What is done once per item (`y[i] = ...`) one thread does; what only computes, all do. Which threads share an item, and
so the order of additions, follows from sizes alone: the same numbers on every GPU.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod

from staged.backends.gpu.mapping import Part
from staged.backends.gpu.packs import packed_loop
from staged.ir.cascade import LONGEST, PIECE, additions, is_float_sum, iteration_in_pieces
from staged.ir.loops import (
    Accumulate,
    ArrayRef,
    Axis,
    CheckIndex,
    Compute,
    Guarded,
    Load,
    Loop,
    PositionOf,
    Statement,
    Store,
    Tile,
    walk,
)
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Directive, Level, Memory, Place, Schedule, Share, Vectorise
from staged.ir.sizes import bounds_of
from staged.ir.types import f64

SHORTEST = 32
"""Iterations of a loop from which on threads share it."""
SHORT_ROW = 128
"""The longest row that is always one warp's."""
WARP_ROW = 1024
"""The longest row that one warp has to itself where there are rows for all warps."""


def shared_by_teams(part: Part, alignment: Mapping[ArrayRef, int], gpu: Gpu) -> Schedule | None:
    """The threads that share the items of a part; None if each thread has its own items.

    Exact: no iteration reads what another writes; the order of additions follows from sizes alone, and integers wrap.
    """
    loops = [s for s in part.body if isinstance(s, Loop)]
    if not gpu.has_warps or not any(loop.reductions for loop in loops) or not is_shareable(part.body):
        return None
    length = max(prod(axis.extent for axis in chain_of(loop)[0]) for loop in loops)
    if length < SHORTEST:
        return None
    items = part.items
    workspace = sum(array.size * array.dtype.size for array in part.scratch)
    if _is_across(part, loops):
        apart = any(isinstance(s, Store) for loop in loops for s in walk(loop.body))
        if items >= gpu.busy_threads or part.scratch or apart and items % gpu.warp:
            return None
        warps = _power_between(
            length // 4, 2, gpu.largest_block // gpu.warp if items <= 8192 else gpu.block // gpu.warp
        )
        while warps > 2 and warps * gpu.warp * _total_bytes(loops) > gpu.shared_bytes:
            warps //= 2
        bound, sharing, count = Bind(part.axes, Level.LANES, gpu.warp), Level.WARPS, warps
    elif length <= SHORT_ROW or length <= WARP_ROW and items >= gpu.busy_warps:
        rows = min(gpu.block // gpu.warp, items)
        while rows > 1 and rows * workspace > gpu.shared_bytes:
            rows //= 2
        bound, sharing, count = Bind(part.axes, Level.WARPS, rows), Level.LANES, gpu.warp
    else:
        bound, sharing = Bind(part.axes, Level.BLOCKS, 1), Level.THREADS
        count = _power_between(length // 4, 128, gpu.block if items >= gpu.busy_warps else gpu.largest_block)
    directives: list[Directive] = [bound]
    for loop in loops:
        directives += _dealt_out(loop, sharing, count, alignment, gpu)
    fits = part.workspace_bytes * bound.count <= gpu.shared_bytes
    directives += [Place(array, Memory.SHARED if fits else Memory.DEVICE) for array in part.scratch]
    return Schedule(tuple(directives))


def _dealt_out(
    loop: Loop, level: Level, count: int, alignment: Mapping[ArrayRef, int], gpu: Gpu
) -> Iterator[Directive]:
    """The iterations of a loop among `count` threads: of the innermost axis where it is long enough,
    else of all together."""
    axes, body = chain_of(loop)
    shared = axes[-1:] if axes[-1].extent >= 2 * count else axes
    outer = prod(axis.extent for axis in axes[: len(axes) - len(shared)])
    iterations = outer * -(-prod(axis.extent for axis in shared) // count)
    yield Share(loop, shared, level, count, _piece(loop, body, iterations))
    if len(shared) == 1:
        width, packs = packed_loop(body, shared[0], count, alignment, gpu)
        if width > 1:
            yield Vectorise(shared, width, frozenset((loop,)), packs=packs)


def _piece(loop: Loop, body: Sequence[Statement], iterations: int) -> int:
    """The iterations after which a thread that does so many of them passes its sums on; 0 where they are short.

    Exact for all: f64 totals of short f32 sums round less than one long f32 sum; of f64 sums the two levels share the
    iterations.
    """
    each = {r: additions(body, r) for r in loop.reductions if is_float_sum(r)}
    if not each or iterations * max(each.values()) <= LONGEST:
        return 0
    if all(r.target.dtype is f64 for r in each):
        return 1 << (iterations.bit_length() + 1) // 2
    return max(1, PIECE // max(each.values()))


def iterations_in_pieces(part: Part) -> Part:
    """A part in which an iteration of its outer loops, which threads may share, adds little to the loops' sums
    directly.
    """
    found: list[Statement] = []
    scratch = part.scratch
    for s in part.body:
        if isinstance(s, Loop):
            axes, inner = chain_of(s)
            changed, scratch = iteration_in_pieces(inner, s.reductions, scratch)
            if changed != inner:
                for axis in reversed(axes[1:]):
                    changed = (Loop(axis, changed),)
                s = Loop(s.axis, changed, s.reductions)
        found.append(s)
    return part if tuple(found) == part.body else replace(part, body=tuple(found), scratch=scratch)


def _total_bytes(loops: Sequence[Loop]) -> int:
    """Bytes that a thread's totals take in shared memory; places beside numbers are 8 each, as long sums are."""
    sizes = (8 if is_float_sum(r) else r.target.dtype.size for loop in loops for r in loop.reductions)
    return sum(sizes) + 8 * sum(r.op.is_position for loop in loops for r in loop.reductions)


def _power_between(wanted: int, least: int, most: int) -> int:
    return min(max(1 << max(wanted.bit_length() - 1, 0), least), most)


def chain_of(loop: Loop) -> tuple[tuple[Axis, ...], tuple[Statement, ...]]:
    """The axes of perfectly nested loops, from the outside in, and what is done for each element.

    What stands between the loops only computes, so that every element may do it for itself.
    """
    axes = [loop.axis]
    before: list[Statement] = []
    body = loop.body
    while body and isinstance(body[-1], Loop) and not body[-1].reductions and all(_computes(s) for s in body[:-1]):
        before += body[:-1]
        axes.append(body[-1].axis)
        body = body[-1].body
    return tuple(axes), (*before, *body)


def _computes(s: Statement) -> bool:
    return isinstance(s, Load) and s.array.role == "input" or isinstance(s, Compute | PositionOf)


def is_shareable(body: Sequence[Statement]) -> bool:
    """Return whether threads may share the loops of an item: no iteration of one reads what another iteration writes.

    Exact: loops one after another may read results of earlier ones from workspace alone, behind a barrier.
    """
    written = {s.array for s in walk(tuple(body)) if isinstance(s, Store)}
    for s in body:
        if isinstance(s, Loop):
            axes, inner = chain_of(s)
            if not all(_is_own(t, axes, written) for t in walk(inner)):
                return False
            stored = {t.array for t in walk(inner) if isinstance(t, Store)}
            if any(isinstance(t, Load) and t.array in stored for t in walk(inner)):
                return False
        elif isinstance(s, Store):
            if s.array.role != "output":
                return False
        elif not (_computes(s) or _is_own(s, (), written) and isinstance(s, CheckIndex)):
            return False
    return True


def _is_own(s: Statement, axes: Sequence[Axis], written: set[ArrayRef]) -> bool:
    """Return whether a statement inside a shared loop stays within its iteration, or takes part in a total."""
    match s:
        case Store(_, index):
            return all(index.moves(axis) for axis in axes if axis.extent > 1)
        case Load(_, array):
            return array.role != "output" or array not in written
        case CheckIndex(extent=extent):
            return bounds_of(extent)[0] > 0  # an iteration that fails goes on with element 0
        case Compute() | PositionOf() | Loop() | Tile() | Guarded() | Accumulate():
            return True
    return False


def _is_across(part: Part, loops: Sequence[Loop]) -> bool:
    """Return whether neighbouring items, rather than neighbouring iterations of their loops, are neighbours in
    memory.
    """
    if not part.axes:
        return False
    votes = 0
    for loop in loops:
        axes, inner = chain_of(loop)
        for s in walk(inner):
            if isinstance(s, Load | Store) and s.array.role != "scratch":
                votes += int(s.index.stride(part.axes[-1]) == 1) - int(s.index.stride(axes[-1]) == 1)
    return votes > 0


def last_of(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
    """The statements of an item after its last loop, which one thread of the team does alone."""
    loops = [number for number, s in enumerate(body) if isinstance(s, Loop)]
    return body[loops[-1] + 1 :] if loops else ()


def may_overwrite(part: Part, source: ArrayRef, target: ArrayRef) -> bool:
    """Return whether the result `target` may lie where an operand does, though an item's threads do not keep step: each
    element is only read by the thread that writes it.

    Exact: the pair is one of the nest's in-place pairs, so that reads come first in each iteration; here is only who
    reads when.
    """
    reading = [s for s in part.body if any(isinstance(t, Load) and t.array is source for t in walk((s,)))]
    last = last_of(part.body)
    if all(s in last for s in reading) and any(isinstance(s, Store) and s.array is target for s in last):
        return True
    loops = [s for s in part.body if isinstance(s, Loop)]
    # A loop that keeps totals is over for every thread before any goes on.
    if not all(isinstance(s, Loop) and (s.reductions or s is loops[-1]) for s in reading):
        return False
    return len({tuple(axis.extent for axis in chain_of(s)[0]) for s in loops}) == 1


def scratch_in(body: Sequence[Statement]) -> Iterator[tuple[ArrayRef, bool]]:
    """The workspace that statements use, and whether they write it."""
    for s in walk(tuple(body)):
        if isinstance(s, Load | Store) and s.array.role == "scratch":
            yield s.array, isinstance(s, Store)
