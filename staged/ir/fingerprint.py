"""Fingerprints: equal for code that differs only in names of values. Keys: equal for traces that yield one program."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import Any

from staged.base.depth import goes_deep
from staged.ir.declaration import prims
from staged.ir.nodes import Block, Function, Label, Op, Value, VariableRef
from staged.ir.structure import CALL, CALL_BEGIN, CALL_END
from staged.ir.types import CPU, TensorType
from staged.source import Position


class Canonical:
    """Numbers values and labels in order of first occurrence. `callee` identifies the function that a call names."""

    def __init__(self, callee: Callable[[str], Hashable] = lambda name: name) -> None:
        self.callee = callee
        self.values: dict[Value, int] = {}
        self.labels: dict[Label, int] = {}

    def ops(self, ops: Iterable[Op]) -> Hashable:
        """The meaning of a run of ops, up to the names of its values. Positions and hints do not count."""
        return tuple(self._op(op) for op in ops if op.declared not in (CALL_BEGIN, CALL_END))

    def block(self, block: Block) -> Hashable:
        """The meaning of a block."""
        params = self._made(block.params)
        ops = self.ops(block.ops)
        end = block.end
        return params, ops, end.kind, self._used(end.operands), end.target and self._label(end.target)

    def _op(self, op: Op) -> Hashable:
        operands = self._used(op.operands)
        # The label first: the blocks name it.
        attrs = tuple((key, self._attr(op, key, value)) for key, value in sorted(op.attrs.items()))
        blocks = tuple(self.block(block) for block in op.blocks)
        return op.name, operands, attrs, blocks, self._made(op.results), op.effects, op.device

    def _made(self, values: Iterable[Value]) -> Hashable:
        return tuple((self._number(value), value.type) for value in values)

    def _used(self, values: Iterable[Value]) -> Hashable:
        return tuple((self._number(value), value.type) for value in values)

    def _number(self, value: Value) -> int:
        return self.values.setdefault(value, len(self.values))

    def _label(self, label: Label) -> int:
        return self.labels.setdefault(label, len(self.labels))

    def _attr(self, op: Op, key: str, value: Any) -> Hashable:
        if op.declared is CALL and key == "function":
            return self.callee(value)
        if isinstance(value, Label):
            return "label", self._label(value)
        if isinstance(value, VariableRef):
            return value
        if isinstance(value, tuple | list):
            return tuple(self._attr(op, "", item) for item in value)
        return type(value).__name__, repr(value)  # tells 1 from True, and -0.0 from 0.0


def function_fingerprint(name: str, table: Mapping[str, Function]) -> Hashable:
    """The meaning of a function with all that it calls, up to names."""
    order = {name: 0}

    def callee(other: str) -> Hashable:
        return order.setdefault(other, len(order))

    bodies: list[Hashable] = []
    while len(bodies) < len(order):
        bodies.append(Canonical(callee).block(table[list(order)[len(bodies)]].block))
    return tuple(bodies)


class ProgramKey:
    """Equal for traces of a function that give the same program: the same ops with the same names, from the same lines.

    It is made at every trace, and looked up several times: it holds no types or ops, whose hashes are slow to compute.
    """

    __slots__ = ("_hash", "_parts", "_places")

    def __init__(self, function: Function, *more: Hashable) -> None:
        found = _Parts()
        for each in (function, *function.functions):
            found.function(each)
        frames = tuple(map(repr, function.frames))
        self._parts = (more, frames, str(function.options), tuple(found.parts))
        self._places = found.places
        self._hash = hash(self._parts)

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProgramKey) and self._parts == other._parts and self._places == other._places


_INTEGERS = frozenset((int,))
"""As they are: no bool is among them, and no two of them are equal."""
_PLAIN = frozenset((int, bool, float, complex, str, type(None)))
_RESULTS, _ATTRS, _DEVICE, _BLOCK, _END = range(-5, 0)
"""Tags in the parts of a key, told from numbers of values by their sign."""


class _Parts:
    """The parts of a key, in program order, flat: a key is made at each trace, so few calls per op matter."""

    def __init__(self) -> None:
        self.parts: list[Hashable] = []
        self.places: list[Position | None] = []
        self.values: dict[Value, int] = {}
        self.labels: dict[Label, int] = {}

    @goes_deep
    def function(self, function: Function) -> None:
        self.parts += (
            function.name,
            tuple([(v.name, str(v.type), v.outer, str(v.device), v.local) for v in function.variables]),
            function.param_paths,
            function.result_paths,
            tuple(map(str, function.param_devices)),
            function.local_params,
        )
        self.places.append(function.where)
        self.block(function.block)

    def block(self, block: Block) -> None:
        values, parts, number = self.values, self.parts, self.values.__getitem__
        parts.append(_BLOCK)
        self.made(block.params)
        for op in block.ops:
            self.places.append(op.where)
            parts.append(op.name)
            parts += map(number, op.operands)
            parts.append(_RESULTS)
            self.made(op.results)
            if op.attrs:
                parts.append(_ATTRS)
                for name, value in op.attrs.items():
                    kind = type(value)
                    if kind is int or (kind is tuple and _INTEGERS.issuperset(map(type, value))):
                        parts += name, value
                    else:
                        is_plain = kind in _PLAIN or (kind is tuple and _PLAIN.issuperset(map(type, value)))
                        parts += name, repr(value) if is_plain else self.other(value)
            if op.device is not CPU:
                parts += _DEVICE, str(op.device)
            if op.declared is prims.GPU_FUNC:
                self.places += op.attrs["kernel"].positions()
            for inner in op.blocks:
                self.block(inner)
        end = block.end
        target = None if end.target is None else self.label(end.target)
        parts += (_END, end.kind, target, *map(values.__getitem__, end.operands))

    def made(self, made: Iterable[Value]) -> None:
        """Number the results of an op, or the parameters of a block."""
        values, parts = self.values, self.parts
        for value in made:
            values[value] = len(values)
            kind = value.type
            if type(kind) is TensorType:
                parts += kind.dtype.name, kind.shape, kind.weak, value.hint
            else:
                parts += str(kind), value.hint

    def label(self, label: Label) -> int:
        return self.labels.setdefault(label, len(self.labels))

    def other(self, value: Any) -> Hashable:
        """An attribute that is no number or text, as the printer has it."""
        if isinstance(value, Label):
            return value.name, self.label(value)
        if isinstance(value, VariableRef):
            return "$", value.name
        if isinstance(value, tuple):
            return tuple(map(self.other, value))
        return type(value).__name__, repr(value) if isinstance(value, str | float | complex) else str(value)
