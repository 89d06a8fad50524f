"""Planted faults of the ranges of integers, and of numbers as dtypes hold them."""

from tests.mutate.mutant import Mutant

TESTS = "tests/ir/test_ranges.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a range that leaves its dtype is believed",
        "ir.ranges:Ranges.of",
        "found if fits(found, value.tensor.dtype) else None",
        "found",
        (TESTS, "-k", "arithmetic or casts"),
    ),
    Mutant(
        "a bool is a number of any size",
        "ir.ranges:Ranges.of_operand",
        "dtype.is_integer or dtype.is_bool",
        "dtype.is_integer",
        (TESTS, "-k", "known_of_an_operand"),
    ),
    Mutant(
        "a choice has the range of the first",
        "ir.ranges:select",
        "min(a[0], b[0]), max(a[1], b[1])",
        "a",
        (TESTS, "-k", "choice"),
    ),
    Mutant(
        "a mask below 0 bounds a number",
        "ir.ranges:bitwise_and",
        "[span[1] for span in (a, b) if span[0] >= 0]",
        "[span[1] for span in (a, b)]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a value that a branch decides has the range of the first path",
        "ir.ranges:Ranges._of_paths",
        "min(low for low, _ in known), max(high for _, high in known)",
        "known[0]",
        (TESTS, "-k", "paths"),
    ),
    Mutant(
        "a float has the range of the integer it came from",
        "ir.ranges:Ranges.of",
        "if not value.tensor.dtype.is_integer:\n"
        "    return None",
        "",
        (TESTS, "-k", "floats"),
    ),
    Mutant(
        "a difference of ranges ends where both end",
        "ir.ranges:subtract",
        "a[0] - b[1], a[1] - b[0]",
        "a[0] - b[0], a[1] - b[1]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a product of ranges looks at its ends alone",
        "ir.ranges:multiply",
        "[x * y for x in a for y in b]",
        "[x * y for x, y in zip(a, b, strict=True)]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "the largest of two ranges is no larger than the smaller end",
        "ir.ranges:maximum",
        "max(a[1], b[1])",
        "min(a[1], b[1])",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "the smallest of two ranges is no smaller than the larger start",
        "ir.ranges:minimum",
        "min(a[0], b[0])",
        "max(a[0], b[0])",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a divisor may be below 0",
        "ir.ranges:floor_divide",
        "if b[0] <= 0: ...",
        "if 0 in b: ...",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a remainder of numbers below 0 does not grow",
        "ir.ranges:remainder",
        "b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)",
        "min(a[1], b[1] - 1)",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a remainder may be the divisor",
        "ir.ranges:remainder",
        "b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)",
        "b[1] - 2 if a[0] < 0 else min(a[1], b[1] - 2)",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "an index that counts down never comes below its stop's upper end",
        "ir.ranges:Ranges.of_index",
        "stop[0] + 1",
        "stop[1] + 1",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "an index stops at the stop's lower end",
        "ir.ranges:Ranges.of_index",
        "stop[1] - 1",
        "stop[0] - 1",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "a step that may be of either sign counts up",
        "ir.ranges:Ranges.of_index",
        "step[0] > 0",
        "step[1] > 0",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "unsigned integers have a sign",
        "ir.numbers:limits",
        'dtype.kind == "u"',
        'dtype.kind == "b"',
        (TESTS, "-k", "integer_dtype_holds"),
    ),
    Mutant(
        "integers stop at the ends of their dtype",
        "ir.numbers:wrapped",
        "(number - low) % (high - low + 1) + low",
        "min(max(number, low), high)",
        (TESTS, "-k", "integer_dtype_holds"),
    ),
    Mutant(
        "f32 constants keep the digits of f64",
        "ir.numbers:as_held",
        "converted(np.asarray(number), dtype)",
        "number",
        (TESTS, "-k", "float_dtype_holds"),
    ),
    Mutant(
        "0.0 and -0.0 are the same number",
        "ir.numbers:same_number",
        "repr(a) == repr(b)",
        "a == b",
        (TESTS, "-k", "the_same_number"),
    ),
)
