"""Complex values become pairs of floats, so that fusion, the memory plan and the back ends know real numbers alone.

Tested by `tests/ops/test_complex.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from staged.errors import DTypeError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.functions import every_function, map_functions
from staged.ir.nodes import Block, Effect, FrameRecord, Function, Op, Value, VariableRef, walk_blocks
from staged.ir.rewrite import Copier
from staged.ir.signature import Structured
from staged.ir.types import SequenceType, TensorType, Type
from staged.ops.formatting import parse_spec
from staged.source import Position

Parts = tuple[Value, Value]


def split_complex(program: Function) -> Function:
    """multiply and add of the parts of z  ->  the same on its two real arrays;  z: c64 (n,)  ->  z: f32 (n, 2)

    Why: complex arithmetic is written in ops on the parts from the start (`ops/complex_numbers.py`). Where a value is
    only made of parts and taken apart, it needs no memory of its own. Where it needs one (an argument, a result, a
    Variable, what a loop carries or a branch yields) it is one array of floats with a last axis of 2, which is NumPy's
    layout. Ops that move or add elements do so with each part.
    Leaves: no complex dtype but in `Function.complex_edges` and `VariableRef.is_complex`, for the program's interface;
    slices of pairs, `concat`s to pairs, many of them unused.
    Exact: bit by bit.
    """
    if not any(_is_complex(value.type) for value in _values(program)):
        return program
    variables: dict[VariableRef, VariableRef] = {}
    edges = frozenset(
        ("input", index) for index, param in enumerate(program.params) if _is_complex(param.type)
    ) | frozenset(
        ("output", index)
        for block in walk_blocks(program.block)
        if block.end.kind == "return"
        for index, operand in enumerate(block.end.operands)
        if _is_complex(operand.type)
    )
    split = map_functions(program, lambda function: _split(function, variables))
    records = [
        FrameRecord(frame.name, tuple((name, paired(field)) for name, field in frame.fields), frame.devices)
        for frame in program.frames
    ]
    return split.replace(complex_edges=edges, frames=records)


def _split(function: Function, variables: dict[VariableRef, VariableRef]) -> Function:
    splitter = _Splitter(variables)
    block = splitter.block(function.block)
    return function.replace(block=block, variables=[splitter.variable(each) for each in function.variables])


def _values(program: Function) -> Iterator[Value]:
    for function in every_function(program):
        for block in walk_blocks(function.block):
            yield from block.params
            for op in block.ops:
                yield from op.results


def paired(type: Type) -> Type:
    """The type as floats: a complex array's has a last axis of 2."""
    if isinstance(type, SequenceType):
        element: Any = paired(type.element)
        return SequenceType(element, type.bound)
    if isinstance(type, TensorType) and type.dtype.is_complex:
        return TensorType(type.dtype.part, (*type.shape, 2))
    return type


def _is_complex(type: Type) -> bool:
    while isinstance(type, SequenceType):
        type = type.element
    return isinstance(type, TensorType) and type.dtype.is_complex


def _part(type: TensorType) -> TensorType:
    return TensorType(type.dtype.part, type.shape, type.weak)


class _Splitter(Copier):
    def __init__(self, variables: dict[VariableRef, VariableRef]) -> None:
        super().__init__(Builder())
        self.variables = variables
        self.parts: dict[Value, Parts] = {}
        """By the complex value of the program as it was."""
        self.where: Position | None = None

    # ---- values ----

    def value(self, value: Value) -> Value:
        """The copy of a value; of a complex one that is known by its parts, the pair of them in memory."""
        if value in self.parts and value not in self.values:
            return self.joined(self.parts[value], value)
        return super().value(value)

    def joined(self, parts: Parts, value: Value) -> Value:
        """One array of two parts, which is not kept: the block that needs it may end before the next one that does."""
        pair = paired(value.type)
        assert isinstance(pair, TensorType)
        shape = (*pair.shape[:-1], 1)
        columns = [self.emit(prims.RESHAPE, [part], TensorType(pair.dtype, shape), shape=shape) for part in parts]
        made = self.emit(prims.CONCAT, columns, pair, axis=len(shape) - 1)
        made.hint = value.hint
        return made

    def take_apart(self, value: Value) -> None:
        """The parts of a complex array that came as a pair."""
        if not (isinstance(value.type, TensorType) and value.tensor.dtype.is_complex):
            return
        pair, type = self.values[value], _part(value.tensor)
        shape = pair.tensor.shape
        kept, ones = (0,) * len(type.shape), (1,) * len(shape)
        found = []
        for number in (0, 1):
            attrs = {"start": (*kept, number), "stop": (*shape[:-1], number + 1), "step": ones}
            column = self.emit(prims.SLICE, [pair], TensorType(type.dtype, (*type.shape, 1)), **attrs)
            part = self.emit(prims.RESHAPE, [column], TensorType(type.dtype, type.shape), shape=type.shape)
            if type.weak:
                part = self.emit(prims.CAST, [part], type, dtype=type.dtype, weak=True)
            found.append(part)
        self.parts[value] = found[0], found[1]

    def emit(self, primitive: Any, operands: Sequence[Value], type: TensorType, **attrs: Any) -> Value:
        return self.builder.op(
            primitive, operands, [type], attrs=attrs, device=self.builder.device, where=self.where
        ).result

    def variable(self, variable: VariableRef) -> VariableRef:
        """The Variable as an array of floats."""
        if not variable.type.dtype.is_complex:
            return variable
        if variable not in self.variables:
            type = paired(variable.type)
            assert isinstance(type, TensorType)
            self.variables[variable] = replace(variable, type=type, is_complex=True)
        return self.variables[variable]

    # ---- ops and blocks ----

    def type(self, type: Type) -> Type:
        return paired(type)

    def params(self, block: Block) -> None:
        for param in block.params:
            self.take_apart(param)

    def op(self, op: Op) -> None:
        self.where = op.where
        known = [value for value in (*op.operands, *op.results) if _is_complex(value.type)]
        if op.declared in (prims.REAL_PART, prims.IMAG_PART):
            self.define(op.results, [self.parts[op.operands[0]][op.declared is prims.IMAG_PART]])
        elif op.declared is prims.FROM_PARTS:
            re, im = map(self.value, op.operands)
            self.parts[op.result] = re, im
        elif known and op.declared.kind != "structured":
            re, im = (self.of_part(op, number) for number in (0, 1))
            self.parts[op.result] = re, im
        elif known and "parts" in op.attrs and isinstance(op.declared, Structured):
            self.message(op)
        elif known and _shows(op):
            raise DTypeError(
                f"{op.name} takes real numbers, got {known[0].type}",
                where=op.where,
                hint="pass its parts: `z.real` and `z.imag`, or `st.view_as_real(z)`",
            )
        else:
            self.whole(op)

    def of_part(self, op: Op, number: int) -> Value:
        """Emit an op for the real parts of its operands, or for the imaginary ones."""
        assert op.declared.by_parts or op.declared in (prims.CONSTANT, prims.CAST), f"{op.name} takes no parts"
        operands = [self.parts[x][number] if _is_complex(x.type) else self.value(x) for x in op.operands]
        attrs = dict(op.attrs)
        if op.declared is prims.CAST:
            attrs["dtype"] = attrs["dtype"].part
        if op.declared is prims.CONSTANT:
            numbers = attrs["value"]
            attrs["value"] = tuple(_of(z, number) for z in numbers) if type(numbers) is tuple else _of(numbers, number)
        made = Op(
            op.declared,
            operands,
            [_part(op.result.tensor)],
            attrs=attrs,
            effects=op.effects,
            device=op.device,
            where=op.where,
        )
        made.result.hint = op.result.hint and f"{op.result.hint}_{('re', 'im')[number]}"
        return self.builder.append(made).result

    def message(self, op: Op) -> None:
        """Emit an op with a text: a complex scalar in it becomes two operands, an array one of pairs.

        The formats of both say that they are for complex numbers.
        """
        assert isinstance(op.declared, Structured)
        first = sum(not part.many for part in op.declared.operands.parts)
        operands: list[Value] = []
        places = []
        for index, operand in enumerate(op.operands):
            places.append(len(operands) - first)
            is_scalar = index >= first and _is_complex(operand.type) and not operand.tensor.shape
            operands += self.parts[operand] if is_scalar else [self.value(operand)]
        parts: list[Any] = []
        for part in op.attrs["parts"]:
            if not isinstance(part, str):
                index, spec, conversion = part
                if isinstance(spec, str) and _is_complex(op.operands[first + index].type):
                    spec = parse_spec(spec, "c", conversion)
                part = places[first + index], spec, conversion
            parts.append(part)
        made = self.builder.append(op.replace(operands=operands, attrs={**op.attrs, "parts": tuple(parts)}))
        self.define(op.results, made.results)

    def whole(self, op: Op) -> None:
        """Control flow, calls and Variables pass pairs on."""
        attrs = {key: self.variable(each) if isinstance(each, VariableRef) else each for key, each in op.attrs.items()}
        effects = tuple(Effect(each.kind, each.target and self.variable(each.target)) for each in op.effects)
        if attrs != op.attrs or effects != op.effects:
            again = op.replace(attrs=attrs, effects=effects)
            super().op(again)
            for old, new in zip(op.results, again.results, strict=True):
                self.values[old] = self.values[new]
        else:
            super().op(op)
        for result in op.results:
            self.take_apart(result)


def _shows(op: Op) -> bool:
    """Return whether an op shows values outside of the program, instead of passing them on: a callback, a message."""
    is_seen = any(effect.is_ordered for effect in op.effects)
    return is_seen and not op.blocks and not op.declared.is_carrier


def _of(number: complex, part: int) -> float:
    return complex(number).imag if part else complex(number).real
