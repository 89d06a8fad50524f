"""`jvp`: the value of a function and its derivative along tangents of its arguments, in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.errors import GradientError
from staged.frontend import trees
from staged.frontend.calls import call
from staged.frontend.tracing import TraceContext, current_trace
from staged.frontend.transforms.leaves import Outputs, Primals, matching, name_of, split_aux
from staged.frontend.transforms.recording import record
from staged.ir.nodes import Op
from staged.ir.types import TensorType
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.source import Position, here


def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """`(f(*primals), tangent of it)` along `tangents` of the primals: forward mode.

    `primals` is a tuple of trees of float arrays, `tangents` has the same structure, shapes and dtypes; None stands for
    zero. The tangent of the result has its structure, with None for what is no float. With `has_aux` f returns a pair of
    result and aux, and aux is the third of what `jvp` gives. Prints of f, and its writes of Variables, happen once.
    A Hessian-vector product is forward over reverse: `st.jvp(st.grad(f), (x,), (v,))[1]`. JAX `jvp`.

    Raises: GradientError for primals that are no floats, for tangents that do not match them, and where a derivative does
    not exist (through a `custom_vjp`, for one).
    Source: Griewank and Walther, Evaluating Derivatives, section 3.1.
    """
    where = here()
    name = name_of(f)
    given = Primals(name, "the jvp", primals, where)
    spec = trees.flatten(tuple(primals))[1]
    if not isinstance(tangents, tuple | list):
        raise GradientError(
            f"the jvp of `{name}` takes its tangents as a tuple, got a {type(tangents).__name__}", where=where
        )
    along = matching(name, "the tangent", tuple(tangents), spec, given.arrays, where)
    trace = current_trace()
    if trace is None:
        return _run_eagerly(f, name, given, along, has_aux, where)
    return _record(trace, f, name, given, along, has_aux, where)


def _record(
    trace: TraceContext,
    f: Callable[..., Any],
    name: str,
    given: Primals,
    along: list[Array | None],
    has_aux: bool,
    where: Position | None,
) -> tuple[Any, ...]:
    made: list[Any] = []

    def run(params: list[Any]) -> list[Any]:
        out, aux = split_aux(name, call(f, *given.rebuild(params)), has_aux, where)
        made.extend([Outputs(out), Outputs(aux, staged_only=True)])
        return [*made[0].arrays, *made[1].arrays]

    recording = record(trace, name, [trace.value_of(array) for array in given.arrays], run, where)
    outputs, aux = made
    block, captures = recording.closed()
    yields = recording.yields
    floats = [index for index, value in enumerate(yields) if _is_float(value.type)]
    op = Op(
        "jvp",
        [*captures, *(trace.value_of(tangent) for tangent in along if tangent is not None)],
        [*(value.type for value in yields), *(yields[index].type for index in floats)],
        attrs={
            "wrt": tuple(index for index, tangent in enumerate(along) if tangent is not None),
            "outputs": len(yields),
        },
        blocks=[block],
        device=trace.builder.device,
        where=where,
    )
    for result, value in zip(op.results, [*yields, *(yields[index] for index in floats)], strict=True):
        result.hint = value.hint
    for result in op.results[len(yields) :]:
        result.hint = f"d_{result.hint}" if result.hint else "tangent"
    results = list(trace.emit_op(op))
    recording.commit(results[recording.returned : len(yields)])
    count = len(outputs.arrays)
    tangents: list[Any] = [None] * len(yields)
    for index, tangent in zip(floats, results[len(yields) :], strict=True):
        tangents[index] = tangent
    out, d_out = outputs.rebuild(results[:count]), outputs.tangents(tangents[:count])
    return (out, d_out, aux.rebuild(results[count : recording.returned])) if has_aux else (out, d_out)


def _is_float(type: Any) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_float


def _run_eagerly(
    f: Callable[..., Any],
    name: str,
    given: Primals,
    along: list[Array | None],
    has_aux: bool,
    where: Position | None,
) -> tuple[Any, ...]:
    made: list[Any] = []

    def run(*arrays: Array) -> list[Array]:
        out, aux = split_aux(name, call(f, *given.rebuild(arrays)), has_aux, where)
        made.extend([Outputs(out), aux])
        returned: list[Array] = made[0].arrays
        return returned

    results, tangents = current_context().jvp(run, given.arrays, along)  # type: ignore[attr-defined]
    outputs, aux = made
    out, d_out = outputs.rebuild(results), outputs.tangents(tangents)
    return (out, d_out, aux) if has_aux else (out, d_out)
