"""Derivatives of branches: an `if` on the same condition, whose branches are the derivatives of the branches."""

from __future__ import annotations

from staged.autodiff.activity import ACTIVE, Activity
from staged.autodiff.copiers import EXTENDED, PrimalCopier
from staged.autodiff.cotangents import Cotangents, d_name
from staged.autodiff.forward import FORWARDS, Forward
from staged.autodiff.residuals import ExtraResults, Prologue
from staged.autodiff.reverse import REVERSES, Reverse, made_in
from staged.ir.builder import OpenBlock
from staged.ir.names import FieldName, name_of
from staged.ir.nodes import Op, Value
from staged.ir.structure import IF, SCOPE
from staged.source import in_backward


@ACTIVE.rule(IF)
def active_branches(activity: Activity, op: Op, active: set[Value]) -> None:
    """A result is active if either branch yields an active value for it."""
    for branch in op.blocks:
        activity.visit(branch, active)
        if branch.end.kind == "yield":
            activity.mark(op.results, branch.end.operands, active)


@REVERSES.rule(IF)
def reverse_branches(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """The reverse of an `if`: the same decision again, then the reverse of the branch that was taken.

    Exact: the branch that was not taken computes nothing, so that a NaN or a failing op of it stays there; it yields
    the cotangents as they were, or zeros.
    """
    cotangents = [env.take(result) for result in op.results]
    device, where = op.device, in_backward(op.where)
    opened: list[OpenBlock] = []
    inner: list[Cotangents] = []
    # Branches are closed only when it is known what either of them changes: both yield the same.
    for branch in op.blocks:
        made = made_in(branch)
        changed = Cotangents(made, env)
        with reverse.unfinished() as block:
            if branch.end.kind == "yield":
                for operand, cotangent in zip(branch.end.operands, cotangents, strict=True):
                    if cotangent is not None:
                        reverse.accumulate(changed, operand, cotangent)
                reverse.block(branch, changed)
        opened.append(block)
        inner.append(changed)
    reverse.where, reverse.builder.device = where, device
    outward = list(dict.fromkeys(value for changed in inner for value in changed.exports()))
    if not outward:
        return
    for branch, block, changed in zip(op.blocks, opened, inner, strict=True):
        reverse.builder.current = block
        reverse.builder.end(
            "yield", [reverse.or_zeros(changed.get(value), value, op) for value in outward], where=where
        )
        reverse.builder.current = block.parent
        needed = reverse.needed(block.block)
        env.made.update(
            reverse.residuals.fetch_from_branch(op, branch, changed.made, needed, Prologue(reverse.builder, block))
        )
    types = [reverse.tangent_types.type(value.type) for value in outward]
    blocks = [block.block for block in opened]
    again = reverse.builder.op(IF, [op.operands[0]], types, blocks=blocks, where=where)
    for value, result in zip(outward, again.results, strict=True):
        result.hint = d_name(value) or FieldName(f"d_{name_of(value)}")
        env.set(value, result)


@EXTENDED.rule(IF)
def extended_branches(copier: PrimalCopier, op: Op, extra: ExtraResults) -> None:
    """Each branch yields its own residuals, and `absent` placeholders for the other branch's."""
    blocks = []
    for branch in op.blocks:
        own = made_in(branch)
        for inner in branch.ops:
            if inner in copier.extras:
                own.update(copier.extras[inner].stand_ins)
        with copier.builder.block() as opened:
            copier.contents(branch)
            if branch.end.kind == "yield":
                given = [copier.value(operand) for operand in branch.end.operands]
                given += [copier.value(v) if v in own else copier.absent(v, op) for v, _ in extra.values]
                copier.builder.end("yield", given, None, branch.end.where)
            else:
                copier.end(branch)
        blocks.append(opened.block)
    operands = [copier.value(operand) for operand in op.operands]
    results = [*op.results, *(outside for _, outside in extra.values)]
    copier.extended(op, operands, results, blocks=blocks)


@FORWARDS.rule(IF)
def forward_branches(forward: Forward, op: Op) -> None:
    """An `if` on the same condition, which yields tangents too.

    Exact: only the branch that is taken computes tangents, so that what is NaN in the other one stays there.
    """
    chosen = forward.chosen(op.results)
    blocks = []
    for branch in op.blocks:
        with forward.builder.block() as opened:
            forward.contents(branch)
            forward.close(branch, lambda branch=branch: forward.yields(branch, chosen, op))  # type: ignore[misc]
        blocks.append(opened.block)
    types = [result.type for result in op.results]
    types += [forward.tangent_types.type(op.results[number].type) for number in chosen]
    operands = [forward.value(operand) for operand in op.operands]
    copy = forward.builder.append(op.replace(operands=operands, blocks=blocks, result_types=types))
    forward.took(op, copy.results, [*op.results, *(None for _ in chosen)], chosen)


@REVERSES.rule(SCOPE)
def reverse_scope(reverse: Reverse, op: Op, env: Cotangents) -> None:
    """There is none: exits are flags by now."""
    raise AssertionError("a scope in differentiated code: normalize_exits runs before autodiff")
