"""Schedules: how a loop nest runs, apart from what it computes. One language for C and CUDA.

A schedule is a list of directives about the axes, loops and arrays of a nest. Who chooses them knows the machine
(`ir/machine.py`); who writes the text only follows them. The rows of a sum, for example:

    for i < 4096: (for j < 1024: total += x[i, j]); y[i] = total

    a CPU with vectors of 16                      a GPU
    vectorise j: 16 lanes                         bind i: warps, 8 side by side
    unroll: 4                                     share j: lanes, 32 side by side
    bind i: cores, 8 turns at a time              vectorise j: 4 lanes
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

from staged.ir.loops import ArrayRef, Axis, Load, Loop, Store
from staged.ir.rewrites import Rewriting


class Level(enum.Enum):
    """What works side by side: on a CPU cores; on a GPU blocks of warps of 32 lanes, or threads where it does not matter of
    which warp."""

    CORES = "cores"
    BLOCKS = "blocks"
    WARPS = "warps"
    LANES = "lanes"
    THREADS = "threads"


class Memory(enum.Enum):
    """Where workspace is: a thread's registers (and what they spill to), memory that a block shares, or the device's memory."""

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
        assert axis.factor % size == 0 or axis.dim is None, "pieces of what the program counts are whole ones"
        outer = Axis(f"{axis.name}_{piece}", -(-axis.extent // size), axis.dim)
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
        """How many combinations there are."""
        return prod(axis.extent for axis in self.axes)

    def __str__(self) -> str:
        each = f", {self.each} turns at a time" if self.each > 1 else ""
        return f"bind {_names(self.axes)}: {self.level.value}, {self.count} side by side{each}"


@dataclass(frozen=True, slots=True)
class Share:
    """The turns over `axes` in one item are dealt out to `count` units of `level`, one after the other; totals are brought
    together. `loop`: of all loops over these axes, the outermost of this one; None: what is called deals them out itself.
    `piece`: the turns after which a unit passes its sums of floats on to f64 totals; 0: it has only these sums."""

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
    """The `count` lanes of a warp look at as many turns of `loop` at once, each at one, and do together, in their order, those
    in which the condition holds that its body ends with."""

    loop: Loop
    count: int

    def __str__(self) -> str:
        return f"seek {self.loop.axis.name}: {self.count} at once"


@dataclass(frozen=True, slots=True)
class Vectorise:
    """`lanes` neighbouring turns at once, in `loops` or, without any, in each item.

    On a CPU in vectors whose widest elements have `item_bytes`. On a GPU a thread does them one by one, but reads and writes
    `packs`, the accesses that are proven to allow it, by one instruction each.
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
    """Vectors per turn of a vectorised loop with totals, each with totals of its own."""

    times: int

    def __str__(self) -> str:
        return f"unroll: {self.times}"


@dataclass(frozen=True, slots=True)
class WriteOut:
    """The iterations of the loops over `axes`, each alone: what they keep in arrays then is in registers."""

    axes: tuple[Axis, ...]

    def __str__(self) -> str:
        return f"write out {_names(self.axes)}"


@dataclass(frozen=True, slots=True)
class Place:
    """Where workspace is, or a copy of what an access reads."""

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
    def unroll(self) -> int:
        """Vectors per turn of a vectorised loop with totals."""
        return next((d.times for d in self.directives if isinstance(d, Unroll)), 1)

    def vectors_per_turn(self, loop: Loop) -> int:
        """Vectors that a turn of a vectorised loop with totals takes: as many as it has, up to `unroll`; one around loops."""
        if any(isinstance(s, Loop) for s in loop.body):
            return 1
        count = max(1, min(self.unroll, loop.axis.extent // self.lanes))
        # Where whole turns end is found by masking when the program counts them: a power of two.
        return count if loop.axis.dim is None else 1 << (count.bit_length() - 1)

    @cached_property
    def written_out(self) -> frozenset[Axis]:
        """The axes of the loops whose iterations are written out."""
        return frozenset(axis for d in self.directives if isinstance(d, WriteOut) for axis in d.axes)

    @cached_property
    def chunk(self) -> int:
        """Turns of the outermost loop that a thread takes at a time; 0: threads do not pay, or are not allowed."""
        return next((d.each for d in self.directives if isinstance(d, Bind) and d.level is Level.CORES), 0)

    # ---- what a GPU's text asks ----

    @cached_property
    def items(self) -> Bind:
        """Which units the items are dealt out to: the largest ones come first."""
        return next(d for d in self.directives if isinstance(d, Bind))

    @cached_property
    def shares(self) -> tuple[Share, ...]:
        """The loops of an item whose turns several threads share."""
        return tuple(d for d in self.directives if isinstance(d, Share))

    @cached_property
    def sought(self) -> Seek | None:
        """How lanes look for the turns of a loop that are to be done; None where all are."""
        return next((d for d in self.directives if isinstance(d, Seek)), None)

    @cached_property
    def splits(self) -> tuple[Split, ...]:
        return tuple(d for d in self.directives if isinstance(d, Split))

    def packs_of(self, loop: Loop | None = None) -> Vectorise | None:
        """How the turns of a loop, or items, are taken together; None where they are not."""
        wanted = frozenset() if loop is None else frozenset((loop,))
        return next((d for d in self.directives if isinstance(d, Vectorise) and d.loops == wanted), None)

    @cached_property
    def places(self) -> dict[ArrayRef | Load, Memory]:
        """Where workspace, and copies of what is read, are."""
        return {d.what: d.memory for d in self.directives if isinstance(d, Place)}
