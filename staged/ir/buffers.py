"""Buffers: where values are kept when the program runs, as the memory plan decided."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from staged.ir.nodes import Op, Value, VariableRef
from staged.ir.sequences import Handles
from staged.ir.sizes import Extent
from staged.ir.types import CPU, Device, FrameType, SequenceType, TensorType, i64
from staged.source import Position

ALIGNMENT = 64
"""Bytes; a cache line, and the widest vector."""
DEVICE_ALIGNMENT = 256
"""Alignment on other devices than the host: CUDA's alignment of allocations, and the widest access of a warp."""


BufferKind = Literal["arena", "input", "output", "variable", "constant", "local", "frame", "slot"]


@dataclass(eq=False)
class Buffer:
    """A piece of memory that holds one value after the other.

    `kind`: 'arena' (at `offset` in the device's arena), 'input' and 'output' (the caller's arrays), 'variable' (an
    outer Variable's array, one that the program has for a function, or one that is a result), 'constant' (in the
    text), 'local' (of one call; on a device, at `offset` of the call's memory there), 'frame' (a field of a call's
    frame), 'slot' (the element of this iteration in a loop's residuals, or the member of a family that an op reads or
    writes). `intervals` are the positions at which it is in use.
    """

    name: str
    type: TensorType
    kind: BufferKind
    nbytes: int
    device: Device = CPU
    offset: int = -1
    values: list[Value] = field(default_factory=list)
    intervals: list[tuple[int, int]] = field(default_factory=list)
    where: Position | None = None
    purpose: str = ""
    """Its purpose, for people: 'activation', 'parameter', 'gradient', 'residuals of a loop', 'temporary'."""
    variable: VariableRef | None = None
    index: int = -1
    """Number of the parameter, result or field, for 'input', 'output' and 'frame'."""
    element: Value | None = None
    """Of a 'slot' that is a member of the family `variable`: the number of the member."""
    history: Buffer | None = None
    """Of a 'slot' that is the first element of a loop's residuals: their array."""
    parts: tuple[Buffer, ...] = ()
    """Of a region for one message: the adjacent buffers in it."""

    @property
    def is_of_caller(self) -> bool:
        """Return whether it is an array that the caller passes."""
        return self.kind == "input" or self.kind == "output"

    @property
    def is_argument(self) -> bool:
        """Return whether it is an array of the caller or of a Variable."""
        return self.is_of_caller or self.kind == "variable"


@dataclass(eq=False)
class Stack:
    """Storage for residuals of a loop whose trip count has no bound: grows in chunks, kept between iterations.

    Where the elements are sequences themselves, the items are the places at which these start in `inner`.
    The numbers that an iteration keeps are one item, a struct: their stacks are held by that of the struct.
    """

    name: str
    element: TensorType
    index: int
    where: Position | None = None
    inner: Stack | None = None
    device: Device = CPU
    fields: tuple[Stack, ...] = ()
    """The fields of an item; none if it is one element."""
    held: tuple[Stack, Stack] | None = None
    """The stack that holds its elements, and which field of an item there (or element) they are; None for itself."""

    @property
    def holder(self) -> Stack:
        """The stack that is in memory."""
        return self if self.held is None else self.held[0]

    @property
    def part(self) -> Stack:
        """The field of an item of the holder, or its element, that an element is."""
        return self if self.held is None else self.held[1]


@dataclass(frozen=True)
class Sharing:
    """The threads of a program, and which loops are worth a team if their iterations allow it."""

    threads: int
    is_worth: Callable[[Op], bool]


@dataclass(frozen=True)
class Called:
    """The calls of a function, as far as its memory plan depends on them.

    `in_place` pairs (parameter, result): the caller passes one buffer for both, which first holds the argument and
    finally the result. Buffers of a `recursive` function belong to one call.
    """

    recursive: bool = False
    in_place: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class SharedLoop:
    """A `for` whose iterations threads share: none touches what another one writes.

    Each thread has the arrays `own` of the body for itself, `stride` bytes behind those of the thread before it.
    """

    own: tuple[Buffer, ...]
    stride: int


@dataclass(frozen=True)
class Chain:
    """A carried value that its loop also collects. Each iteration computes the next value in the slot of the next
    iteration, and the last one in the buffer of the loop's result.
    """

    sequence: Value
    """The loop's result that has the value of each iteration."""
    slot: Buffer
    """The slot of an iteration."""
    first: Buffer | None
    """The slot of the first iteration, which has the initial value; None if it differs between runs of the loop."""
    next: Buffer
    """The slot of the next iteration; in the last iteration, the buffer of `final`."""
    final: Value
    trips: Extent


@dataclass
class Plan:
    """The memory plan of one function.

    `place` maps each non-scalar value to its buffer (a view to that of the viewed value). `sequences` maps each
    collected sequence to its storage: a buffer if its size is bounded, else a growable stack. `staging` are the
    temporaries of block ends whose copies form a cycle (`a, b = b, a` in a loop).
    """

    place: dict[Value, Buffer]
    buffers: list[Buffer]
    sequences: dict[Value, Buffer | Stack]
    stacks: list[Stack]
    staging: dict[tuple[object, int], Buffer]
    copied_reads: frozenset[Op]
    """Reads of a Variable that must copy, because the Variable is written while the value is still needed."""
    arena_bytes: int
    """Size of the host's arena."""
    peak_bytes: int
    """The most that is alive at once on the host."""
    device_bytes: dict[Device, int] = field(default_factory=dict)
    """Size of the arena of each other device."""
    device_peaks: dict[Device, int] = field(default_factory=dict)
    """The most that is alive at once on each other device."""
    beside: dict[Device, tuple[tuple[str, int | None], ...]] = field(default_factory=dict)
    """Memory of libraries on a device besides its arena, in bytes where known; set in the plan of a whole program."""
    unions: list[list[Buffer]] = field(default_factory=list)
    """The host's buffers of one call of a recursive function: those of a slot are alive one after the other."""
    local_bytes: dict[Device, int] = field(default_factory=dict)
    """Bytes of one call of a recursive function on each other device."""
    returned: dict[VariableRef, int] = field(default_factory=dict)
    """The program's Variables, and members of its families, that are kept in the caller's memory for a result."""
    handles: Handles = field(default_factory=Handles)
    """The sequences that are kept in the program's store."""
    copied_handles: frozenset[tuple[object, int]] = frozenset()
    """(op or end, operand): a handle that is needed as it is after the op adds to it, so that the op gets a copy."""
    fields: dict[tuple[Op, int], Buffer] = field(default_factory=dict)
    """(`frame_save`, operand): the field of the frame in which this operand is made. Such a frame exists from the
    function's start.
    """
    shared: dict[Op, SharedLoop] = field(default_factory=dict)
    """The loops whose iterations threads share."""
    unfilled: frozenset[Op] = frozenset()
    """Kernels that need not run: they fill an array of which a loop writes every element."""
    buckets: dict[Op, tuple[Buffer, ...]] = field(default_factory=dict)
    """By reduction over ranks, the buffers that are adjacent, for one message."""
    kept: dict[Value, Buffer] = field(default_factory=dict)
    """By collected sequence, the slot that each iteration of the loop computes its element in."""
    chained: dict[Value, Chain] = field(default_factory=dict)
    """By a loop's parameter for a carried value, the chain of slots in which it is passed on."""
    addressed: frozenset[Value] = frozenset()
    """The parameters for carried values of which a loop carries the address: they are elements of a history."""
    stack_bytes: dict[str, int] = field(default_factory=dict)
    """By recursive function, bytes of one call's buffers on the program's stack; set in the plan of a whole program."""
    calls_on_devices: dict[str, dict[Device, int]] = field(default_factory=dict)
    """By recursive function, bytes of one call's buffers on each other device; likewise."""
    kept_on_devices: dict[str, dict[Device, int]] = field(default_factory=dict)
    """By frame, bytes that it holds for gradients on each other device; likewise."""
    keeps_frames: bool = False
    """True if the program has a store for frames and sequences that travel; likewise."""

    def is_copied(self, param: Value) -> bool:
        """Return whether a loop copies a carried array to the buffer of its parameter, unless it is computed there."""
        return param not in self.chained and param not in self.addressed

    def local_buffers(self, device: Device) -> list[Buffer]:
        """The buffers of one call on a device."""
        return [buffer for buffer in self.buffers if buffer.kind == "local" and buffer.device == device]

    def arena_buffers(self) -> list[Buffer]:
        return [buffer for buffer in self.buffers if buffer.kind == "arena"]


def aligned(nbytes: int, to: int = ALIGNMENT) -> int:
    """`nbytes` rounded up to the alignment."""
    return -(-nbytes // to) * to


def sequence_storage(type: SequenceType) -> tuple[TensorType, int | None]:
    """The innermost element type of a sequence, and how many of them it holds at most (None: no bound)."""
    count: int | None = type.bound
    element = type.element
    while isinstance(element, SequenceType):
        count = None if count is None or element.bound is None else count * element.bound
        element = element.element
    return TensorType(i64) if isinstance(element, FrameType) else element, count
