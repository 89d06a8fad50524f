"""Bodies and attempts: what surrounds traced code is put back on every way out, and what was recorded when taken back."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.lifetimes import Held, OfAttempt, OfBody, OfTrace
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import Again, Target
from staged.frontend.values.mutation import record_contents
from staged.ir.builder import Builder
from staged.ir.sizes import Dim
from staged.ops.context import use_context


@dataclass(frozen=True)
class Here(OfBody):
    number: int = 0


@dataclass(frozen=True)
class SoFar(OfAttempt):
    number: int = 0


@dataclass
class Always(OfTrace):
    number: int = 0


@pytest.fixture
def trace() -> Iterator[TraceContext]:
    context = TraceContext("f", Builder())
    with use_context(context), context.entered(context.open_block()):
        yield context


def surround(trace: TraceContext) -> None:
    """Add to everything that surrounds traced code."""
    body = OpenBody("a branch", 0, is_loop=False)
    trace.targets += (Target("loop", "a loop", frozenset(), None),)
    trace.conditional += (body,)
    trace.bodies += (body,)
    trace.transforms += (None,)  # type: ignore[arg-type]
    trace.path += (1,)
    trace.next_run = lambda scope, body: None
    trace.builder.current = trace.open_block()
    trace.put(Here(1))


def surroundings(trace: TraceContext) -> list[Any]:
    return [
        trace.targets,
        trace.conditional,
        trace.bodies,
        trace.transforms,
        trace.path,
        trace.next_run,
        trace.builder.current,
        trace.of(Here),
    ]


def record(trace: TraceContext, names: Locals, items: list[int]) -> None:
    """Change everything that is recorded."""
    st.zeros((2,)) + 1.0
    names.x = 2
    record_contents(items)
    items.append(1)
    v = st.Variable(1.0, name="v")
    trace.shared += (Locals("g"),)
    trace.dims += ((Dim("N", max=2), trace.block),)
    trace.put(SoFar(1))
    trace.of(Always).number += 1
    assert v.is_inner
    trace.builder.end("raise")


def recorded(trace: TraceContext, names: Locals, items: list[int]) -> list[Any]:
    return [
        len(trace.block.ops),
        trace.block.ending,
        dict(names.__dict__),
        list(items),
        list(trace.variables),
        dict(trace.refs),
        dict(trace.keys),
        trace.shared,
        trace.dims,
        trace.of(SoFar),
        list(trace.log),
    ]


def leave(trace: TraceContext, attempt: Attempt | None) -> None:
    return


def fail(trace: TraceContext, attempt: Attempt | None) -> None:
    raise ValueError("the user's")


@pytest.mark.parametrize("way_out", [leave, fail])
@pytest.mark.parametrize("is_attempt", [False, True])
def test_at_the_end_of_an_body_what_surrounds_it_is_what_it_was(
    trace: TraceContext, is_attempt: bool, way_out: Callable[[TraceContext, Any], None]
) -> None:
    before = surroundings(trace)
    try:
        with trace.attempt([]) if is_attempt else trace.inside(trace.block):
            surround(trace)
            assert all(a != b for a, b in zip(before, surroundings(trace), strict=True))
            way_out(trace, None)
    except ValueError:
        assert way_out is fail
    assert surroundings(trace) == before


def test_what_is_taken_back_is_what_it_was(trace: TraceContext) -> None:
    names, items = Locals("f"), [0]
    names.x = 1
    before, around = recorded(trace, names, items), surroundings(trace)
    with trace.attempt([names]) as attempt:
        record(trace, names, items)
        assert all(a != b for a, b in zip(before, recorded(trace, names, items), strict=True))
        surround(trace)
        raise Again(attempt, "why")
    assert attempt.is_taken_back
    assert attempt.reason == "why"
    assert recorded(trace, names, items) == before
    assert surroundings(trace) == around
    assert trace.of(Always).number == 1  # kept


def test_an_array_that_was_met_in_what_is_taken_back_gives_its_value_to_an_equal_one(trace: TraceContext) -> None:
    with trace.attempt([]) as attempt:
        first = trace.value_of(trace.lift(np.arange(100.0)))
        raise Again(attempt)
    assert trace.value_of(trace.lift(np.arange(100.0))) is first
    assert trace.value_of(trace.lift(np.arange(100.0))) is not first


def test_an_attempt_that_is_not_taken_back_keeps_what_it_recorded(trace: TraceContext) -> None:
    names, items = Locals("f"), [0]
    with trace.attempt([names]) as attempt:
        record(trace, names, items)
        inside = recorded(trace, names, items)
    assert not attempt.is_taken_back
    assert recorded(trace, names, items) == inside


def test_again_ends_the_attempt_that_it_names(trace: TraceContext) -> None:
    with trace.attempt([]) as outer:
        with trace.attempt([]) as inner:
            raise Again(outer)
        pytest.fail("the outer attempt has ended")
    assert outer.is_taken_back
    assert not inner.is_taken_back


def test_a_closed_body_ends_what_nested_functions_share_in_it(trace: TraceContext) -> None:
    for is_closed in (False, True):
        before = trace.shared
        with trace.inside(trace.open_block(), is_closed):
            trace.shared += (Locals("g"),)
        assert (trace.shared == before) == is_closed


def test_an_attempt_is_repeated_until_it_is_not_taken_back(trace: TraceContext) -> None:
    learned: list[int] = []

    def run(attempt: Attempt) -> str:
        if len(learned) < 3:
            raise Again(attempt, len(learned))
        return "settled"

    assert trace.until_settled("it", list, run, learned.append) == "settled"
    assert learned == [0, 1, 2]
    with pytest.raises(AssertionError, match="tracing it does not settle"):
        trace.until_settled("it", list, lambda attempt: learned.clear() or run(attempt), learned.append)


def test_state_without_a_lifetime_is_refused(trace: TraceContext) -> None:
    with pytest.raises(AttributeError, match="lifetime"):
        trace.of(Held)


def test_a_handler_of_the_users_does_not_keep_what_takes_an_attempt_back() -> None:
    @st.function
    def f(x: Any) -> Any:
        def g(y: Any) -> Any:
            try:
                for _ in range(2):
                    if y > 0.0:
                        return y * 2.0
                    y = y + 1.0
            except BaseException:
                return y * 100.0
            return y

        return g(x)

    assert f(3.0) == 6.0
    assert f(-0.5) == 1.0
    assert np.asarray(f(-5.0)) == -3.0
