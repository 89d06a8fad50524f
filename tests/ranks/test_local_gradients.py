"""Gradients on 3 ranks are those on one, in programs whose ranks take different branches."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.ranks import gradients_of_local
from tests.ranks.jobs import results_of

CASES = [name for name in vars(gradients_of_local) if name.startswith("case_")]


def leaves(tree: Any) -> list[Any]:
    return [leaf for each in tree for leaf in leaves(each)] if isinstance(tree, tuple | list) else [tree]


@pytest.mark.ranks
@pytest.mark.full
@pytest.mark.parametrize("case", CASES)
def test_gradient_is_that_of_one_rank(case: str) -> None:
    on_three = results_of("tests.ranks.gradients_of_local", 3)[case]
    on_one = leaves(getattr(gradients_of_local, case)())
    for found in on_three:
        for mine, expected in zip(leaves(found), on_one, strict=True):
            np.testing.assert_allclose(mine, expected, rtol=1e-12, atol=1e-12)
