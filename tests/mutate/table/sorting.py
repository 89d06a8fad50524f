"""Faults in sorting."""

from tests.mutate.mutant import Mutant, Text

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "insertion moves an element before equal ones",
        "code.support.sort:_DIGITS",
        Text("given[place - 1]{key} > moved{key}"),
        "given[place - 1]{key} >= moved{key}",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "-0.0 is sorted before 0.0",
        "code.support.sort:_FLOAT_KEY",
        Text("if (x == 0) {{ return 0; }}"),
        "",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "all zeros of a sorted row are positive",
        "code.support.sort:_ZEROS",
        Text("for (int64_t i = 0; zeros < k && i < n; ++i)"),
        "for (int64_t i = 0; zeros < k && i < 0; ++i)",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "keys whose leading digits are alike are left as insertion leaves them",
        "code.support.sort:_DIGITS",
        Text("if (first == 0 || st_insert_"),
        "if (true || st_insert_",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "the median of a row with NaN is one of its numbers",
        "library.statistics.quantiles:_of_all",
        "where(is_nan, math.nan, mixed)",
        "mixed",
        ("tests/ops/test_quantiles.py", "-k", "numpys"),
    ),
    Mutant(
        "of two equal elements the first alone has a part in the median's derivative",
        "library.statistics.quantiles:_equal_infinities",
        "(low == high) & isinf(low)",
        "low == high",
        ("tests/ops/test_quantiles.py", "-k", "two_equal"),
    ),
    Mutant(
        "equal NaN are distinct elements",
        "library.statistics.distinct:_begins",
        "equal_nan and values.dtype.is_float",
        "False",
        ("tests/ops/test_quantiles.py", "-k", "distinct"),
    ),
    Mutant(
        "a block of threads puts equal elements in any order",
        "backends.gpu.sorting:_TEXT",
        Text("places[low] > places[high]"),
        "places[low] < places[high]",
        ("tests/ops/test_sorting.py", "-k", "block_sorts"),
    ),
)
