"""`step(model, optimizer, x, y)`: objects as arguments or closed over, in every form; their Variables are taken by reference."""

from __future__ import annotations

import dataclasses
import gc
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import nn, optim

X = np.random.default_rng(0).standard_normal((8, 4)).astype(np.float32)
Y = X.sum(axis=1, keepdims=True)


def pair(seed: int = 0, hidden: int = 3) -> tuple[Any, Any]:
    st.seed(seed)
    model = nn.Sequential(nn.Linear(4, hidden), nn.Tanh(), nn.Linear(hidden, 1))
    return model, optim.Adam(model.parameters(), lr=0.05)


def update(model: Any, optimizer: Any, x: Any, y: Any) -> Any:
    loss, grads = st.value_and_grad(lambda: st.mean((model(x) - y) ** 2), wrt=model)()
    optimizer.step(grads)
    return loss


@dataclasses.dataclass
class State:
    model: Any
    optimizer: Any
    name: str = "run"


class Trainer:
    """An object of the user's, whose method is staged."""

    def __init__(self, model: Any, optimizer: Any) -> None:
        self.model, self.optimizer = model, optimizer

    @st.function
    def step(self, x: Any, y: Any) -> Any:
        return update(self.model, self.optimizer, x, y)


def as_arguments(model: Any, optimizer: Any) -> Callable[[], Any]:
    return lambda: STEPS["arguments"](model, optimizer, X, Y)


def closed_over(model: Any, optimizer: Any) -> Callable[[], Any]:
    step = st.function(lambda x, y: update(model, optimizer, x, y))
    return lambda: step(X, Y)


STEPS: dict[str, Any] = {
    "arguments": st.function(update),
    "dict": st.function(lambda run, x, y: update(run["model"], run["optimizer"], x, y)),
    "list": st.function(lambda run, x, y: update(run[0], run[1], x, y)),
    "dataclass": st.function(lambda run, x, y: update(run.model, run.optimizer, x, y)),
    "by name": st.function(lambda x, y, *, model, optimizer: update(model, optimizer, x, y)),
}
WAYS: dict[str, Callable[[Any, Any], Callable[[], Any]]] = {
    "arguments": as_arguments,
    "dict": lambda m, o: lambda: STEPS["dict"]({"model": m, "optimizer": o}, X, Y),
    "list": lambda m, o: lambda: STEPS["list"]([m, o], X, Y),
    "dataclass": lambda m, o: lambda: STEPS["dataclass"](State(m, o), X, Y),
    "by name": lambda m, o: lambda: STEPS["by name"](X, Y, optimizer=o, model=m),
    "closed over": closed_over,
    "method": lambda m, o: lambda: Trainer.step.__get__(TRAINERS.setdefault(id(m), Trainer(m, o)))(X, Y),
}
TRAINERS: dict[int, Trainer] = {}


def losses(run: Callable[[], Any], count: int) -> list[float]:
    return [float(run()) for _ in range(count)]


def plain_losses(seed: int, count: int, hidden: int = 3) -> list[float]:
    model, optimizer = pair(seed, hidden)
    return losses(lambda: update(model, optimizer, X, Y), count)


@pytest.mark.parametrize("way", WAYS)
def test_training_is_the_same_in_every_form(way: str) -> None:
    """Two models of one structure take turns: each goes on with its own weights and moments."""
    first, second = pair(1), pair(2)
    steps = [WAYS[way](*first), WAYS[way](*second)]
    found: list[list[float]] = [[], []]
    for _ in range(4):
        for each, step in zip(found, steps, strict=True):
            each.append(float(step()))
    for seed, each in enumerate(found, start=1):
        np.testing.assert_allclose(each, plain_losses(seed, 4), rtol=1e-4)


def test_swapped_replaced_and_resized_models() -> None:
    step = st.function(update)
    first, second, wide = pair(1), pair(2), pair(3, hidden=5)
    for _ in range(2):
        for each in (first, second, wide):
            step(*each, X, Y)
    kinds = {program.key for program in step._kept.entries}
    assert len(step.programs) == 3
    assert len(kinds) == 2  # models of one structure run one program
    assert [program.calls for program in step.programs] == [2, 2, 2]
    for seed, each in ((1, first), (2, second)):
        np.testing.assert_allclose(losses(lambda each=each: step(*each, X, Y), 2), plain_losses(seed, 4)[2:], rtol=1e-4)
    # The optimiser of another model moves what it was made for, as in plain Python it would: here it is refused.
    with pytest.raises(st.StagedError):
        step(first[0], wide[1], X, Y)
    assert losses(lambda: step(*wide, X, Y), 1) == pytest.approx(plain_losses(3, 3, hidden=5)[2:], rel=1e-4)


def test_a_part_of_a_model_is_replaced() -> None:
    model, _ = pair(1)
    forward = st.function(lambda model, x: model(x))
    for _ in range(2):
        forward(model, X)
    before, first = np.asarray(model(X)), model[0]
    other = nn.Linear(4, 3)
    setattr(model, "0", other)
    found = forward(model, X)
    np.testing.assert_allclose(found, np.asarray(model(X)), rtol=1e-5)
    assert not np.allclose(found, before)
    assert "`0`" in forward.why_traced() or "Sequential.0" in forward.why_traced()
    assert first is not other
    wide = nn.Linear(4, 7)
    setattr(model, "0", wide)
    setattr(model, "2", nn.Linear(7, 1))
    np.testing.assert_allclose(forward(model, X), np.asarray(model(X)), rtol=1e-5)
    model[1].forward = lambda x: x * 0.0
    np.testing.assert_allclose(forward(model, X), np.broadcast_to(model[2].bias.numpy(), (8, 1)), rtol=1e-5)


def test_weights_stay_where_they_are_and_are_seen_outside() -> None:
    model, optimizer = pair(1)
    step = st.function(update)
    step(model, optimizer, X, Y)
    buffers = [variable.buffer() for variable in model.parameters()]
    step(model, optimizer, X, Y)
    assert all(variable.buffer() is buffer for variable, buffer in zip(model.parameters(), buffers, strict=True))
    weight = model[0].weight
    seen = weight.numpy()
    assert np.array_equal(seen, buffers[0])
    step(model, optimizer, X, Y)
    assert not np.array_equal(weight.numpy(), seen)  # what was read is a copy
    weight.value = np.zeros((3, 4), np.float32)  # written outside, in new memory: the next step goes on from there
    wanted = np.asarray(st.mean((model(X) - Y) ** 2))
    assert float(step(model, optimizer, X, Y)) == pytest.approx(float(wanted), rel=1e-5)
    assert weight.numpy().any()
    state = model.state_dict()
    step(model, optimizer, X, Y)
    model.load_state_dict(state)
    wanted = np.asarray(st.mean((model(X) - Y) ** 2))
    assert float(step(model, optimizer, X, Y)) == pytest.approx(float(wanted), rel=1e-5)


def test_memory_of_a_model_that_is_gone_is_given_back() -> None:
    """A program keeps no buffer of the Variables of its last call."""
    step = st.function(update)
    kept = pair(1)
    step(*kept, X, Y)
    model, optimizer = pair(2)
    for _ in range(3):
        step(model, optimizer, X, Y)
    watched = [weakref.ref(variable.buffer()) for variable in model.parameters()]
    del model, optimizer
    gc.collect()
    assert [reference() for reference in watched] == [None] * len(watched)
    step(*kept, X, Y)


def test_a_call_the_long_way_lies_between_two_of_another_model() -> None:
    """A program remembers which Variables its memory is about: the long way, here for an unaligned array, changes them."""
    step = st.function(update)
    bytes_ = np.zeros(X.nbytes + 1, np.uint8)
    odd = bytes_[1:].view(np.float32).reshape(X.shape)
    odd[...] = X
    first, second = pair(1), pair(2)
    for model, optimizer in (first, second):
        step(model, optimizer, X, Y)
    step(*first, X, Y)
    step(*second, odd, Y)
    found = [float(step(*first, X, Y)), float(step(*second, X, Y))]
    np.testing.assert_allclose(found, [plain_losses(1, 3)[2], plain_losses(2, 3)[2]], rtol=1e-4)


def test_variables_that_share_memory_with_an_argument() -> None:
    """The program does not write what it reads as the argument."""
    total = st.Variable(np.array([1, 2, 3, 4], np.float32), name="total")
    add = st.function(lambda x: _add(total, x))
    add(np.zeros(4, np.float32))
    for _ in range(3):
        before = total.numpy()
        wanted = (before + before[::-1]).tolist()
        assert add(total.buffer()).tolist() == wanted
        assert total.numpy().tolist() == wanted
        total.value = before + np.float32([0, 1, 0, 2])
    assert add(np.ones(4, np.float32)).tolist() == (before + np.float32([1, 2, 1, 3])).tolist()


def _add(total: Any, x: Any) -> Any:
    total.value = total.value + x[::-1]
    return total.value


def test_fortran_order_is_put_right_once() -> None:
    weight = st.Variable(np.asfortranarray(np.arange(6.0).reshape(2, 3)), name="weight")
    assert weight.buffer().flags.c_contiguous
    assert st.function(lambda x: x @ weight)(np.ones((1, 2))).tolist() == [[3.0, 5.0, 7.0]]


def test_a_derivative_that_plain_python_takes_again_and_again_is_told_once(recwarn: pytest.WarningsRecorder) -> None:
    model, optimizer = pair(1)
    for _ in range(45):
        loss, grads = st.value_and_grad(lambda: st.mean((model(X) - Y) ** 2), wrt=model)()
        optimizer.step(grads)
    (told,) = [each for each in recwarn if "ran 20 times in NumPy" in str(each.message)]
    assert told.filename == __file__
    assert "ms each: `@st.function` around the step compiles it to one program" in str(told.message)
