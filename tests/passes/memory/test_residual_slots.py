"""Residual slots, in plans run on an abstract memory: see `test_plan.py`."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from staged.ir.buffers import Called, sequence_storage
from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.storage import is_tensor, root_of, structural_ops, view_of
from staged.ir.structure import SEQUENCE_GET
from staged.ir.types import SequenceType
from staged.ir.verifier import verify
from staged.passes.memory.plan import plan_buffers
from tests.passes.memory.test_plan import FLAG, INT, TURNS, VECTOR, Generator, Memory


class CollectingGenerator(Generator):
    """Random programs whose loops collect values and the sequences of inner loops, and read some of them later.

    With `chains` most loops have a known number of iterations, and collect what they carry.
    """

    def __init__(self, seed: int, leaves: bool = False, chains: bool = False) -> None:
        super().__init__(seed, leaves)
        self.chains = chains
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

    def bounds(self) -> list[Value]:
        if not self.chains:
            return super().bounds()
        count = self.random.randint(1, TURNS)
        return [self.builder.op("constant", [], [INT], attrs={"value": n}).result for n in (0, count, 1)]

    def next_values(self, recent: list[Value], count: int) -> list[Value]:
        """Often elements of a history, as a reverse loop carries them."""
        got = [value for value in recent if value.made_by(SEQUENCE_GET)]
        if not self.chains or not got or self.random.random() < 0.5:
            return super().next_values(recent, count)
        return [self.random.choice(got) for _ in range(count)]

    def kept(self, recent: list[Value], carried: Sequence[Value], ops: list[Op]) -> list[Value]:
        inner = [result for op in ops if op.name in ("for", "while") for result in op.results if not is_tensor(result)]
        kept = [self.random.choice(recent) for _ in range(self.random.randint(1, 3))]
        return [*kept, *(carried if self.chains else ()), *inner]


class HistoryMemory(Memory):
    """A history is a buffer with a token for each place in it; a slot is one such place."""

    def __init__(self, function, plan, seed: int, in_place) -> None:
        super().__init__(function, plan, seed, in_place)
        self.bases: dict[Value, int] = {}
        self.storage = dict(plan.sequences)
        self.slots: dict[object, tuple[object, int]] = {}
        for chain in plan.chained.values():
            if chain.first is not None:
                self.slots[chain.first] = (plan.sequences[chain.sequence], 0)
        self.seen: dict[Value, tuple[object, int] | None] = {}
        """The place in a sequence that is read; None where nothing has been collected."""
        self.expected: dict[object, dict[int, object]] = {}
        self.collectors = {}
        for op in structural_ops(function.block):
            for result, value in collected_by(op):
                if not is_tensor(value):
                    self.collectors[value] = (op, result)
        self.trips: dict[Op, int] = {}
        self.addresses: dict[Value, object] = {}
        """By carried value that is an element of a history, where it is: a buffer, or a place in a history."""
        self.ends: dict[object, object] = {}
        """By the slot of the next iteration, the place of the loop's result, in the last iteration."""
        self.body_of = {op.blocks[-1]: op for op in structural_ops(function.block) if op.name in ("for", "while")}

    def store(self, buffer, token) -> None:
        buffer = self.ends.get(buffer, buffer)
        if buffer.kind != "slot":
            super().store(buffer, token)
            return
        history, position = self.slots[buffer]
        known = self.content.get(history)
        places = dict(known) if isinstance(known, dict) else {}
        super().store(history, {**places, position: token})

    def place(self, value: Value):
        buffer = super().place(value)
        return self.ends.get(buffer, buffer)

    def at(self, history, position: int) -> object:
        known = self.content.get(history)
        return known.get(position) if isinstance(known, dict) else None

    def read(self, value: Value) -> object:
        while value not in self.seen and view_of(value) is not None:
            value = view_of(value)
        if value in self.addresses:
            address = self.addresses[value]
            found = self.at(*address) if isinstance(address, tuple) else self.content.get(address)
            assert address is None or found is self.tokens[value], f"{value} was overwritten where it is"
            return self.tokens[value]
        if value in self.seen:
            place = self.seen[value]
            if place is None:
                return self.tokens[value]
            assert self.at(*place) is self.expected[place[0]][place[1]], f"a history was overwritten before {value}"
            return self.at(*place)
        buffer = self.place(value)
        if buffer.kind != "slot":
            assert self.content.get(buffer) is self.tokens[value], f"{value} was overwritten in {buffer.name}"
            return self.tokens[value]
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
        for chain in self.chains(op):
            history, position = self.slots[chain.slot]
            self.slots[chain.next] = (history, position + 1)
            self.ends.pop(chain.next, None)
            if self.trips[op] + 1 == chain.trips:
                self.ends[chain.next] = self.place(chain.final)
        kind, target, values = super().block(block, frames)
        if kind == "yield":
            for result, value in collected_by(op):
                if is_tensor(value):
                    self.collect(op, result, value)
            values = values[: len(values) - op.attrs["collected"]]
        return kind, target, values

    def chains(self, op: Op) -> list:
        return [self.plan.chained[param] for param in op.blocks[-1].params if param in self.plan.chained]

    def begin(self, carried, initial) -> None:
        chained = [pair for pair in zip(carried, initial, strict=True) if pair[0] in self.plan.chained]
        for param, value in chained:
            token, chain = self.read(value), self.plan.chained[param]
            if chain.first is None or self.place(value) is not chain.first:
                self.slots[chain.slot] = (self.plan.sequences[chain.sequence], self.bases[chain.sequence])
                self.store(chain.slot, token)
            self.tokens[param] = token
        addressed = [pair for pair in zip(carried, initial, strict=True) if pair[0] in self.plan.addressed]
        for param, value in addressed:
            self.tokens[param], self.addresses[param] = self.read(value), self.place(value)
        others = [pair for pair in zip(carried, initial, strict=True) if pair not in (*chained, *addressed)]
        super().begin([param for param, _ in others], [value for _, value in others])

    def go_on(self, op: Op, carried, values, end) -> None:
        for index, param in enumerate(carried):
            if param in self.plan.chained:
                assert (end, index) not in self.plan.staging
                assert super().place(values[index]) is self.plan.chained[param].next
        taken = {param: self.read(value) for param, value in zip(carried, values, strict=True)}
        self.assign(carried, values, end)
        for param, value in zip(carried, values, strict=True):
            if param in self.plan.addressed:
                assert (end, carried.index(param)) not in self.plan.staging
                self.addresses[param] = self.seen[value]
        self.tokens.update(taken)

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


def plans(seeds: range, called: Called | None = None, chains: bool = False):
    for seed in seeds:
        generator = CollectingGenerator(seed, called is not None, chains)
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


def test_what_a_loop_carries_and_keeps_is_passed_on_from_slot_to_slot():
    chained = begun = addressed = 0
    for function, plan, in_place in plans(range(200), chains=True):
        chained += len(plan.chained)
        begun += sum(chain.first in plan.buffers for chain in plan.chained.values())
        addressed += len(plan.addressed)
        for run in range(2 if plan.chained or plan.addressed else 0):
            HistoryMemory(function, plan, run, in_place).run()
    assert chained > 20 and begun > 3 and addressed > 8, (chained, begun, addressed)


class Reverse(Generator):
    """A loop that collects, and a second one that carries what it reads of that."""

    def number(self, value: int) -> Value:
        return self.builder.op("constant", [], [INT], attrs={"value": value}).result

    def loop_of(self, values: list[Value], collected: int, body) -> tuple[Value, ...]:
        label, bounds = Label("loop"), [self.number(n) for n in (0, TURNS, 1)]
        with self.builder.block([INT, *(VECTOR for _ in values)]) as opened:
            self.builder.end("yield", body(label, *opened.params))
        results = [*(VECTOR for _ in values), *(SequenceType(VECTOR, TURNS) for _ in range(collected))]
        attrs = {"label": label, "collected": collected}
        return self.builder.op("for", [*bounds, *values], results, attrs=attrs, blocks=[opened.block]).results

    def collecting(self, value: Value) -> Value:
        return self.loop_of([], 1, lambda label, i: [self.kernel([value])])[0]

    def program(self, case: str) -> Function:
        with self.builder.block([VECTOR, VECTOR, FLAG, INT], ["x", "y", "flag", "n"]) as opened:
            x, _, flag, _ = opened.params
            history = self.collecting(x)

            def body(label: Label, i: Value, before: Value) -> list[Value]:
                made = self.kernel([before])
                if case == "goes on early":
                    with self.builder.block() as first:
                        self.builder.end("continue", [self.kernel([made])], label)
                    with self.builder.block() as second:
                        self.builder.end("yield", [])
                    self.builder.op("if", [flag], [], blocks=[first.block, second.block])
                own = self.collecting(made) if case == "history of the iteration" else history
                return [self.builder.op("sequence_get", [own, i], [VECTOR]).result]

            (last,) = self.loop_of([x if case == "argument" else self.kernel([x])], 0, body)
            self.builder.end("return", [last if case == "result is read" else self.kernel([x])] * 2)
        return Function("f", opened.block)


@pytest.mark.parametrize(
    "case", ["element", "goes on early", "history of the iteration", "argument", "result is read"]
)
def test_an_element_is_carried_by_its_address_if_it_stays(case):
    generator = Reverse(0)
    function = generator.program(case)
    verify(function)
    plan = plan_buffers(function, lambda op: ())
    assert len(plan.addressed) == (case == "element")
    for run in range(3):
        HistoryMemory(function, plan, run, {}).run()
