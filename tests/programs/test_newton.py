"""Gradients through a `while` that converges, and through a flight with contacts, against what is known of them."""

from __future__ import annotations

import math
import re
from typing import Any

import numpy as np
import pytest

import staged as st
from examples.newton import ball, orbit

# ---- Kepler's equation --------------------------------------------------------------------------


@pytest.mark.parametrize("mean_anomaly", [0.0, 0.3, 1.2, 3.0, 5.5, -2.0])
@pytest.mark.parametrize("eccentricity", [0.0, 0.2, 0.7, 0.9])
def test_the_gradient_through_newtons_iterations_is_that_of_the_implicit_function(
    mean_anomaly: float, eccentricity: float
) -> None:
    anomaly, (by_mean, by_eccentricity) = orbit.anomaly_and_slopes(mean_anomaly, eccentricity)
    assert abs(anomaly - eccentricity * math.sin(anomaly) - mean_anomaly) < 1e-13
    # From E - e sin(E) = M: dE (1 - e cos(E)) = dM + sin(E) de.
    determinant = 1.0 - eccentricity * math.cos(anomaly)
    np.testing.assert_allclose(by_mean, 1.0 / determinant, rtol=1e-12)
    np.testing.assert_allclose(by_eccentricity, math.sin(anomaly) / determinant, rtol=1e-12, atol=1e-13)


def test_the_fit_finds_the_orbit_and_eager_mode_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    times, seen = orbit.observations()
    guess = np.array([0.3, 1.25, 0.2])
    found, steps = orbit.fit(times, seen, guess)
    np.testing.assert_allclose(found, [0.6, 1.3, 0.4], atol=2e-3)
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].startswith("step   0: squares 5.17") and printed[-1].startswith(f"step {steps:3d}: squares 2.3")

    def squares(parameters: np.ndarray) -> float:
        return float(((orbit.observe(times, *parameters) - seen) ** 2).sum())

    for axis in range(3):  # a minimum: the error rises on both sides
        for side in (-1e-4, 1e-4):
            assert squares(found + side * np.eye(3)[axis]) > squares(found)


# ---- the ball -----------------------------------------------------------------------------------


def test_the_program_of_the_ball_has_the_names_of_the_python_functions_and_values() -> None:
    source = ball.aim.stage(2.0, 3.0, 4.0, 0.5, 0.1, 2.0).source
    assert "const double determinant = x_by_vx * y_by_vy - x_by_vy * y_by_vx;" in source
    assert "static int draw(" in source and "evaluate(" not in source
    assert "double *by_vx, double *by_vy" in source  # of a function for both derivatives
    assert "double d_move_0;" in source and not re.search(r"\bt(_\d+)?\b", source)  # gradients of values without names
    assert "const int64_t code = row[i_2];" in source


def without_air(vx: float, vy: float, duration: float) -> tuple[float, float, int]:
    """The path of the ball, piece by piece: parabolas between contacts."""
    x, y, contacts = 0.0, ball.START, 0
    while True:
        hop = (vy + math.sqrt(vy * vy + 2.0 * ball.GRAVITY * y)) / ball.GRAVITY
        if hop > duration:
            return x + vx * duration, y + vy * duration - 0.5 * ball.GRAVITY * duration**2, contacts
        x, y, duration, contacts = x + vx * hop, 0.0, duration - hop, contacts + 1
        vx, vy = ball.GRIP * vx, ball.KEPT * (ball.GRAVITY * hop - vy)


def slopes(f: Any, vx: float, vy: float) -> np.ndarray:
    """d(x, y) / d(vx, vy) by central differences."""
    h = 1e-6
    columns = [
        (np.array(f(vx + h * i, vy + h * j)[:2]) - np.array(f(vx - h * i, vy - h * j)[:2])) / (2 * h)
        for i, j in ((1, 0), (0, 1))
    ]
    return np.stack(columns, axis=1)


@pytest.mark.parametrize(("vy", "duration", "contacts"), [(3.0, 0.5, 0), (3.0, 1.4, 1), (2.0, 2.0, 2), (-1.0, 2.2, 3)])
def test_without_air_a_flight_and_its_gradient_are_those_of_the_closed_form(
    vy: float, duration: float, contacts: int
) -> None:
    place, d_x, d_y, touched = ball.landing(2.5, vy, 0.0, duration)
    expected = without_air(2.5, vy, duration)
    assert touched == expected[2] == contacts
    np.testing.assert_allclose(place, expected[:2], rtol=1e-10, atol=1e-12)
    exact = slopes(lambda vx, vy: without_air(vx, vy, duration), 2.5, vy)
    np.testing.assert_allclose([d_x, d_y], exact, rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("drag", [0.0, 0.05])
def test_gradients_through_contacts_agree_with_finite_differences(drag: float) -> None:
    _, d_x, d_y, contacts = ball.landing(3.0, 2.0, drag, 2.0)
    assert contacts == 2
    differences = slopes(lambda vx, vy: ball.landing(vx, vy, drag, 2.0)[0], 3.0, 2.0)
    np.testing.assert_allclose([d_x, d_y], differences, rtol=1e-6, atol=1e-8)


def test_aiming_hits_the_bucket_and_draws_the_flight(capsys: pytest.CaptureFixture[str]) -> None:
    given = (2.0, 3.0, 7.0, 0.5, 0.02, 2.2)
    vx, vy, tries = ball.aim(*given)
    printed = capsys.readouterr().out
    assert tries < 12
    np.testing.assert_allclose(ball.landing(vx, vy, 0.02, 2.2)[0], [7.0, 0.5], atol=1e-8)
    picture = printed.splitlines()[-ball.ROWS :]
    assert all(len(line) == ball.COLUMNS for line in picture)
    assert "o" in picture[-1] and sum("U" in line for line in picture) == 1
    with st.eager():
        ball.aim(*given)
    assert capsys.readouterr().out.splitlines()[-ball.ROWS :] == picture
