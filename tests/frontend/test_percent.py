"""`text % values` with staged values: the characters of Python, in programs and in eager mode."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.testing import captured_prints
from tests.errors.said import refuses

FLOATS = [
    "%.3f", "%f", "%5.1f|", "%-8.2f|", "%+.1f", "% .1f", "%08.2f", "%+08.1f", "%-08.1f|", "%e", "%.2E", "%g", "%G", "%#.3g", "%.0f",
    "%.f", "%d", "%5i|", "%-5d|", "%05d", "%u", "%+d", "%s", "%r", "%a", "%9s|", "%-9s|", "%9r|", "%lf", "%%%.1f%%", "loss %.2f!",
]  # fmt: skip
OF_FINITE = ("%d", "%5i|", "%-5d|", "%05d", "%u", "%+d")
INTEGERS = ["%d", "%5d|", "%-5d|", "%05d", "%+i", "% d", "%x", "%X", "%#x", "%o", "%#o", "%.2f", "%e", "%g", "%s", "%r", "%6s|"]
SEVERAL = [
    ("%s: %d %5.2f%%", lambda x, n: ("a", n, x)),
    ("%5.1f and %-5d|", lambda x, n: (x, n)),
    ("%*d|%-*.*f|", lambda x, n: (5, n, 8, 2, x)),
    ("%(x).2f %(n)d %(x)s", lambda x, n: {"x": x, "n": n}),
    ("%d of %d", lambda x, n: (n, 5)),
    ("%s", lambda x, n: (f"{x:.1f}",)),
    ("%.3f", lambda x, n: (x * 2,)),
    ("%s and %s", lambda x, n: ([n, 1], {"n": n})),
    ("%d%s", lambda x, n: (x > 1, n > 7)),
]


def table(x: Any, n: Any) -> list[Any]:
    return [*((text, x) for text in FLOATS), *((text, n) for text in INTEGERS), *((text, make(x, n)) for text, make in SEVERAL)]


@pytest.mark.parametrize("x", [2.5, -3.75, 1234567.0625, 0.0, float("inf")])
def test_texts_are_those_of_python(x: float) -> None:
    number = -42 if x < 0 else 42
    left_out = () if np.isfinite(x) else OF_FINITE

    @st.function
    def f(x: Any, n: Any) -> Any:
        for text, values in table(x, n):
            if text not in left_out:
                print(text % values)
        return x

    expected = [text % values for text, values in table(x, number) if text not in left_out]
    for context in (None, st.eager):
        with captured_prints() as printed:
            if context is None:
                f(x, number)
            else:
                with context():
                    f(x, number)
        assert printed.text.splitlines() == expected


def test_arrays_print_as_text_only() -> None:
    @st.function
    def f(x: Any) -> Any:
        print("x = %s" % x)  # noqa: UP031
        text = "%d rows, "
        text %= len(x)
        print(text + "first %.1f" % x[0])  # noqa: UP031
        return x

    with captured_prints() as printed:
        f(np.array([1.0, 2.0]))
    assert printed.text.splitlines() == ["x = [1.0 2.0]", "2 rows, first 1.0"]


def test_remainders_stay_remainders() -> None:
    np.testing.assert_array_equal(st.function(lambda x: (x % 2, 7 % x))(np.array([3, 4])), ([1, 0], [1, 3]))


@pytest.mark.parametrize(
    ("text", "values", "error", "words"),
    [
        ("%.3f", lambda x: x, st.StagingError, "`%.3f` of '%.3f' cannot format a staged value of type f64 (2,)"),
        ("%c", lambda x: x[0], st.StagingError, "`%c` of '%c' cannot format"),
        ("%.5d", lambda x: int(x[0]), st.StagingError, "`%.5d` of"),
        ("%x", lambda x: x[0], st.StagingError, "the format spec `x` does not fit a float"),
        ("%d %d", lambda x: (x[0],), st.ArgumentError, "fewer values than fields"),
        ("%d", lambda x: (x[0], x[1]), st.ArgumentError, "more values than fields"),
    ],
)
def test_what_cannot_be_formatted_is_an_error(text: str, values: Any, error: Any, words: str) -> None:
    def f(x: Any) -> Any:
        print(text % values(x))
        return x

    with refuses(error, words.replace("(", r"\(").replace(")", r"\)").replace(".", r"\.")):
        st.function(f)(np.array([1.0, 2.0]))
