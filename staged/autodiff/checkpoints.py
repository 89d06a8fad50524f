"""Derivatives of `checkpoint` and `custom_vjp`: what the user decides about residuals, and about the reverse itself."""

from __future__ import annotations

from staged.autodiff.activity import ACTIVE, Activity
from staged.autodiff.copiers import EXTENDED, PrimalCopier
from staged.autodiff.cotangents import Cotangents, d_name
from staged.autodiff.forward import FORWARDS, Forward, dot_name
from staged.autodiff.residuals import ExtraResults
from staged.autodiff.reverse import REVERSES, Reverse, differentiate
from staged.autodiff.rules import closed_over, no_forward
from staged.ir.builder import Builder
from staged.ir.nodes import Function, Op, Value, walk_ops
from staged.ir.rewrite import Copier, inline_block
from staged.ir.structure import CHECKPOINT, CUSTOM_VJP
from staged.ir.views import CustomVjp
from staged.source import in_backward


@REVERSES.rule(CHECKPOINT)
def reverse_checkpoint(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Write the reverse of a `checkpoint`: recompute the primal from the captures, and reverse that.

    Exact: recomputed ops have the same operands, random keys among them, and so the same bits; effects are not
    repeated.

    It stays an op of its own, marked `again`, so that no pass merges recomputed values with those of the primal.
    """
    (block,) = op.blocks
    builder = reverse.builder
    cotangents = [env.take(result) for result in op.results]
    of = tuple(number for number, cotangent in enumerate(cotangents) if cotangent is not None)
    wrt = tuple(number for number, operand in enumerate(op.operands) if operand in reverse.active)
    seeds = [cotangent for cotangent in cotangents if cotangent is not None]
    operands = [*op.operands, *seeds]
    hints = [*(param.hint for param in block.params), *(d_name(op.results[number]) for number in of)]
    with builder.block([value.type for value in operands], hints) as opened:
        captures, given = opened.params[: len(op.operands)], opened.params[len(op.operands) :]
        seeded = dict(zip(of, given, strict=True))
        _, gradients = differentiate(reverse.pool, block, captures, wrt, seeded, builder, op, quiet=True)
        builder.end("yield", gradients, None, op.where)
    types = [value.type for value in gradients]
    attrs = {"again": True}
    again = builder.op(CHECKPOINT, operands, types, attrs=attrs, blocks=[opened.block], where=in_backward(op.where))
    for number, result in zip(wrt, again.results, strict=True):
        result.hint = d_name(op.operands[number])
        reverse.accumulate(env, op.operands[number], result)


@ACTIVE.rule(CUSTOM_VJP)
def active_custom(activity: Activity, op: Op, active: set[Value]) -> None:
    """Every result depends on each argument; what is read past the arguments must not be active."""
    wrt = CustomVjp(op).wrt
    if any(value in active for number, value in enumerate(op.operands) if number not in wrt):
        raise closed_over(op.attrs.get("name", "a function"), op.where)
    if any(op.operands[number] in active for number in wrt):
        activity.mark_results(op, active)


@REVERSES.rule(CUSTOM_VJP)
def reverse_custom(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """Write the reverse that the user gives: the primal leaves what their forward function does, their backward takes
    that.

    Exact: as the user's rule is; a result without a cotangent has zeros, and integers and bools are not looked at.
    """
    rule = CustomVjp(op)
    cotangents = [env.take(result) for result in op.results]
    extra = reverse.residuals.extra(op)
    extra.own = [Value(value.type, value.hint) for value in rule.residuals]
    env.made.update(extra.own)
    floats = [
        reverse.or_zeros(cotangent, result, op)
        for result, cotangent in zip(op.results, cotangents, strict=True)
        if reverse.tangent_types.has(result.type)
    ]
    given = inline_block(reverse.builder, rule.backward, [*extra.own, *floats])
    for number, cotangent in zip(rule.wrt, given, strict=True):
        reverse.accumulate(env, op.operands[number], cotangent)


@EXTENDED.rule(CUSTOM_VJP)
def extended_custom(copier: PrimalCopier, op: Op, extra: ExtraResults) -> None:
    """The user's forward function takes the place of the primal."""
    given = copier.inline(CustomVjp(op).forward, [copier.value(operand) for operand in op.operands])
    copier.define([*op.results, *extra.own], given)


@FORWARDS.rule(CHECKPOINT)
def forward_checkpoint(forward: Forward, op: Op) -> None:
    """A checkpoint of both, primal and tangents: its reverse makes both again.

    Exact: one of which no operand has a tangent stays as it is.
    """
    (block,) = op.blocks
    moved = [number for number, operand in enumerate(op.operands) if operand in forward.tangents]
    if not moved:
        forward.copied(op)
        return
    chosen = forward.chosen(op.results)
    types = [param.type for param in block.params] + [
        forward.tangent_types.type(block.params[number].type) for number in moved
    ]
    hints = [param.hint for param in block.params] + [dot_name(block.params[number]) for number in moved]
    with forward.builder.block(types, hints) as opened:
        forward.values.update(zip(block.params, opened.params, strict=False))
        tangents = opened.params[len(block.params) :]
        forward.tangents.update(zip((block.params[number] for number in moved), tangents, strict=True))
        forward.contents(block)
        forward.close(block, lambda: forward.yields(block, chosen, op))
    operands = [*map(forward.value, op.operands), *(forward.tangents[op.operands[number]] for number in moved)]
    new_types = [result.type for result in op.results]
    new_types += [forward.tangent_types.type(op.results[number].type) for number in chosen]
    copy = forward.builder.append(op.replace(operands=operands, blocks=[opened.block], result_types=new_types))
    forward.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)


@FORWARDS.rule(CUSTOM_VJP)
def forward_custom(forward: Forward, op: Op) -> None:
    """Refused where it has tangents: the user gives a reverse derivative only."""
    forward.copied(op)
    if forward.touches(op):
        raise no_forward(op.attrs.get("name", "a function"), op.where)


def settle(function: Function) -> Function:
    """`function` with no transform around it any more: a `checkpoint` is its body, a `custom_vjp` its primal.

    Exact: all transforms around it are fulfilled, so that what it would keep, or how it is reversed, means nothing any
    more.

    The `checkpoint` ops of reverses stay until equal ops have been merged (`inline_checkpoints`).
    """
    if not any(op.declared in (CHECKPOINT, CUSTOM_VJP) for op in walk_ops(function.block)):
        return function
    return function.with_block(_Settle(Builder()).block(function.block))


class _Settle(Copier):
    def op(self, op: Op) -> None:
        if op.declared is CUSTOM_VJP or (op.declared is CHECKPOINT and not op.attrs.get("again")):
            self.inline_op(op)
        else:
            super().op(op)
