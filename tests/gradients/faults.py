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

import staged.autodiff.reverse as reverse_module
import staged.program as program_module
from staged.autodiff.activity import Activity
from staged.autodiff.cotangents import Cotangents
from staged.autodiff.reverse import Reverse
from staged.ir.nodes import Op, Value, walk_ops
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

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = PRIMITIVES[name]
        assert right.vjp is not None
        vjp = right.vjp

        def wrong(ct: Any, result: Any, *operands: Any, **attrs: Any) -> Sequence[Any]:
            return [None if given is None else given * 1.5 for given in vjp(ct, result, *operands, **attrs)]

        patch.setitem(PRIMITIVES, name, dataclasses.replace(right, vjp=wrong))

    return _fault(plant)


def lost_operand(name: str, place: int) -> Callable[[], Any]:
    """The vjp of one op drops the cotangent of one operand."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = PRIMITIVES[name]
        assert right.vjp is not None
        vjp = right.vjp

        def wrong(ct: Any, result: Any, *operands: Any, **attrs: Any) -> Sequence[Any]:
            return [
                None if index == place else given for index, given in enumerate(vjp(ct, result, *operands, **attrs))
            ]

        patch.setitem(PRIMITIVES, name, dataclasses.replace(right, vjp=wrong))

    return _fault(plant)


# ---- sums of cotangents -------------------------------------------------------------------------


def _forget_earlier_uses(patch: pytest.MonkeyPatch) -> None:
    def accumulate(self: Reverse, env: Cotangents, value: Value, cotangent: Value) -> None:
        if value in self.active:
            env.set(value, cotangent)

    patch.setattr(Reverse, "accumulate", accumulate)


earlier_uses_forgotten = _fault(_forget_earlier_uses)
"""A value that is used twice gets the cotangent of one use."""


# ---- branches -----------------------------------------------------------------------------------


def _after_branches(change: Callable[[Op], None]) -> Plant:
    """`change` is done to the reverse of every `if`."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = Reverse.branches

        def branches(self: Reverse, op: Op, env: Cotangents) -> None:
            current = self.builder.current
            assert current is not None
            before = len(current.ops)
            right(self, op, env)
            for made in current.ops[before:]:
                if made.name == "if":
                    change(made)

        patch.setattr(Reverse, "branches", branches)

    return plant


def _swap_blocks(made: Op) -> None:
    made.blocks = made.blocks[::-1]


other_branch_taken = _fault(_after_branches(_swap_blocks))
"""The reverse of an `if` runs the branch that was not taken."""


# ---- loops --------------------------------------------------------------------------------------


def _after_loops(change: Callable[[Reverse, Op], None]) -> Plant:
    """`change` is done to every reverse loop."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = reverse_module.reverse_loop

        def reverse_loop(reverse: Reverse, op: Op, env: Cotangents) -> None:
            current = reverse.builder.current
            assert current is not None
            before = len(current.ops)
            right(reverse, op, env)
            for made in current.ops[before:]:
                if made.name == "for":
                    change(reverse, made)

        patch.setattr(reverse_module, "reverse_loop", reverse_loop)

    return plant


def _insert(reverse: Reverse, before: Op, name: str, operands: Sequence[Value], attrs: dict[str, Any]) -> Value:
    """A new op in front of another one in the block that is being written."""
    made = Op(name, operands, [COUNT], attrs=attrs, device=before.device, where=before.where)
    current = reverse.builder.current
    assert current is not None
    current.ops.insert(current.ops.index(before), made)
    return made.result


def _begin_one_turn_later(reverse: Reverse, made: Op) -> None:
    minus_one = _insert(reverse, made, "constant", [], {"value": -1})
    last = _insert(reverse, made, "add", [made.operands[0], minus_one], {})
    made.operands = (last, *made.operands[1:])


def _stop_one_turn_early(reverse: Reverse, made: Op) -> None:
    zero = _insert(reverse, made, "constant", [], {"value": 0})
    made.operands = (made.operands[0], zero, *made.operands[2:])


def _read_the_first_turn(reverse: Reverse, made: Op) -> None:
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
    value = made.operands[-1]
    if not isinstance(value.type, SequenceType):
        current = reverse.builder.current
        assert current is not None
        attrs = {"shape": value.tensor.shape, "axes": ()}
        zero = Op("constant", [], [dataclasses.replace(value.tensor, shape=())], attrs={"value": 0.0})
        ops = [zero]
        if value.tensor.shape:
            ops.append(Op("broadcast_to", [zero.result], [value.type], attrs=attrs))
        place = current.ops.index(made)
        current.ops[place:place] = ops
        made.operands = (*made.operands[:-1], ops[-1].result)


last_turn_left_out = _fault(_after_loops(_begin_one_turn_later))
"""A reverse loop begins one iteration too late."""
first_turn_left_out = _fault(_after_loops(_stop_one_turn_early))
"""A reverse loop stops one iteration too early."""
residuals_of_the_first_turn = _fault(_after_loops(_read_the_first_turn))
"""A reverse loop reads in every iteration what the primal kept in its first."""
loop_sum_forgotten = _fault(_after_loops(_forget_last_carried))
"""A reverse loop does not carry its last cotangent on: a sum over iterations, if it has one."""
cotangent_before_the_loop_forgotten = _fault(_after_loops(_forget_what_came_before))
"""A reverse loop starts its last cotangent from zero."""


# ---- activity -----------------------------------------------------------------------------------


def _first_results_are_inactive(patch: pytest.MonkeyPatch) -> None:
    right = Activity.values

    def values(self: Activity, block: Any, wrt: Any) -> set[Value]:
        active = right(self, block, wrt)
        for op in walk_ops(block):
            if op.name == "if" and op.results:
                active.discard(op.results[0])
        return active

    patch.setattr(Activity, "values", values)


first_result_of_branches_inactive = _fault(_first_results_are_inactive)
"""The first result of an `if` counts as one that nothing differentiable flows into."""


def _loops_are_inactive(patch: pytest.MonkeyPatch) -> None:
    right = Activity.values

    def values(self: Activity, block: Any, wrt: Any) -> set[Value]:
        active = right(self, block, wrt)
        for op in walk_ops(block):
            if op.name in ("for", "while"):
                active.difference_update(op.results)
        return active

    patch.setattr(Activity, "values", values)


results_of_loops_inactive = _fault(_loops_are_inactive)
"""The results of loops count as constants."""


# ---- calls --------------------------------------------------------------------------------------


def _after_calls(change: Callable[[Reverse, Op, Op | None], None]) -> Plant:
    """`change` is done to every call of a backward function; it sees the one written before it in the same block."""

    def plant(patch: pytest.MonkeyPatch) -> None:
        right = reverse_module.reverse_call

        def reverse_call(reverse: Reverse, op: Op, env: Cotangents) -> None:
            current = reverse.builder.current
            assert current is not None
            before = [made for made in current.ops if made.name == "call"]
            right(reverse, op, env)
            made = next(made for made in reversed(current.ops) if made.name == "call")
            change(reverse, made, before[-1] if before else None)

        patch.setattr(reverse_module, "reverse_call", reverse_call)

    return plant


def _begin_anew(reverse: Reverse, made: Op, _: Op | None) -> None:
    current = reverse.builder.current
    assert current is not None
    for place, _number in made.attrs.get("in_place", ()):
        value = made.operands[place]
        zero = Op("constant", [], [dataclasses.replace(value.tensor, shape=())], attrs={"value": 0.0})
        ops = [zero]
        if value.tensor.shape:
            attrs = {"shape": value.tensor.shape, "axes": ()}
            ops.append(Op("broadcast_to", [zero.result], [value.type], attrs=attrs))
        at = current.ops.index(made)
        current.ops[at:at] = ops
        made.operands = (*made.operands[:place], ops[-1].result, *made.operands[place + 1 :])


def _take_the_other_frame(_: Reverse, made: Op, before: Op | None) -> None:
    if before is not None and before.operands[0].type == made.operands[0].type:
        made.operands = (before.operands[0], *made.operands[1:])


sums_over_calls_begin_anew = _fault(_after_calls(_begin_anew))
"""The gradient of a weight that several calls share is that of one of them."""
frame_of_another_call = _fault(_after_calls(_take_the_other_frame))
"""The reverse of a call reads what another call has left."""
