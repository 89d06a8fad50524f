"""The residuals that reverse loops read back, in arrays where the number of iterations has a bound, else on stacks: by any step,
none at all, fewer than the bound, loops in loops. What is right is NumPy's complex step."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st

X = np.float64([0.5, -0.7, 1.1])


def turns(n):
    """For each function below the numbers that its iterations add, in order."""
    return {
        "up to a bound": list(range(min(n, 4))),
        "from a number on": list(range(max(n, 2), 8, 2)),
        "downwards": list(range(8, max(n, -2), -3)),
        "by a staged step": list(range(min(max(n, 0), 3), 9, min(max(n, 1), 2))),
        "in loops of known length": [
            number
            for i in range(4)
            for number in (*range(i, 4), *(-j for j in range(i, -1, -2)), *range(i * i, 10, i + 1))
        ],
        "in loops of no known length": [j for i in range(n % 5) for j in range((n + i) % 3, 6, 2)],
        "until it is left": [i for i in range(6) if i < n],
    }


@st.function
def slopes(x, n):
    def step(y, x, number):
        return st.sin(y) * x + number * 0.1

    def up(x):
        y = x
        for i in st.range(st.minimum(n, 4)):
            y = step(y, x, i)
        return st.sum(y)

    def onwards(x):
        y = x
        for i in st.range(st.maximum(n, 2), 8, 2):
            y = step(y, x, i)
        return st.sum(y)

    def downwards(x):
        y = x
        for i in st.range(8, st.maximum(n, -2), -3):
            y = step(y, x, i)
        return st.sum(y)

    def by_a_step(x):
        y = x
        for i in st.range(st.clip(n, 0, 3), 9, st.clip(n, 1, 2)):
            y = step(y, x, i)
        return st.sum(y)

    def known(x):
        y = x
        for i in st.range(4):
            for j in st.range(i, 4):
                y = step(y, x, j)
            for j in st.range(i, -1, -2):
                y = step(y, x, -j)
            for j in st.range(i * i, 10, i + 1):
                y = step(y, x, j)
        return st.sum(y)

    def unknown(x):
        y = x
        for i in st.range(n % 5):
            for j in st.range((n + i) % 3, 6, 2):
                y = step(y, x, j)
        return st.sum(y)

    def left(x):
        y = x
        for i in st.range(6):
            if i >= n:
                break
            y = step(y, x, i)
        return st.sum(y)

    return tuple(st.grad(f)(x) for f in (up, onwards, downwards, by_a_step, known, unknown, left))


@pytest.mark.parametrize("way", ["compiled", "eager"])
def test_every_turn_reads_back_what_it_has_kept(way):
    for n in (-3, 0, 1, 2, 3, 4, 8, 20):
        if way == "eager":
            with st.eager():
                found = slopes(X, n)
        else:
            found = slopes(X, n)
        for got, (name, numbers) in zip(found, turns(n).items(), strict=True):
            right = []
            for unit in np.eye(3):
                x = y = X + 1e-30j * unit
                for number in numbers:
                    y = np.sin(y) * x + number * 0.1
                right.append(y.sum().imag / 1e-30)
            np.testing.assert_allclose(np.asarray(got), right, rtol=1e-10, err_msg=f"{name}, n = {n}")
