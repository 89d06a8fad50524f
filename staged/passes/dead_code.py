"""Remove ops whose results are unused and that have no effects.

Values are marked live from what the outside sees (results, effects) back through what they need, one by one: a
result of an `if` needs that operand of both yields; one carried value of a loop needs its initial value and what the
body computes for it. Then the program is copied with what is live.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.nodes import Block, End, Function, Label, Op, Value, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.sizes import Dim
from staged.ir.structure import IF
from staged.ir.types import dims_of
from staged.ir.views import Loop, is_condition


def eliminate_dead_code(function: Function) -> Function:
    """Drop unused ops without effects, and unused results of `if`, loops and scopes with all that feeds them.

    Why: vjp rules compute more than the user needs; the cotangent of an input that is not differentiated is computed in
    vain. A carried value that only feeds itself is dead too, and an unused collected sequence costs memory. Leaves:
    effects, in order; exits (`break`, `return`, `raise`) of live code.

    Exact: what is unused and has no effects; what may stop the program is an effect. To run for ever is none: a loop
    that nothing uses is taken to end.
    """
    live = _Live(function.block)
    if live.is_all_of(function.block):
        return function
    return function.with_block(_Sweep(live).block(function.block))


def has_effects(op: Op) -> bool:
    """Return whether an op does anything that others see: effects, or a way out past itself."""
    return bool(op.effects) or any(_block_has_effects(block, {op.attrs.get("label")}) for block in op.blocks)


def _block_has_effects(block: Block, inside: set[Label | None]) -> bool:
    if block.end.is_of_function:
        return True
    if block.end.is_of_loop and block.end.target not in inside:
        return True
    for op in block.ops:
        if op.effects:
            return True
        if op.blocks:
            inner = inside | {op.attrs.get("label")}
            if any(_block_has_effects(nested, inner) for nested in op.blocks):
                return True
    return False


class _Live:
    """The live values and ops of a function."""

    def __init__(self, block: Block) -> None:
        self.values: set[Value] = set()
        self.ops: set[Op] = set()
        self.owner: dict[Value, tuple[Op, int]] = {}
        """For a parameter of a loop's block: the loop, and which of its carried values that is."""
        self.around: dict[Op, Op | None] = {}
        self.effects: dict[Op, bool] = {}
        self.exits: dict[Label, list[End]] = {}
        self.pending: list[Value] = []
        self.sizes: dict[Dim, list[Value]] = {}
        """The values that determine a dimension's size: ops on arrays of that size need them, though they are no
        operands.
        """
        self.survey(block, None)
        self.enter(block)
        self.need(block.end.operands)
        while self.pending:
            self.trace(self.pending.pop())

    def survey(self, block: Block, owner: Op | None) -> bool:
        """Note what belongs to what; whether the block has effects or leaves by an end that is not a `yield`."""
        seen = block.end.kind != "yield"
        if block.end.target is not None:
            self.exits.setdefault(block.end.target, []).append(block.end)
        for op in block.ops:
            self.around[op] = owner
            if op.declared is prims.DIM:
                self.sizes.setdefault(op.attrs["dim"], []).append(op.result)
            if op.declared.is_loop:
                for inner in op.blocks:
                    self.owner.update((param, (op, index)) for index, param in enumerate(Loop(op).carried_in(inner)))
            inside = [self.survey(inner, op) for inner in op.blocks]
            self.effects[op] = bool(op.effects) or (any(inside) and has_effects(op))
            seen = seen or any(inside) or bool(op.effects)
        return seen

    def need(self, values: Sequence[Value]) -> None:
        for value in values:
            if value not in self.values:
                self.values.add(value)
                self.pending.append(value)

    def enter(self, block: Block) -> None:
        """The block may run: what has effects in it is live."""
        for op in block.ops:
            if self.effects[op]:
                self.keep(op)

    def keep(self, op: Op) -> None:
        """The op runs: it needs what decides how, and whatever of its blocks is seen from outside."""
        if op in self.ops:
            return
        self.ops.add(op)
        around = self.around[op]
        if around is not None:
            self.keep(around)
        if self.sizes:
            for value in (*op.operands, *op.results):
                for dim in dims_of(value.type):
                    self.need(self.sizes.get(dim, ()))
            if op.declared is prims.EXTENT:
                self.need(self.sizes.get(op.attrs["dim"], ()))
        if op.declared is IF:
            self.need(op.operands[:1])
        elif op.declared.is_loop:
            self.need(Loop(op).bounds)
        elif not op.declared.is_control:
            self.need(op.operands)
        for block in op.blocks:
            self.enter(block)
            if is_condition(op, block) or not op.declared.is_control or block.end.is_of_function:
                self.need(block.end.operands)
            # Of other ends each operand is live by itself: see `result_of_loop` and `result_of_branch`.

    def trace(self, value: Value) -> None:
        """All that a live value needs."""
        if value in self.owner:
            op, index = self.owner[value]
            self.keep(op)
            self.result_of_loop(op, index)
        elif value.producer is not None and value.producer in self.around:
            op = value.producer
            self.keep(op)
            if op.declared.is_loop:
                self.result_of_loop(op, value.index)
            elif op.declared.is_control:
                self.result_of_branch(op, value.index)

    def result_of_loop(self, op: Op, index: int) -> None:
        """A carried value of a loop, or a collected one."""
        loop = Loop(op)
        self.need([op.results[index]])
        if index < len(loop.final):
            self.need([loop.initial[index]])
            for block in op.blocks:
                self.need([loop.carried_in(block)[index]])
            for end in self.exits.get(loop.label, ()):
                self.need([end.operands[index]])
        if loop.body.end.kind == "yield":
            self.need([loop.body.end.operands[index]])

    def result_of_branch(self, op: Op, index: int) -> None:
        """A result of an `if` or a `scope`: what each way out passes for it."""
        for block in op.blocks:
            if block.end.kind == "yield":
                self.need(block.end.operands[index : index + 1])
        label = op.attrs.get("label")
        if label is not None:
            for end in self.exits.get(label, ()):
                self.need(end.operands[index : index + 1])

    def is_all_of(self, block: Block) -> bool:
        """Return whether nothing of a block is dead."""
        return all(
            op in self.ops and not (op.declared.is_control and any(result not in self.values for result in op.results))
            for op in walk_ops(block)
        )


class _Sweep(Copier):
    """Copies what is live."""

    def __init__(self, live: _Live) -> None:
        super().__init__(Builder())
        self.live = live
        self.passed: dict[Label, list[int]] = {}
        """The indices of the live operands of ends that go to the label of a loop or scope."""

    def op(self, op: Op) -> None:
        if op not in self.live.ops:
            return
        if not op.declared.is_control:
            super().op(op)
            return
        kept = [index for index, result in enumerate(op.results) if result in self.live.values]
        attrs = dict(op.attrs)
        label = attrs.get("label")
        operands = op.operands
        loop = Loop(op) if op.declared.is_loop else None
        carried = kept
        if loop is not None:
            carried = [index for index in kept if index < len(loop.final)]
            operands = (*loop.bounds, *(loop.initial[index] for index in carried))
            attrs = loop.attrs_collecting(len(kept) - len(carried))
        if isinstance(label, Label):
            attrs["label"] = self.labels[label] = Label(label.name)
            self.passed[label] = carried
        blocks = []
        for block in op.blocks:
            params = [] if loop is None else [*loop.indices, *(loop.carried_in(block)[index] for index in carried)]
            with self.builder.block([p.type for p in params], [p.hint for p in params]) as opened:
                self.values.update(zip(params, opened.params, strict=True))
                self.contents(block)
                if block.end.kind == "yield" and not is_condition(op, block):
                    left = [self.value(block.end.operands[index]) for index in kept]
                    self.builder.end("yield", left, None, block.end.where)
                else:
                    self.end(block)
            blocks.append(opened.block)
        types = [op.results[index].type for index in kept]
        copy = self.builder.append(
            op.replace(operands=list(map(self.value, operands)), attrs=attrs, blocks=blocks, result_types=types)
        )
        self.define([op.results[index] for index in kept], copy.results)

    def end(self, block: Block) -> None:
        end = block.end
        if end.target is None or end.target not in self.passed:
            super().end(block)
            return
        left = [self.value(end.operands[index]) for index in self.passed[end.target]]
        self.builder.end(end.kind, left, self.labels[end.target], end.where)
