"""Forward mode: the ops of a block, with the tangents of their results beside them.

    y, y_dot = jvp(x, x_dot) {wrt=(0,), outputs=1} (x):        y = exp(x)
      yield(exp(x))                                       =>   y_dot = x_dot * y

Control flow carries tangents along: a branch yields them, a loop carries those of its carried values and collects those of
what it collects, a function takes and returns them. A value without a tangent has the tangent zero, which is made only
where control paths join. The tangent of a frame is a frame of tangents. Ops with effects are written once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from staged.autodiff.activity import Activity, carried_of, has_frames
from staged.autodiff.recursion import DerivativeRequests, group_of, requests_within
from staged.autodiff.rules import RuleContext, declared_of, no_forward, refusal
from staged.autodiff.tangent_types import tangent_types
from staged.ir.builder import Builder
from staged.ir.function_pool import FunctionPool
from staged.ir.nodes import Block, Function, Label, Op, Value
from staged.ir.rewrite import Copier
from staged.ops.array import Array
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.source import Position


def expand_jvp(op: Op, builder: Builder, pool: FunctionPool) -> list[Value]:
    """Emit what stands for a `jvp` op; returns its results: the outputs, then a tangent per float one.

    Exact: the primal's ops are copied as they are, so that its results keep their bits; an output that does not depend on `wrt`
    has the tangent 0.
    """
    (block,) = op.blocks
    outputs, wrt = op.attrs["outputs"], op.attrs["wrt"]
    captures, tangents = op.operands[: len(block.params)], op.operands[len(block.params) :]
    activity = activity_of(pool)
    forward = Forward(builder, pool, activity.values(block, [block.params[number] for number in wrt]))
    forward.tangents.update(zip((block.params[number] for number in wrt), tangents, strict=True))
    results = forward.inline(block, captures)
    assert len(results) == outputs, "a jvp block yields the primal's results"
    return [*results, *(forward.or_zeros(value, op) for value in block.end.operands if forward.tangent_types.has(value.type))]


def activity_of(pool: FunctionPool) -> Activity:
    """What is active in forward mode."""
    if "forward activity" not in pool.memo:
        pool.memo["forward activity"] = Activity(pool, forward=True)
    found = pool.memo["forward activity"]
    assert isinstance(found, Activity)
    return found


class Forward(Copier):
    """Copies blocks, and writes tangents of the values in `active`."""

    def __init__(self, builder: Builder, pool: FunctionPool, active: set[Value]) -> None:
        super().__init__(builder)
        self.pool = pool
        self.tangent_types = tangent_types(pool)
        self.active = active
        self.tangents: dict[Value, Value] = {}
        """By the value of the code that is copied."""
        self.requests: DerivativeRequests = {}
        """In the body of a function that calls itself: which arguments move in calls among all that call one another."""
        self.where: Position | None = None
        self.context = RuleContext(builder, locate=lambda: self.where)

    def op(self, op: Op) -> None:
        if op.name == "if":
            self.branches(op)
        elif op.name in ("for", "while"):
            self.loop(op)
        elif op.name == "call":
            self.call(op)
        elif op.name == "checkpoint":
            self.checkpoint(op)
        elif op.name == "composite" and self.touches(op) and not COMPOSITES[op.attrs["name"]].is_one_op:
            for old, new in zip(op.blocks[0].params, op.operands, strict=True):
                self.copy_tangent(new, old)
            given = self.inline(op.blocks[0], [self.value(operand) for operand in op.operands])
            for old, inner, new in zip(op.results, op.blocks[0].end.operands, given, strict=True):
                self.copy_tangent(inner, old)
                self.values[old] = new
                new.hint = new.hint or old.hint
        else:
            super().op(op)
            self.push(op)

    # ---- tangents ----

    def touches(self, op: Op) -> bool:
        return any(operand in self.tangents for operand in op.operands)

    def copy_tangent(self, source: Value, target: Value) -> None:
        if source in self.tangents:
            self.tangents[target] = self.tangents[source]

    def set(self, value: Value, tangent: Value, rename: bool = False) -> None:
        tangent.hint = dot_name(value) if rename else tangent.hint or dot_name(value)
        self.tangents[value] = tangent

    def or_zeros(self, value: Value, op: Op) -> Value:
        """The tangent of a value, made of zeros if it has none.

        Exact: only control paths that join, and arguments of functions, ask for one.
        """
        if value in self.tangents:
            return self.tangents[value]
        return self.tangent_types.zeros(self.builder, self.value(value), op)

    def chosen(self, values: Iterable[Value]) -> list[int]:
        return [number for number, value in enumerate(values) if value in self.active]

    # ---- straight code ----

    def push(self, op: Op) -> None:
        """The tangents of the results of an op that stands in the block already.

        Exact: by the op's own jvp. A tangent that is not there is zero and enters no product; one that a join has filled with
        zeros does, so that 0 times an infinite slope is NaN.
        """
        if op.name == "frame_save" or op.name.startswith("frame_load"):
            self.frame(op)
        if not self.touches(op) or op.name.startswith("frame_"):
            return
        if op.name.startswith("sequence_"):
            self.sequence(op)
            return
        if op.name == "custom_vjp":
            raise no_forward(op.attrs.get("name", "a function"), op.where)
        if not any(self.tangent_types.has(result.type) for result in op.results):
            return
        name, declared, attrs = declared_of(op)
        if declared is None or declared.jvp is None:
            raise refusal(op, name, declared)
        self.where, self.builder.device = op.where, op.device
        handle = self.context.handle
        results = tuple(handle(self.value(result)) for result in op.results)
        operands = tuple(handle(self.value(operand)) for operand in op.operands)
        tangents = [handle(self.tangents[v]) if v in self.tangents else None for v in op.operands]
        with use_context(self.context):
            result = results[0] if len(results) == 1 else results
            given = declared.jvp(tangents, result, operands, **attrs)
            given = given if isinstance(given, tuple) else (given,)
            for old, tangent in zip(op.results, given, strict=True):
                if tangent is not None and self.tangent_types.has(old.type):
                    assert isinstance(tangent, Array)
                    self.set(old, self.context.fitted(tangent, self.value(old), f"the jvp of {name}"))

    def sequence(self, op: Op) -> None:
        """Sequences are linear in their elements.

        Exact: an addition to an element without a tangent leaves the sequence's tangent as it is.
        """
        if not self.tangent_types.has(op.result.type):
            return
        tangents = [self.tangents.get(operand) for operand in op.operands]
        result = self.tangent_types.type(op.result.type)
        if op.name == "sequence_get":
            if tangents[0] is not None:
                self.emit(op, [tangents[0], self.value(op.operands[1])], result)
        elif op.name == "sequence_add":
            sequence, index, element = op.operands
            if element not in self.tangents:
                self.copy_tangent(sequence, op.result)
            else:
                self.emit(op, [self.or_zeros(sequence, op), self.value(index), self.tangents[element]], result)
        elif op.name == "sequence_sum":
            given = [tangent for tangent in tangents if tangent is not None]
            if len(given) == 1:
                self.tangents[op.result] = given[0]
            else:
                self.emit(op, given, result)
        else:
            assert op.name in ("sequence_zeros", "sequence_empty"), op.name

    def emit(self, op: Op, operands: Sequence[Value], *types: object) -> None:
        """The same op on tangents."""
        copy = Op(op.name, operands, types, device=op.device, where=op.where)  # type: ignore[arg-type]
        self.set(op.result, self.builder.append(copy).result)

    def frame(self, op: Op) -> None:
        """The tangent of a frame holds the tangents of its float fields, zeros too: who loads it knows its fields."""
        frame = op.result if op.name == "frame_save" else op.operands[0]
        if not self.tangent_types.has(frame.type):
            return
        fields = op.operands if op.name == "frame_save" else op.results
        chosen = [fields[number] for number in self.tangent_types.fields(frame.type)]
        if op.name == "frame_save":
            self.emit(op, [self.or_zeros(field, op) for field in chosen], self.tangent_types.type(frame.type))
        else:
            types = [self.tangent_types.type(field.type) for field in chosen]
            loaded = self.builder.op(op.name, [self.tangents[frame]], types, device=op.device, where=op.where)
            for field, tangent in zip(chosen, loaded.results, strict=True):
                self.set(field, tangent)

    # ---- control flow ----

    def branches(self, op: Op) -> None:
        """An `if` on the same condition, which yields tangents too.

        Exact: only the branch that is taken computes tangents, so that what is NaN in the other one stays there.
        """
        chosen = self.chosen(op.results)
        blocks = []
        for branch in op.blocks:
            with self.builder.block() as opened:
                self.contents(branch)
                self.close(branch, lambda branch=branch: self.yields(branch, chosen, op))  # type: ignore[misc]
            blocks.append(opened.block)
        types = [result.type for result in op.results]
        types += [self.tangent_types.type(op.results[number].type) for number in chosen]
        operands = [self.value(operand) for operand in op.operands]
        copy = self.builder.append(op.replace(operands=operands, blocks=blocks, result_types=types))
        self.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)

    def close(self, block: Block, values: Callable[[], list[Value]]) -> None:
        """End the block that `block` is copied into, with these values if it yields."""
        if block.end.kind == "yield":
            self.builder.end("yield", values(), None, block.end.where)
        else:
            self.end(block)

    def yields(self, block: Block, chosen: Sequence[int], op: Op) -> list[Value]:
        given = block.end.operands
        return [*map(self.value, given), *(self.or_zeros(given[number], op) for number in chosen)]

    def took(self, op: Op, results: Sequence[Value], primal: Sequence[Value | None], chosen: Sequence[int]) -> None:
        """Note what stands for the results of `op`: `primal` says which result each is, None for the tangents of `chosen`."""
        tangents = iter(chosen)
        for old, new in zip(primal, results, strict=True):
            if old is None:
                self.set(op.results[next(tangents)], new, rename=True)
            else:
                self.values[old] = new
                new.hint = old.hint

    def loop(self, op: Op) -> None:
        """The same loop, which carries and collects tangents too.

        Exact: it makes as many turns as the primal; of none its tangents are those of what it began with.
        """
        body = op.blocks[-1]
        carried, initial = carried_of(op)
        count = len(carried)
        slots = self.chosen(carried)
        collected = [number for number in self.chosen(op.results) if number >= count]
        operands = [*map(self.value, op.operands), *(self.or_zeros(initial[slot], op) for slot in slots)]
        types = [self.tangent_types.type(carried[slot].type) for slot in slots]
        hints = [dot_name(carried[slot]) for slot in slots]
        label = op.attrs["label"]
        self.labels[label] = Label(label.name)
        attrs = {**op.attrs, "label": self.labels[label]}
        if collected:
            attrs["collected"] = op.attrs["collected"] + len(collected)
        blocks = []
        for block in op.blocks:
            param_types = [*(param.type for param in block.params), *types]
            with self.builder.block(param_types, [*(param.hint for param in block.params), *hints]) as opened:
                self.values.update(zip(block.params, opened.params, strict=False))
                if block is body:
                    tangents = opened.params[len(body.params) :]
                    self.tangents.update(zip((carried[slot] for slot in slots), tangents, strict=True))
                self.contents(block)
                if block is body:
                    self.close(block, lambda: self.of_body(op, slots, collected, count))
                else:
                    self.end(block)
            blocks.append(opened.block)
        results = op.results
        new_types = [result.type for result in results[:count]] + types + [result.type for result in results[count:]]
        new_types += [self.tangent_types.type(results[number].type) for number in collected]
        copy = self.builder.append(op.replace(operands=operands, blocks=blocks, attrs=attrs, result_types=new_types))
        primal = [*results[:count], *(None for _ in slots), *results[count:], *(None for _ in collected)]
        self.took(op, copy.results, primal, [*slots, *collected])

    def of_body(self, op: Op, slots: Sequence[int], collected: Sequence[int], count: int) -> list[Value]:
        given = op.blocks[-1].end.operands
        tangents = [self.or_zeros(given[slot], op) for slot in slots]
        values = [self.value(value) for value in given]
        return [*values[:count], *tangents, *values[count:], *(self.or_zeros(given[number], op) for number in collected)]

    def checkpoint(self, op: Op) -> None:
        """A checkpoint of both, primal and tangents: its reverse makes both again.

        Exact: one of which no operand has a tangent stays as it is.
        """
        (block,) = op.blocks
        moved = [number for number, operand in enumerate(op.operands) if operand in self.tangents]
        if not moved:
            super().op(op)
            return
        chosen = self.chosen(op.results)
        types = [param.type for param in block.params] + [self.tangent_types.type(block.params[number].type) for number in moved]
        hints = [param.hint for param in block.params] + [dot_name(block.params[number]) for number in moved]
        with self.builder.block(types, hints) as opened:
            self.values.update(zip(block.params, opened.params, strict=False))
            tangents = opened.params[len(block.params) :]
            self.tangents.update(zip((block.params[number] for number in moved), tangents, strict=True))
            self.contents(block)
            self.close(block, lambda: self.yields(block, chosen, op))
        operands = [*map(self.value, op.operands), *(self.tangents[op.operands[number]] for number in moved)]
        new_types = [result.type for result in op.results]
        new_types += [self.tangent_types.type(op.results[number].type) for number in chosen]
        copy = self.builder.append(op.replace(operands=operands, blocks=[opened.block], result_types=new_types))
        self.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)

    # ---- functions ----

    def call(self, op: Op) -> None:
        """A call of the function with tangents.

        Exact: an argument that is passed twice has its tangent twice; what a group of functions wants of one is zeros where a call
        has less.
        """
        moved = tuple(number for number, operand in enumerate(op.operands) if operand in self.tangents)
        if not moved and not any(has_frames(result) and self.tangent_types.has(result.type) for result in op.results):
            super().op(op)
            return
        name, moved, chosen = self.jvp_function(op, moved)
        operands = [*map(self.value, op.operands), *(self.or_zeros(op.operands[number], op) for number in moved)]
        types = [result.type for result in op.results]
        types += [self.tangent_types.type(op.results[number].type) for number in chosen]
        attrs = {**op.attrs, "function": name}
        if "in_place" in attrs:
            attrs["in_place"] += tuple(
                (len(op.operands) + moved.index(operand), len(op.results) + chosen.index(result))
                for operand, result in op.attrs["in_place"]
                if operand in moved and result in chosen
            )
        copy = self.builder.append(op.replace(operands=operands, attrs=attrs, result_types=types))
        self.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)

    def jvp_function(self, call: Op, moved: tuple[int, ...]) -> tuple[str, tuple[int, ...], list[int]]:
        """The function that computes what `call` calls with tangents: its name, of which arguments it takes tangents, and of
        which results it gives them.

        It takes the arguments, then the tangents; it returns the results, then the tangents.
        """
        pool, original = self.pool, call.attrs["function"]
        activity = activity_of(pool)
        asked = self.requests
        if original not in asked:
            group = group_of(pool, original, call.where)
            asked = {} if group is None else requests_within(activity, group, call, moved, ())
        if original in asked:
            moved, _ = asked[original]
        key = ("jvp", original, moved)
        if key not in pool.memo:
            chosen = sorted(activity.results(call, moved))
            # Entered before it is written: it may call itself.
            pool.memo[key] = (pool.fresh(f"{original}_jvp"), moved, chosen)
            pool.add(self.written(pool.memo[key][0], call, moved, chosen, asked))
        known: tuple[str, tuple[int, ...], list[int]] = pool.memo[key]
        return known

    def written(self, name: str, call: Op, moved: Sequence[int], chosen: Sequence[int], asked: DerivativeRequests) -> Function:
        function = self.pool.body(call.attrs["function"], call.where)
        block = function.block
        moving = [block.params[number] for number in moved]
        builder = Builder()
        forward = Forward(builder, self.pool, activity_of(self.pool).values(block, moving))
        forward.requests = asked
        types = [param.type for param in block.params] + [self.tangent_types.type(param.type) for param in moving]
        hints = [param.hint for param in block.params] + [dot_name(param) for param in moving]
        with builder.block(types, hints) as opened:
            forward.values.update(zip(block.params, opened.params, strict=False))
            forward.tangents.update(zip(moving, opened.params[len(block.params) :], strict=True))
            forward.contents(block)
            if block.end.kind == "return":
                builder.end("return", forward.yields(block, chosen, call), None, block.end.where)
            else:
                forward.end(block)
        paths = [*function.param_paths, *map(dot_name, moving)]
        return Function(name, opened.block, variables=function.variables, param_paths=paths, where=function.where)


def dot_name(value: Value) -> str:
    """The hint of a value's tangent."""
    return f"{value.hint}_dot" if value.hint else ""
