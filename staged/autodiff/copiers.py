"""The primal as it is finally emitted, with the extra results that its reverse needs; and the reverse, put in its place."""

from __future__ import annotations

from collections.abc import Callable

from staged.autodiff.residuals import ExtraResults, Residuals
from staged.autodiff.tangent_types import zeros_of
from staged.errors import GradientError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.function_pool import FunctionPool
from staged.ir.functions import callees
from staged.ir.nodes import FAIL, PURE, Block, Function, Label, Op, Value, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import ABSENT, CALL, CUSTOM_VJP, FRAME_NULL, IF, SEQUENCE_EMPTY
from staged.ir.trips import COUNT, Integers
from staged.ir.types import FrameType, SequenceType, dims_of
from staged.ir.views import Loop


class PrimalCopier(Copier):
    """Copies the primal, with the extra results that its reverse needs.

    Exact: every op of the primal is copied in its order, so that results keep their bits and effects happen once; extra results
    are yielded beside the others, of a branch that does not make them as `absent`, which its reverse does not read.
    With `quiet` what others see is not copied: prints happen and checks are made when the primal itself runs.
    """

    def __init__(self, builder: Builder, residuals: Residuals, pool: FunctionPool, quiet: bool = False) -> None:
        super().__init__(builder)
        self.extras = residuals.extras
        self.pool = pool
        self.quiet = quiet
        self.missing: dict[Value, Op] = {}
        """What is read from outside of the program (a clock) is not read again, nor what is made of it; by value, who read it."""

    def value(self, value: Value) -> Value:
        if value in self.missing:
            raise read_again(self.missing[value])
        return super().value(value)

    def op(self, op: Op) -> None:
        extra = self.extras.get(op)
        if op.declared is CALL:
            self.call(op, extra)
        elif extra is not None and op.declared is CUSTOM_VJP:
            self.custom(op, extra)
        elif self.quiet and self.is_silent(op):
            pass
        elif extra is None:
            if self.quiet and op.effects == FAIL and not op.blocks:
                # What has been checked is not checked again.
                again = op.replace(operands=[self.value(operand) for operand in op.operands], effects=PURE)
                self.define(op.results, self.builder.append(again).results)
            else:
                super().op(op)
        elif op.declared is IF:
            self.branches(op, extra)
        else:
            self.loop(op, extra)

    # ---- once is enough ----

    def is_silent(self, op: Op) -> bool:
        """Leave out an op that others see; of a check, as an `if` of which one branch raises, only the other is left.

        Exact: the primal has run before, with the same values, and has not stopped; what reads from outside of the program
        (a clock) is refused where it is needed.
        """
        if not op.blocks:
            origin = next((self.missing[operand] for operand in op.operands if operand in self.missing), None)
            if origin is None and any(effect.kind == "io" for effect in op.effects):
                origin = op
            if origin is not None or (op.effects and not op.results):
                self.missing.update((result, origin or op) for result in op.results)
                return True
        if op.declared is IF and any(block.end.kind == "raise" for block in op.blocks):
            for block in op.blocks:
                if block.end.kind == "yield":
                    self.values.update(zip(op.results, self.inline(block, ()), strict=True))
                    for inner, outside in self.extras[op].values if op in self.extras else ():
                        self.values[outside] = self.value(inner)
                    return True
        return False

    # ---- functions and rules given by the user ----

    def call(self, op: Op, extra: ExtraResults | None) -> None:
        """A call for whose reverse the function leaves something calls another one, that does."""
        own = [] if extra is None else extra.own
        name = op.attrs["function"] if extra is None else extra.function
        if extra is None and self.quiet:
            name = quiet_function(self.pool, op)
        operands = [self.value(operand) for operand in op.operands]
        types = [*(result.type for result in op.results), *(stand_in.type for stand_in in own)]
        attrs = {**op.attrs, "function": name}
        copy = self.builder.append(op.replace(operands=operands, attrs=attrs, result_types=types))
        self.define([*op.results, *own], copy.results)

    def custom(self, op: Op, extra: ExtraResults) -> None:
        """The user's forward function takes the place of the primal."""
        given = self.inline(op.blocks[1], [self.value(operand) for operand in op.operands])
        self.define([*op.results, *extra.own], given)

    # ---- control flow ----

    def branches(self, op: Op, extra: ExtraResults) -> None:
        blocks = [self.augmented(block, lambda block: self.of_branch(block, extra, op)) for block in op.blocks]
        types = [result.type for result in op.results] + [outside.type for _, outside in extra.values]
        operands = [self.value(operand) for operand in op.operands]
        copy = self.builder.append(op.replace(operands=operands, blocks=blocks, result_types=types))
        self.define([*op.results, *(outside for _, outside in extra.values)], copy.results)

    def of_branch(self, block: Block, extra: ExtraResults, op: Op) -> list[Value]:
        """What a branch yields besides its results: its own residuals, and nothing in particular for those of the other."""
        own = {*block.params, *(result for inner in block.ops for result in inner.results)}
        for inner in block.ops:
            if inner in self.extras:
                own.update(self.extras[inner].stand_ins)
        return [self.value(value) if value in own else self.absent(value, op) for value, _ in extra.values]

    def absent(self, value: Value, op: Op) -> Value:
        """A value of the other branch's type that nobody reads; of no elements, where that branch says how many there are."""
        for attrs in [size.attrs for block in op.blocks for size in block.ops if size.declared is prims.DIM]:
            if attrs["dim"] in dims_of(value.type):
                nothing = self.builder.op(prims.CONSTANT, [], [COUNT], attrs={"value": 0}, where=op.where).result
                self.builder.op(prims.DIM, [nothing], [COUNT], attrs=attrs, where=op.where)
        if isinstance(value.type, SequenceType):
            return self.builder.op(SEQUENCE_EMPTY, [], [value.type], device=op.device, where=op.where).result
        if isinstance(value.type, FrameType):
            return self.builder.op(FRAME_NULL, [], [value.type], device=op.device, where=op.where).result
        if value.tensor.shape and not dims_of(value.type):
            return self.builder.op(ABSENT, [], [value.type], device=op.device, where=op.where).result
        return zeros_of(self.builder, value.tensor, op)

    def loop(self, op: Op, extra: ExtraResults) -> None:
        loop = Loop(op)
        carried = len(loop.carried)
        counting = extra.count is not None
        operands = [self.value(operand) for operand in op.operands]
        integers = Integers(self.builder, op.where)
        if counting:
            operands.append(integers.constant(0))
        copied = self.labels[loop.label] = Label(loop.label.name)

        def counted(block: Block, end: Callable[[Value | None], list[Value]]) -> Block:
            types = [param.type for param in block.params] + [COUNT] * counting
            hints = [param.hint for param in block.params] + ["trips"] * counting
            with self.builder.block(types, hints) as opened:
                self.values.update(zip(block.params, opened.params, strict=False))
                self.contents(block)
                if block.end.kind == "yield":
                    values = end(opened.params[-1] if counting else None)
                    self.builder.end("yield", values, None, block.end.where)
                else:
                    self.end(block)
            return opened.block

        def of_body(trips: Value | None) -> list[Value]:
            given = [self.value(operand) for operand in op.blocks[-1].end.operands]
            count = [] if trips is None else [integers.binary("add", trips, integers.constant(1))]
            return given[:carried] + count + given[carried:] + [self.value(inside) for inside, _ in extra.values]

        def of_condition(block: Block) -> list[Value]:
            return [self.value(operand) for operand in block.end.operands]

        blocks = [counted(block, lambda _, block=block: of_condition(block)) for block in op.blocks[:-1]]  # type: ignore[misc]
        blocks.append(counted(op.blocks[-1], of_body))
        types = [result.type for result in op.results]
        types[carried:carried] = [COUNT] * counting
        types += [outside.type for _, outside in extra.values]
        attrs = {**op.attrs, "label": copied, "collected": loop.collecting + len(extra.values)}
        copy = self.builder.append(op.replace(operands=operands, blocks=blocks, result_types=types, attrs=attrs))
        results = [*copy.results]
        if counting:
            assert extra.count is not None
            trips = results.pop(carried)
            trips.hint = "trips"
            self.values[extra.count] = trips
        self.define([*op.results, *(outside for _, outside in extra.values)], results)

    def augmented(self, block: Block, more: Callable[[Block], list[Value]]) -> Block:
        with self.builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
            self.values.update(zip(block.params, opened.params, strict=True))
            self.contents(block)
            if block.end.kind == "yield":
                given = [self.value(operand) for operand in block.end.operands]
                self.builder.end("yield", given + more(block), None, block.end.where)
            else:
                self.end(block)
        return opened.block


class ReverseCopier(Copier):
    """Copies the reverse into place: primal values become their stand-ins, then their copies.

    Exact: a stand-in has the bits of the value, by the turn or the call that it was made in.
    """

    def __init__(
        self, builder: Builder, residuals: Residuals, values: dict[Value, Value], missing: dict[Value, Op]
    ) -> None:
        super().__init__(builder)
        self.residuals = residuals
        self.values = dict(values)
        self.missing = missing

    def value(self, value: Value) -> Value:
        resolved = self.residuals.resolve(value)
        if resolved in self.missing:
            raise read_again(self.missing[resolved])
        return super().value(resolved)


def read_again(op: Op) -> GradientError:
    """The error for code that is made again and depends on what is read from outside of the program."""
    return GradientError(
        f"a `checkpoint` computes with what `{op.name}` reads, which would be another value when it is made again",
        where=op.where,
        hint="read it outside of the checkpointed function, and pass it in",
    )


def is_loud(pool: FunctionPool, call: Op) -> bool:
    """Whether the function that is called prints, or has another effect that others see, itself or through others."""
    name = call.attrs["function"]
    reached, pending = {name}, [name]
    while pending:
        block = pool.body(pending.pop(), call.where).block
        for op in walk_ops(block):
            if any(effect.kind == "io" for effect in op.effects) and op.declared is not CALL:
                return True
        more = [callee for callee in callees(block) if callee not in reached]
        reached.update(more)
        pending += more
    return False


def quiet_function(pool: FunctionPool, call: Op) -> str:
    """The function that gives the results of the called one without its effects; itself if it has none."""
    name = call.attrs["function"]
    if ("quiet", name) not in pool.memo:
        if not is_loud(pool, call):
            pool.memo["quiet", name] = name
            return str(name)
        made = pool.memo["quiet", name] = pool.fresh(f"{name}_quiet")
        function = pool.body(name, call.where)
        copier = PrimalCopier(Builder(), Residuals(), pool, quiet=True)
        block = copier.block(function.block)
        pool.add(Function(made, block, variables=function.variables, param_paths=function.param_paths, where=function.where))
    return str(pool.memo["quiet", name])
