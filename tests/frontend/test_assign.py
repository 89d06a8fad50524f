"""Assignment: unpacking, augmented, elements of arrays and containers, attributes, `del`, `:=`."""

from __future__ import annotations

import numpy as np
import pytest

from staged.errors import ShapeError, StagingError, UnboundNameError
from staged.frontend.trace_function import trace
from tests.frontend.harness import agree, interpret, ir

X = np.arange(1, 4, dtype=np.float32)
M = np.arange(6, dtype=np.float32).reshape(3, 2)


def test_unpacking() -> None:
    def f(x, pair):
        a, (b, *rest) = x * 2.0, pair
        c = d = a + b
        (e, g), h = (c, d), rest
        a, b = b, a
        return a, b, e + g, h[0]

    agree(f, X, (1.0, 2.0, 3.0))


def test_unpacking_an_array_checks_its_length() -> None:
    def f(x):
        a, b = x
        return a + b

    with pytest.raises(ShapeError, match=r"cannot unpack an array of shape \(3,\) into 2 names"):
        ir(f, X)

    def g(x):
        a, b, c = x
        return a + b * c

    agree(g, X)


def test_element_assignment_rebinds_the_name_and_leaves_others() -> None:
    def f(x, i):
        y = x
        x[i] = 10.0
        x[0:2] += 1.0
        return x, y

    traced = interpret(trace(f, (X, 2)))
    np.testing.assert_array_equal(traced[0], [2.0, 3.0, 10.0])
    np.testing.assert_array_equal(traced[1], X)
    np.testing.assert_array_equal(X, [1.0, 2.0, 3.0])


def test_element_assignment_in_a_loop_is_carried() -> None:
    def f(x, n):
        for i in range(n):
            x[i] = x[i] * 2.0 + i
        return x

    np.testing.assert_array_equal(interpret(trace(f, (X, 2))), [2.0, 5.0, 3.0])


def test_elements_below_containers_and_attributes() -> None:
    class Box:
        pass

    def f(x):
        box = Box()
        box.x = x
        box.x[1] = 5.0
        box.x[0] += 1.0
        box.count = 1
        box.count += 2
        table = {"a": [x, x]}
        table["a"][1] = x * 2.0
        table["a"][0][2] = 7.0
        table["n"] = 1
        table["n"] += 1
        del table["n"]
        return box.x, table, box.count

    x, table, count = interpret(trace(f, (X,)))
    np.testing.assert_array_equal(x, [2.0, 5.0, 3.0])
    np.testing.assert_array_equal(table["a"][0], [1.0, 2.0, 7.0])
    np.testing.assert_array_equal(table["a"][1], X * 2.0)
    assert "n" not in table
    assert count == 3


def test_element_of_a_nameless_array_is_refused() -> None:
    def give(x):
        return x * 2.0

    def f(x):
        give(x)[0] = 1.0
        return x

    with pytest.raises(StagingError, match="an element is assigned to an array that has no local name"):
        ir(f, X)


def test_augmented_assignment_of_every_kind() -> None:
    def f(a, b):
        a += b
        a -= 2
        a *= 3
        a //= 2
        a **= 2
        a %= 7
        c = a / 2
        c /= 4.0
        bits = 5
        bits |= a
        bits &= 7
        bits ^= 2
        bits <<= 2
        bits >>= 1
        return a, c, bits

    agree(f, 5, 3)


def test_walrus_and_del() -> None:
    def f(x):
        y = (z := x * 2.0) + 1.0
        w = [k := v for v in (1, 2)]
        del y
        return z, k, w

    agree(f, X)

    def g(x):
        y = x
        del y
        return y  # noqa: F821

    with pytest.raises(UnboundNameError, match="`y` is read before it is bound"):
        ir(g, X)


def test_numpy_array_indexed_by_a_staged_integer_becomes_an_input() -> None:
    table = np.arange(200, dtype=np.float32)

    def f(i):
        return table[i]

    traced = trace(f, (3,))
    assert [id(a) for a in traced.hidden] == [id(table)]
    agree(f, 3)


def test_matrix_elements() -> None:
    def f(m, i):
        m[i, 1] = 9.0
        m[:, 0] = m[:, 0] * 2.0
        return m

    expected = M.copy()
    expected[1, 1] = 9.0
    expected[:, 0] *= 2.0
    np.testing.assert_array_equal(interpret(trace(f, (M, 1))), expected)


def test_numpy_array_made_while_staging_is_a_value_too() -> None:
    outer = np.zeros(3, np.float32)

    def f(x):
        table = outer
        table[1] = 2.0
        table[0] += 1.0
        return x * table.sum(), table

    scaled, table = interpret(trace(f, (X,)))
    np.testing.assert_array_equal(table, [1.0, 2.0, 0.0])
    np.testing.assert_array_equal(scaled, X * 3.0)
    np.testing.assert_array_equal(outer, 0.0)
