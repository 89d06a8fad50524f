"""The op table's samples, between neighbours that fuse with them, on the emulated device, in any order of threads."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from tests.backends.cublas_cudnn.harness import agrees_in_any_order
from tests.backends.native import test_all_ops as native
from tests.backends.native.test_all_ops import KINDS, walks

pytestmark = pytest.mark.usefixtures("device")
LIBRARY = "contraction"
"""Kinds whose ops libraries do: see `test_libraries.py`."""


def samples_of(kind: str) -> tuple[Any, list[tuple[Any, ...]]]:
    """One program with every sample of a kind (and what it is given)."""
    on_host, groups = native.samples_of(kind)

    @st.function
    def program(groups: Any) -> Any:
        with with_backend(GPU, groups):
            return on_host(groups)

    return program, groups


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != LIBRARY])
def test_ops_between_neighbours(kind: str, device: Any) -> None:
    program, groups = samples_of(kind)
    agrees_in_any_order(program, device, 5e-6, groups)


@pytest.mark.parametrize("shape", [(2, 3, 4), (1, 3, 1), (0, 3, 2), (3, 1, 17), (3, 40, 37)])
def test_walks_of_every_shape(shape: tuple[int, ...], device: Any) -> None:
    @st.function
    def program(x: Any) -> Any:
        def loss(x: Any) -> Any:
            # Products of the walks are large: of those, a sine would have few digits.
            return sum(st.sqrt(1.0 + made * made).sum() for made in walks(x) if made.dtype.is_float)

        with with_backend(GPU, x):
            made = walks(x), st.grad(loss)(x)
        return made

    agrees_in_any_order(program, device, 1e-9, np.random.default_rng(shape).uniform(0.5, 1.5, shape))
