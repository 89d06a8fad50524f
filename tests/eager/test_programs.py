"""Ordinary programs in eager mode: values, and gradients of the tape against differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from staged.eager_mode.context import EagerArray, eager, unwrap, wrap
from staged.errors import ProgramIndexError, ProgramZeroDivisionError, ShapeError
from staged.ops.array import METHODS

exp, tanh, total, where = (
    lambda x: METHODS["exp"](x),
    lambda x: METHODS["tanh"](x),
    lambda x, **kw: METHODS["sum"](x, **kw),
    lambda *a: METHODS["where"](*a),
)


def gradient(f: Any, *at: Any) -> list[np.ndarray[Any, Any]]:
    with eager() as context:
        (loss,), pullback = context.vjp(lambda *xs: [f(*xs)], [np.asarray(x) for x in at])
        return [cotangent.numpy() for cotangent in pullback([context.constant(1.0, loss.type)])]


def differences(f: Any, *at: Any) -> list[np.ndarray[Any, Any]]:
    found = []
    with eager():
        for number, x in enumerate(at):
            slope = np.zeros_like(x)
            for index in np.ndindex(x.shape):
                step = np.zeros_like(x)
                step[index] = 1e-6
                moved = [[y + sign * step if k == number else y for k, y in enumerate(at)] for sign in (1, -1)]
                up, down = (float(f(*(wrap(y) for y in ys))) for ys in moved)
                slope[index] = (up - down) / 2e-6
            found.append(slope)
    return found


def net(w: Any, b: Any, x: Any) -> Any:
    h = x
    for _ in range(3):
        h = tanh(h @ w + b)
        if total(h) > 0.0:
            h = h * h
    return total(h[1:, :2] * 2.0) / (1.0 + total(exp(h)))


def recursive(x: Any, depth: int = 0) -> Any:
    if depth == 4 or x[0] > 3.0:
        return total(x * x)
    return recursive(x * 1.5 + depth, depth + 1) + x[depth % 3]


def masked(x: Any) -> Any:
    positive = where(x > 0.0, x, 0.0)
    while total(positive) < 10.0:
        positive = positive * 2.0
    return total(positive**2)


@pytest.mark.parametrize(
    ("f", "shapes"),
    [(net, [(3, 3), (3,), (2, 3)]), (recursive, [(3,)]), (masked, [(4,)])],
    ids=["net", "recursion", "while"],
)
def test_tape_agrees_with_differences(f: Any, shapes: list[tuple[int, ...]]) -> None:
    at = [np.random.default_rng(number).standard_normal(shape) for number, shape in enumerate(shapes)]
    for found, expected in zip(gradient(f, *at), differences(f, *at), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6, atol=1e-7)


def test_python_numbers_adopt_the_dtype() -> None:
    x = wrap(np.ones(3, np.float32))
    with eager():
        assert (x * 2.5 + 1).dtype.name == "f32" and (wrap(2.5) * 2).type.weak
        assert (wrap(np.array([1, 2], np.int32)) + 1).dtype.name == "i32"
        assert unwrap(wrap(7) / 2) == 3.5 and unwrap(wrap(-7) // 2) == -4


def test_plain_python_computes_without_a_block() -> None:
    assert isinstance(exp(np.zeros(2)), EagerArray)
    assert (wrap(np.arange(4.0)) + 1.0).tolist() == [1.0, 2.0, 3.0, 4.0]


def test_what_stops_a_program_stops_here_with_the_line() -> None:
    with eager():
        with pytest.raises(ProgramZeroDivisionError) as division:
            wrap(np.array([1, 2])) // wrap(np.array([1, 0]))
        with pytest.raises(ProgramIndexError) as index:
            wrap(np.arange(3.0))[wrap(3)]
        with pytest.raises(ShapeError) as shape:
            wrap(np.zeros((2, 3))) @ wrap(np.zeros((2, 3)))
    for caught in (division, index, shape):
        where = caught.value.where  # type: ignore[attr-defined]
        assert where is not None and where.file == __file__ and "wrap(np." in where.text
