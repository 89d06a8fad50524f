"""Simplification: one walk over the program that applies the rules of `algebra.py` and merges equal ops.

Operands are simplified before the op that uses them, and what a rule emits goes through the rules again, so that one
walk is enough: the cost is linear in the program.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from staged.ir.builder import Builder
from staged.ir.declaration import Declaration, prims
from staged.ir.functions import every_function, map_functions
from staged.ir.nodes import PURE, Attrs, Block, Effect, Function, Op, Value, walk_ops
from staged.ir.numbers import Number, as_held
from staged.ir.ranges import Ranges
from staged.ir.rewrite import Copier
from staged.ir.structure import ASSERT, FOR, IF
from staged.ir.trips import constant_of, static_trip_count
from staged.ir.types import CPU, Device, TensorType, Type
from staged.ir.views import Loop
from staged.ops.primitive import Primitive
from staged.passes import comparisons, masks, movement, partial_sums  # noqa: F401  (they enter their rules)
from staged.passes.algebra import RULES, empty_result, fold_constants
from staged.passes.held_numbers import HeldNumbers
from staged.passes.movement import part_of_complex
from staged.source import Position


def simplify_before_transforms(program: Function) -> Function:
    """`simplify` for a program that has transforms: in the functions that it calls a `stop_gradient` means something,
    too.

    Leaves: as `simplify`, and every `stop_gradient` of called functions.
    """
    if not any(op.declared.is_transform for function in every_function(program) for op in walk_ops(function.block)):
        return map_functions(program, simplify)
    functions = [function.with_block(Simplifier(Builder(), 1).block(function.block)) for function in program.functions]
    return simplify(program).replace(functions=functions)


def simplify(function: Function) -> Function:
    """Apply the algebra of `algebra.py`, fold constants, decide `if`s on constants, compute equal things once.

    Why: vjp rules and promotion write general code (`x * 1`, casts of constants, broadcasts of broadcasts, the same
    product in primal and reverse); fusion and the memory plan should see what is left of it.
    Leaves: effects, all of them and in order; unused ops, for `eliminate_dead_code`.
    Exact: where each rule is; equal ops are equal in name, operands, types, device and attributes, 0.0 and -0.0 being
    different.
    """
    return function.with_block(Simplifier(Builder(), held=HeldNumbers()).block(function.block))


class Simplifier(Copier):
    """The walk. Rules emit through it: `emit`, `full`."""

    def __init__(self, builder: Builder, transforms: int = 0, held: HeldNumbers | None = None) -> None:
        super().__init__(builder)
        self.known: dict[Hashable, tuple[Value, ...]] = {}
        """Results that are computed already, in this block and those around."""
        self.added: list[list[Hashable]] = []
        """The keys of `known` that each block has added, innermost last."""
        self.fixed: dict[Value, Value] = {}
        """Carried values that never change, with their initial values."""
        self.ranges = Ranges()
        self.index_ranges: dict[Block, tuple[int, int] | None] = {}
        """For the body of a `for`, the numbers its index may be."""
        self.transforms = transforms
        """The number of enclosing transforms: within them a `stop_gradient` has a meaning."""
        self.held = held
        """The numbers of Variables that are known here; None if reads stay as they are."""
        self.where: Position | None = None
        self.device: Device = CPU

    # ---- ops ----

    def op(self, op: Op) -> None:
        if op.blocks:
            self.structured(op)
            return
        self.where, self.device = op.where, op.device
        types = [result.type for result in op.results]
        operands = [self.value(operand) for operand in op.operands]
        results = self.intern(op.declared, operands, types, op.attrs, op.effects)
        self.define(op.results, results)

    def emit(self, primitive: Declaration, operands: Sequence[Value], **attrs: Any) -> Value:
        """The result of an op that a rule emits, simplified itself."""
        assert isinstance(primitive, Primitive)
        types = primitive.result_types([operand.type for operand in operands], attrs)
        (result,) = self.intern(
            primitive, operands, types, attrs, primitive.effects_on([v.type for v in operands], attrs)
        )
        return result

    def existing(self, primitive: Declaration, operands: Sequence[Value], **attrs: Any) -> Value | None:
        """The result of an equal op that is there already, if there is one."""
        assert isinstance(primitive, Primitive)
        types = primitive.result_types([operand.type for operand in operands], attrs)
        known = self.known.get(self.key(primitive, operands, types, attrs))
        return None if known is None else known[0]

    def full(self, type: TensorType, number: Number) -> Value:
        """A value of `type` whose elements are all `number`.

        Exact: `number` becomes what the dtype has for it: integers wrap around, floats are rounded once.
        """
        number = as_held(number, type.dtype)
        scalar = TensorType(type.dtype, (), type.weak)
        (value,) = self.intern(prims.CONSTANT, (), [scalar], {"value": number}, PURE)
        if type.shape:
            (value,) = self.intern(prims.BROADCAST_TO, (value,), [type], {"shape": type.shape, "axes": ()}, PURE)
        return value

    def intern(
        self,
        declared: Declaration,
        operands: Sequence[Value],
        types: Sequence[Type],
        attrs: Attrs,
        effects: tuple[Effect, ...],
    ) -> Sequence[Value]:
        """Values for an op with simplified operands: by a rule, as an equal one that is there already, or newly made.

        Exact: an equal one stands before it in this block or one around it, so that it has run. Of effects only checks
        are merged: where the first one passed, the second one does; and reads of a number that a Variable is known to
        hold.
        """
        op = Op(declared, operands, types, attrs=attrs, effects=effects, device=self.device, where=self.where)
        if len(types) == 1:
            if _is_complex(op):
                found = part_of_complex(op)
            else:
                found = fold_constants(op, self) or empty_result(op, self)
                for rule in RULES.get(declared, ()):
                    if found is not None:
                        break
                    found = rule(op, self)
            if found is not None:
                return (self.as_weak_as(types[0], found, op),)
        if op.effects and declared is not ASSERT and not only_checks(op):
            held = self.held.read(op) if self.held is not None else None
            if held is not None:
                return (self.as_weak_as(types[0], held, op),)
            self.builder.append(op)
            if self.held is not None:
                self.held.after(op)
            return op.results
        is_assert = declared is ASSERT  # its condition decides, whatever its message is
        key = self.key(declared, operands[:1] if is_assert else operands, types, {} if is_assert else op.attrs)
        results = self.known.get(key)
        if results is None:
            self.builder.append(op)
            results = self.known[key] = op.results
            self.added[-1].append(key)
        return results

    def key(self, declared: Declaration, operands: Sequence[Value], types: Sequence[Type], attrs: Attrs) -> Hashable:
        """The identity of an op without effects: equal ops have equal keys."""
        return declared, tuple(operands), frozen_attrs(attrs), tuple(types), self.device

    def as_weak_as(self, type: Type, found: Value, op: Op) -> Value:
        """The value that a rule has found, with the weakness that the op's result has.

        Exact: the same number. Elements of an array that was a Python number adopt no dtype; the number itself does.
        """
        if isinstance(found.type, TensorType) and isinstance(type, TensorType) and found.type.weak != type.weak:
            (found,) = self.intern(prims.CAST, (found,), [type], {"dtype": found.type.dtype, "weak": type.weak}, PURE)
        assert found.type == type, f"a rule turns {op} into {found.type}"
        return found

    # ---- blocks ----

    def block(self, block: Block) -> Block:
        self.added.append([])
        index = self.index_ranges.get(block)
        held, self.held = self.held, self.held and self.held.copy()
        with self.builder.block([p.type for p in block.params], [p.hint for p in block.params]) as opened:
            self.values.update(zip(block.params, opened.params, strict=True))
            if index is not None:
                self.ranges.known[opened.params[0]] = index
            self.contents(block)
            self.end(block)
        for key in self.added.pop():
            del self.known[key]
        self.held = held
        return opened.block

    def structured(self, op: Op) -> None:
        """Control flow: a known condition or count decides it, else its blocks are simplified.

        Exact: a constant condition takes its branch, unless that leaves the block; a loop without iterations yields its
        initial values (one that collects has an empty sequence as result, and stays).
        """
        if op.declared is IF:
            decided = constant_of(self.value(op.operands[0]))
            if decided is not None:
                taken = op.blocks[0 if decided else 1]
                if taken.end.kind == "yield":
                    self.take(op, taken)
                    return
        elif op.declared is FOR:
            loop = Loop(op.replace(operands=[self.value(operand) for operand in op.operands]))
            if static_trip_count(loop.op) == 0 and not loop.collected:
                self.values.update(zip(op.results, loop.initial, strict=True))
                return
            self.index_ranges[loop.body] = self.ranges.of_index(loop.bounds)
        if op.declared.is_loop:
            op = self.without_constants(op)
        known, held = self.known, self.held
        if held is not None and op.declared.is_loop:
            held.forget(op)  # an iteration sees what those before it write
        if op.declared.is_closed:
            # Nothing made outside is used inside, so nothing outside is equal to something inside.
            self.known, self.held = {}, held and HeldNumbers()
        asking = op.declared.is_transform and not op.attrs.get("again")
        self.transforms += asking
        super().op(op)
        self.transforms -= asking
        self.known, self.held = known, held
        if held is not None:
            held.forget(op)
        self.merge_results(op)

    def take(self, op: Op, branch: Block) -> None:
        """A decided `if`: the branch, in place of it."""
        self.contents(branch)
        self.define(op.results, [self.value(operand) for operand in branch.end.operands])

    def merge_results(self, op: Op) -> None:
        """Merge equal results: of an `if` whose branches yield one value from outside, and results with equal values
        inside.

        Exact: if both branches yield; for a loop only collected sequences, since carried values differ initially and
        there may be no iterations.
        """
        copy = self.values[op.results[0]].producer if op.results else None
        if copy is None or any(block.end.kind != "yield" for block in copy.blocks):
            return
        yields = [block.end.operands for block in copy.blocks]
        first = 0
        if op.declared.is_loop:
            yields, first = yields[-1:], len(Loop(op).final)
        elif op.declared is not IF:
            return
        met: dict[tuple[Value, ...], Value] = {}
        for old, inside in list(zip(op.results, zip(*yields, strict=True), strict=True))[first:]:
            if op.declared is IF and inside[0] is inside[1]:
                self.values[old] = inside[0]
            else:
                self.values[old] = met.setdefault(inside, self.values[old])

    def without_constants(self, op: Op) -> Op:
        """Replace a carried value that every iteration passes on unchanged by its initial value.

        The results keep their number, for `eliminate_dead_code` to drop those that are unused.
        Exact: every way to the next iteration and out of the loop passes it on, `break` and `continue` too; without
        iterations it is the initial value anyway.
        """
        loop = Loop(op)
        ends = [end for _, end in loop.ends()]
        for index, (param, result) in enumerate(zip(loop.carried, loop.final, strict=True)):
            if ends and all(end.operands[index] is param for end in ends):
                initial = self.value(loop.initial[index])
                for block in op.blocks:
                    self.fixed[loop.carried_in(block)[index]] = initial
                self.fixed[result] = initial
        return op

    def value(self, value: Value) -> Value:
        fixed = self.fixed.get(value)
        return super().value(value) if fixed is None else fixed


def _is_complex(op: Op) -> bool:
    """Return whether an op has complex numbers, of which the rules know nothing: they are for the parts, later."""
    types = [value.type for value in (*op.operands, *op.results)]
    return any(isinstance(type, TensorType) and type.dtype.kind == "c" for type in types)


def only_checks(op: Op) -> bool:
    """Return whether an op gives values and may stop the program, no more: after an equal one, it gives the same and
    does not stop.
    """
    return op.declared.kind != "structured" and bool(op.results) and all(effect.kind == "fail" for effect in op.effects)


def frozen_attrs(attrs: Attrs) -> Hashable:
    """Attributes as a key; numbers that are equal but not the same (0.0 and -0.0, 1 and True) stay apart."""
    return tuple((key, _exact(value)) for key, value in sorted(attrs.items()))


def _exact(value: Any) -> Hashable:
    if isinstance(value, tuple):
        return tuple(map(_exact, value))
    if isinstance(value, bool | int | float | complex):
        return repr(value)
    key: Hashable = value
    return key
