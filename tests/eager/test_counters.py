"""In eager mode loops count as the program does: in 64 bits, which wrap around."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st


@st.function
def counted(n: int, x: Any) -> Any:
    mixed, doubled, last = 0, 1, 0
    for i in st.range(n):
        a = i * 2**62
        mixed ^= a * 2 + a
        doubled *= 3
        last = i
    for i in range(n):
        mixed ^= i * 2**62 + i
    for i in reversed(st.range(n)):
        mixed += i * 2**62
    for k, row in enumerate(x, 3):
        mixed ^= k * 2**61 * st.astype(row, st.i64)
    for k, (i, row) in enumerate(zip(st.range(4), x, strict=False)):
        mixed += (k + i) * 2**62 + st.astype(row, st.i64)
    turned, tripled = 0, 1
    while turned < n:
        turned, tripled = turned + 1, tripled * 3
    forever = 1
    while True:
        forever *= 5
        turned += 1
        if turned > n + 40:
            break
    return mixed, doubled, last, tripled, forever


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def expected(n: int, x: Any) -> tuple[int, ...]:
    mixed, doubled = 0, 1
    for i in range(n):
        mixed ^= i * 2**62 * 3
        doubled *= 3
    for i in range(n):
        mixed ^= i * 2**62 + i
    mixed += sum(i * 2**62 for i in range(n))
    for k, row in enumerate(x, 3):
        mixed ^= k * 2**61 * int(row)
    for k, row in enumerate(x[:4]):
        mixed += 2 * k * 2**62 + int(row)
    return wrapped(mixed), wrapped(doubled), n - 1, wrapped(3**n), wrapped(5**41)


def test_numbers_of_loops_wrap_around() -> None:
    x = np.arange(1.0, 8.0)
    for n in (1, 4, 70):
        with st.eager():
            eager = counted(n, x)
        assert tuple(map(int, eager)) == tuple(map(int, counted(n, x))) == expected(n, x)


def test_counters_are_indices_keys_of_lists_and_text() -> None:
    @st.function
    def used(x: Any) -> Any:
        total = 0.0
        for i in st.range(3):
            if i % 2 == 0 and i in (0, 2):
                total += x[i] * (i + 1)
            print(f"{i:2d} {i}", end=";")
        return total

    with st.eager():
        assert float(used(np.arange(3.0))) == 6.0
    assert used(np.arange(3.0)) == 6.0


def test_comprehensions_and_calls_count_in_pythons_integers_everywhere() -> None:
    @st.function
    def program(x: Any) -> Any:
        rows = {i: st.sum(row) for i, row in enumerate(x)}
        found = [rows[0] + rows[2], sum(st.range(4)), max(st.range(3)), list(zip(st.range(2), x, strict=False))[1][0]]
        kinds = [type(i).__name__ for i in st.range(2)] + [type(i).__name__ for i, _ in enumerate(x)]
        last = 0
        for i, (j, _) in enumerate(zip(st.range(2), x, strict=False)):
            last = [k + i for k in st.range(2)][0] + 2**62 * (i + j) * 2
        return [*found, last], kinds

    compiled, kinds = program(np.arange(6.0).reshape(3, 2))
    with st.eager():
        eager, others = program(np.arange(6.0).reshape(3, 2))
    assert list(map(float, eager)) == list(map(float, compiled)) and kinds == others == ["int"] * 5


def test_plain_python_counts_in_its_own_integers() -> None:
    assert [type(i) for i in st.range(2)] == [int, int]
    assert sum(i * 2**62 for i in st.range(5)) == 10 * 2**62
