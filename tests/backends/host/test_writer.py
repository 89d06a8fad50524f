"""Lines, their breaks, and names."""

from __future__ import annotations

import pytest

from staged.code.writer import Names, Writer, folded, wrapped


@pytest.mark.parametrize(
    ("text", "broken"),
    [
        ("f(a, b);", "f(a, b);"),
        ("call(first, second, third);", "call(first, second,\n        third);"),
        # Not inside of a string, not what is broken already, not a comment.
        ('call("a, b, c, d, e, f, g", h);', 'call("a, b, c, d, e, f, g",\n        h);'),
        ('call("a \\" , b, c, d, e, f", h);', 'call("a \\" , b, c, d, e, f",\n        h);'),
        ("call(first, second,\n    third);", "call(first, second,\n    third);"),
        ("float *x;  // weights, or gradients", "float *x;  // weights, or gradients"),
    ],
)
def test_long_statements_are_broken_after_commas(text: str, broken: str) -> None:
    assert wrapped(text, 22) == broken


def test_a_statement_knows_how_deep_it_stands() -> None:
    w = Writer()
    words = [f"argument_{n}" for n in range(12)]
    with w.block("if (x)"):
        w.statement(f"f({', '.join(words)});")
    assert w.lines[1].startswith("    f(argument_0, ") and w.lines[2].startswith("            argument_")
    assert all(len(line) <= 116 for line in w.lines)


LONG = "a_long_name_of_a_function_of_" + "a_layer_" * 5


@pytest.mark.parametrize(
    "text",
    [
        f"(step == 6 ? {LONG}4x6 : {LONG}4x1)(scratch + channel * 64, y, x, 4);",
        f"static __attribute__((noinline)) void {LONG}14x2(const float *restrict factors, float *c) {{",
        f"if ({LONG} < 0 || {LONG} > best || ({LONG} != {LONG} && best == best)) {{",
    ],
)
def test_no_line_of_a_statement_is_longer_than_120_columns(text: str) -> None:
    w = Writer()
    with w.block("if (x)"):
        w.statement(text)
    assert " ".join(line.strip() for line in w.lines[1:-1]).replace("( ", "(") == text
    assert len(w.lines) > 3
    assert all(len(line) <= 120 for line in w.lines)


@pytest.mark.parametrize("sign", ["=", "+="])
def test_a_long_assignment_is_broken_behind_its_sign(sign: str) -> None:
    w = Writer()
    w.assignment(f"{LONG}[i] {sign} st_exp_f32v({LONG});")
    assert w.lines == [f"{LONG}[i] {sign}", f"        st_exp_f32v({LONG});"]


def test_a_long_line_of_python_is_cut_and_prose_is_not() -> None:
    w = Writer()
    with w.block("if (x)"):
        w.comment(f"model.py:12  {LONG} = {LONG} + {LONG}")
        w.comment(f"{LONG} {LONG} {LONG}")
    assert len(w.lines[1]) <= 120 and w.lines[1].endswith(" ...")
    assert w.lines[2].endswith(LONG)


def test_pragmas_of_loops_stand_with_their_loop() -> None:
    w = Writer()
    with w.block("for (;;)"):
        w.line("#pragma GCC unroll 4")
        w.line("#ifdef X")
    assert w.lines[1:3] == ["    #pragma GCC unroll 4", "#ifdef X"]


def test_numbers_of_names_stand_before_their_suffix() -> None:
    names = Names()
    assert [names.fresh("x", "_kernel") for _ in range(3)] == ["x_kernel", "x_2_kernel", "x_3_kernel"]
    assert names.fresh("x") == "x" and names.fresh("x") == "x_2"


def test_no_name_has_two_underscores_in_a_row() -> None:
    """Such names belong to the compilers of C++ and CUDA, which take the same text."""
    names = Names()
    assert [names.fresh("select") for _ in range(3)] == ["select_", "select_2", "select_3"]
    assert names.fresh("select", "_out") == "select_out" and names.fresh("index", "_out") == "index_out"


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("a + b * c;", ["a + b * c;"]),
        ("first + second + third + fourth;", ["first + second", "+ third + fourth;"]),
        ("f(first + second, third, fourth);", ["f(first + second,", "third, fourth);"]),
        ("first * second - third * 4;", ["first * second", "- third * 4;"]),
        ("(first | second) * (third + 1);", ["(first | second)", "* (third + 1);"]),
        ("sqrt(first * first + second);", ["sqrt(first * first", "+ second);"]),
        ("a_name_that_is_longer_than_a_line;", ["a_name_that_is_longer_than_a_line;"]),
        ('st_fail("one, two + three", four);', ['st_fail("one, two + three", four);']),
    ],
)
def test_long_expressions_break_where_the_fewest_parentheses_are_open(text: str, lines: list[str]) -> None:
    assert folded(text, 18) == lines
