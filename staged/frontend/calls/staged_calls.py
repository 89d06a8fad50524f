"""Calls of staged functions inside a trace: recorded in place, or, where a function calls itself, as a function of its
own.

A call is traced in place until one with the same arguments (static ones equal, staged ones of joining types) is met
inside it under staged control. Then the outermost of the two is taken back (`CallsItself`) and traced by
`recursion.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from staged.errors import StaticIndexError
from staged.frontend.calls.call import calls_of
from staged.frontend.calls.call_arguments import (
    CallArguments,
    Slots,
    fits_slots,
    flatten_call,
    meet,
    program_name,
    same_function,
)
from staged.frontend.calls.open_calls import Activation, CallsItself, Functions, OpenCalls
from staged.frontend.calls.recursion import emit_call, plain_call, trace_function
from staged.frontend.exits.targets import CarryingTarget
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.signals import Again
from staged.frontend.values.join import is_staged
from staged.ir.nodes import Block, End, Op, free_values
from staged.ir.structure import CALL_BEGIN, CALL_END
from staged.source import here, position_of_function

SHALLOW = 32
"""Calls inside one another that differ in static numbers only: from here on these numbers are staged instead of
unrolled.
"""


@calls_of("__staged_inline__")
def call_staged(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """A call of a staged function by another one: its program goes on in the one that is traced."""
    trace = current_trace()
    wrapped = function.__staged_inline__
    if trace is None:
        return plain_call(wrapped, args, kwargs)
    given = flatten_call(wrapped, args, kwargs, function.__staged_static__)
    alike = [
        other
        for other in trace.of(OpenCalls).activations
        if same_function(other.function, wrapped) and other.call.structure == given.structure
    ]
    for other in reversed(alike):
        if other.special is not None and fits_slots(other.slots, given):
            return emit_call(trace, other.special, given)
    for other in alike:
        if other.special is not None or _is_staged_since(trace, other):
            joined = meet(other.slots, given)
            if joined is not None:
                raise Again(other.attempt, CallsItself(joined))
    for known in trace.of(Functions).finished:
        if known.serves(trace, wrapped, given):
            return emit_call(trace, known.special, given)
    outermost, lifted = _lifted(alike, given)
    if outermost is not None:
        raise Again(outermost.attempt, CallsItself(lifted))
    try:
        return activate(trace, wrapped, given, lambda: _marked_call(trace, wrapped, given, args, kwargs))
    except StaticIndexError:
        # A number that changes from call to call, such as a position, is past the end while the program decides whether
        # it comes to that: staged, it is looked at when the program gets there.
        outermost, lifted = _lifted(alike, given, 1)
        if outermost is None or not _is_staged_since(trace, outermost):
            raise
        raise Again(outermost.attempt, CallsItself(lifted)) from None


def activate(
    trace: TraceContext, function: Callable[..., Any], given: CallArguments, in_place: Callable[[], Any]
) -> Any:
    """`in_place()` as an open call of `function`; where that meets itself,
    a call of a function of the program instead."""
    with trace.attempt([*trace.shared]) as attempt:
        activation = Activation(function, given, given.slots, len(trace.targets), len(trace.conditional), attempt)
        trace.put(OpenCalls((*trace.of(OpenCalls).activations, activation)))
        return in_place()
    return trace_function(trace, function, given, attempt.reason.slots)


def _marked_call(
    trace: TraceContext,
    function: Callable[..., Any],
    given: CallArguments,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
) -> Any:
    """The call in place, between markers: where it is made alike several times it may become a function after all."""
    number = next(trace.of(Functions).numbers)
    begin = Op(CALL_BEGIN, [], [], attrs={"function": program_name(function), "call": number}, where=here())
    trace.emit_op(begin)
    block, start = trace.block, len(trace.block.ops)
    value = plain_call(function, args, kwargs)
    recorded = block.ops[start:]
    if not recorded:
        block.ops.pop()
        return value
    names = {leaf.value: path for leaf, path in zip(given.leaves, given.paths, strict=True) if is_staged(leaf)}
    captures = free_values(Block((), recorded, End("yield")))
    attrs = {"call": number, "names": tuple(names.get(value, "") for value in captures)}
    # `call_end` carries the position of the definition, `call_begin` that of the call.
    trace.emit_op(Op(CALL_END, [], [], attrs=attrs, where=position_of_function(function)))
    return value


def _is_staged_since(trace: TraceContext, activation: Activation) -> bool:
    """Return whether the program decides if what is traced now runs, given that `activation` does."""
    if len(trace.conditional) > activation.conditional:
        return True
    return any(isinstance(target, CarryingTarget) and target.exits for target in trace.targets[activation.targets :])


def _lifted(alike: list[Activation], given: CallArguments, least: int = SHALLOW) -> tuple[Activation | None, Slots]:
    """The outermost of `least` or more calls that differ in numbers known while staging, and slots for all of them."""
    outermost, slots, count = None, given.slots, 0
    for other in reversed(alike):
        joined = meet(slots, other.call, lift=True)
        if joined is None:
            break
        outermost, slots, count = other, joined, count + 1
    return (outermost if count >= least else None), slots
