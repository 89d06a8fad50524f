"""Faults planted in our own reverse mode, one per kind of mistake: a check of gradients must notice each.

Each is a context manager. Some replace a rule or a step of `staged.autodiff`; others change the reverse loop or branch
that it has just written, in the way that a wrong line there would.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

import staged.call.program as program_module
from staged.autodiff.activity import Activity
from staged.autodiff.cotangents import Cotangents
from staged.autodiff.reverse import REVERSES, Reverse
from staged.ir.nodes import Op, Value, walk_ops
from staged.ir.structure import CALL, FOR, IF, WHILE
from staged.ir.trips import COUNT
from staged.ir.types import SequenceType
from staged.ops.primitive import PRIMITIVES

Plant = Callable[[pytest.MonkeyPatch], None]


def _fault(plant: Plant) -> Callable[[], Any]:
    """A context manager that plants a fault, and keeps what comes of it out of the cache of generated texts."""

    @contextmanager
    def planted() -> Iterator[None]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(program_module, "find_artifact", lambda *_: None)
            patch.setattr(program_module, "store_artifact", lambda *_: None)
            plant(patch)
            yield

    return planted


# ---- rules of ops -------------------------------------------------------------------------------


def wrong_rule(name: str) -> Callable[[], Any]:
    """The vjp of one op gives one and a half times what it should."""
    return _fault(_changed_vjp(name, lambda cotangents: [None if ct is None else ct * 1.5 for ct in cotangents]))


def lost_operand(name: str, place: int) -> Callable[[], Any]:
    """The vjp of one op drops the cotangent of one operand."""
    return _fault(
        _changed_vjp(name, lambda cotangents: [None if index == place else ct for index, ct in enumerate(cotangents)])
    )


def _changed_vjp(name: str, change: Callable[[Sequence[Any]], Sequence[Any]]) -> Plant:
    """`change` is done to the cotangents that the vjp of an op gives."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = PRIMITIVES[name]
        vjp = right.vjp
        assert vjp is not None

        def wrong(*given: Any, **attrs: Any) -> Sequence[Any]:
            return change(vjp(*given, **attrs))

        patch.setitem(vars(right), "vjp", wrong)

    return plant


# ---- sums of cotangents -------------------------------------------------------------------------


def _forget_earlier_uses(patch: pytest.MonkeyPatch) -> None:
    def accumulate(self: Reverse, env: Cotangents, value: Value, cotangent: Value) -> None:
        if value in self.active:
            env.set(value, cotangent)

    patch.setattr(Reverse, "accumulate", accumulate)


earlier_uses_forgotten = _fault(_forget_earlier_uses)
"""A value that is used twice gets the cotangent of one use."""


# ---- what reverse mode has just written ---------------------------------------------------------


def _open_ops(reverse: Reverse) -> list[Op]:
    """The ops of the block that is being written."""
    current = reverse.builder.current
    assert current is not None
    return current.ops


def _after(step: Callable[..., None], name: str, change: Callable[[Reverse, Op], None]) -> Callable[..., None]:
    """A step of reverse mode, then `change` on each op `name` that it has written."""

    def changed(reverse: Reverse, op: Op, env: Cotangents) -> None:
        ops = _open_ops(reverse)
        before = len(ops)
        step(reverse, op, env)
        for made in ops[before:]:
            if made.name == name:
                change(reverse, made)

    return changed


def _insert(reverse: Reverse, before: Op, name: str, operands: Sequence[Value], attrs: dict[str, Any]) -> Value:
    """A new op in front of another one in the block that is being written."""
    made = Op(name, operands, [COUNT], attrs=attrs, device=before.device, where=before.where)
    ops = _open_ops(reverse)
    ops.insert(ops.index(before), made)
    return made.result


def _start_from_zeros(reverse: Reverse, made: Op, place: int) -> None:
    """An operand of an op becomes zeros."""
    value = made.operands[place]
    zeros = [Op("constant", [], [dataclasses.replace(value.tensor, shape=())], attrs={"value": 0.0})]
    if value.tensor.shape:
        attrs = {"shape": value.tensor.shape, "axes": ()}
        zeros.append(Op("broadcast_to", [zeros[0].result], [value.type], attrs=attrs))
    ops = _open_ops(reverse)
    at = ops.index(made)
    ops[at:at] = zeros
    operands = list(made.operands)
    operands[place] = zeros[-1].result
    made.operands = tuple(operands)


# ---- branches -----------------------------------------------------------------------------------


def _swap_blocks(reverse: Reverse, made: Op) -> None:
    made.blocks = made.blocks[::-1]


def _take_the_other_branch(patch: pytest.MonkeyPatch) -> None:
    patch.setitem(REVERSES, IF, _after(REVERSES[IF], "if", _swap_blocks))


other_branch_taken = _fault(_take_the_other_branch)
"""The reverse of an `if` runs the branch that was not taken."""


# ---- loops --------------------------------------------------------------------------------------


def _after_loops(change: Callable[[Reverse, Op], None]) -> Plant:
    """`change` is done to every reverse loop."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        for loop in (FOR, WHILE):
            patch.setitem(REVERSES, loop, _after(REVERSES[loop], "for", change))

    return plant


def _begin_one_turn_later(reverse: Reverse, made: Op) -> None:
    minus_one = _insert(reverse, made, "constant", [], {"value": -1})
    last = _insert(reverse, made, "add", [made.operands[0], minus_one], {})
    made.operands = (last, *made.operands[1:])


def _stop_one_turn_early(reverse: Reverse, made: Op) -> None:
    zero = _insert(reverse, made, "constant", [], {"value": 0})
    made.operands = (made.operands[0], zero, *made.operands[2:])


def _read_the_first_iteration(reverse: Reverse, made: Op) -> None:
    zero = _insert(reverse, made, "constant", [], {"value": 0})
    index = made.blocks[0].params[0]
    for op in made.blocks[0].ops:
        if op.name == "sequence_get" and op.operands[1] is index:
            op.operands = (op.operands[0], zero)


def _forget_last_carried(reverse: Reverse, made: Op) -> None:
    block = made.blocks[0]
    if block.end.kind == "yield" and block.end.operands:
        block.end = dataclasses.replace(block.end, operands=(*block.end.operands[:-1], block.params[-1]))


def _forget_what_came_before(reverse: Reverse, made: Op) -> None:
    """The last carried cotangent starts from zeros: what was added to it after the loop is lost."""
    if not isinstance(made.operands[-1].type, SequenceType):
        _start_from_zeros(reverse, made, -1)


last_iteration_left_out = _fault(_after_loops(_begin_one_turn_later))
"""A reverse loop begins one iteration too late."""
first_turn_left_out = _fault(_after_loops(_stop_one_turn_early))
"""A reverse loop stops one iteration too early."""
residuals_of_the_first_iteration = _fault(_after_loops(_read_the_first_iteration))
"""A reverse loop reads in every iteration what the primal kept in its first."""
loop_sum_forgotten = _fault(_after_loops(_forget_last_carried))
"""A reverse loop does not carry its last cotangent on: a sum over iterations, if it has one."""
cotangent_before_the_loop_forgotten = _fault(_after_loops(_forget_what_came_before))
"""A reverse loop starts its last cotangent from zero."""


# ---- activity -----------------------------------------------------------------------------------


def _inactive(names: Sequence[str], count: int | None) -> Plant:
    """Nothing differentiable flows into the first `count` results (None: into any) of the ops with these names."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = Activity.values

        def values(self: Activity, block: Any, wrt: Any) -> set[Value]:
            active = right(self, block, wrt)
            for op in walk_ops(block):
                if op.name in names:
                    active.difference_update(op.results[:count])
            return active

        patch.setattr(Activity, "values", values)

    return plant


first_result_of_branches_inactive = _fault(_inactive(["if"], 1))
"""The first result of an `if` counts as one that nothing differentiable flows into."""
results_of_loops_inactive = _fault(_inactive(["for", "while"], None))
"""The results of loops count as constants."""


# ---- calls --------------------------------------------------------------------------------------


def _after_calls(change: Callable[[Reverse, Op, Op | None], None]) -> Plant:
    """`change` is done to every call of a backward function; it sees the one written before it in the same block."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = REVERSES[CALL]

        def reverse_call(reverse: Reverse, op: Op, env: Cotangents) -> None:
            ops = _open_ops(reverse)
            before = [made for made in ops if made.name == "call"]
            right(reverse, op, env)
            made = next(made for made in reversed(ops) if made.name == "call")
            change(reverse, made, before[-1] if before else None)

        patch.setitem(REVERSES, CALL, reverse_call)

    return plant


def _begin_anew(reverse: Reverse, made: Op, _: Op | None) -> None:
    for place, _number in made.attrs.get("in_place", ()):
        _start_from_zeros(reverse, made, place)


def _take_the_other_frame(_: Reverse, made: Op, before: Op | None) -> None:
    if before is not None and before.operands[0].type == made.operands[0].type:
        made.operands = (before.operands[0], *made.operands[1:])


sums_over_calls_begin_anew = _fault(_after_calls(_begin_anew))
"""The gradient of a weight that several calls share is that of one of them."""
frame_of_another_call = _fault(_after_calls(_take_the_other_frame))
"""The reverse of a call reads what another call has left."""
