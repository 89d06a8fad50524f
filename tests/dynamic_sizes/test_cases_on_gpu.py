"""Programs with sizes that they find, in a region of the emulated device: the values of the static programs of the CPU."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.frontend.values import trees
from tests.dynamic_sizes import layer_cases  # noqa: F401  # which adds to the table
from tests.dynamic_sizes.cases import CASES, Case, gradient_of

pytestmark = pytest.mark.usefixtures("device")


def _on_gpu(function: Any, made: Case) -> Any:
    def inside(*args: Any) -> Any:
        with with_backend(GPU, *args):
            result = function(*args)
        return result

    axes = {f"args.{place}": each for place, each in enumerate(made.axes.values())}
    return st.function(dims=axes, target="portable")(inside)


def _compare(function: Any, made: Case, device: Emulator) -> None:
    dynamic = _on_gpu(function, made)
    for number, sizes in enumerate(made.sizes):
        device.configure("lazy shuffled seed=3" if number % 2 else "eager forward")
        given = made.arguments(sizes, number)
        st.seed(number)
        found = dynamic(*given)
        st.seed(number)
        right = st.function(function)(*given)
        for one, other in zip(trees.flatten(found)[0], trees.flatten(right)[0], strict=True):
            assert np.shape(one) == np.shape(other), sizes
            np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10, err_msg=str(sizes))
    assert len(dynamic.programs) == 1, [use.arguments for use in dynamic.programs]


@pytest.mark.parametrize("made", CASES, ids=lambda made: made.name)
def test_values_are_those_of_static_programs(made: Case, device: Emulator) -> None:
    _compare(made.function, made, device)


@pytest.mark.parametrize("made", [made for made in CASES if made.gradient], ids=lambda made: made.name)
def test_gradients_are_those_of_static_programs(made: Case, device: Emulator) -> None:
    _compare(gradient_of(made), made, device)
