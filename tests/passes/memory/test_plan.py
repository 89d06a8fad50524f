"""The memory plan, checked by running random programs on an abstract memory.

Each value written is a fresh token. Writing a buffer spoils every arena buffer that overlaps it. Whoever reads a value
must find exactly its token in its buffer: a plan that shares memory wrongly is caught whatever the program computes.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest

from staged.ir.buffers import Called, Plan
from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.nodes import FAIL, Block, Effect, FrameRecord, Function, Label, Op, Value, VariableRef, walk_ops
from staged.ir.storage import is_tensor, root_of
from staged.ir.trips import static_trip_count
from staged.ir.types import FrameType, SequenceType, TensorType, bool_, f32, i64
from staged.ir.verifier import verify
from staged.passes.memory.offsets import assign_offsets
from staged.passes.memory.plan import plan_buffers
from staged.source import Position

VECTOR = TensorType(f32, (16,))
KERNEL = {"name": "kernel", "fused": "kernel"}
INT = TensorType(i64)
FLAG = TensorType(bool_)
LINES = [Position("model.py", line, 0, line, 1, "forward") for line in range(3)]
"""The lines of kernels: values of one line may be twins."""
TURNS = 3
"""The most iterations of a loop that collects."""


class Generator:
    """Random programs of kernels, loops, branches, exits and Variables over values of one type."""

    def __init__(self, seed: int, leaves: bool = False, saves: bool = False) -> None:
        self.random = random.Random(seed)
        self.saves = saves
        """Whether the function keeps values in a frame."""
        self.leaves = leaves
        """Whether branches may return."""
        self.builder = Builder()
        self.variables: list[VariableRef] = []
        self.in_place: dict[Op, list[tuple[int, int]]] = {}
        self.budget = 40

    def function(self) -> Function:
        with self.builder.block([VECTOR, VECTOR, FLAG, INT], ["x", "y", "flag", "n"]) as body:
            for number in range(self.random.randint(0, 2)):
                outer = self.random.random() < 0.5
                variable = VariableRef(f"v{number}", VECTOR, outer)
                self.variables.append(variable)
                if not outer:
                    self.write(variable, self.kernel(list(body.params[:2])))
            values = list(body.params[:2])
            self.flag, self.n = body.params[2:]
            self.block(values, depth=0, loops=[])
            if self.saves:
                # What is done after it must not disturb it.
                kept = [self.pick(values) for _ in range(4)]
                self.builder.op("frame_save", kept, [FrameType("kept")])
                self.block(values, depth=2, loops=[])
            self.builder.end("return", [self.pick(values), self.pick(values)])
        called = [stub(taken, given) for taken in (1, 2, 3) for given in (1, 2)]
        frames = [FrameRecord("kept", tuple((f"field_{n}", VECTOR) for n in range(4)))] if self.saves else []
        function = Function("f", body.block, variables=self.variables, functions=called, frames=frames)
        verify(function)
        return function

    def kernel(self, values: list[Value]) -> Value:
        operands = [self.pick(values) for _ in range(self.random.randint(1, 2))]
        count = self.random.randint(1, 2)
        with self.builder.block([VECTOR] * len(operands)) as body:
            self.builder.end("yield", [body.params[0]] * count)
        op = self.builder.op("kernel", operands, [VECTOR] * count, attrs=KERNEL, blocks=[body.block])
        op.where = LINES[len(self.in_place) % len(LINES)]
        if self.random.random() < 0.6:
            self.in_place[op] = [(0, 0)]
        return op.results[self.random.randrange(count)]

    def pick(self, values: list[Value]) -> Value:
        """One of the values; more often one of the last, so that what is made is carried, written and returned."""
        return self.random.choice(values if self.random.random() < 0.5 else values[-3:])

    def update(self, values: list[Value]) -> Value:
        """An array that is changed in part: of the first operand, in place where the others are other arrays."""
        operands = [self.pick(values) for _ in range(self.random.randint(1, 2))]
        with self.builder.block([VECTOR] * len(operands)) as body:
            changed = self.builder.op("scatter", [body.params[0]], [VECTOR]).result
            self.builder.end("yield", [changed])
        op = self.builder.op("kernel", operands, [VECTOR], attrs=KERNEL, blocks=[body.block])
        self.in_place[op] = [(0, 0)]
        return op.result

    def stop(self) -> None:
        """A check that may stop the program: the caller's Variables are then as they are there."""
        self.builder.op(Declaration(name="check", kind="structured"), [self.flag], [], effects=FAIL)

    def call(self, values: list[Value]) -> tuple[Value, ...]:
        """A call that may make one result in place of an argument, and touch a Variable."""
        operands = [self.pick(values) for _ in range(self.random.randint(1, 3))]
        effects = []
        if self.variables and self.random.random() < 0.4:
            effects = [Effect(self.random.choice(["read", "write"]), self.random.choice(self.variables))]
        pairs = ((self.random.randrange(len(operands)), 0),) if self.random.random() < 0.6 else ()
        types = [VECTOR] * self.random.randint(1, 2)
        attrs = {"function": f"g_{len(operands)}_{len(types)}", "in_place": pairs}
        return self.builder.op("call", operands, types, attrs=attrs, effects=tuple(effects)).results

    def write(self, variable: VariableRef, value: Value) -> None:
        self.builder.op(
            "variable_write", [value], [], attrs={"variable": variable}, effects=(Effect("write", variable),)
        )

    def block(self, values: list[Value], depth: int, loops: list) -> None:
        for _ in range(self.random.randint(1, 6)):
            self.budget -= 1
            choice = self.random.random()
            if choice < 0.2 or self.budget < 0 or depth > 3:
                values.append(self.kernel(values))
            elif choice < 0.28:
                values.append(self.update(values))
            elif choice < 0.3:
                self.stop()
            elif choice < 0.4:
                values += self.call(values)
            elif choice < 0.5:
                values.append(
                    self.builder.op("reshape", [self.pick(values)], [VECTOR], attrs={"shape": (16,)}).result
                )
            elif choice < 0.6 and self.variables:
                variable = self.random.choice(self.variables)
                effects = (Effect("read", variable),)
                values.append(
                    self.builder.op("variable_read", [], [VECTOR], attrs={"variable": variable}, effects=effects).result
                )
            elif choice < 0.7 and self.variables:
                self.write(self.random.choice(self.variables), self.pick(values))
            elif choice < 0.85:
                self.branch(values, depth, loops)
            else:
                self.loop(values, depth, loops)

    def branch(self, values: list[Value], depth: int, loops: list) -> None:
        count = self.random.randint(0, 2)
        blocks = []
        leave = loops and self.random.random() < 0.3
        for side in range(2):
            with self.builder.block() as body:
                inner = list(values)
                self.block(inner, depth + 1, loops)
                if leave and side == 0:
                    label, carried = self.random.choice(loops)
                    kind = self.random.choice(["break", "continue"])
                    self.builder.end(kind, [self.pick(inner) for _ in range(carried)], label)
                elif self.leaves and side == 0 and self.random.random() < 0.4:
                    self.builder.end("return", [self.pick(inner), self.pick(inner)])
                else:
                    self.builder.end("yield", [self.pick(inner) for _ in range(count)])
            blocks.append(body.block)
        op = self.builder.op("if", [self.flag], [VECTOR] * count, blocks=blocks)
        values.extend(op.results)

    def loop(self, values: list[Value], depth: int, loops: list) -> tuple[Value, ...]:
        """Adds a loop, and what it carries to `values`; returns the sequences that it collects."""
        carried = self.random.randint(0, 3)
        label = Label("loop")
        types = [VECTOR] * carried
        initial = [self.pick(values) for _ in range(carried)]
        is_for = self.random.random() < 0.5
        blocks = []
        if not is_for:
            with self.builder.block(types) as condition:
                if carried and self.random.random() < 0.5:
                    self.kernel(list(condition.params))
                self.builder.end("yield", [self.flag])
            blocks.append(condition.block)
        with self.builder.block(([INT] if is_for else []) + types) as body:
            inner = values + list(body.params[1 if is_for else 0 :])
            self.block(inner, depth + 1, [*loops, (label, carried)])
            recent = inner[-6:]
            kept = self.kept(recent, body.params[1 if is_for else 0 :], body.ops)
            self.builder.end("yield", [*self.next_values(recent, carried), *kept])
        blocks.append(body.block)
        operands = [*self.bounds(), *initial] if is_for else initial
        results = [*types, *(SequenceType(value.type, TURNS) for value in kept)]
        attrs = {"label": label, "collected": len(kept)}
        op = self.builder.op("for" if is_for else "while", operands, results, attrs=attrs, blocks=blocks)
        values.extend(op.results[:carried])
        return op.results[carried:]

    def next_values(self, recent: list[Value], count: int) -> list[Value]:
        """The values that a loop carries to the next iteration."""
        return [self.random.choice(recent) for _ in range(count)]

    def bounds(self) -> list[Value]:
        """Start, stop and step of a `for`."""
        return [self.n, self.n, self.n]

    def kept(self, recent: list[Value], carried: Sequence[Value], ops: list[Op]) -> list[Value]:
        """The residuals of each iteration of a loop: of the values made last and of what the ops of its body give."""
        return []


def stub(taken: int, given: int) -> Function:
    """A function of so many parameters and results: what it does is not looked at."""
    builder = Builder()
    with builder.block([VECTOR] * taken) as body:
        builder.end("return", [body.params[0]] * given)
    return Function(f"g_{taken}_{given}", body.block)


class Memory:
    """Runs a function abstractly: which token does each buffer hold?"""

    def __init__(self, function: Function, plan: Plan, seed: int, in_place: dict[Op, list[tuple[int, int]]]) -> None:
        self.function, self.plan, self.random = function, plan, random.Random(seed)
        self.in_place = in_place
        self.content: dict[object, object] = {}
        self.tokens: dict[Value, object] = {}
        self.variables = {v: next(b for b in plan.buffers if b.variable is v) for v in function.variables}
        self.state = {v: object() for v in function.variables}
        self.kept: dict[int, object] = {}
        """By number, what the fields of the frame have been given."""
        for variable, buffer in self.variables.items():
            self.content[buffer] = self.state[variable]
        for param in function.params:
            if is_tensor(param):
                self.tokens[param] = self.content[plan.place[param]] = object()

    def store(self, buffer, token) -> None:
        for slot in self.plan.unions:
            if buffer in slot:
                self.content.update(dict.fromkeys(slot))
        if buffer.kind == "arena":
            for other in self.plan.arena_buffers():
                apart = other.offset + other.nbytes <= buffer.offset or buffer.offset + buffer.nbytes <= other.offset
                if other is not buffer and not apart:
                    self.content[other] = None
        self.content[buffer] = token

    def place(self, value: Value):
        """Its buffer; None where it is in a sequence."""
        return self.plan.place.get(root_of(value))

    def read(self, value: Value) -> object:
        root = root_of(value)
        buffer = self.plan.place[root]
        assert self.content.get(buffer) is self.tokens[root], f"{root} was overwritten in {buffer.name}"
        return self.tokens[root]

    def assign(self, targets, sources, end=None) -> None:
        tokens = [self.read(source) for source in sources]
        late = []
        for index, source in enumerate(sources):
            staging = self.plan.staging.get((end, index))
            if staging is not None:
                self.store(staging, self.read(source))
                late.append((index, staging))
        for index, (target, source) in enumerate(zip(targets, sources, strict=True)):
            is_made = target in (*self.plan.chained, *self.plan.addressed) or (end, index) in self.plan.staging
            if not is_made and self.place(target) is not self.place(source):
                self.store(self.plan.place[target], self.read(source))
        for index, staging in late:
            assert self.content[staging] is tokens[index]
            self.store(self.plan.place[targets[index]], tokens[index])
        for target, token in zip(targets, tokens, strict=True):
            self.tokens[target] = token

    def run(self) -> None:
        kind, end, values = self.block(self.function.block, {})
        assert kind == "return"
        tokens = [self.read(value) for value in values]
        outputs = {buffer.index: buffer for buffer in self.plan.buffers if buffer.kind == "output"}
        outputs |= {index: self.variables[variable] for variable, index in self.plan.returned.items()}
        late = []
        for index, token in enumerate(tokens):
            if (end, index) in self.plan.staging:
                self.store(self.plan.staging[end, index], token)
                late.append(index)
        for index, value in enumerate(values):
            if index not in late and self.place(value) is not outputs[index]:
                self.store(outputs[index], self.read(value))
        for index in late:
            assert self.content[self.plan.staging[end, index]] is tokens[index]
            self.store(outputs[index], tokens[index])
        assert [self.content[outputs[index]] for index in range(len(values))] == tokens
        self.look_at_variables()
        for (_, number), buffer in self.plan.fields.items():
            assert self.content[buffer] is self.kept[number], f"field {number} was overwritten"

    def look_at_variables(self) -> None:
        """The caller sees its Variables wherever the program ends."""
        for variable, buffer in self.variables.items():
            if variable.outer or buffer.kind == "variable":
                assert self.content[buffer] is self.state[variable], f"{variable.name} was overwritten"

    def save(self, op: Op) -> None:
        for number, value in enumerate(op.operands):
            self.kept[number] = self.read(value)
            if (op, number) in self.plan.fields:
                assert self.plan.place[value] is self.plan.fields[op, number]

    def block(self, block: Block, frames: dict):
        for op in block.ops:
            left = self.op(op, frames)
            if left is not None:
                return left
        end = block.end
        if end.target is not None:
            self.assign(frames[end.target], end.operands, end)
            return end.kind, end.target, None
        return end.kind, end if end.kind == "return" else None, end.operands

    def call(self, op: Op) -> None:
        """Results and Variables may be written before an argument is read for the last time."""
        in_place = dict(op.attrs["in_place"])
        for operand, result in in_place.items():
            token = self.read(op.operands[operand])
            if self.plan.place[op.results[result]] is not self.place(op.operands[operand]):
                self.store(self.plan.place[op.results[result]], token)
        for effect in op.effects:
            assert self.content[self.variables[effect.target]] is self.state[effect.target]
            if effect.kind == "write":
                self.state[effect.target] = object()
                self.store(self.variables[effect.target], self.state[effect.target])
        for result in op.results:
            token = self.tokens[result] = object()
            self.store(self.plan.place[result], token)
        for number, operand in enumerate(op.operands):
            if number not in in_place:
                self.read(operand)

    def op(self, op: Op, frames: dict):
        if op.name == "kernel":
            for operand in op.operands:
                self.read(operand)
            for result in op.results:
                token = self.tokens[result] = object()
                self.store(self.plan.place[result], token)
            for number, operand in enumerate(op.operands):
                # Element by element: an operand is read until the end, but for one that a result may overwrite.
                pairs = self.in_place.get(op, ())
                if self.place(operand) not in [self.place(op.results[r]) for r, n in pairs if n == number]:
                    self.read(operand)
        elif op.name == "call":
            self.call(op)
        elif op.name == "check":
            self.look_at_variables()
        elif op.name == "frame_save":
            self.save(op)
        elif op.name == "variable_read":
            variable = op.attrs["variable"]
            assert self.content[self.variables[variable]] is self.state[variable], "a Variable was overwritten early"
            self.tokens[op.result] = self.state[variable]
            if op in self.plan.copied_reads:
                self.store(self.plan.place[op.result], self.state[variable])
        elif op.name == "variable_write":
            variable = op.attrs["variable"]
            self.state[variable] = self.read(op.operands[0])
            self.store(self.variables[variable], self.state[variable])
        elif op.name == "if":
            chosen = op.blocks[self.random.randrange(2)]
            kind, target, values = self.block(chosen, frames)
            if kind != "yield":
                return kind, target, values
            self.assign(op.results, values)
        elif op.name in ("for", "while"):
            return self.loop(op, frames)
        return None

    def loop(self, op: Op, frames: dict):
        label, body = op.attrs["label"], op.blocks[-1]
        carried = body.params[1:] if op.name == "for" else body.params
        self.begin(carried, op.operands[3:] if op.name == "for" else op.operands)
        count = static_trip_count(op) if op.name == "for" else None
        for _ in range(self.random.randint(0, 3) if count is None else count):
            if op.name == "while":
                for seen, param in zip(op.blocks[0].params, carried, strict=True):
                    self.tokens[seen] = self.tokens[param]
                    assert self.plan.place[seen] is self.plan.place[param]
                self.block(op.blocks[0], frames)
            kind, target, values = self.block(body, {**frames, label: carried})
            if kind == "yield":
                self.go_on(op, carried, values, body.end)
            elif target is not label:
                return kind, target, values
            elif kind == "break":
                break
        for result, param in zip(op.results[: len(carried)], carried, strict=True):
            assert param in (*self.plan.chained, *self.plan.addressed) or self.plan.place[result] is self.plan.place[param]
            self.tokens[result] = self.tokens[param]
        return None

    def begin(self, carried, initial) -> None:
        self.assign(carried, initial)

    def go_on(self, op: Op, carried, values, end) -> None:
        self.assign(carried, values, end)


@pytest.mark.parametrize("chunk", range(10))
def test_no_value_is_overwritten_while_it_is_needed(chunk):
    for seed in range(chunk * 60, chunk * 60 + 60):
        generator = Generator(seed, leaves=seed % 2 == 0)
        function = generator.function()
        plan = plan_buffers(function, lambda op: generator.in_place.get(op, ()))  # noqa: B023
        for run in range(6):
            Memory(function, plan, run, generator.in_place).run()


@pytest.mark.parametrize("recursive", [True, False])
def test_functions_that_are_called_return_from_anywhere_and_make_results_in_place(recursive):
    for seed in range(400):
        generator = Generator(seed, leaves=True)
        function = generator.function()
        pairs = generator.random.choice([(), ((0, 0),), ((1, 0),), ((0, 1), (1, 0))])
        plan = plan_buffers(function, lambda op: generator.in_place.get(op, ()), Called(recursive, pairs))  # noqa: B023
        assert not (recursive and plan.arena_buffers())
        for param, result in pairs:
            assert plan.place[function.params[param]].kind == "output" and plan.place[function.params[param]].index == result
        for run in range(4):
            Memory(function, plan, run, generator.in_place).run()


def test_what_a_frame_holds_is_made_there_and_stays():
    copied = made = 0
    for seed in range(400):
        generator = Generator(seed, saves=True)
        function = generator.function()
        plan = plan_buffers(function, lambda op: generator.in_place.get(op, ()), Called(recursive=True))  # noqa: B023
        made += len(plan.fields)
        copied += 4 - len(plan.fields)
        assert {buffer.kind for buffer in plan.fields.values()} <= {"frame"}
        for run in range(4):
            Memory(function, plan, run, generator.in_place).run()
    assert made > 400 and copied > 400


def test_a_plan_that_shares_too_much_is_caught():
    caught = 0
    for seed in range(60):
        generator = Generator(seed)
        function = generator.function()
        plan = plan_buffers(function, lambda op: generator.in_place.get(op, ()))  # noqa: B023
        for buffer in plan.arena_buffers():
            buffer.offset = 0
        try:
            for run in range(6):
                Memory(function, plan, run, generator.in_place).run()
        except AssertionError:
            caught += 1
    assert caught > 30


@pytest.mark.parametrize("line", [0, 1])
def test_values_of_one_line_in_two_loops_share_a_buffer(line):
    builder, made = Builder(), []
    with builder.block([VECTOR, INT], ["x", "n"]) as body:
        x, n = body.params
        for where in (LINES[0], LINES[line]):
            with builder.block([INT]) as step:
                with builder.block([VECTOR]) as inner:
                    builder.end("yield", [inner.params[0]])
                kernel = builder.op("kernel", [x], [VECTOR], attrs=KERNEL, blocks=[inner.block], where=where)
                made.append(kernel.result)
                builder.end("yield", [])
            builder.op("for", [n, n, n], [], attrs={"label": Label("loop"), "collected": 0}, blocks=[step.block])
        builder.end("return", [x])
    plan = plan_buffers(Function("f", body.block), lambda op: ())
    assert (plan.place[made[0]] is plan.place[made[1]]) == (line == 0)
    assert len(plan.arena_buffers()) == 1 + line


def test_a_training_step_updates_parameters_in_place_and_reuses_activations():
    builder = Builder()
    w = VariableRef("w", VECTOR, outer=True)
    with builder.block([VECTOR, INT], ["x", "n"]) as body:
        with builder.block([INT]) as step:
            old = builder.op("variable_read", [], [VECTOR], attrs={"variable": w}, effects=(Effect("read", w),)).result
            with builder.block([VECTOR, VECTOR]) as inner:
                builder.end("yield", [inner.params[0]])
            hidden = builder.op("kernel", [body.params[0], old], [VECTOR], attrs=KERNEL, blocks=[inner.block]).result
            with builder.block([VECTOR, VECTOR]) as inner:
                builder.end("yield", [inner.params[0]])
            update = builder.op("kernel", [old, hidden], [VECTOR], attrs=KERNEL, blocks=[inner.block])
            builder.op("variable_write", [update.result], [], attrs={"variable": w}, effects=(Effect("write", w),))
            builder.end("yield", [])
        n = body.params[1]
        builder.op("for", [n, n, n], [], attrs={"label": Label("i")}, blocks=[step.block])
        builder.end("return", [])
    function = Function("step", body.block, variables=[w])
    plan = plan_buffers(function, lambda op: [(0, 0)] if op is update else [])
    assert plan.place[update.result].kind == "variable"
    assert not plan.copied_reads
    assert plan.arena_bytes == 64  # one activation


def test_offsets_never_overlap_and_small_buffers_fill_gaps():
    from staged.ir.buffers import Buffer

    chooser = random.Random(0)
    for _ in range(50):
        buffers = []
        for number in range(20):
            start = chooser.randint(0, 50)
            buffer = Buffer(f"b{number}", VECTOR, "arena", chooser.randint(1, 1000))
            buffer.intervals = [(start, start + chooser.randint(0, 20))]
            buffers.append(buffer)
        total = assign_offsets(buffers)
        for a in buffers:
            assert a.offset % 64 == 0 and a.offset + a.nbytes <= total
            for b in buffers:
                alive = a.intervals[0][0] <= b.intervals[0][1] and b.intervals[0][0] <= a.intervals[0][1]
                if a is not b and alive:
                    assert a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_programs_of_the_generator_are_varied():
    names = [op.name for seed in range(60) for op in walk_ops(Generator(seed).function().block)]
    assert {"if", "for", "while", "kernel", "call", "reshape", "scatter", "variable_read", "variable_write"} <= set(names)
