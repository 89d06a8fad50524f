"""Random programs of the fuzzer, mapped: values, the gradient of the mapped program, and the mapped gradient.

Run by the interpreter, against eager mode, which loops over the rows; the loop bound differs between the elements, too.
"""

from __future__ import annotations

import numpy as np
import pytest

from staged.testing import load_snippet
from tests.batching.harness import agrees
from tests.fuzz.__main__ import case_of

ROWS = 3


def mapped(text: str, count: int) -> str:
    """A module with `everything`: the program `f(a0, ..., n)` without its prints, which a vmap refuses, mapped."""
    lines = [
        f"{line[: len(line) - len(line.lstrip())]}pass" if line.lstrip().startswith("print(") else line
        for line in text.splitlines()
    ]
    arrays, numbers = ", ".join(f"a{number}" for number in range(count)), tuple(range(count))
    gradient = f"lambda {arrays}, n: st.grad(lambda {arrays}: f({arrays}, n)[0], argnums={numbers})({arrays})"
    return (
        "\n".join(lines)
        + f"""


def everything({arrays}, n):
    values = st.vmap(f)({arrays}, n)
    whole = st.grad(lambda {arrays}: st.vmap(f)({arrays}, n)[0].sum(), argnums={numbers})({arrays})
    return values, whole, st.vmap({gradient})({arrays}, n)
"""
    )


@pytest.mark.parametrize("seed", [1, 2, 3, 5, 8, 13, 21, 55])
def test_mapped(seed: int) -> None:
    case = case_of(seed)
    generator = np.random.default_rng(seed)
    arrays = [generator.normal(size=(ROWS, *shape)) for shape in case.shapes]
    module = load_snippet(mapped(case.text, len(arrays)), "mapped")
    with np.errstate(all="ignore"):
        agrees(module.everything, *arrays, np.array([case.n, 0, 2]), rtol=1e-9, atol=1e-9)
