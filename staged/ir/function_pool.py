"""The functions and frames of a program during a pass: transforms add new ones and drop those they replace."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from staged.errors import GradientError
from staged.ir.functions import callees, function_table, with_call_effects
from staged.ir.nodes import Block, FrameRecord, Function, walk_blocks
from staged.ir.types import FrameType, SequenceType, Type
from staged.source import Position


class FunctionPool:
    """Functions by name, records of frames by name, and results of transforms so far.

    `fulfil` removes transforms from a function's body; it runs once per function, when its body is first needed.
    """

    def __init__(self, program: Function, fulfil: Callable[[Function], Function] = lambda function: function) -> None:
        self.functions: dict[str, Function] = function_table(program)
        self.frames: dict[str, FrameRecord] = {record.name: record for record in program.frames}
        self.memo: dict[Hashable, Any] = {}
        """Results of transforms: the function generated from which, for which request."""
        self._fulfil = fulfil
        self._done: set[str] = set()
        self._open: set[str] = set()
        self._names = {program.name, *self.functions}
        self._frame_names = set(self.frames)

    def body(self, name: str, where: Position | None) -> Function:
        """The function `name` without transforms in it.

        Raises: GradientError if its own transforms need it: a derivative that needs itself.
        """
        if name not in self._done:
            if name in self._open:
                raise GradientError(
                    f"a derivative inside `{name}` differentiates `{name}` itself: it has no end",
                    where=where,
                    hint="differentiate a function that does not call the one that the derivative is in",
                )
            self._open.add(name)
            self.functions[name] = self._fulfil(self.functions[name])
            self._open.discard(name)
            self._done.add(name)
        return self.functions[name]

    def fresh(self, wish: str) -> str:
        """A name for a new function: `wish`, with a number if that is taken."""
        return _free(wish, self._names)

    def fresh_frame(self, wish: str) -> str:
        """A name for a new record of frames."""
        return _free(wish, self._frame_names)

    def add(self, function: Function) -> None:
        """Enter a new function, which is plain, under its name (from `fresh`)."""
        self.functions[function.name] = function
        self._done.add(function.name)

    def add_frame(self, record: FrameRecord) -> None:
        self.frames[record.name] = record

    def program(self, main: Function) -> Function:
        """`main` as a program: with the functions that it reaches and their frames,
        and with the effects of calls set."""
        reached: dict[str, None] = dict.fromkeys(callees(main.block))
        pending = list(reached)
        while pending:
            for name in callees(self.functions[pending.pop()].block):
                if name not in reached:
                    reached[name] = None
                    pending.append(name)
        # In the order in which they were made: callers after what they were made for, and stable.
        functions = [function for name, function in self.functions.items() if name in reached]
        used = {name for function in (*functions, main) for name in _frames_in(function.block)}
        frames = [record for name, record in self.frames.items() if name in used]
        return with_call_effects(main.replace(functions=functions, frames=frames))


def _free(wish: str, taken: set[str]) -> str:
    name, number = wish, 2
    while name in taken:
        name, number = f"{wish}_{number}", number + 1
    taken.add(name)
    return name


def _frames_in(block: Block) -> set[str]:
    """The records that the values of a block name, in sequences too."""
    found: set[str] = set()

    def note(type: Type) -> None:
        while isinstance(type, SequenceType):
            type = type.element
        if isinstance(type, FrameType):
            found.add(type.name)

    for inner in walk_blocks(block):
        for param in inner.params:
            note(param.type)
        for op in inner.ops:
            for result in op.results:
                note(result.type)
    return found
