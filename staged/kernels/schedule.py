"""Schedules: from a loop nest and a machine to directives.

Which loops run over vectors is a question of legality (neighbours in the loop are neighbours in memory, every op has a
vector form) and of length; how much one thread takes at a time is a question of work. Nothing here changes what a nest
computes: a reduction's order depends on the machine's vector width alone, never on threads.
"""

from __future__ import annotations

from collections.abc import Mapping

from staged.ir.declaration import Declaration, prims
from staged.ir.loops import (
    Accumulate,
    Begin,
    CallSupport,
    CheckIndex,
    Compute,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    Operand,
    PositionOf,
    Statement,
    Store,
    StorePair,
    Take,
    Tile,
    segments,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.schedule import Bind, Directive, Level, Schedule, Unroll, Vectorise
from staged.ir.types import DType, f32, u32

UNROLL = 4
"""Running totals per reduction: enough to hide the latency of one addition behind the next."""
CHUNK_NANOSECONDS = 10_000
"""Work that a thread takes at a time; a kernel of less than two such pieces stays on one thread."""


def schedule(nest: Nest, machine: Machine) -> Schedule:
    """Directives for `nest` on `machine`."""
    loops = [s for s in walk(nest.body) if isinstance(s, Loop)]
    innermost = [loop for loop in loops if not any(isinstance(s, Loop | Tile) for s in loop.body)]
    found = {loop: width for loop in innermost if (width := vector_lanes(loop, machine))}
    chosen = {loop: width for loop, width in found.items() if loop.axis.extent >= width}
    if not chosen:
        # Short rows of plain arithmetic: narrower vectors. Functions on vectors exist for the machine's width alone.
        short = {
            loop: min(width, best_width(loop.axis.extent)) for loop, width in found.items() if not calls_functions(loop)
        }
        chosen = {loop: width for loop, width in short.items() if width > 1}
    if not chosen:
        outer = [loop for loop in loops if any(isinstance(s, Loop) for s in loop.body) and not _in_tile(nest, loop)]
        for loop in reversed(outer):
            width = vector_lanes(loop, machine)
            if width and loop.axis.extent >= width:
                chosen = found = {loop: width}
                break
    lanes = min(chosen.values(), default=1)
    loops = [loop for loop in chosen if loop.axis.extent >= lanes]
    item_bytes = machine.vector_bytes // min((found[loop] for loop in loops), default=machine.vector_bytes or 1)
    directives: list[Directive] = []
    if loops:
        axes = tuple(dict.fromkeys(loop.axis for loop in loops))
        directives += [Vectorise(axes, lanes, frozenset(loops), item_bytes), Unroll(UNROLL)]
    if chunk := chunk_of(nest, machine, lanes):
        outermost = next(s.axis for s in walk(nest.body) if isinstance(s, Loop | Tile))
        # Whole vectors: in another place of a thread's piece, an item would be computed alone, with other roundings.
        width = lanes if any(loop.axis is outermost for loop in loops) else 1
        directives.append(Bind((outermost,), Level.CORES, machine.cores, -(-chunk // width) * width))
    return Schedule(tuple(directives))


def best_width(extent: int) -> int:
    """Lanes (of 4, 8, ...) with the fewest iterations, vectors and single items together;
    1 if the axis is too short."""
    widths = [width for width in (4, 8, 16, 32, 64) if width <= extent]
    return min(widths, key=lambda width: extent // width + 2 * (extent % width), default=1)


def calls_functions(loop: Loop) -> bool:
    """Return whether a vector form of the loop needs functions on vectors."""
    return any(isinstance(s, Compute) and s.op.expensive and s.op is not prims.DIVIDE for s in walk(loop.body))


def _in_tile(nest: Nest, loop: Loop) -> bool:
    return any(isinstance(s, Tile) and s.axis is loop.axis for s in walk(nest.body))


def vector_lanes(loop: Loop, machine: Machine) -> int:
    """The most lanes that `loop` may have as a vector loop; 0 if it must stay scalar."""
    axis = loop.axis
    varying: dict[Local, DType] = {}
    widest = 0
    touches_memory = False
    draws = {s.operands[-1]: s for s in loop.body if isinstance(s, Compute) and s.op.kind == "random"}
    inner = {r for s in walk(loop.body) if isinstance(s, Loop) for r in s.reductions}
    for s in walk(loop.body):
        match s:
            case Load(target, array, index, guards):
                if any(isinstance(n, Local) and n in varying for n, _ in index.terms):
                    return 0
                if any(g.index.stride(axis) for g in guards) and not segments(loop):
                    return 0
                stride = index.stride(axis)
                if stride not in (0, 1):
                    return 0
                if stride != 0:
                    varying[target] = array.dtype
                    touches_memory = True
            case LoadPair(first, second, array, index):
                if array.dtype.is_half or index.stride(axis) != 2:
                    return 0
                varying[first] = varying[second] = array.dtype
                touches_memory = True
            case StorePair(array, index):
                if array.dtype.is_half or index.stride(axis) != 2:
                    return 0
                touches_memory = True
                widest = max(widest, array.dtype.size)
            case PositionOf(target, index) if target in draws:
                # A vector of random numbers is made from the position of its first.
                if index.stride(axis) != 1:
                    return 0
            case PositionOf(target, index):
                if index.moves(axis) or any(isinstance(n, Local) and n in varying for n, _ in index.terms):
                    varying[target] = target.dtype
            case CheckIndex(_, index):
                if _varies(index, varying):
                    return 0
            case Compute(target, op, operands) if s.op.kind == "random":
                if (
                    s.op.vector == "never"
                    or operands[-1] not in draws
                    or any(_varies(operand, varying) for operand in operands)
                ):
                    return 0
                varying[target] = u32 if target.dtype.is_bool else target.dtype
            case Compute(target, op, operands):
                if any(_varies(operand, varying) for operand in operands):
                    if not has_vector_form(op, target.dtype, operands):
                        return 0
                    varying[target] = target.dtype
            case Store(array, index, value):
                if index.stride(axis) != 1:
                    return 0
                touches_memory = True
                widest = max(widest, array.dtype.size)
            case Accumulate(reduction, value, _):
                if not has_vector_form(reduction.op, reduction.target.dtype, (value,)):
                    return 0
                if _varies(value, varying):
                    varying[reduction.target] = reduction.target.dtype
                elif not reduction.op.is_extreme and reduction not in inner:
                    return 0  # the same number again and again: once per element, not per vector
                widest = max(widest, reduction.target.dtype.size)
            case Tile() | Guarded() | Copy() | CallSupport() | Begin() | Take():
                return 0
    if not touches_memory:
        return 0
    widest = max([widest, *(dtype.size for dtype in varying.values())])
    if any((4 if s.target.dtype.is_bool else s.target.dtype.size) != widest for s in draws.values()):
        return 0  # random numbers come in whole vectors of the machine
    return machine.lanes(widest)


def _varies(operand: Operand, varying: Mapping[Local, DType]) -> bool:
    return isinstance(operand, Local) and operand in varying


def has_vector_form(op: Declaration, result: DType, operands: tuple[Operand, ...]) -> bool:
    """Return whether the vector table spells this op."""
    dtype = operands[0].dtype
    if op.vector != "any":
        return op.vector == "floats" and dtype.is_float
    if op is prims.CAST:
        if dtype.is_half or result.is_half:
            return dtype.is_half != result.is_half and {dtype.size, result.size} == {2, 4} and f32 in (dtype, result)
        # What lies out of range becomes what the scalar function gives: vectors do so for i32 and i64 alone.
        return not (dtype.is_float and result.is_integer) or result.kind == "i" and result.size >= 4
    return True


def chunk_of(nest: Nest, machine: Machine, lanes: int) -> int:
    """Iterations of the outermost loop per claim of a thread; 0 for one thread."""
    if nest.items <= 1 or machine.cores <= 1:
        return 0
    per_item = nanoseconds(nest.body, lanes) / nest.items
    total = per_item * nest.items
    if total < 2 * CHUNK_NANOSECONDS:
        return 0
    pieces = min(total / CHUNK_NANOSECONDS, 16 * machine.cores)
    chunk = max(1, int(nest.items / max(pieces, 1)))
    # Whole vectors, and whole cache lines of every output.
    return min(nest.items, -(-chunk // 64) * 64) if nest.items >= 1024 else chunk


def nanoseconds(body: tuple[Statement, ...], lanes: int) -> float:
    """A rough estimate of one thread's time."""
    total = 0.0
    for s in body:
        match s:
            case Loop(axis, inner):
                total += axis.extent * nanoseconds(inner, lanes)
            case Tile(_, _, inner):
                total += nanoseconds(inner, lanes)
            case Guarded(_, inner):
                total += nanoseconds(inner, lanes)
            case Load(array=array) | LoadPair(array=array):
                total += array.dtype.size / 16
            case Store(array=array) | StorePair(array=array):
                total += array.dtype.size / 8
            case Compute():
                total += (6.0 if s.op.expensive else 0.5) * 4 / (lanes + 3)
            case CallSupport():
                total += s.nanoseconds
            case _:
                total += 1.0 / lanes
    return total
