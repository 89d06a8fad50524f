"""The context that records: ops go into a `Builder` as IR, with the user's position.

Tracing uses it for the user's function, autodiff and composites for the code they write.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import numpy as np

from staged.errors import LeakError, StagedError
from staged.ir.builder import Builder
from staged.ir.declaration import prims
from staged.ir.names import FieldName
from staged.ir.nodes import FAIL, PURE, Op, Value
from staged.ir.numbers import converted
from staged.ir.types import TensorType
from staged.ops.array import Array, StagedArray
from staged.ops.context import Context, current_context
from staged.ops.primitive import Primitive
from staged.source import Position, here, variable_here

MAX_CONSTANT = 64
"""Arrays with more elements than this never become constants in the text: they are hidden inputs."""


class RecordContext(Context):
    """Records ops through `builder`. `locate` gives the position for new ops (default: the user's running expression).

    `hidden_input(array)` is asked for a Value that stands for a concrete array from outside (a closed-over NumPy
    array). Without `checks`, ops that may only stop the program are recorded without that effect: what they check holds
    already.
    """

    def __init__(
        self,
        builder: Builder,
        *,
        locate: Callable[[], Position | None] = here,
        hidden_input: Callable[[Any], Value] | None = None,
        checks: bool = True,
    ) -> None:
        self.builder = builder
        self.locate = locate
        self.hidden_input = hidden_input
        self.checks = checks
        self.constants: dict[Any, tuple[object, Array]] = {}

    def handle(self, value: Value) -> StagedArray:
        """A handle for a value of this recording."""
        return StagedArray(value, self)

    def bind(self, primitive: Primitive, operands: Sequence[Array], attrs: dict[str, Any]) -> tuple[Array, ...]:
        return self.handles(self.recorded(primitive, list(map(self.value_of, operands)), attrs, self.locate()))

    def recorded(
        self, primitive: Primitive, values: Sequence[Value], attrs: dict[str, Any], where: Position | None
    ) -> Op:
        """The op, appended to the open block."""
        given = [value.type for value in values]
        try:
            types = primitive.infer(*given, **attrs)
        except StagedError as error:
            if error.where is None:
                error.where = where
            if not error.details:
                error.details = tuple(operand_line(value) for value in values)
            raise
        effects = primitive.effects if type(primitive.effects) is tuple else primitive.effects_on(given, attrs)
        if effects and not self.checks and effects == FAIL:
            effects = PURE
        builder = self.builder
        results = types if isinstance(types, tuple) else (types,)
        op = Op(primitive, values, results, attrs=attrs, effects=effects, device=builder.device, where=where)
        # Tracing counts its calls, so `is_move` is not asked.
        if primitive.elements not in ("viewed", "moved") and primitive.kind != "source" and primitive is not prims.CAST:
            word = variable_here()
            if word and op.results:
                op.results[0].hint = FieldName(word)
        return builder.append(op)

    @contextmanager
    def unchecked(self) -> Iterator[None]:
        """Record ops whose checks hold already: inside the `with`, none may stop the program."""
        before, self.checks = self.checks, False
        try:
            yield
        finally:
            self.checks = before

    def handles(self, op: Op) -> tuple[StagedArray, ...]:
        """Handles for the results of an op."""
        results = op.results
        if len(results) == 1:
            return (StagedArray(results[0], self, op.device),)
        return tuple([StagedArray(result, self, op.device) for result in results])

    def constant(self, value: Any, type: TensorType) -> Array:
        array = converted(np.asarray(value), type.dtype) if type.dtype.is_half else np.asarray(value, type.dtype.numpy)
        if array.size > MAX_CONSTANT:
            return self.lift(array)
        attr = array.item() if array.ndim == 0 else tuple(array.reshape(-1).tolist())
        op = self.builder.op(prims.CONSTANT, [], [type], attrs={"value": attr}, where=self.locate())
        return StagedArray(op.result, self)

    def lift(self, array: Any) -> Array:
        if self.hidden_input is None:
            raise AssertionError("a transform met an array from outside: tracing should have made it an input")
        return StagedArray(self.hidden_input(array), self)

    def value_of(self, array: Array) -> Value:
        """The IR value behind a handle; a LeakError for a handle of another recording."""
        if not isinstance(array, StagedArray):
            lifted = self.lift(array)
            assert isinstance(lifted, StagedArray)
            return lifted.value
        if array.owner is not self:
            name = f"`{array.value.hint}`" if array.value.hint else "a staged value"
            raise LeakError(
                f"{name} ({array.type}) belongs to another staged function and is not available here",
                where=self.locate(),
                hint="return it from its function, or pass it as an argument",
            )
        return array.value

    def emit(self, op: Op) -> tuple[Array, ...]:
        """Append a ready op (control flow, prints) and give handles for its results."""
        self.builder.append(op)
        return self.handles(op)


def operand_line(value: Value) -> str:
    """`x: f32 (64, 784)   made by matmul, line 9`, for error messages."""
    name = value.hint or "operand"
    producer = value.producer
    made = ""
    if producer is None:
        made = "   argument or loop value"
    elif producer.where is not None:
        made = f"   made by {producer.name}, line {producer.where.line}"
    return f"{name}: {value.type}{made}"


def in_range() -> AbstractContextManager[None]:
    """Orders are permutations: nothing in them is out of range."""
    context = current_context()
    return context.unchecked() if isinstance(context, RecordContext) else nullcontext()
