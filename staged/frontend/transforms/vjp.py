"""`vjp`: the value of a function, and the function from cotangents of its results to cotangents of its arguments."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from staged.base.tracebacks import trims_traceback
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.transforms.leaves import Outputs, Primals, matching, name_of, plain
from staged.frontend.transforms.primal_call import PrimalCall
from staged.frontend.transforms.recording import Recording, inline, name_results, without_effects
from staged.ir.nodes import Op
from staged.ir.structure import VJP
from staged.ops.array import Array
from staged.ops.context import current_context
from staged.source import Position, here


@trims_traceback
def vjp(f: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """Reverse mode: `(f(*primals), pullback)`, where the pullback maps cotangents of the result to cotangents of
    `primals`.

    The primals are trees of float arrays, the result is a tree; its cotangents have the same structure (None for zero;
    those of integers and bools are ignored). The pullback returns a tuple with one tree per primal. It may be called
    several times, also in staged loops and branches. With `has_aux` f returns a pair of result and aux, and `vjp`
    returns aux third. Prints of f, and its writes of Variables, happen once. JAX `vjp`.

    Raises: GradientError for primals that are not floats, for cotangents of another structure or type, and where a
    derivative does not exist.
    Source: Griewank and Walther, Evaluating Derivatives, section 3.2.
    """
    where = here()
    name = name_of(f)
    given = Primals(name, "the vjp", primals, where)
    primal = PrimalCall(f, name, given, has_aux, where)
    trace = current_trace()
    if trace is None:
        return _run_eagerly(primal)
    recording, outputs, aux = primal.record(trace)
    results = inline(recording, recording.primals)
    recording.commit(results[recording.returned :])
    count = len(outputs.arrays)
    pullback = _pullback(trace, recording, primal, outputs, results[:count])
    return primal.answer(outputs.rebuild(results[:count]), pullback, aux.rebuild(results[count : recording.returned]))


def _pullback(
    trace: TraceContext, recording: Recording, primal: PrimalCall, outputs: Outputs, results: Sequence[Array]
) -> Callable[[Any], Any]:
    """Records one `vjp` op per call."""
    quiet = Recording(
        trace,
        without_effects(recording.block, primal.name),
        recording.primals,
        recording.yields,
        recording.written,
        recording.where,
    )

    def pullback(cotangents: Any) -> Any:
        """Cotangents of the arguments from those of the results."""
        where = here()
        found = cotangents_of(primal.name, cotangents, outputs, results, where)
        of = [index for index, cotangent in enumerate(found) if cotangent is not None]
        block, captures = quiet.closed()
        primals, yields = recording.primals, block.end.operands
        op = Op(
            VJP,
            [*captures, *(trace.value_of(cotangent) for cotangent in found if cotangent is not None)],
            [*(value.type for value in yields), *(value.type for value in primals)],
            attrs={"wrt": tuple(range(len(primals))), "outputs": len(yields), "of": tuple(of)},
            blocks=[block],
            device=trace.builder.device,
            where=where,
        )
        name_results(op, yields, primals)
        return primal.given.rebuild(trace.emit_op(op)[len(yields) :])

    return plain(pullback)


def cotangents_of(
    name: str, cotangents: Any, outputs: Outputs, results: Sequence[Array], where: Position | None
) -> list[Array | None]:
    """One cotangent per array of the outputs; None for zero and for what is no float."""
    wanted: list[Array | None] = [None] * len(outputs.leaves)
    for place, result in zip(outputs.places, results, strict=True):
        wanted[place] = result if result.dtype.is_inexact else None
    found = matching(name, "the cotangent", cotangents, outputs.spec, wanted, where)
    return [found[place] for place in outputs.places]


def _run_eagerly(primal: PrimalCall) -> tuple[Any, ...]:
    outputs, (results, pull), aux = primal.run(current_context().vjp)  # type: ignore[attr-defined]

    def pullback(cotangents: Any) -> Any:
        """Cotangents of the arguments from those of the results."""
        return primal.given.rebuild(pull(cotangents_of(primal.name, cotangents, outputs, results, here())))

    return primal.answer(outputs.rebuild(results), plain(pullback), aux)
