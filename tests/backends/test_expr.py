"""C expressions: precedence, literals, names and strings that could break the text."""

import math
import subprocess

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from staged.code.expr import (
    Call,
    Cast,
    Conditional,
    Group,
    Index,
    Infix,
    Literal,
    Member,
    Name,
    Prefix,
    literal,
    names_in,
    substituted,
)
from staged.code.writer import Names, c_identifier, c_string, safe_comment
from staged.ir.types import bool_, f32, f64, i32, i64, u32

A, B, C = Name("a"), Name("b"), Name("c")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (Infix("*", Infix("+", A, B), C), "(a + b) * c"),
        (Infix("+", Infix("*", A, B), C), "a * b + c"),
        (Infix("-", A, Infix("-", B, C)), "a - (b - c)"),
        (Infix("-", Infix("-", A, B), C), "a - b - c"),
        (Infix("/", A, Infix("*", B, C)), "a / (b * c)"),
        (Prefix("-", Prefix("-", A)), "-(-a)"),
        (Prefix("!", Infix("<", A, B)), "!(a < b)"),
        (Infix("&&", Infix("||", A, B), C), "(a || b) && c"),
        (Infix("||", Infix("&&", A, B), C), "(a && b) || c"),
        (Infix("<<", A, Infix("+", B, C)), "a << (b + c)"),
        (Infix("&&", Infix("&&", A, B), C), "a && b && c"),
        (Infix("!=", Infix("!=", A, B), C), "(a != b) != c"),
        (Infix("==", Infix("==", A, B), C), "(a == b) == c"),
        (Conditional(Infix("<", A, B), A, B), "a < b ? a : b"),
        (Infix("+", Conditional(A, B, C), A), "(a ? b : c) + a"),
        (Cast("float", Infix("+", A, B)), "(float)(a + b)"),
        (Index(Member(A, "h"), Infix("+", B, Literal("1"))), "a->h[b + 1]"),
        (Infix("-", A, Literal("-1.0f")), "a - (-1.0f)"),
        (Call("fmaxf", (Infix("+", A, B), C)), "fmaxf(a + b, c)"),
    ],
)
def test_parentheses_follow_precedence(expression, text):
    assert str(expression) == text


@pytest.mark.parametrize(
    ("value", "dtype", "text"),
    [
        (0.5, f32, "0.5f"),
        (0.1, f64, "0.1"),
        (1e-7, f32, "1e-07f"),
        (3, f64, "3.0"),
        (True, bool_, "true"),
        (-(2**63), i64, "INT64_MIN"),
        (2**40, i64, "INT64_C(1099511627776)"),
        (-5, i32, "-5"),
        (2**31, u32, "2147483648u"),
        (-math.inf, f32, "-INFINITY"),
    ],
)
def test_literals_follow_the_dtype(value, dtype, text):
    assert str(literal(value, dtype)) == text


@given(some.floats(allow_nan=False, allow_infinity=False, width=32))
def test_a_float32_literal_reads_back_as_the_same_number(value):
    assert np.float32(str(literal(value, f32)).rstrip("f")) == np.float32(value)


@given(some.text() | some.sampled_from(["st:0", "st_", "st_fail", "for", "8bit", "", "été"]))
def test_every_hint_becomes_a_legal_identifier(hint):
    name = c_identifier(hint)
    assert name.isascii() and name.isidentifier()
    assert not name.startswith("st_") and name not in ("for", "double", "main")


def test_a_taken_name_gets_a_number_and_scopes_nest():
    outer = Names()
    assert [outer.fresh("h"), outer.fresh("h")] == ["h", "h_2"]
    assert Names(outer).fresh("h") == "h_3"


HOSTILE = ['"', "\\", '");abort();//', "%s%n", "*/", "??/", "a\nb", "\0x", "#line 1", "é\u2028", "\\\n"]


def test_hostile_strings_arrive_unchanged(tmp_path):
    lines = ["#include <stdio.h>", "int main(void) {"]
    for text in HOSTILE:
        lines.append("    // " + safe_comment(text))
        lines.append(f"    fwrite({c_string(text)}, 1, sizeof({c_string(text)}) - 1, stdout);")
    lines.append("    return 0;\n}")
    source = tmp_path / "t.c"
    source.write_text("\n".join(lines))
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(tmp_path / "t")], check=True)
    out = subprocess.run([str(tmp_path / "t")], check=True, capture_output=True).stdout
    assert out == "".join(HOSTILE).encode()


@settings(max_examples=50)
@given(some.text(alphabet=some.characters(codec="utf-8")))
def test_comments_stay_on_their_line(text):
    comment = safe_comment(text)
    assert len(comment.splitlines()) <= 1 and not comment.endswith("\\") and "??" not in comment


def test_the_names_of_an_expression_are_those_of_its_parts_and_fields() -> None:
    x, y = Name("x"), Name("y")
    expr = Infix("+", Member(x, "next"), Call("f", (Index(y, Literal("0")), Cast("int", Prefix("-", Name("z"))))))
    assert names_in(expr) == {"x", "next", "y", "z"}


def test_a_product_takes_expressions_in_the_place_of_names() -> None:
    product = Infix("*", Prefix("-", Name("rate")), Name("factor"))
    given = substituted(product, {"rate": Group(Infix("+", Name("a"), Name("b"))), "other": Name("c")})
    assert str(given) == "-(a + b) * factor"
