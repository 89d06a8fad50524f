"""`st.integrate.odeint` against closed forms, and its derivatives against differences and each other."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals

T = np.linspace(0.0, 3.0, 7)


def turning(y, t, speed):
    return st.stack([speed * y[1], -speed * y[0]])


def turned(y0, t, speed):
    """The closed form of `turning`."""
    angle = speed * (t - t[0])
    c, s = np.cos(angle), np.sin(angle)
    return np.stack([c * y0[0] + s * y0[1], c * y0[1] - s * y0[0]], 1)


Y0 = np.array([1.0, 0.5])


@pytest.mark.parametrize("t", [T, -T, T[::-1].copy(), T[:1], np.array([0.0, 0.0, 1e-3, 1e-3, 2.0]), np.ones(3)], ids=str)
@pytest.mark.parametrize("adjoint", [False, True])
def test_values_are_those_of_the_closed_form(t, adjoint):
    run = st.function(lambda y0, t, speed: st.integrate.odeint(turning, y0, t, speed, adjoint=adjoint))
    np.testing.assert_allclose(run(Y0, t, 2.0), turned(Y0, t, 2.0), rtol=0, atol=2e-5)


def test_plain_python_and_eager_mode_give_the_same():
    expected = st.function(lambda: st.integrate.odeint(turning, Y0, T, 2.0))()
    np.testing.assert_array_equal(st.integrate.odeint(turning, Y0, T, 2.0), expected)
    with st.eager():
        np.testing.assert_allclose(st.integrate.odeint(turning, Y0, T, 2.0), expected, rtol=1e-12)


@pytest.mark.parametrize(("rtol", "atol", "off"), [(1e-3, 1e-6, 2e-2), (1e-6, 1e-9, 2e-5), (1e-10, 1e-12, 2e-9)])
def test_the_tolerances_decide_the_error(rtol, atol, off):
    found = st.integrate.odeint(turning, Y0, T, 2.0, rtol=rtol, atol=atol)
    error = np.abs(found - turned(Y0, T, 2.0)).max()
    assert off / 2e4 < error < off


def test_f32_stays_f32():
    found = st.integrate.odeint(turning, Y0.astype(np.float32), T.astype(np.float32), 2.0, rtol=1e-4, atol=1e-5)
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, turned(Y0, T, 2.0), atol=2e-3)


class Body(NamedTuple):
    place: object
    speed: object


def test_a_state_may_be_a_tree():
    def falling(body, t, gravity):
        return Body(body.speed, {"x": 0.0 * body.speed["x"], "y": gravity + 0.0 * t})

    start = Body({"x": np.float64(0.0), "y": np.float64(10.0)}, {"x": np.float64(2.0), "y": np.float64(0.0)})
    found = st.integrate.odeint(falling, start, T, -9.81)
    assert isinstance(found, Body)
    np.testing.assert_allclose(found.place["x"], 2.0 * T, atol=1e-6)
    np.testing.assert_allclose(found.place["y"], 10.0 - 9.81 / 2 * T**2, atol=1e-6)


def test_a_time_dependent_equation():
    found = st.integrate.odeint(lambda y, t: 2.0 * t * y, np.array([1.0]), T / 2)
    np.testing.assert_allclose(found[:, 0], np.exp((T / 2) ** 2), rtol=1e-5)


def loss(y0, t, speed, adjoint):
    weights = np.cos(np.arange(14.0)).reshape(7, 2)
    return st.sum(weights * st.integrate.odeint(turning, y0, t, speed, rtol=1e-9, atol=1e-11, adjoint=adjoint))


@pytest.mark.parametrize("adjoint", [False, True])
def test_derivatives_by_state_times_and_arguments(adjoint):
    def exact(y0, t, speed):
        return np.sum(np.cos(np.arange(14.0)).reshape(7, 2) * turned(y0, t, speed))

    found = st.function(
        lambda y0, t, speed: st.grad(lambda *args: loss(*args, adjoint), argnums=(0, 1, 2))(y0, t, speed)
    )(Y0, T, np.float64(2.0))
    e = 1e-6
    for index, (array, slope) in enumerate(zip((Y0, T, np.array(2.0)), found, strict=True)):
        for place in np.ndindex(array.shape):
            moved = []
            for step in (e, -e):
                args = [Y0.copy(), T.copy(), np.array(2.0)]
                args[index][place] += step
                moved.append(exact(*args))
            np.testing.assert_allclose(np.asarray(slope)[place], (moved[0] - moved[1]) / (2 * e), rtol=1e-5, atol=1e-6)


def test_forward_mode_and_second_derivatives_go_through_the_steps():
    def last(speed):
        return st.integrate.odeint(turning, Y0, T, speed, rtol=1e-10, atol=1e-12)[-1, 0]

    @st.function
    def slopes(speed):
        return st.jvp(last, (speed,), (1.0,))[1], st.grad(st.grad(last))(speed)

    first, second = slopes(np.float64(2.0))
    angle, end = 2.0 * 3.0, 3.0
    assert math.isclose(first, end * (-math.sin(angle) * Y0[0] + math.cos(angle) * Y0[1]), rel_tol=1e-6)
    assert math.isclose(second, end**2 * (-math.cos(angle) * Y0[0] - math.sin(angle) * Y0[1]), rel_tol=1e-5)


def test_what_the_function_closes_over_has_a_derivative_directly_and_none_by_the_adjoint_equation():
    def of(adjoint):
        def at(speed):
            return st.integrate.odeint(lambda y, t: turning(y, t, speed), Y0, T, adjoint=adjoint)[-1, 0]

        return st.function(lambda speed: st.grad(at)(speed))

    expected = 3.0 * (-math.sin(6.0) * Y0[0] + math.cos(6.0) * Y0[1])
    assert math.isclose(of(False)(np.float64(2.0)), expected, rel_tol=1e-4)
    with pytest.raises(st.GradientError):
        of(True)(np.float64(2.0))


def test_arguments_may_be_trees_and_integers():
    def decay(y, t, options):
        return -options["rate"] * y * options["times"]

    options = {"rate": np.float64(0.5), "times": np.int64(2)}

    @st.function
    def slope(options, adjoint):
        def at(rate):
            given = {"rate": rate, "times": options["times"]}
            return st.integrate.odeint(decay, np.array([1.0]), T, given, adjoint=adjoint)[-1, 0]

        return st.grad(at)(options["rate"])

    for adjoint in (False, True):
        assert math.isclose(slope(options, adjoint), -6.0 * math.exp(-3.0), rel_tol=1e-4)


def test_batches_by_vmap():
    speeds = np.array([0.5, 1.0, 3.0])
    found = st.function(
        lambda speeds: st.vmap(lambda speed: st.integrate.odeint(turning, Y0, T, speed))(speeds)
    )(speeds)
    for row, speed in zip(found, speeds, strict=True):
        np.testing.assert_allclose(row, turned(Y0, T, speed), atol=1e-4)


test_refusals = refusals(
    (lambda: st.integrate.odeint(turning, Y0, np.zeros((2, 2)), 1.0), st.ShapeError, "t is one axis of times"),
    (lambda: st.integrate.odeint(turning, Y0.astype(np.float32), T, 1.0), st.DTypeError, "of one dtype"),
    (lambda: st.integrate.odeint(turning, np.array([1, 2]), T, 1.0), st.DTypeError, "of one dtype"),
    (lambda: st.integrate.odeint(lambda y, t: y[0], Y0, T), st.ShapeError, r"its slope \(\)"),
    (lambda: st.integrate.odeint(lambda y, t: (y,), Y0, T), st.ArgumentError, "its slope"),
    (lambda: st.integrate.odeint(lambda y, t: st.astype(y, st.f32), Y0, T), st.DTypeError, "its slope f32"),
    (lambda: st.integrate.odeint(lambda y, t: y * y, np.array([1.0]), T), st.ProgramError, "is the solution infinite"),
    (lambda: st.integrate.odeint(lambda y, t: st.sqrt(y - 2.0), Y0, T), st.ProgramError, "or a slope NaN"),
    (lambda: st.integrate.odeint(lambda y, t: -1e9 * (y - st.cos(t)), Y0, T), st.ProgramError, "10000 steps are"),
    (lambda: st.integrate.odeint(turning, Y0, T, 1.0, max_steps=3), RuntimeError, "3 steps are not enough"),
    (lambda: st.integrate.odeint(turning, Y0, T, 1.0, rtol=-1e-3), st.ArgumentError, "rtol is at least 0"),
    (lambda: st.integrate.odeint(turning, Y0, T, 1.0, atol=float("nan")), st.ArgumentError, "atol is at least 0"),
)  # fmt: skip


@pytest.mark.parametrize("t", [[0.0, -1.0, 1.0], [0.0, 2.0, 1.0], [0.0, 1.0, 0.0], [0.0, np.nan, 1.0]], ids=str)
@pytest.mark.parametrize("adjoint", [False, True])
def test_times_that_go_both_ways_stop_the_program(t, adjoint):
    """Values before the first time would be the first step's polynomial, read where it means nothing."""
    with pytest.raises(ValueError, match="rise or fall"):
        st.integrate.odeint(turning, Y0, np.array(t), 2.0, adjoint=adjoint)


@pytest.mark.parametrize("t", [[0.0, 0.0, 1.0, 1.0], [1.0, 1.0], [2.0, 2.0, 0.5]], ids=str)
def test_derivatives_at_equal_times(t):
    """Each way: by the state against the closed form, by each time against its slope."""
    times = np.array(t)

    def loss(adjoint):
        return lambda y0, t: st.sum(st.integrate.odeint(turning, y0, t, 2.0, adjoint=adjoint)[:, 0])

    angle = 2.0 * (times - times[0])
    d_y0 = np.array([np.cos(angle).sum(), np.sin(angle).sum()])
    d_t = 2.0 * (-np.sin(angle) * Y0[0] + np.cos(angle) * Y0[1])
    d_t[0] -= d_t.sum()
    for adjoint in (False, True):
        found = st.grad(loss(adjoint), argnums=(0, 1))(Y0, times)
        np.testing.assert_allclose(found[0], d_y0, atol=1e-4)
        np.testing.assert_allclose(found[1], d_t, atol=2e-3)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_list_of_times_has_the_dtype_of_the_state(dtype):
    y0 = np.ones(2, dtype)
    wanted = np.exp(-np.array([[0.0], [1.0], [2.5]])) * np.ones(2)
    for times in ([0, 1, 2.5], (0.0, 1.0, 2.5)):
        for run in (st.integrate.odeint, st.function(lambda f, y, t: st.integrate.odeint(f, y, t))):
            found = run(lambda y, t: -y, y0, times)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, wanted, rtol=1e-4)


def test_a_tolerance_of_zero_is_named():
    """A state that is 0 has no tolerance with `atol=0`: the message said that the solution is infinite."""
    for y0 in (np.zeros(2), np.array([1.0, 0.0])):
        with pytest.raises(RuntimeError, match="with `atol=0` the tolerance of an element that is 0 is 0"):
            st.integrate.odeint(lambda y, t: 1.0 - y, y0, [0.0, 1.0], atol=0)
    found = st.integrate.odeint(lambda y, t: 1.0 - y, np.full(2, 2.0), [0.0, 1.0], atol=0)
    np.testing.assert_allclose(found[1], 1.0 + np.exp(-1.0), rtol=1e-4)
