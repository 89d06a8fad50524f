"""Schedules: how a loop nest runs, apart from what it computes. One language for C and CUDA.

A schedule is a list of directives about the axes, loops and arrays of a nest. They are chosen from the description of a
machine (`ir/machine.py`); back ends only follow them. The rows of a sum, for example:

    for i < 4096: (for j < 1024: total += x[i, j]); y[i] = total

    a CPU with vectors of 16                      a GPU
    vectorise j: 16 lanes                         bind i: warps, 8 side by side
    unroll: 4                                     share j: lanes, 32 side by side
    bind i: cores, 8 turns at a time              vectorise j: 4 lanes
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import prod

from staged.ir.loops import Accumulate, ArrayRef, Axis, Load, Loop, Store
from staged.ir.rewrites import Rewriting


class Level(enum.Enum):
    """Parallel units: cores of a CPU; on a GPU blocks of warps of 32 lanes, or threads of any warp."""

    CORES = "cores"
    BLOCKS = "blocks"
    WARPS = "warps"
    LANES = "lanes"
    THREADS = "threads"


class Memory(enum.Enum):
    """The memory of workspace: a thread's registers (which may spill), a block's shared memory, or the device's."""

    REGISTERS = "registers"
    SHARED = "shared memory"
    DEVICE = "device memory"


@dataclass(frozen=True, slots=True)
class Split:
    """`axis` in pieces of `size`: `outer` counts the pieces (the last may be short), `inner` the places in one."""

    axis: Axis
    outer: Axis
    inner: Axis

    @staticmethod
    def of(axis: Axis, size: int, piece: str) -> Split:
        """`piece` is a word for the name of the axis of pieces."""
        outer = Axis(f"{axis.name}_{piece}", -(-axis.size // size))
        return Split(axis, outer, Axis(f"{axis.name}_in_{piece}", size))

    @property
    def size(self) -> int:
        return self.inner.extent

    def __str__(self) -> str:
        return f"split {self.axis.name}: by {self.size}"


@dataclass(frozen=True, slots=True)
class Bind:
    """Each combination of values of `axes`, counted row by row, is the work of one unit of `level`.

    `count` units work side by side in the next larger one; further values go to further ones. `each`: so many
    neighbouring values at a time.
    """

    axes: tuple[Axis, ...]
    level: Level
    count: int
    each: int = 1

    @property
    def items(self) -> int:
        """The number of combinations."""
        return prod(axis.extent for axis in self.axes)

    def __str__(self) -> str:
        each = f", {self.each} turns at a time" if self.each > 1 else ""
        return f"bind {_names(self.axes)}: {self.level.value}, {self.count} side by side{each}"


@dataclass(frozen=True, slots=True)
class Share:
    """The iterations over `axes` in one item are distributed over `count` units of `level`, and their totals combined.

    `loop` is the outermost loop over these axes; None if the called code distributes them itself. `piece` is the number
    of iterations after which a unit adds its sums of floats to f64 totals; 0 for no such totals.
    """

    loop: Loop | None
    axes: tuple[Axis, ...]
    level: Level
    count: int
    piece: int = 0

    def __str__(self) -> str:
        pieces = f", sums in pieces of {self.piece} turns" if self.piece else ""
        return f"share {_names(self.axes)}: {self.level.value}, {self.count} side by side{pieces}"


@dataclass(frozen=True, slots=True)
class Seek:
    """The `count` lanes of a warp test the condition at the end of the body for one iteration of `loop` each, at once.

    Then they execute those iterations in which it holds together, in order.
    """

    loop: Loop
    count: int

    def __str__(self) -> str:
        return f"seek {self.loop.axis.name}: {self.count} at once"


@dataclass(frozen=True, slots=True)
class Vectorise:
    """`lanes` neighbouring iterations at once, in `loops` or, without any, in each item.

    On a CPU in vectors whose widest elements have `item_bytes`. On a GPU a thread executes them one by one, but reads
    and writes `packs`, the accesses that are proven to allow it, by one instruction each.
    """

    axes: tuple[Axis, ...]
    lanes: int
    loops: frozenset[Loop] = frozenset()
    item_bytes: int = 4
    packs: frozenset[Load | Store] = frozenset()

    def __str__(self) -> str:
        return f"vectorise {_names(self.axes)}: {self.lanes} lanes"


@dataclass(frozen=True, slots=True)
class Unroll:
    """Vectors per iteration of a vectorised loop with totals, each with its own totals.

    If it `is_guarded`, a vector is computed only if the loop has it. Shorter loops then have the same form.
    """

    times: int
    is_guarded: bool = False

    def __str__(self) -> str:
        return f"unroll: {self.times}{', guarded' if self.is_guarded else ''}"


@dataclass(frozen=True, slots=True)
class WriteOut:
    """Unroll the loops over `axes` completely: arrays that they index are then in registers."""

    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return f"write out {_names(self.axes)}"


@dataclass(frozen=True, slots=True)
class Place:
    """The memory of workspace, or of a copy that an access reads."""

    what: ArrayRef | Load
    memory: Memory

    def __str__(self) -> str:
        array = self.what.array if isinstance(self.what, Load) else self.what
        return f"place {array.name}: {self.memory.value}"


Directive = Split | Bind | Share | Seek | Vectorise | Unroll | WriteOut | Place


def _names(axes: tuple[Axis, ...]) -> str:
    return ", ".join(axis.name for axis in axes) or "all"


@dataclass(frozen=True)
class Schedule:
    """Directives for one nest, or one part of it. `rewrites` made the nest of another one."""

    directives: tuple[Directive, ...] = field(default=())
    rewrites: tuple[Rewriting, ...] = ()

    def __str__(self) -> str:
        return "\n".join(map(str, (*self.rewrites, *self.directives)))

    def __repr__(self) -> str:
        return f"<schedule {'; '.join(map(str, (*self.rewrites, *self.directives)))}>"

    # ---- what a CPU's text asks ----

    @cached_property
    def _vectors(self) -> Vectorise:
        return next((d for d in self.directives if isinstance(d, Vectorise)), Vectorise((), 1))

    @property
    def lanes(self) -> int:
        """Items per vector; 1: plain scalar code."""
        return self._vectors.lanes

    @property
    def item_bytes(self) -> int:
        """Size of the widest item in the vectorised loops: masks are as wide."""
        return self._vectors.item_bytes

    @property
    def vectorised(self) -> frozenset[Loop]:
        """Loops that run over vectors."""
        return self._vectors.loops

    @cached_property
    def _unroll(self) -> Unroll:
        return next((d for d in self.directives if isinstance(d, Unroll)), Unroll(1))

    @property
    def unroll(self) -> int:
        """Vectors per iteration of a vectorised loop with totals."""
        return self._unroll.times

    @property
    def is_guarded(self) -> bool:
        """True if the vectors of these iterations are computed on conditions."""
        return self._unroll.is_guarded

    def guarded(self) -> Schedule | None:
        """The schedule with these conditions, and the same bits; None if a loop does not have whole iterations.

        Exact: totals of vectors that a loop does not have are zero, which changes no sum of pairs.
        """
        for loop in self.vectorised:
            vectors, rest = divmod(loop.axis.extent, self.lanes)
            if not loop.axis.is_static or rest or vectors > self.unroll and vectors % self.unroll:
                return None
        changed = (replace(d, is_guarded=True) if isinstance(d, Unroll) else d for d in self.directives)
        return replace(self, directives=tuple(changed))

    def vectors_per_iteration(self, loop: Loop) -> int:
        """Vectors per iteration of a vectorised loop with totals: at most `unroll`; one if it has inner loops."""
        if any(isinstance(s, Loop) for s in loop.body):
            return 1
        if self.is_guarded:
            count = self.unroll
        else:
            count = max(1, min(self.unroll, loop.axis.extent // self.lanes))
            totals = [s.reduction.op for s in loop.body if isinstance(s, Accumulate)]
            if loop.axis.extent < 2 * count * self.lanes and all(op.is_extreme for op in totals):
                return 1  # one loop, whose last vector may cover items twice, is shorter and as fast
        # Where whole iterations end is found by masking when the program counts them: a power of two.
        return count if loop.axis.is_static else 1 << (count.bit_length() - 1)

    @cached_property
    def written_out(self) -> frozenset[Axis]:
        """The axes of the loops whose iterations are written out."""
        return frozenset(axis for d in self.directives if isinstance(d, WriteOut) for axis in d.axes)

    @cached_property
    def chunk(self) -> int:
        """Iterations of the outermost loop that a thread takes at a time; 0 if threads do not pay, or are not
        allowed.
        """
        return next((d.each for d in self.directives if isinstance(d, Bind) and d.level is Level.CORES), 0)

    # ---- what a GPU's text asks ----

    @cached_property
    def items(self) -> Bind:
        """The units that items are distributed over, the largest first."""
        return next(d for d in self.directives if isinstance(d, Bind))

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The loops of an item whose iterations several threads share."""
        return tuple(d for d in self.directives if isinstance(d, Share))

    @cached_property
    def sought(self) -> Seek | None:
        """The loop whose iterations lanes test together, if any."""
        return next((d for d in self.directives if isinstance(d, Seek)), None)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return tuple(d for d in self.directives if isinstance(d, Split))

    def packs_of(self, loop: Loop | None = None) -> Vectorise | None:
        """The packing of neighbouring iterations of a loop, or of items; None without one."""
        wanted = frozenset() if loop is None else frozenset((loop,))
        return next((d for d in self.directives if isinstance(d, Vectorise) and d.loops == wanted), None)

    def packed(self) -> frozenset[Load | Store]:
        """The accesses that are packs, of items and of all loops."""
        return frozenset(s for d in self.directives if isinstance(d, Vectorise) for s in d.packs)

    @cached_property
    def places(self) -> dict[ArrayRef | Load, Memory]:
        """The memory of workspace and of copies."""
        return {d.what: d.memory for d in self.directives if isinstance(d, Place)}
