"""A reference interpreter: runs any IR on NumPy, through each primitive's `reference`. Slow, simple, and independent of
every pass and back end, so that a pass is right if the interpreter gives the same before and after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.errors import ProgramAssertionError, ProgramError
from staged.ir.nodes import Block, End, Function, Label, Op, Value, VariableRef
from staged.ir.sizes import Dim, value_of
from staged.ir.types import FrameType, SequenceType, TensorType, Type
from staged.ops.dimension import check_size
from staged.ops.primitive import PRIMITIVES


class Exit(Exception):
    """Control leaves a block other than by `yield`."""

    def __init__(self, kind: str, target: Label | None, values: list[Any]) -> None:
        super().__init__(kind)
        self.kind = kind
        self.target = target
        self.values = values


class Interpreter:
    """Runs one function. `output` collects what is printed: tuples of the values; `executed` counts ops by name."""

    def __init__(self, variables: dict[VariableRef, Any] | None = None) -> None:
        self.variables = variables if variables is not None else {}
        self.output: list[tuple[Any, ...]] = []
        self.executed: dict[str, int] = {}
        self.functions: dict[str, Function] = {}
        self.dims: dict[Dim, int] = {}

    def run(self, function: Function, *arguments: Any) -> list[Any]:
        self.functions.update((called.name, called) for called in function.functions)
        env: dict[Value, Any] = {}
        for param, argument in zip(function.params, arguments, strict=True):
            env[param] = as_array(argument, param.type)
        try:
            self.block(function.block, env)
        except Exit as exit:
            if exit.kind == "return":
                return exit.values
            raise
        raise AssertionError("the function did not return")

    def block(self, block: Block, env: dict[Value, Any]) -> list[Any]:
        """The values that the block yields; other ends raise Exit."""
        for op in block.ops:
            results = self.op(op, env)
            for value, result in zip(op.results, results, strict=True):
                check(result, value.type, op)
                env[value] = result
        return self.end(block.end, env)

    def end(self, end: End, env: dict[Value, Any]) -> list[Any]:
        values = [env[operand] for operand in end.operands]
        if end.kind == "yield":
            return values
        if end.kind == "raise":
            raise ProgramError("the program raised")
        raise Exit(end.kind, end.target, values)

    def op(self, op: Op, env: dict[Value, Any]) -> Sequence[Any]:
        self.executed[op.name] = self.executed.get(op.name, 0) + 1
        operands = [env[operand] for operand in op.operands]
        special = getattr(self, f"op_{op.name}", None)
        if special is not None:
            result: Sequence[Any] = special(op, operands, env)
            return result
        primitive = PRIMITIVES[op.name]
        result = primitive.reference(*operands, **{name: self.sized(attr) for name, attr in op.attrs.items()})
        return result if isinstance(result, tuple) else (result,)

    def sized(self, attr: Any) -> Any:
        """An attribute, with the present values of sizes."""
        return tuple(map(self.sized, attr)) if type(attr) is tuple else value_of(attr, self.dims)

    def op_dim(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        check_size(op.attrs["dim"].name, int(operands[0]), op.attrs["most"])
        self.dims[op.attrs["dim"]] = int(operands[0])
        return operands

    # ---- control flow ----

    def op_if(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return self.block(op.blocks[0 if operands[0] else 1], env)

    def op_for(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        start, stop, step = (int(value) for value in operands[:3])
        index = op.blocks[0].params[0].tensor
        numbers = iter(range(start, stop, step))

        def begin(carried: list[Any]) -> list[Any] | None:
            number = next(numbers, None)
            return None if number is None else [np.asarray(number, index.dtype.numpy), *carried]

        return self.loop(op, operands[3:], begin, env)

    def op_while(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        def begin(carried: list[Any]) -> list[Any] | None:
            env.update(zip(op.blocks[0].params, carried, strict=True))
            (go_on,) = self.block(op.blocks[0], env)
            return carried if go_on else None

        return self.loop(op, operands, begin, env)

    def loop(self, op: Op, carried: list[Any], begin: Any, env: dict[Value, Any]) -> Sequence[Any]:
        body = op.blocks[-1]
        label = op.attrs["label"]
        count = len(op.results) - op.attrs.get("collected", 0)
        sequences: list[list[Any]] = [[] for _ in op.results[count:]]
        while (params := begin(carried)) is not None:
            env.update(zip(body.params, params, strict=True))
            try:
                values = self.block(body, env)
            except Exit as exit:
                if exit.target is not label:
                    raise
                carried = exit.values
                if exit.kind == "break":
                    break
                continue
            carried = values[:count]
            for sequence, element in zip(sequences, values[count:], strict=True):
                sequence.append(element)
        return [*carried, *sequences]

    def op_scope(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        try:
            return self.block(op.blocks[0], env)
        except Exit as exit:
            if exit.target is not op.attrs["label"]:
                raise
            return exit.values

    def inner(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return self.block(op.blocks[0], dict(zip(op.blocks[0].params, operands, strict=True)))

    op_composite = op_kernel = op_checkpoint = op_custom_vjp = inner

    # ---- functions and what their calls leave ----

    def op_call(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return self.run(self.functions[op.attrs["function"]], *operands)

    def op_frame_save(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [Frame(op.result.type.name, tuple(operands))]

    def op_frame_load(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        (frame,) = operands
        assert frame.fields is not None, "the frame of a call that did not happen is loaded"
        return list(frame.fields)

    def op_frame_null(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [Frame(op.result.type.name, None)]

    def op_call_begin(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return []

    op_call_end = op_call_begin

    # ---- effects ----

    def op_variable_read(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [self.variables[op.attrs["variable"]]]

    def op_variable_write(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        self.variables[op.attrs["variable"]] = operands[0]
        return []

    def op_print(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        self.output.append(tuple(value.item() if value.ndim == 0 else value.tolist() for value in operands))
        return []

    def op_assert(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        if not operands[0]:
            raise ProgramAssertionError("an assertion failed", where=op.where)
        return []

    def op_raise(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return []

    # ---- values ----

    def op_constant(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        type = op.result.tensor
        shape = tuple(extent for extent in type.shape if isinstance(extent, int))
        return [np.asarray(op.attrs["value"], type.dtype.numpy).reshape(shape)]

    def op_sequence_get(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        sequence, index = operands
        assert 0 <= int(index) < len(sequence), f"element {index} of a sequence of {len(sequence)}"
        return [sequence[int(index)]]

    def op_absent(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        """A value that would show if it were used: NaN, or the least integer, which is no index."""
        type = op.result.tensor
        dtype = type.dtype.numpy
        value = np.nan if type.dtype.is_float else type.dtype.is_bool or np.iinfo(dtype).min
        return [np.full(type.shape, value, dtype)]

    def op_sequence_empty(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [[]]

    def op_sequence_zeros(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [zeros_like(operands[0], op.result.type)]

    def op_sequence_add(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        sequence, index, element = operands
        copy = list(sequence)
        copy[int(index)] = plus(copy[int(index)], element)
        return [copy]

    def op_sequence_sum(self, op: Op, operands: list[Any], env: dict[Value, Any]) -> Sequence[Any]:
        return [plus(*operands)]


@dataclass(frozen=True, eq=False)
class Frame:
    """The frame that a call left; no fields where it did not happen."""

    name: str
    fields: tuple[Any, ...] | None


def zeros_like(value: Any, type: Type) -> Any:
    """Zeros of `type` in the lengths of `value`; the zero of frames is that of a call that did not happen."""
    if isinstance(type, SequenceType):
        return [zeros_like(element, type.element) for element in value]
    return Frame(type.name, None) if isinstance(type, FrameType) else np.zeros_like(value)


def plus(left: Any, right: Any) -> Any:
    if isinstance(left, list):
        return [plus(a, b) for a, b in zip(left, right, strict=True)]
    if isinstance(left, Frame):
        assert left.fields is None or right.fields is None, "a frame of cotangents has two makers"
        return right if left.fields is None else left
    return np.add(left, right)


def as_array(value: Any, type: Type) -> Any:
    """An argument as the interpreter holds values of `type`."""
    if not isinstance(type, TensorType):
        return value
    return np.asarray(value, type.dtype.numpy)


def check(value: Any, type: Type, op: Op) -> None:
    """Every value has the type that the IR says."""
    if isinstance(type, SequenceType):
        assert isinstance(value, list), f"{op} gives {value!r} for {type}"
        if type.bound is not None:
            assert len(value) <= type.bound, f"{op} collected {len(value)} elements, its bound is {type.bound}"
        for element in value[:1]:
            check(element, type.element, op)
        return
    if isinstance(type, FrameType):
        assert isinstance(value, Frame) and value.name == type.name, f"{op} gives {value!r} for {type}"
        return
    array = np.asarray(value)
    assert array.dtype == type.dtype.numpy, f"{op} gives {array.dtype}, not {type}"
    if type.is_static:
        assert array.shape == type.shape, f"{op} gives shape {array.shape}, not {type}"


def run(function: Function, *arguments: Any) -> list[Any]:
    """The results of `function` for NumPy arguments."""
    return Interpreter().run(function, *arguments)
