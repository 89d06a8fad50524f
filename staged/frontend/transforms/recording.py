"""A function traced into a closed block: what every recorded transform starts from.

The block takes each value it uses as a parameter and touches no Variable: those that it reads become captures, those
that it writes become further results, written after the transform.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from staged.errors import GradientError, StagingError
from staged.frontend.calls.open_calls import awaits_result
from staged.frontend.trace.attempts import OpenTransform, TransformKind
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.locals import VariableStates
from staged.frontend.trace.signals import BlockEndedError
from staged.frontend.values.variable import Variable, key_of, variables_by_key, write_variable
from staged.ir.builder import Builder
from staged.ir.names import derived
from staged.ir.nodes import Block, Op, Value, free_values, walk_ops
from staged.ir.rewrite import Copier
from staged.ir.structure import RAISE
from staged.ops.array import StagedArray
from staged.source import Position


@dataclass
class Recording:
    """A traced function: its block, still open to the values around it, and what it yields."""

    trace: TraceContext
    block: Block
    primals: list[Value]
    """The outer values of the block's parameters."""
    yields: list[Value]
    """The results of the function, then the Variables that it wrote."""
    written: list[str]
    where: Position | None

    @property
    def returned(self) -> int:
        """The number of yields that are results of the function."""
        return len(self.yields) - len(self.written)

    def commit(self, values: Sequence[StagedArray]) -> None:
        """Write the Variables that the function wrote: `values` stand for the yields after the returned ones."""
        by_key = variables_by_key(self.trace)
        for key, value in zip(self.written, values, strict=True):
            write_variable(self.trace, by_key[key], value)

    def closed(self, moves: bool = False) -> tuple[Block, list[Value]]:
        """The block with a parameter for every value from outside, and these values, the primals first.

        With `moves` it takes the place of the recorded one, which is not used again.
        """
        free = list(free_values(self.block))
        hints = [*(param.hint for param in self.block.params), *(value.hint for value in free)]
        return close(self.block, [*self.primals, *free], free, hints, moves), [*self.primals, *free]


def record(
    trace: TraceContext,
    name: str,
    primals: Sequence[Value],
    run: Callable[[list[StagedArray]], Sequence[Any]],
    where: Position | None,
    variables: Sequence[Variable] = (),
    types: Sequence[Any] | None = None,
    kind: TransformKind = "derivative",
    stateless: bool = False,
    is_later: bool = False,
) -> Recording:
    """Trace `run` with parameters in place of `primals`; `run` returns what the block yields.

    The first parameters are also what `variables` hold at the start. `stateless` code writes only Variables of its own,
    which end with it. `types` are the parameters', where they differ from the primals'. If the code stops the program
    on every path, the program stops here, unless the code `is_later`: the reverse of a `custom_vjp`.
    """
    block = trace.open_block(
        tuple(primal.type for primal in primals) if types is None else tuple(types),
        tuple(primal.hint for primal in primals),
    )
    params = [StagedArray(param, trace, trace.builder.device) for param in block.params]
    entries: dict[str, Any] = {}
    for variable, param in zip(variables, params, strict=False):
        entries[key_of(trace, variable)] = param
    names = VariableStates(entries)
    outer = trace.block
    with trace.inside(block, is_closed=True):
        # Reads and writes of Variables go through `names`.
        trace.transforms += (OpenTransform(names, outer, kind),)
        trace.shared += (names,)
        try:
            returned = run(params)
        except BlockEndedError:
            if awaits_result(trace):
                with trace.entered(outer):
                    trace.builder.end("raise", (), None, where)
                raise
            params_used = {*block.params} & {operand for op in walk_ops(block.block) for operand in op.operands}
            if is_later:
                raise GradientError(
                    f"`{name}` stops the program on every path, it has no derivative", where=where
                ) from None
            if types is not None and params_used:
                raise StagingError(
                    f"`{name}` stops the program on every path, with a message that depends on the element",
                    where=where,
                    hint="leave values of elements out of the message",
                ) from None
            _stop_as(trace, block.block, primals, outer)
            raise
        written = list(names.__dict__)
        if stateless:
            _end_variables(trace, written)
            written = []
        yields = [
            *(trace.value_of(array) for array in returned),
            *(trace.value_of(names.__dict__[key]) for key in written),
        ]
        trace.builder.end("yield", yields, None, where)
    return Recording(trace, block.block, list(primals), yields, written, where)


def _stop_as(trace: TraceContext, block: Block, primals: Sequence[Value], outer: Any) -> None:
    """End `outer` with the ops of a block that stops the program on every path: its message and its line stay."""
    with trace.entered(outer):
        copier = Copier(trace.builder)
        copier.values.update(zip(block.params, primals, strict=True))
        copier.contents(block)
        copier.end(block)


def _end_variables(trace: TraceContext, written: Sequence[str]) -> None:
    by_key = variables_by_key(trace)
    for key in written:
        made = by_key[key]
        trace.refs.pop(id(made))  # its reference keeps it alive, so that the id stays its own
        made._end()


def close(
    block: Block, captures: Sequence[Value], free: Sequence[Value], hints: Sequence[str], moves: bool = False
) -> Block:
    """`block` with further parameters in place of the values `free`; `captures` give the types of all parameters.

    Its own parameters come first, and keep their types. With `moves` the result takes the place of `block`, which is
    not used again.
    """
    first = len(captures) - len(free)
    types = [*(param.type for param in block.params), *(value.type for value in captures[first:])]
    copier = Copier(Builder(), moves=moves)
    with copier.builder.block(types, list(hints)) as opened:
        copier.values.update(zip(block.params, opened.params[:first], strict=True))
        copier.values.update(zip(free, opened.params[first:], strict=True))
        copier.contents(block)
        copier.end(block)
    return opened.block


def inline(recording: Recording, arguments: Sequence[Value]) -> list[StagedArray]:
    """The ops of a recording, into the open block; handles for what it yields."""
    trace = recording.trace
    values = Copier(trace.builder).inline(recording.block, arguments)
    for value in values:
        trace.block_of.setdefault(value, trace.block)
    return [StagedArray(value, trace, trace.builder.device) for value in values]


def without_effects(block: Block, name: str) -> Block:
    """A copy that prints nothing and checks no assertion: they have been, when the primal ran.

    Raises GradientError where an effect gives a value (the time): run again, it would give another one.
    """

    def rule(op: Op, builder: Builder) -> Sequence[Value] | None:
        kinds = {effect.kind for effect in op.effects}
        if op.blocks or not kinds or op.declared is RAISE:
            return None
        if "io" in kinds and op.results:
            raise GradientError(
                f"`{op.name}` inside `{name}` gives another value each time, which `vjp` cannot repeat",
                where=op.where,
                hint="use `st.value_and_grad`, or call it outside and pass the value in",
            )
        return () if not op.results else None

    return Copier(Builder(), rule).block(block)


def effects_in(block: Block) -> list[Op]:
    """The ops that print, write files or read clocks."""
    return [op for op in walk_ops(block) if not op.blocks and any(effect.kind == "io" for effect in op.effects)]


def name_results(op: Op, yields: Sequence[Value], primals: Sequence[Value]) -> None:
    """Results are called as what they are results of, derivatives `d_` it."""
    for result, value in zip(op.results, yields, strict=False):
        result.hint = value.hint
    for result, primal in zip(op.results[len(yields) :], primals, strict=True):
        result.hint = derived(primal.hint, "d_") or "gradient"
