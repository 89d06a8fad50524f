"""The C formatter gives the characters of the Python one, which are Python's own."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from staged.errors import StagingError
from staged.ir.types import ALL_DTYPES, COMPLEX_DTYPES
from staged.ops.formatting import format_value, parse_spec

FLOAT_SPECS = [
    *("", ".4f", ".3e", "g", ".1f", ".0f", "#.0f", "#.0e", ".0e", "e", "E", "F", "G", "%", ".1%", "8.3f", "<10.2f"),
    *("^11.3g", "+.2f", " .2f", "010.3f", "-010.3e", "*^15", "=+12.1f", "x=12", ",", "_", ",.2f", "012,.1f", "_.3e"),
    *(
        ".3",
        ".1",
        ".0",
        "#",
        "#g",
        "#.3g",
        "z.1f",
        "z",
        "z.2e",
        "z.0%",
        "x>+#20.5G",
        "é^12",
        ".17g",
        ".30f",
        "08,",
        "20_%",
    ),
    *(".100f", "255.100f", "0255,", "+#.12", "<08", "▒<+20,.3f"),
]
INTEGER_SPECS = [
    *("", "d", "5", "05", "<5", "^7", "*>9", "+", " ", ",", "_", "012,", "09_", "x", "#x", "X", "#X", "#b", "#o", "_b"),
    *("#_x", "#020x", "#020_b", "x^+30,", ".2f", ".3e", "g", "%", ",.1f", "=8", "0255,d", "255_b", "<012", "#,"),
]
COMPLEX_SPECS = [
    *("", ".3f", ".3e", "g", ".1f", ".0f", "#.0f", "e", "E", "F", "G", "8.3f", "<30.2f", "^31.3g", "+.2f", " .2f", "-"),
    *("*^25", "é>40.1f", "x<12", ",", "_", ",.2f", "_.3e", ".3", ".0", "#", "#g", "z.1f", "z", "+", "+.4", ".17g"),
    *(".100f", "255,.100f", " ,", "▒<+20,.3f"),
]
BOOL_SPECS = ["", "d", "5", "<5", "+", "x", ".1f", "03"]
TEXT_SPECS = ["", "10", ">10", "^10", "*<12", ".3", "^8.2", "s", "012", ">9s"]

floats = some.floats(width=64) | some.integers(0, 2**64 - 1).map(lambda b: struct.unpack("d", struct.pack("Q", b))[0])
floats |= some.floats(-1e6, 1e6) | some.integers(-(10**6), 10**6).map(lambda n: n / 1000)
singles = some.floats(width=32) | some.integers(0, 2**32 - 1).map(lambda b: struct.unpack("f", struct.pack("I", b))[0])
singles |= some.integers(-(10**5), 10**5).map(lambda n: float(np.float32(n / 100)))
integers = some.integers(-(2**63), 2**63 - 1) | some.integers(-2000, 2000)
pairs = some.builds(complex, floats, floats) | some.builds(complex, some.sampled_from([0.0, -0.0, 1.0]), floats)
many = settings(max_examples=1500)

TRICKY = [0.0, -0.0, 1.0, 0.1, 1e16, 1e15, 9999999999999998.0, 1e-4, 1e-5, 123456.789, 9.5, 0.5, 1.5, 2.5, 0.95, 99.995]
TRICKY += [
    float("nan"),
    -float("nan"),
    float("inf"),
    -float("inf"),
    5e-324,
    1.7976931348623157e308,
    2.2250738585072014e-308,
]
TRICKY += [9.995, 0.045, 1e22, 1e23, 999999.5, 9.9999995e-5, -0.0001, 1e5, 1234567.0]


def same(c_format: Any, value: Any, spec: str = "", conversion: str = "") -> None:
    assert c_format(value, spec, conversion) == format_value(value, spec, conversion), (value, spec, conversion)


@many
@given(floats, some.sampled_from(FLOAT_SPECS))
def test_f64(c_format: Any, value: float, spec: str) -> None:
    assert format_value(value, spec) == format(value, spec)
    same(c_format, np.float64(value), spec)


@many
@given(singles, some.sampled_from(FLOAT_SPECS))
def test_f32(c_format: Any, value: float, spec: str) -> None:
    same(c_format, np.float32(value), spec)


@many
@given(integers, some.sampled_from(INTEGER_SPECS))
def test_i64(c_format: Any, value: int, spec: str) -> None:
    assert format_value(value, spec) == format(value, spec)
    same(c_format, np.int64(value), spec)
    same(c_format, np.uint64(value % 2**64), spec)


FILLS = some.sampled_from(["", "*", "0", "x", "é", "→", "🙂"])
ANY_SPEC = some.builds(
    lambda fill, align, sign, z, alternate, zero, width, group, precision, type: (
        (fill + align if align else "") + sign + z + alternate + zero + width + group + precision + type
    ),
    FILLS,
    some.sampled_from(["", "<", ">", "=", "^"]),
    some.sampled_from(["", "+", "-", " "]),
    some.sampled_from(["", "", "z"]),
    some.sampled_from(["", "#"]),
    some.sampled_from(["", "0"]),
    some.sampled_from(["", "1", "7", "13", "40"]),
    some.sampled_from(["", ",", "_"]),
    some.sampled_from(["", ".0", ".1", ".3", ".15"]),
    some.sampled_from(["", *"bdoxXeEfFgG%s"]),
)


@settings(max_examples=4000)
@given(
    some.one_of(floats.map(np.float64), singles.map(np.float32), integers.map(np.int64), some.booleans(), pairs),
    ANY_SPEC,
)
def test_any_spec_is_formatted_alike_or_refused_where_python_refuses(c_format: Any, value: Any, spec: str) -> None:
    number = value.item() if isinstance(value, np.generic) else value
    try:
        expected = format(number, spec)
    except ValueError:
        with pytest.raises(StagingError, match="does not fit"):
            format_value(value, spec)
        return
    if not isinstance(value, np.float32):
        assert format_value(value, spec) == expected
    same(c_format, np.asarray(value), spec)


@many
@given(pairs, some.sampled_from(COMPLEX_SPECS))
def test_c128(c_format: Any, value: complex, spec: str) -> None:
    assert format_value(value, spec) == format(value, spec)
    same(c_format, np.complex128(value), spec)


@many
@given(some.builds(complex, singles, singles), some.sampled_from(COMPLEX_SPECS))
def test_c64(c_format: Any, value: complex, spec: str) -> None:
    same(c_format, np.complex64(value), spec)


def test_tricky_complex_numbers_under_every_spec(c_format: Any) -> None:
    for re in TRICKY:
        for im in TRICKY:
            value = complex(re, im)
            for spec in COMPLEX_SPECS:
                assert format_value(value, spec) == format(value, spec)
                same(c_format, np.complex128(value), spec)
            assert c_format(np.complex128(value)) == repr(value) == c_format(np.complex128(value), "", "r")


def test_a_c64_has_the_digits_of_numpys(c_format: Any) -> None:
    for value in (0.1 + 0.2j, 1 / 3 - 1e-5j, 3e20 + 1j, complex(-0.0, 1.5), complex("nan-infj"), 0.1j, -0.1j):
        assert c_format(np.complex64(value)) == str(np.complex64(value)), value


@pytest.mark.parametrize("value", TRICKY)
def test_tricky_floats_under_every_spec(c_format: Any, value: float) -> None:
    for spec in FLOAT_SPECS:
        same(c_format, np.float64(value), spec)
        with np.errstate(over="ignore"):
            same(c_format, np.float32(value), spec)


def test_every_power_of_two_and_its_neighbours_have_pythons_shortest_text(c_format: Any) -> None:
    for exponent in range(-1074, 1024):
        power = 2.0**exponent
        for value in (power, np.nextafter(power, 0.0), np.nextafter(power, np.inf)):
            assert c_format(np.float64(value)) == repr(float(value))
    for exponent in range(-149, 128):
        power32 = np.float32(2.0**exponent)
        for value32 in (power32, np.nextafter(power32, np.float32(0)), np.nextafter(power32, np.float32(np.inf))):
            text = c_format(value32)
            assert np.float32(text) == value32 and text == format_value(value32)


def test_powers_of_ten(c_format: Any) -> None:
    for exponent in range(-323, 309):
        same(c_format, np.float64(f"1e{exponent}"))
        same(c_format, np.float64(f"-9.999999999e{exponent}" if exponent < 308 else "1.0"), ".3g")


@pytest.mark.parametrize("spec", BOOL_SPECS)
def test_bools_print_as_words_and_format_as_integers(c_format: Any, spec: str) -> None:
    for value in (True, False):
        same(c_format, np.bool_(value), spec)
        assert format_value(np.bool_(value), spec) == format(value, spec)


CODES = (0x20, 0x41, 0x7F, 0x80, 0xE9, 0x7FF, 0x800, 0x20AC, 0xFFFF, 0x10000, 0x1F600, 0x10FFFF)


@pytest.mark.parametrize("spec", ["c", "3c", "<3c", "^4c", "é>5c", "05c", "=4c"])
def test_integers_as_characters(c_format: Any, spec: str) -> None:
    for code in CODES:
        same(c_format, np.int64(code), spec)
        assert format_value(code, spec) == format(code, spec)
    for code in (-1, 0xD800, 0xDFFF, 0x110000, 2**40):  # no characters
        same(c_format, np.int64(code), spec)
        assert format_value(code, spec) == format(0xFFFD, spec)


@pytest.mark.parametrize("spec", TEXT_SPECS)
def test_conversions_format_text(c_format: Any, spec: str) -> None:
    for value in (np.float64(0.1), np.float32(0.1), np.int64(-12), np.bool_(True)):
        for conversion in "rs":
            same(c_format, value, spec, conversion)
    assert format_value(0.5, spec, "r") == format(repr(0.5), spec)


@pytest.mark.parametrize("dtype", [dtype.numpy.type for dtype in (*ALL_DTYPES, *COMPLEX_DTYPES)])
@pytest.mark.parametrize("shape", [(3,), (1,), (0,), (2, 3), (2, 0, 3), (2, 2, 3), (1, 2, 1, 2), (1, 1)])
def test_arrays(c_format: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    array = (np.arange(np.prod(shape)) * 37 % 11).reshape(shape).astype(dtype)
    same(c_format, array)
    same(c_format, array, "+.2f")
    same(c_format, array, "é^7")
    same(c_format, array, ">7", "r")


def test_layout_of_arrays(c_format: Any) -> None:
    assert c_format(np.array([[0.5, -10.0], [1e-5, 2.0]])) == "[[  0.5 -10.0]\n [1e-05   2.0]]"
    assert c_format(np.arange(8).reshape(2, 2, 2)) == "[[[0 1]\n  [2 3]]\n\n [[4 5]\n  [6 7]]]"
    assert c_format(np.array([True, False])) == "[ True False]"
    assert c_format(np.array([1, 1000]), ",") == "[    1 1,000]"
    assert c_format(np.array([[1 - 2j, 0.5j]])) == "[[(1-2j)   0.5j]]"


def test_array_longer_than_the_buffers(c_format: Any) -> None:
    same(c_format, np.linspace(-1, 1, 3000, dtype=np.float32).reshape(30, 100))


def test_decimal_point_of_the_locale_never_shows(c_format_with_foreign_point: Any) -> None:
    for value in TRICKY:
        for spec in FLOAT_SPECS:
            same(c_format_with_foreign_point, np.float64(value), spec)


@pytest.mark.parametrize(
    ("spec", "kind", "words"),
    [
        ("d", "f", "does not fit a float: Unknown format code 'd'"),
        (".2d", "i", "does not fit an integer"),
        (",x", "i", "Cannot specify ',' with 'x'"),
        ("n", "i", "depends on the locale"),
        ("+c", "i", "Sign not allowed"),
        (".1c", "i", "does not fit an integer"),
        ("300", "i", "at most 255"),
        ("08", "c", "does not fit a complex number: Zero padding"),
        ("=9", "c", "does not fit a complex number: '=' alignment"),
        ("%", "c", "does not fit a complex number: Unknown format code"),
        ("d", "c", "does not fit a complex number: Unknown format code"),
        (".101f", "f", "precision of at most 100"),
        ("hello", "f", "is not a format spec"),
        ("\n>5", "i", "is not printable"),
        ("=5", "s", "does not fit text"),
    ],
)
def test_spec_that_cannot_be_staged_is_refused(spec: str, kind: str, words: str) -> None:
    with pytest.raises(StagingError, match=words):
        parse_spec(spec, kind)


def test_unknown_conversion() -> None:
    with pytest.raises(StagingError, match="unknown conversion"):
        parse_spec("", "f", "x")
