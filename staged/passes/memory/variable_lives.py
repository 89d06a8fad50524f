"""Liveness of Variables: the positions between a write and the reads that may see it.

The same positions as in `liveness.py`. A Variable is memory and no value, so this is the classical backward analysis
over the program's flow: a use (a read, a call that may look at it, a point at which it can be seen from outside) makes
it live before, a write ends that. Such points are where the program may stop: by an error, a print, or Ctrl-C, which
loops notice in every iteration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from staged.ir.nodes import Block, Function, Label, Op, VariableRef
from staged.ir.structure import CALL, FOR, IF, SCOPE, VARIABLE_WRITE, WHILE
from staged.ir.views import Loop
from staged.passes.memory.liveness import Interval, Liveness


def variable_lives(
    function: Function, live: Liveness, kept: Iterable[VariableRef]
) -> dict[VariableRef, list[Interval]]:
    """For each Variable of `function`, the intervals in which it holds what something may yet read.

    Every write begins an interval of its own, at its position. The Variables `kept` are also read when the function
    returns and, if they are the caller's (`outer`), wherever the program may stop.

    Exact: an interval is too long where a branch or a loop is never entered; none is too short.
    """
    return _Flow(function, live, frozenset(kept)).lives()


class _Flow:
    """The program's flow from position to position. Sets of Variables are bits of a number."""

    def __init__(self, function: Function, live: Liveness, kept: frozenset[VariableRef]) -> None:
        self.function = function
        self.live = live
        self.bit = {variable: 1 << number for number, variable in enumerate(function.variables)}
        self.at_return = sum(bit for variable, bit in self.bit.items() if variable in kept)
        self.at_stop = sum(bit for variable, bit in self.bit.items() if variable in kept and variable.outer)
        count = live.length + 2
        self.uses = [0] * count
        self.writes = [0] * count
        self.next: list[list[int]] = [[] for _ in range(count)]
        self.goes_on: dict[Label, int] = {}
        self.leaves: dict[Label, int] = {}

    def lives(self) -> dict[VariableRef, list[Interval]]:
        if not self.bit:
            return {}
        self.block(self.function.block, [])
        before = self.before()
        found: dict[VariableRef, list[Interval]] = {variable: [] for variable in self.bit}
        variables = list(self.bit)
        begun: dict[int, int] = {}
        held = 0
        for position in range(len(before)):
            now, written = before[position], self.writes[position]
            for following in self.next[position]:
                now |= before[following]
            # An interval ends where its Variable is dead or written, and begins where it is written or live.
            for number in _numbers(held & (written | ~now)):
                found[variables[number]].append((begun.pop(number), position - 1))
            for number in _numbers((now | written) & (written | ~held)):
                begun[number] = position
            held = now | written
        for number, start in begun.items():
            found[variables[number]].append((start, len(before) - 1))
        return found

    def before(self) -> list[int]:
        """The Variables that are live before each position: the smallest solution of the flow's equations."""
        before = [0] * len(self.next)
        changed = True
        while changed:
            changed = False
            for position in reversed(range(len(before))):
                after = 0
                for following in self.next[position]:
                    after |= before[following]
                value = after & ~self.writes[position] | self.uses[position]
                if value != before[position]:
                    before[position], changed = value, True
        return before

    def block(self, block: Block, then: list[int]) -> None:
        """Note the flow through `block`; `then` is where a `yield` goes."""
        position, end = self.live.block_start[block], self.live.block_end[block]
        for op in block.ops:
            self.next[position].append(self.live.start[op])
            self.op(op)
            position = self.live.finish[op]
        self.next[position].append(end)
        match block.end.kind:
            case "yield":
                self.next[end] += then
            case "return":
                self.uses[end] |= self.at_return
            case "raise":
                self.uses[end] |= self.at_stop
            case kind:
                assert block.end.target is not None
                self.next[end].append((self.goes_on if kind == "continue" else self.leaves)[block.end.target])

    def op(self, op: Op) -> None:
        start, finish = self.live.start[op], self.live.finish[op]
        for effect in op.effects:
            if effect.is_ordered:
                self.uses[start] |= self.at_stop
            elif effect.target is not None and effect.target in self.bit:
                if op.declared is VARIABLE_WRITE and effect.target.members:
                    continue  # the other members keep what they hold
                if op.declared is VARIABLE_WRITE:
                    self.writes[start] |= self.bit[effect.target]
                else:
                    self.uses[start] |= self.bit[effect.target]
        if op.declared is CALL:
            self.uses[start] |= self.at_stop  # there may be loops in it
        if op.declared.is_opaque or not op.blocks:
            return
        starts = [self.live.block_start[block] for block in op.blocks]
        if op.declared.is_loop:
            self.uses[starts[-1]] |= self.at_stop  # each iteration may be the last
        if op.declared is FOR:
            head = [starts[0], finish]
            # A `continue` goes where the end of the body goes.
            label = Loop(op).label
            self.goes_on[label], self.leaves[label] = self.live.block_end[op.blocks[0]], finish
            self.next[start] += head
            if op.blocks[0].end.kind != "yield":
                self.next[self.live.block_end[op.blocks[0]]] += head
            self.block(op.blocks[0], head)
        elif op.declared is WHILE:
            label = Loop(op).label
            self.goes_on[label], self.leaves[label] = starts[0], finish
            self.next[start].append(starts[0])
            self.block(op.blocks[0], [starts[1], finish])
            self.block(op.blocks[1], [starts[0]])
        else:
            if "label" in op.attrs:
                self.leaves[op.attrs["label"]] = finish
            self.next[start] += starts if op.declared in (IF, SCOPE) else [*starts, finish]
            for block in op.blocks:
                self.block(block, [finish])


def _numbers(mask: int) -> Iterator[int]:
    """The bits that are set."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low
