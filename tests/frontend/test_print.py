"""`print` and f-strings."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import staged as st
from staged.errors import StagingError
from tests.frontend.harness import ir, ops

X = np.arange(3, dtype=np.float32)


def printed(function, *args):
    return [line.strip() for line in ir(function, *args).splitlines() if line.strip().startswith("print(")]


def test_static_text_is_recorded_too() -> None:
    def f(x):
        print("start", 3, sep="-", end="!")
        return x

    assert printed(f, X) == ["print() {end='!', file='stdout', parts=('start-3',)}"]


def test_staged_values_keep_their_specs_and_conversions() -> None:
    def f(x, n):
        print(f"n {n:>5d} {n!r} {x} {n=:d}")
        return x

    (line,) = printed(f, X, 3)
    assert "parts=('n ', (0, '>5d', ''), ' ', (1, '', 'r'), ' ', (2, '', ''), ' n=', (3, 'd', ''))" in line


def test_containers_print_their_staged_elements() -> None:
    def f(n):
        print([n, (n,), {"a": n}], "s")
        return n

    (line,) = printed(f, 3)
    assert "parts=('[', (0, '', 'r'), ', (', (1, '', 'r'), \",), {'a': \", (2, '', 'r'), '}] s')" in line


def test_prints_keep_their_order_in_loops_and_branches() -> None:
    def f(n):
        for i in st.range(n):
            print("a", i)
            if i > 2:
                print("b")
        print("c")
        return n

    assert [name for name in ops(ir(f, 3)) if name in ("for", "if", "print")] == [
        "for",
        "print",
        "if",
        "print",
        "print",
    ]


def test_text_made_of_staged_parts() -> None:
    def f(n):
        text = "n: " + f"{n}" + "!"
        print(text, str(n), "{:.2f} {}".format(n, "x"))
        return n

    (line,) = printed(f, 3.0)
    assert "parts=('n: ', (0, '', ''), '! ', (1, '', ''), ' ', (2, '.2f', ''), ' x')" in line


def test_wrong_spec_is_refused_while_staging() -> None:
    def f(x):
        print(f"{x.sum():d}")
        return x

    with pytest.raises(StagingError):
        ir(f, X)


def test_print_to_a_file_is_refused() -> None:
    def f(n):
        print(n, file=sys.stderr)
        return n

    with pytest.raises(StagingError, match="a staged `print` goes to standard output"):
        ir(f, 3)


def test_text_that_utf_8_cannot_represent_is_refused_at_the_line() -> None:
    def f(n):
        print("half \ud800", n)
        return n

    def g(n):
        assert n > 0, "half \ud800"
        return n

    for function, line in ((f, r'print("half \ud800", n)'), (g, r'assert n > 0, "half \ud800"')):
        with pytest.raises(st.ArgumentError, match="text must be valid Unicode") as caught:
            ir(function, 3)
        assert line in str(caught.value)


USES = {
    "len": lambda x: len(f"{x}"),
    "in": lambda x: "1" in f"{x}",
    "an index": lambda x: f"{x}"[0],
    "a slice": lambda x: f"{x}"[1:],
    "a method": lambda x: f"{x}".upper(),
    "iteration": lambda x: list(f"{x}"),
    "a loop": lambda x: [character + "." for character in f"{x}"],
    "equal": lambda x: f"{x}" == "1",
    "less": lambda x: f"{x}" < "2",
    "in a list": lambda x: f"{x}" in ["1"],
    "repeated": lambda x: f"{x}" * 2,
    "int": lambda x: int(f"{x}"),
    "float": lambda x: float(f"{x}"),
    "a key": lambda x: {f"{x}": 1},
    "sorted": lambda x: sorted([f"{x}", "2"]),
}


@pytest.mark.parametrize("use", USES)
def test_the_characters_of_a_text_with_staged_parts_are_an_error_with_the_line(use: str) -> None:
    """Most were a TypeError about a StagedString, without the user's line."""
    with pytest.raises(StagingError, match="known only when the program runs") as raised:
        st.function(USES[use])(1.0)
    assert "test_print.py" in str(raised.value) and "To fix" in str(raised.value)


def test_a_text_with_staged_parts_is_true() -> None:
    assert float(st.function(lambda x: x + 1.0 if f"{x}" else x)(1.0)) == 2.0
