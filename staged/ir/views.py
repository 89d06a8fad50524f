"""Views of structured ops, which name an op's parts. Only views know the positions of parts.

if op.declared.is_loop:
    loop = Loop(op)
    loop.bounds, loop.initial, loop.index, loop.carried, loop.body, loop.condition, loop.final, loop.collected
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from staged.ir.nodes import Block, End, Label, Op, Value, walk_blocks
from staged.ir.signature import KINDS
from staged.ir.structure import CALL, CUSTOM_VJP, FOR, FRAME_LOAD, IF, JVP, SCOPE, VJP, WHILE
from staged.ir.types import FrameType, SequenceType, TensorType, Type, bool_


@dataclass(frozen=True, slots=True)
class Loop:
    """A `for` or a `while`, in its parts."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared.is_loop, f"`{self.op.name}` is no loop"

    @property
    def is_for(self) -> bool:
        return self.op.declared is FOR

    @property
    def label(self) -> Label:
        label: Label = self.op.attrs["label"]
        return label

    @property
    def bounds(self) -> tuple[Value, ...]:
        """Start, stop and step of a `for`; none of a `while`."""
        return self.op.operands[:3] if self.op.declared is FOR else ()

    @property
    def initial(self) -> tuple[Value, ...]:
        """The carried values at the beginning."""
        return self.op.operands[3:] if self.op.declared is FOR else self.op.operands

    @property
    def bound(self) -> int | None:
        """The most iterations of a `while`, where it is known."""
        number: int | None = self.op.attrs.get("bound")
        return number

    @property
    def body(self) -> Block:
        return self.op.blocks[-1]

    @property
    def condition(self) -> Block | None:
        """The block of a `while` that decides whether there is another iteration."""
        return None if self.op.declared is FOR else self.op.blocks[0]

    @property
    def indices(self) -> tuple[Value, ...]:
        """The parameters of the body that are not carried: the index of a `for`."""
        return self.body.params[:1] if self.op.declared is FOR else ()

    @property
    def index(self) -> Value:
        """The index of a `for`."""
        assert self.op.declared is FOR, "a `while` has no index"
        return self.body.params[0]

    @property
    def carried(self) -> tuple[Value, ...]:
        """The carried values in the body."""
        return self.carried_in(self.body)

    def carried_in(self, block: Block) -> tuple[Value, ...]:
        """The carried values in one of the loop's blocks."""
        return block.params[1:] if self.op.declared is FOR else block.params

    @property
    def collecting(self) -> int:
        """The number of collected sequences."""
        count: int = self.op.attrs.get("collected", 0)
        return count

    @property
    def final(self) -> tuple[Value, ...]:
        """The results that are the carried values at the end."""
        return self.op.results[: len(self.op.results) - self.collecting]

    @property
    def collected(self) -> tuple[Value, ...]:
        """The results that are sequences of yielded elements."""
        return self.op.results[len(self.op.results) - self.collecting :]

    @property
    def elements(self) -> tuple[Value, ...]:
        """The elements that an iteration appends to the collected sequences; empty if the body does not yield."""
        end = self.body.end
        return end.operands[len(self.final) :] if end.kind == "yield" else ()

    @property
    def by_index(self) -> bool:
        """Return whether elements are collected at the index of their iteration, and not in the order of iterations."""
        return bool(self.op.attrs.get("by_index"))

    def attrs_collecting(self, count: int) -> dict[str, Any]:
        """The attributes of the loop if it collected `count` sequences."""
        others = {key: value for key, value in self.op.attrs.items() if key != "collected"}
        return others | ({"collected": count} if count else {})

    def yields(self, block: Block) -> tuple[Type, ...]:
        """The types that one of its blocks must yield."""
        if block is self.condition:
            given = tuple(operand.type for operand in block.end.operands)
            return given if len(given) == 1 and KINDS["condition"](given[0]) else (TensorType(bool_),)
        elements = [result.type.element for result in self.collected if isinstance(result.type, SequenceType)]
        return (*(result.type for result in self.final), *elements)

    def ends(self) -> list[tuple[Block, End]]:
        """The blocks inside that go on with the loop or leave it, with the ends that pass its carried values."""
        found = [(self.body, self.body.end)] if self.body.end.kind == "yield" else []
        return found + ends_with(self.body, self.label)


@dataclass(frozen=True, slots=True)
class Branch:
    """An `if` or a `scope`: its results are the values passed by the end of one of its blocks."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared in (IF, SCOPE), f"`{self.op.name}` is no branch"

    def ends(self) -> list[tuple[Block, End]]:
        """The blocks whose ends give the results, with these ends."""
        found = [(block, block.end) for block in self.op.blocks if block.end.kind == "yield"]
        return found + ends_with(self.op.blocks[0], self.op.attrs["label"]) if self.op.declared is SCOPE else found


def work_of(op: Op) -> str:
    """The names of the ops in a kernel: `fused: max, subtract`, or that of its only one; empty where none is noted."""
    names = str(op.attrs.get("fused") or "")
    return f"fused: {names}" if "," in names else names


def ends_with(body: Block, label: Label) -> list[tuple[Block, End]]:
    """The blocks in `body` that end with a `break` or `continue` to the label."""
    return [(block, block.end) for block in walk_blocks(body, into_opaque=False) if block.end.target is label]


def is_condition(op: Op | None, block: Block) -> bool:
    """Return whether `block` is the condition of a `while`, which yields nothing to the results of the op."""
    return op is not None and op.declared is WHILE and block is op.blocks[0]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of one of the program's functions."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared is CALL, f"`{self.op.name}` is no call"

    @property
    def function(self) -> str:
        """The name of the function."""
        name: str = self.op.attrs["function"]
        return name

    @property
    def in_place(self) -> tuple[tuple[int, int], ...]:
        """Pairs (argument, result) that are one buffer."""
        pairs: tuple[tuple[int, int], ...] = self.op.attrs.get("in_place", ())
        return pairs


@dataclass(frozen=True, slots=True)
class Derivative:
    """A `vjp` or a `jvp` of its block."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared in (VJP, JVP), f"`{self.op.name}` is no derivative"

    @property
    def primal(self) -> Block:
        return self.op.blocks[0]

    @property
    def captures(self) -> tuple[Value, ...]:
        """The values of the block's parameters."""
        return self.op.operands[: len(self.primal.params)]

    @property
    def directions(self) -> tuple[Value, ...]:
        """Of a `vjp` the cotangents of the results in `of`, of a `jvp` the tangents of the captures in `wrt`."""
        return self.op.operands[len(self.primal.params) :]

    @property
    def wrt(self) -> tuple[int, ...]:
        """The captures that it is with respect to."""
        numbers: tuple[int, ...] = self.op.attrs["wrt"]
        return numbers

    @property
    def of(self) -> tuple[int, ...]:
        """The results of the primal that the directions of a `vjp` belong to."""
        numbers: tuple[int, ...] = self.op.attrs["of"]
        return numbers


@dataclass(frozen=True, slots=True)
class CustomVjp:
    """A primal with a reverse of the user's."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared is CUSTOM_VJP, f"`{self.op.name}` has no reverse of its own"

    @property
    def forward(self) -> Block:
        """Yields the results of the primal, then residuals."""
        return self.op.blocks[1]

    @property
    def backward(self) -> Block:
        """From residuals and cotangents, one cotangent for each operand in `wrt`."""
        return self.op.blocks[2]

    @property
    def residuals(self) -> tuple[Value, ...]:
        """The residuals that the forward block yields for the backward block."""
        return self.forward.end.operands[self.op.attrs["outputs"] :]

    @property
    def wrt(self) -> tuple[int, ...]:
        """The operands that the backward block yields cotangents for."""
        numbers: tuple[int, ...] = self.op.attrs["wrt"]
        return numbers


@dataclass(frozen=True, slots=True)
class Frame:
    """An op that saves, loads or replaces a frame."""

    op: Op

    def __post_init__(self) -> None:
        assert self.op.declared.is_of_frames, f"`{self.op.name}` has no frame"

    @property
    def value(self) -> Value:
        """The frame itself."""
        return self.op.operands[0] if self.op.declared is FRAME_LOAD else self.op.result

    @property
    def fields(self) -> tuple[Value, ...]:
        """The fields; empty for `frame_null`."""
        return self.op.results if self.op.declared is FRAME_LOAD else self.op.operands

    @property
    def record(self) -> str:
        """The name of its record."""
        type = self.value.type
        assert isinstance(type, FrameType)
        return type.name
