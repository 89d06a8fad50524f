"""Residual slots, in plans run on an abstract memory: see `test_plan.py`."""

from __future__ import annotations

import pytest

from staged.ir.buffers import Called, sequence_storage
from staged.ir.nodes import Block, Op, Value
from staged.ir.storage import is_tensor, root_of, structural_ops, view_of
from staged.passes.memory.plan import plan_buffers
from tests.passes.memory.test_plan import TURNS, Generator, Memory


class CollectingGenerator(Generator):
    """Random programs whose loops collect values and the sequences of inner loops, and read some of them later."""

    def __init__(self, seed: int, leaves: bool = False) -> None:
        super().__init__(seed, leaves)
        self.sequences: list[Value] = []
        """Those that can be read."""

    def block(self, values: list[Value], depth: int, loops: list) -> None:
        outside = list(self.sequences)
        for _ in range(2):
            super().block(values, depth, loops)
            self.read_some(values)
        if depth:
            self.sequences = outside

    def read_some(self, values: list[Value]) -> None:
        for sequence in self.random.sample(self.sequences, min(2, len(self.sequences))):
            got = self.builder.op("sequence_get", [sequence, self.n], [sequence.type.element]).result
            (values if is_tensor(got) else self.sequences).append(got)

    def loop(self, values: list[Value], depth: int, loops: list) -> tuple[Value, ...]:
        collected = super().loop(values, depth, loops)
        self.sequences += collected
        return collected

    def kept(self, recent: list[Value], ops: list[Op]) -> list[Value]:
        inner = [result for op in ops if op.name in ("for", "while") for result in op.results if not is_tensor(result)]
        return [*(self.random.choice(recent) for _ in range(self.random.randint(1, 3))), *inner]


class HistoryMemory(Memory):
    """A history is a buffer with a token for each place in it; a slot is one such place."""

    def __init__(self, function, plan, seed: int, in_place) -> None:
        super().__init__(function, plan, seed, in_place)
        self.bases: dict[Value, int] = {}
        self.storage = dict(plan.sequences)
        self.slots: dict[object, tuple[object, int]] = {}
        self.seen: dict[Value, tuple[object, int] | None] = {}
        """The place in a sequence that is read; None where nothing has been collected."""
        self.expected: dict[object, dict[int, object]] = {}
        self.collectors = {}
        for op in structural_ops(function.block):
            for result, value in collected_by(op):
                if not is_tensor(value):
                    self.collectors[value] = (op, result)
        self.trips: dict[Op, int] = {}
        self.body_of = {op.blocks[-1]: op for op in structural_ops(function.block) if op.name in ("for", "while")}

    def store(self, buffer, token) -> None:
        if buffer.kind != "slot":
            super().store(buffer, token)
            return
        history, position = self.slots[buffer]
        known = self.content.get(history)
        places = dict(known) if isinstance(known, dict) else {}
        super().store(history, {**places, position: token})

    def at(self, history, position: int) -> object:
        known = self.content.get(history)
        return known.get(position) if isinstance(known, dict) else None

    def read(self, value: Value) -> object:
        while value not in self.seen and view_of(value) is not None:
            value = view_of(value)
        if value in self.seen:
            place = self.seen[value]
            if place is None:
                return self.tokens[value]
            assert self.at(*place) is self.expected[place[0]][place[1]], f"a history was overwritten before {value}"
            return self.at(*place)
        buffer = self.plan.place[value]
        if buffer.kind != "slot":
            return super().read(value)
        assert self.at(*self.slots[buffer]) is self.tokens[value], f"{value} was overwritten in its slot"
        return self.tokens[value]

    def op(self, op: Op, frames: dict):
        if op.name == "sequence_get":
            self.get(op)
            return None
        return super().op(op, frames)

    def get(self, op: Op) -> None:
        sequence, value = op.operands[0], op.result
        history, base = self.storage[sequence], self.bases.get(sequence)
        count = 1 if is_tensor(value) else sequence_storage(value.type)[1]
        known = self.expected.get(history, {}) if base is not None else {}
        choices = [i for i in range(TURNS) if any((base or 0) + i * count + j in known for j in range(count))]
        position = (base or 0) + self.random.choice(choices) * count if choices else None
        if is_tensor(value):
            self.seen[value], self.tokens[value] = None if position is None else (history, position), object()
        else:
            self.storage[value] = history
            self.bases.pop(value, None)
            if position is not None:
                self.bases[value] = position

    def loop(self, op: Op, frames: dict):
        self.trips[op] = -1
        for result, value in collected_by(op):
            if result in self.collectors:
                outer, whole = self.collectors[result]
                self.bases[result] = self.bases[whole] + self.trips[outer] * sequence_storage(result.type)[1]
            else:
                self.bases[result] = 0
                self.expected[self.plan.sequences[result]] = {}
            assert is_tensor(value) or self.plan.sequences[value] is self.plan.sequences[result]
        return super().loop(op, frames)

    def block(self, block: Block, frames: dict):
        op = self.body_of.get(block)
        if op is None:
            return super().block(block, frames)
        self.trips[op] += 1
        for result, _ in collected_by(op):
            if result in self.plan.kept:
                self.slots[self.plan.kept[result]] = (self.plan.sequences[result], self.bases[result] + self.trips[op])
        kind, target, values = super().block(block, frames)
        if kind == "yield":
            for result, value in collected_by(op):
                if is_tensor(value):
                    self.collect(op, result, value)
            values = values[: len(values) - op.attrs["collected"]]
        return kind, target, values

    def collect(self, op: Op, result: Value, value: Value) -> None:
        history, position = self.plan.sequences[result], self.bases[result] + self.trips[op]
        token = self.read(value)
        if result in self.plan.kept:
            assert self.plan.place[root_of(value)] is self.plan.kept[result]
            assert self.at(history, position) is token
        else:
            known = self.content.get(history)
            places = dict(known) if isinstance(known, dict) else {}
            super().store(history, {**places, position: token})
        self.expected[history][position] = token


def collected_by(op: Op) -> list[tuple[Value, Value]]:
    """(sequence, what each iteration adds to it) of a loop."""
    count = op.attrs.get("collected", 0)
    return list(zip(op.results[-count:], op.blocks[-1].end.operands[-count:], strict=True)) if count else []


def plans(seeds: range, called: Called | None = None):
    for seed in seeds:
        generator = CollectingGenerator(seed, leaves=called is not None)
        function = generator.function()
        plan = plan_buffers(function, lambda op: generator.in_place.get(op, ()), called)  # noqa: B023
        yield function, plan, generator.in_place


@pytest.mark.parametrize("called", [None, Called(recursive=True), Called()])
def test_what_a_loop_keeps_is_made_in_its_slot_and_stays(called):
    made = copied = 0
    for function, plan, in_place in plans(range(80), called):
        kept = [(op, pair) for op in structural_ops(function.block) for pair in collected_by(op) if is_tensor(pair[1])]
        made += len(plan.kept)
        copied += len(kept) - len(plan.kept)
        for run in range(3):
            HistoryMemory(function, plan, run, in_place).run()
    assert made > 50 and copied > 50
