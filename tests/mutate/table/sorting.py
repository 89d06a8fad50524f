"""Faults in sorting."""

from tests.mutate.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "insertion moves an element before equal ones",
        "staged/backends/c_family/support/sort.py",
        "given[place - 1]{key} > moved{key}",
        "given[place - 1]{key} >= moved{key}",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "-0.0 is sorted before 0.0",
        "staged/backends/c_family/support/sort.py",
        "    if (x == 0) {{\n        return 0;\n    }}\n",
        "",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "all zeros of a sorted row are positive",
        "staged/backends/c_family/support/sort.py",
        "for (int64_t i = 0; zeros < k && i < n; ++i)",
        "for (int64_t i = 0; zeros < k && i < 0; ++i)",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "keys whose leading digits are alike are left as insertion leaves them",
        "staged/backends/c_family/support/sort.py",
        "if (first == 0 || st_insert_",
        "if (true || st_insert_",
        ("tests/ops/test_sorting.py", "-k", "every_length_and_dtype"),
    ),
    Mutant(
        "the median of a row with NaN is one of its numbers",
        "staged/ops/quantiles.py",
        "found.append(where(is_nan, math.nan, mixed))",
        "found.append(mixed)",
        ("tests/ops/test_quantiles.py", "-k", "numpys"),
    ),
    Mutant(
        "of two equal elements the first alone has a part in the median's derivative",
        "staged/ops/quantiles.py",
        "(low == high) & isinf(low)",
        "(low == high)",
        ("tests/ops/test_quantiles.py", "-k", "two_equal"),
    ),
    Mutant(
        "equal NaN are distinct elements",
        "staged/ops/distinct.py",
        "if equal_nan and values.dtype.is_float:",
        "if False:",
        ("tests/ops/test_quantiles.py", "-k", "distinct"),
    ),
    Mutant(
        "a block of threads puts equal elements in any order",
        "staged/backends/gpu_family/sorting.py",
        "places[low] > places[high]",
        "places[low] < places[high]",
        ("tests/ops/test_sorting.py", "-k", "block_sorts"),
    ),
    Mutant(
        "the rows of an argument are all the first",
        "staged/ir/loops.py",
        "given = (Address(a.array, change(a.index))",
        "given = (Address(a.array, Affine())",
        ("tests/ops/test_sorting.py", "-k", "axis_whose_size or numpys_along or block_sorts"),
    ),
)
