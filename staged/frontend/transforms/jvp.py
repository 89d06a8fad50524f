"""`jvp`: the value of a function and its derivative along tangents of its arguments, in one run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.base.tracebacks import trims_traceback
from staged.errors import GradientError, article
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.transforms.leaves import Primals, matching, name_of
from staged.frontend.transforms.primal_call import PrimalCall
from staged.frontend.values import trees
from staged.ir.nodes import Op
from staged.ir.structure import JVP
from staged.ir.types import TensorType
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.source import here


@trims_traceback
def jvp(
    f: Callable[..., Any], primals: Sequence[Any], tangents: Sequence[Any], has_aux: bool = False
) -> tuple[Any, ...]:
    """Forward mode: `(f(*primals), tangent)`, where the tangent is the derivative of the result along `tangents`.

    `primals` is a tuple of trees of float arrays, `tangents` has the same structure, shapes and dtypes; None stands for
    zero. The tangent has the structure of the result, with None for leaves that are not floats. With `has_aux` f
    returns a pair of result and aux, and `jvp` returns aux third. Prints of f, and its writes of Variables, happen
    once. A Hessian-vector product is forward over reverse: `st.jvp(st.grad(f), (x,), (v,))[1]`. JAX `jvp`.

    Raises: GradientError for primals that are not floats, for tangents that do not match them, and where a derivative
    does not exist (such as that of a `custom_vjp`). Source: Griewank and Walther, Evaluating Derivatives, section 3.1.
    """
    where = here()
    name = name_of(f)
    given = Primals(name, "the jvp", primals, where)
    spec = trees.flatten(tuple(primals))[1]
    if not isinstance(tangents, tuple | list):
        raise GradientError(
            f"the jvp of `{name}` takes its tangents as a tuple, got {article(type(tangents).__name__)}", where=where
        )
    along = matching(name, "the tangent", tuple(tangents), spec, given.arrays, where)
    primal = PrimalCall(f, name, given, has_aux, where)
    trace = current_trace()
    if trace is None:
        outputs, (results, found), aux = primal.run(current_context().jvp, along)  # type: ignore[attr-defined]
        return primal.answer(outputs.rebuild(results), outputs.tangents(found), aux)
    return _record(trace, primal, along)


def _record(trace: TraceContext, primal: PrimalCall, along: list[Array | None]) -> tuple[Any, ...]:
    recording, outputs, aux = primal.record(trace)
    block, captures = recording.closed()
    yields = recording.yields
    floats = [index for index, value in enumerate(yields) if _is_float(value.type)]
    op = Op(
        JVP,
        [*captures, *(trace.value_of(tangent) for tangent in along if tangent is not None)],
        [*(value.type for value in yields), *(yields[index].type for index in floats)],
        attrs={
            "wrt": tuple(index for index, tangent in enumerate(along) if tangent is not None),
            "outputs": len(yields),
        },
        blocks=[block],
        device=trace.builder.device,
        where=primal.where,
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
    return primal.answer(
        outputs.rebuild(results[:count]),
        outputs.tangents(tangents[:count]),
        aux.rebuild(results[count : recording.returned]),
    )


def _is_float(type: Any) -> bool:
    return isinstance(type, TensorType) and type.dtype.is_inexact
