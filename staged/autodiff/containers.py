"""Derivatives of what residuals are kept in, sequences and frames: so that what a transform writes can be
differentiated again.
"""

from __future__ import annotations

from staged.autodiff.activity import ACTIVE, Activity
from staged.autodiff.cotangents import Cotangents, LoopCotangents, d_name
from staged.autodiff.forward import FORWARDS, Forward
from staged.autodiff.reverse import REVERSES, Reverse
from staged.ir.nodes import Op, Value
from staged.ir.structure import (
    FRAME_LOAD,
    FRAME_NULL,
    FRAME_SAVE,
    SEQUENCE_ADD,
    SEQUENCE_EMPTY,
    SEQUENCE_GET,
    SEQUENCE_SUM,
    SEQUENCE_ZEROS,
)

# ---- activity -----------------------------------------------------------------------------------


@ACTIVE.rule(FRAME_SAVE)
def active_save(activity: Activity, op: Op, active: set[Value]) -> None:
    """In forward mode every frame is active: its tangent is a frame that is saved and loaded wherever it is."""
    if activity.forward or any(operand in active for operand in op.operands):
        activity.mark_results(op, active)


@ACTIVE.rule(SEQUENCE_ZEROS)
def active_zeros(activity: Activity, op: Op, active: set[Value]) -> None:
    """Zeros depend on no element of the sequence whose lengths they have."""


# ---- reverse mode: sequences are linear ---------------------------------------------------------


@REVERSES.rule(SEQUENCE_GET)
def reverse_get(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Reading an element adds to that element's cotangent.

    Exact: an element that is read twice has the sum, one that is never read the zero of `sequence_zeros`.
    """
    sequence, index = op.operands
    cotangent = env.take(op.result)
    if cotangent is not None and sequence in reverse.active:
        element = env.element(op) if isinstance(env, LoopCotangents) else None
        if element is not None:
            reverse.accumulate(env, element, cotangent)
            return
        before = reverse.or_zeros(env.get(sequence), sequence, op)
        added = reverse.builder.op(SEQUENCE_ADD, [before, index, cotangent], [before.type], where=op.where)
        added.result.hint = d_name(sequence)
        env.set(sequence, added.result)


@REVERSES.rule(SEQUENCE_ADD)
def reverse_add(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """A value that was added to an element has that element's cotangent."""
    sequence, index, element = op.operands
    cotangent = env.take(op.result)
    if cotangent is None:
        return
    reverse.accumulate(env, sequence, cotangent)
    if element in reverse.active:
        type = reverse.tangent_types.type(element.type)
        read = reverse.builder.op(SEQUENCE_GET, [cotangent, index], [type], where=op.where)
        reverse.accumulate(env, element, read.result)


@REVERSES.rule(SEQUENCE_SUM)
def reverse_sum(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Each summand has the cotangent of the sum."""
    cotangent = env.take(op.result)
    if cotangent is not None:
        for operand in op.operands:
            reverse.accumulate(env, operand, cotangent)


@REVERSES.rule(SEQUENCE_ZEROS, SEQUENCE_EMPTY, FRAME_NULL)
def reverse_nothing(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """A container that is computed from nothing ends its cotangent."""
    env.take(op.result)


# ---- reverse mode: the cotangent of a frame is a frame ------------------------------------------


@REVERSES.rule(FRAME_SAVE)
def reverse_save(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """The cotangents of the fields are loaded from the frame's cotangent."""
    cotangent = env.take(op.result)
    if cotangent is None:
        return
    fields = [op.operands[number] for number in reverse.tangent_types.fields(op.result.type)]
    types = [reverse.tangent_types.type(field.type) for field in fields]
    loaded = reverse.builder.op(FRAME_LOAD, [cotangent], types, where=op.where)
    for field, result in zip(fields, loaded.results, strict=True):
        reverse.accumulate(env, field, result)


@REVERSES.rule(FRAME_LOAD)
def reverse_load(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """The cotangents of the fields are saved as the frame's cotangent.

    Exact: each frame is loaded once; what would add two cotangents of one is refused (`Reverse.add`).
    """
    cotangents = [env.take(result) for result in op.results]
    (frame,) = op.operands
    if frame in reverse.active:
        chosen = reverse.tangent_types.fields(frame.type)
        given = [reverse.or_zeros(cotangents[number], op.results[number], op) for number in chosen]
        saved = reverse.builder.op(FRAME_SAVE, given, [reverse.tangent_types.type(frame.type)], where=op.where)
        reverse.accumulate(env, frame, saved.result)


# ---- forward mode -------------------------------------------------------------------------------


@FORWARDS.rule(SEQUENCE_GET)
def forward_get(forward: Forward, op: Op) -> None:
    """The tangent of an element is the element of the tangent."""
    forward.copied(op)
    sequence, index = op.operands
    if sequence in forward.tangents and forward.tangent_types.has(op.result.type):
        forward.set(op.result, _on_tangents(forward, op, forward.tangents[sequence], forward.value(index)))


@FORWARDS.rule(SEQUENCE_ADD)
def forward_add(forward: Forward, op: Op) -> None:
    """The tangent of what is added is added to the tangent.

    Exact: an addition to an element without a tangent leaves the sequence's tangent as it is.
    """
    forward.copied(op)
    sequence, index, element = op.operands
    if not forward.touches(op) or not forward.tangent_types.has(op.result.type):
        return
    if element not in forward.tangents:
        forward.copy_tangent(sequence, op.result)
    else:
        before, tangent = forward.or_zeros(sequence, op), forward.tangents[element]
        forward.set(op.result, _on_tangents(forward, op, before, forward.value(index), tangent))


@FORWARDS.rule(SEQUENCE_SUM)
def forward_sum(forward: Forward, op: Op) -> None:
    """The sum of the tangents that there are."""
    forward.copied(op)
    if not forward.touches(op) or not forward.tangent_types.has(op.result.type):
        return
    given = [forward.tangents[operand] for operand in op.operands if operand in forward.tangents]
    if len(given) == 1:
        forward.tangents[op.result] = given[0]
    else:
        forward.set(op.result, _on_tangents(forward, op, *given))


@FORWARDS.rule(SEQUENCE_ZEROS, SEQUENCE_EMPTY, FRAME_NULL)
def forward_nothing(forward: Forward, op: Op) -> None:
    """A container that is computed from nothing has no tangent."""
    forward.copied(op)


@FORWARDS.rule(FRAME_SAVE)
def forward_save(forward: Forward, op: Op) -> None:
    """The tangent of a frame holds the tangents of all its float fields, zeros too:
    `forward_load` expects every one."""
    forward.copied(op)
    if forward.tangent_types.has(op.result.type):
        chosen = forward.tangent_types.fields(op.result.type)
        given = [forward.or_zeros(op.operands[number], op) for number in chosen]
        forward.set(op.result, _on_tangents(forward, op, *given))


@FORWARDS.rule(FRAME_LOAD)
def forward_load(forward: Forward, op: Op) -> None:
    """The tangents of the fields are the fields of the frame's tangent."""
    forward.copied(op)
    (frame,) = op.operands
    if not forward.tangent_types.has(frame.type):
        return
    fields = [op.results[number] for number in forward.tangent_types.fields(frame.type)]
    types = [forward.tangent_types.type(field.type) for field in fields]
    load = Op(op.name, [forward.tangents[frame]], types, device=op.device, where=op.where)
    for field, tangent in zip(fields, forward.builder.append(load).results, strict=True):
        forward.set(field, tangent)


def _on_tangents(forward: Forward, op: Op, *tangents: Value) -> Value:
    """The same op on tangents, as the tangent of its result."""
    type = forward.tangent_types.type(op.result.type)
    return forward.builder.append(Op(op.name, tangents, [type], device=op.device, where=op.where)).result
