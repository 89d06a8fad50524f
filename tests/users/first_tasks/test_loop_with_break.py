"""The gradient through `while True` with `break`.

Follows docs/guide.md#branches-and-loops and docs/guide.md#gradients.
"""

import numpy as np

import staged as st


@st.function
def kepler(mean, eccentricity):
    """The solution E of E - e sin(E) = M, by Newton's method."""
    angle = mean
    while True:
        error = angle - eccentricity * st.sin(angle) - mean
        angle = angle - error / (1.0 - eccentricity * st.cos(angle))
        if abs(error) < 1e-10:
            break
    return angle


@st.function
def solve(mean, eccentricity):
    return st.value_and_grad(kepler, argnums=(0, 1))(mean, eccentricity)


def test_the_gradient_is_the_closed_form():
    for mean, e in [(0.5, 0.1), (2.0, 0.7), (-1.0, 0.3)]:
        angle, (by_mean, by_e) = solve(mean, e)
        assert abs(angle - e * np.sin(angle) - mean) < 1e-14
        assert np.isclose(by_mean, 1 / (1 - e * np.cos(angle)), rtol=1e-8)
        assert np.isclose(by_e, np.sin(angle) / (1 - e * np.cos(angle)), rtol=1e-8)
