"""`custom_vjp`: a function with a reverse derivative that the user gives."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from typing import Any

from staged.errors import GradientError, article
from staged.frontend.calls.call import call
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import Refusal, RefusedEffect, refusing
from staged.frontend.transforms.leaves import Outputs, is_array, name_of
from staged.frontend.transforms.recording import Recording, close, record
from staged.frontend.values import trees
from staged.frontend.values.variable import Variable
from staged.ir.nodes import Block, End, Op, Value, free_values
from staged.ir.structure import CUSTOM_VJP
from staged.ir.types import TensorType
from staged.ops.array import Array
from staged.ops.choice import astype
from staged.ops.context import current_context
from staged.ops.promote import as_array, cast
from staged.ops.source import zeros
from staged.source import Position, here

_HINTS: dict[RefusedEffect, str] = {
    "write": "return the new values, and write the Variable after the call",
    "random": "draw the numbers before the call, and pass them as an argument",
}


_ORDERS = 3
"""The depth to which a `forward` that calls its own function is recorded in itself: once per order of derivative."""


class custom_vjp:
    """A function whose reverse derivative is given: decorate it, then name its two halves with `defvjp`.

        @st.custom_vjp
        def f(x, y): ...
        def forward(x, y): return f(x, y), residuals
        def backward(residuals, cotangent): return d_x, d_y
        f.defvjp(forward, backward)

    `forward` takes the arguments and returns the result and the residuals (a tree). `backward` takes the residuals and
    the cotangent of the result (in its tree; zeros where there is none, None for leaves that are not floats), and
    returns a tuple with one cotangent per argument, each in the argument's tree; None for zero. `nondiff_argnums` are
    positions of arguments that have no derivative and come first in backward. Higher derivatives are those of the code
    of the two halves. JAX `custom_vjp`.

    Raises: GradientError if `defvjp` is missing, if backward returns another number of cotangents or other types, in
    forward mode, and if the function reads a differentiated value that is not among its arguments; StagingError for a
    written Variable.
    """

    def __init__(self, f: Callable[..., Any], nondiff_argnums: Sequence[int] = ()) -> None:
        functools.update_wrapper(self, f)
        self.f = f
        self.nondiff = tuple(nondiff_argnums)
        self.forward: Callable[..., Any] | None = None
        self.backward: Callable[..., Any] | None = None

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Set the two halves of the derivative: `fwd(*args) -> (result, residuals)`, `bwd(residuals, cotangent) ->
        cotangents`.
        """
        self.forward, self.backward = fwd, bwd

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        return self if instance is None else functools.partial(self, instance)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        where = here()
        if kwargs:  # halves take positional arguments
            args = inspect.signature(self.f).bind(*args, **kwargs).args
        if self.forward is None or self.backward is None:
            raise GradientError(
                f"`{name_of(self.f)}` is a `custom_vjp` without derivative",
                where=where,
                hint="call `defvjp(forward, backward)` on it before it is used",
            )
        call_ = _Call(self, args, where)
        trace = current_trace()
        with refusing(Refusal(f"`{call_.name}`, a `custom_vjp`", _HINTS)):
            if trace is None:
                return _run_eagerly(call_)
            open_ = _recording.get()
            mine = [states for owner, states in open_ if owner is self]
            if mine and len(mine) > max(mine[0], _ORDERS):
                return call(self.f, *args)
            token = _recording.set((*open_, (self, len(trace.transforms))))
            try:
                return _record(trace, call_)
            finally:
                _recording.reset(token)


_recording: ContextVar[tuple[tuple[custom_vjp, int], ...]] = ContextVar("staged_custom_vjps", default=())
"""The `custom_vjp` functions whose halves are being traced, each with the number of transforms open around its call."""


class _Call:
    """One call: the arrays among the arguments, and the three functions on arrays."""

    def __init__(self, owner: custom_vjp, args: tuple[Any, ...], where: Position | None) -> None:
        self.owner, self.where, self.name = owner, where, name_of(owner.f)
        self.args = args
        self.nondiff = [number % len(args) for number in owner.nondiff]
        self.diff = [number for number in range(len(args)) if number not in self.nondiff]
        self.leaves, self.spec = trees.flatten(tuple(args[number] for number in self.diff))
        self.places = [place for place, leaf in enumerate(self.leaves) if is_array(leaf)]
        self.arrays = [as_array(_read(self.leaves[place])) for place in self.places]
        self.outputs: Outputs
        self.residuals: Outputs

    def arguments(self, arrays: Sequence[Any]) -> list[Any]:
        """The arguments with these arrays in place of their own."""
        leaves = list(self.leaves)
        for place, array in zip(self.places, arrays, strict=True):
            leaves[place] = array
        args = list(self.args)
        for number, value in zip(self.diff, trees.unflatten(self.spec, leaves), strict=True):
            args[number] = value
        return args

    def primal(self, arrays: Sequence[Any]) -> list[Array]:
        """The function itself."""
        self.outputs = Outputs(call(self.owner.f, *self.arguments(arrays)))
        return self.outputs.arrays

    def ahead(self, arrays: Sequence[Any]) -> list[Array]:
        """The forward half; its residuals are in `residuals`."""
        made = call(self.owner.forward, *self.arguments(arrays))
        if not isinstance(made, tuple) or len(made) != 2:
            raise GradientError(
                f"the forward half of `{self.name}` returns a pair (result, residuals)", where=self.where
            )
        self.outputs, self.residuals = Outputs(made[0]), Outputs(made[1])
        return self.outputs.arrays

    def back(self, residuals: Any, cotangents: Sequence[Array | None]) -> list[Array | None]:
        """The backward half: one cotangent per array among the arguments."""
        given = self.outputs.tangents(cotangents)
        static = [self.args[number] for number in self.nondiff]
        made = call(self.owner.backward, *static, residuals, given)
        if not isinstance(made, tuple) or len(made) != len(self.diff):
            got = f"{len(made)} of them" if isinstance(made, tuple) else article(type(made).__name__)
            raise GradientError(
                f"the backward half of `{self.name}` returns a tuple of {len(self.diff)} cotangents, got {got}",
                where=self.where,
                hint="one per argument, None where there is none",
            )
        found: list[Any] = []
        for number, cotangent in zip(self.diff, made, strict=True):
            _, spec = trees.flatten(self.args[number])
            leaves, structure = trees.flatten(cotangent)
            if cotangent is None:
                leaves, structure = [None] * spec.num_leaves, spec
            if structure != spec:
                raise GradientError(
                    f"the backward half of `{self.name}` gives a cotangent of another structure than argument {number}",
                    where=self.where,
                    details=(f"expected: {spec}", f"got:      {structure}"),
                )
            found += leaves
        return [self.fitted(found[place], array) for place, array in zip(self.places, self.arrays, strict=True)]

    def fitted(self, cotangent: Any, array: Array) -> Array | None:
        """A cotangent in the type of what it belongs to."""
        if cotangent is None or not array.dtype.is_inexact:
            return None
        made = as_array(_read(cotangent))
        if made.type.weak or array.type.weak:
            made = cast(made, array.dtype, array.type.weak)
        if made.type != array.type:
            raise GradientError(
                f"the backward half of `{self.name}` gives {made.type} as the cotangent of {array.type}",
                where=self.where,
                hint="a cotangent has the shape and dtype of what it belongs to",
            )
        return made


def _read(leaf: Any) -> Any:
    return leaf.value if isinstance(leaf, Variable) else leaf


# ---- recorded -----------------------------------------------------------------------------------


def _record(trace: TraceContext, call_: _Call) -> Any:
    """One op with three blocks, which have one parameter for each value that any of them uses."""
    name, where = call_.name, call_.where
    arguments = [trace.value_of(array) for array in call_.arrays]
    primal = record(trace, name, arguments, call_.primal, where, stateless=True)
    outputs = call_.outputs

    def ahead(params: list[Any]) -> list[Array]:
        return [*call_.ahead(params), *call_.residuals.arrays]

    forward = record(trace, name, arguments, ahead, where, stateless=True, is_later=True)
    count = len(outputs.arrays)
    _check_halves(call_, outputs, primal, forward, count)
    kept = forward.yields[count:]
    floats = [value for value in primal.yields if _is_float(value)]

    def back(params: list[Any]) -> list[Array]:
        residuals = call_.residuals.rebuild(params[: len(kept)])
        cotangents = iter(params[len(kept) :])
        given = [next(cotangents) if _is_float(value) else None for value in primal.yields]
        found = call_.back(residuals, given)
        return [
            _zeros(array) if cotangent is None else cotangent
            for cotangent, array in zip(found, call_.arrays, strict=True)
            if array.dtype.is_inexact
        ]

    backward = record(trace, name, [*kept, *floats], back, where, stateless=True, is_later=True)
    parts = (primal, forward, backward)
    free = list(dict.fromkeys(value for part in parts for value in free_values(part.block)))
    captures = [*arguments, *free]
    hints = [value.hint for value in captures]
    blocks = [close(part.block, captures, free, hints) for part in (primal, forward)]
    # What backward reads from outside is among forward's residuals.
    outside = list(free_values(backward.block))
    blocks[1] = _with_yields(blocks[1], [blocks[1].params[captures.index(value)] for value in outside])
    blocks.append(_backward_block(backward, len(kept), outside))
    wrt = tuple(index for index, array in enumerate(call_.arrays) if array.dtype.is_inexact)
    op = Op(
        CUSTOM_VJP,
        captures,
        [value.type for value in primal.yields],
        attrs={"name": name, "outputs": count, "wrt": wrt},
        blocks=blocks,
        device=trace.builder.device,
        where=where,
    )
    for result, value in zip(op.results, primal.yields, strict=True):
        result.hint = value.hint
    return outputs.rebuild(trace.emit_op(op))


def _check_halves(call_: _Call, outputs: Outputs, primal: Recording, forward: Recording, count: int) -> None:
    types = [value.type for value in forward.yields[:count]]
    if call_.outputs.spec != outputs.spec or types != [value.type for value in primal.yields]:
        raise GradientError(
            f"the forward half of `{call_.name}` gives another result than `{call_.name}`",
            where=call_.where,
            details=(
                f"`{call_.name}`: {', '.join(str(value.type) for value in primal.yields)}",
                f"forward half: {', '.join(map(str, types))}",
            ),
            hint="it returns the pair (result, residuals), with the result of the function itself",
        )


def _with_yields(block: Block, more: Sequence[Value]) -> Block:
    end = block.end
    return Block(block.params, block.ops, End(end.kind, (*end.operands, *more), end.target, end.where))


def _backward_block(backward: Recording, kept: int, outside: Sequence[Value]) -> Block:
    """The backward half's block: parameters for residuals, then for what it reads from outside, then cotangents."""
    captures = [*backward.primals, *outside]
    closed = close(backward.block, captures, outside, [value.hint for value in captures])
    own, extra = closed.params[: len(backward.primals)], closed.params[len(backward.primals) :]
    return Block((*own[:kept], *extra, *own[kept:]), closed.ops, closed.end)


def _is_float(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.dtype.is_inexact


def _zeros(array: Array) -> Array:
    made: Array = astype(zeros(array.shape), array.dtype)
    return cast(made, array.dtype, array.type.weak)


# ---- in eager mode ------------------------------------------------------------------------------


def _run_eagerly(call_: _Call) -> Any:
    def forward(arrays: Sequence[Any]) -> tuple[list[Array], Any]:
        arrays_out = call_.ahead(arrays)
        residuals = call_.residuals
        return arrays_out, residuals.rebuild(residuals.arrays)

    def backward(residuals: Any, cotangents: Sequence[Array | None]) -> list[Array | None]:
        filled = [
            _zeros(array) if cotangent is None and array.dtype.is_inexact else cotangent
            for cotangent, array in zip(cotangents, outputs.arrays, strict=True)
        ]
        return call_.back(residuals, filled)

    results = current_context().custom_vjp(  # type: ignore[attr-defined]
        call_.name, call_.primal, forward, backward, call_.arrays
    )
    outputs = call_.outputs
    return outputs.rebuild(results)
