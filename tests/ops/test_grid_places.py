"""`grid_sample` at special places, against PyTorch: on elements, on the border of the image, on its edges, and beyond."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from tests.ops.against_torch import agree_compiled

RNG = np.random.default_rng(5)
IMAGES, VOLUMES = RNG.standard_normal((1, 2, 4, 5)), RNG.standard_normal((1, 1, 3, 2, 4))
UNITS = np.array([-3.0, -1.5, -1.0, -0.75, -0.5, 0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 3.0])
FLAT = np.stack(np.meshgrid(UNITS, UNITS), -1)[None]
SPATIAL = np.stack(np.meshgrid(*[UNITS[::2]] * 3), -1)[None]


@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
@pytest.mark.parametrize(("x", "grid", "mode"), [(IMAGES, FLAT, "bilinear"), (VOLUMES, SPATIAL, "bilinear"), (IMAGES, FLAT, "bicubic")])
def test_values_and_derivatives_on_elements_and_borders_are_torchs(x, grid, mode, padding, corners) -> None:
    agree_compiled(
        lambda x, grid: st.grid_sample(x, grid, mode, padding, corners),
        lambda F, x, grid: F.grid_sample(x, grid, mode, padding, corners),
        x,
        grid,
    )


def test_forward_mode_has_the_derivative_of_reverse_mode_on_the_border() -> None:
    grid = np.array([1.0, -1.0]).reshape(1, 1, 1, 2)
    for padding in ("border", "reflection"):
        for corners in (True, False):
            _, slope = st.jvp(lambda g: st.grid_sample(IMAGES, g, "bilinear", padding, corners), (grid,), (np.ones_like(grid),))  # noqa: B023
            assert not np.asarray(slope).any()
