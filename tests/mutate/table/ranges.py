"""Planted faults of the ranges of integers, and of numbers as dtypes hold them."""

from tests.mutate.mutant import Mutant

RANGES = "staged/ir/ranges.py"
NUMBERS = "staged/ir/numbers.py"
TESTS = "tests/ir/test_ranges.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "a range that leaves its dtype is believed",
        RANGES,
        "return found if fits(found, value.tensor.dtype) else None",
        "return found",
        (TESTS, "-k", "arithmetic or casts"),
    ),
    Mutant(
        "a bool is a number of any size",
        RANGES,
        "found is None and (dtype.is_integer or dtype.is_bool)",
        "found is None and dtype.is_integer",
        (TESTS, "-k", "known_of_an_operand"),
    ),
    Mutant(
        "a choice has the range of the first",
        RANGES,
        "return min(a[0], b[0]), max(a[1], b[1])\n\n\n@_rule\ndef bitwise_and",
        "return a\n\n\n@_rule\ndef bitwise_and",
        (TESTS, "-k", "choice"),
    ),
    Mutant(
        "a mask below 0 bounds a number",
        RANGES,
        "tops = [span[1] for span in (a, b) if span[0] >= 0]",
        "tops = [span[1] for span in (a, b)]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a value that a branch decides has the range of the first path",
        RANGES,
        "return min(low for low, _ in known), max(high for _, high in known)",
        "return known[0]",
        (TESTS, "-k", "paths"),
    ),
    Mutant(
        "a float has the range of the integer it came from",
        RANGES,
        "        if not value.tensor.dtype.is_integer:\n            return None\n",
        "",
        (TESTS, "-k", "floats"),
    ),
    Mutant(
        "a difference of ranges ends where both end",
        RANGES,
        "return a[0] - b[1], a[1] - b[0]",
        "return a[0] - b[0], a[1] - b[1]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a product of ranges looks at its ends alone",
        RANGES,
        "corners = [x * y for x in a for y in b]",
        "corners = [x * y for x, y in zip(a, b, strict=True)]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "the largest of two ranges is no larger than the smaller end",
        RANGES,
        "return max(a[0], b[0]), max(a[1], b[1])",
        "return max(a[0], b[0]), min(a[1], b[1])",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "the smallest of two ranges is no smaller than the larger start",
        RANGES,
        "return min(a[0], b[0]), min(a[1], b[1])",
        "return max(a[0], b[0]), min(a[1], b[1])",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a divisor may be below 0",
        RANGES,
        "    if b[0] <= 0:\n        return None\n    corners = [x // y for x in a for y in b]",
        "    if 0 in b:\n        return None\n    corners = [x // y for x in a for y in b]",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a remainder of numbers below 0 does not grow",
        RANGES,
        "return 0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)",
        "return 0, min(a[1], b[1] - 1)",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "a remainder may be the divisor",
        RANGES,
        "return 0, b[1] - 1 if a[0] < 0 else min(a[1], b[1] - 1)",
        "return 0, b[1] - 2 if a[0] < 0 else min(a[1], b[1] - 2)",
        (TESTS, "-k", "arithmetic"),
    ),
    Mutant(
        "an index that counts down never comes below its stop's upper end",
        RANGES,
        "return min(stop[0] + 1, start[1]), start[1]",
        "return min(stop[1] + 1, start[1]), start[1]",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "an index stops at the stop's lower end",
        RANGES,
        "return start[0], max(stop[1] - 1, start[0])",
        "return start[0], max(stop[0] - 1, start[0])",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "a step that may be of either sign counts up",
        RANGES,
        "        if step[0] > 0:",
        "        if step[1] > 0:",
        (TESTS, "-k", "whose_bounds_are_ranges"),
    ),
    Mutant(
        "unsigned integers have a sign",
        NUMBERS,
        'return (0, 2**bits - 1) if dtype.kind == "u" else',
        'return (0, 2**bits - 1) if dtype.kind == "b" else',
        (TESTS, "-k", "integer_dtype_holds"),
    ),
    Mutant(
        "integers stop at the ends of their dtype",
        NUMBERS,
        "return (number - low) % (high - low + 1) + low",
        "return min(max(number, low), high)",
        (TESTS, "-k", "integer_dtype_holds"),
    ),
    Mutant(
        "f32 constants keep the digits of f64",
        NUMBERS,
        "return float(converted(np.asarray(number), dtype))",
        "return float(number)",
        (TESTS, "-k", "float_dtype_holds"),
    ),
    Mutant(
        "0.0 and -0.0 are the same number",
        NUMBERS,
        "return repr(a) == repr(b)",
        "return a == b",
        (TESTS, "-k", "the_same_number"),
    ),
)
