"""Planted faults of arguments: what functions are asked for at the edges, by NumPy's and torch's words, and by gradients' names."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_MAP, _SHAPE, _RANDOM = "staged/ops/numpy_map.py", "staged/ops/shape.py", "staged/ops/random.py"
_NUMPY, _ARGUMENTS, _SPECIAL = "tests/eager/test_numpy.py", "tests/ops/test_arguments.py", "tests/ops/test_special_points.py"
_WORDS, _TORCH = "staged/ops/torch_words.py", "tests/ops/test_torch_words.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the first value of a reduction of NumPy's is left out",
        _MAP,
        '{"axis": 0, **options})',
        '{"axis": 0, **{key: value for key, value in options.items() if key != "initial"}})',
        (_NUMPY, "-k", "initial"),
    ),
    Mutant(
        "a mask for NumPy's `where` is taken for a bool",
        _MAP,
        "not isinstance(value, Array | np.ndarray) and value in known",
        "not isinstance(value, Array) and value in known",
        (_NUMPY, "-k", "where"),
    ),
    Mutant(
        "a power that NumPy takes in floats is one of integers",
        _MAP,
        '_OF_FLOATS = ("fabs", "float_power")',
        '_OF_FLOATS = ("fabs",)',
        (_NUMPY, "-k", "power"),
    ),
    Mutant(
        "a list with an array of complex numbers is ours",
        _MAP,
        "return any(map(_is_foreign, value))",
        "return False",
        (_NUMPY, "-k", "complex"),
    ),
    Mutant(
        "the square under a negative power of integers wraps around",
        "staged/ops/elementwise.py",
        "if (isinstance(power, float) or power < 0) and not base.dtype.is_float:",
        "if isinstance(power, float) and not base.dtype.is_float:",
        ("tests/ops/test_functions.py", "-k", "pow"),
    ),
    Mutant(
        "two axes move to one place",
        _SHAPE,
        "if len(set(fro)) < len(fro) or len(set(to)) < len(to):",
        "if len(set(fro)) < len(fro):",
        (_ARGUMENTS, "-k", "moveaxis"),
    ),
    Mutant(
        "the negative of a shift without a sign wraps around",
        _SHAPE,
        "first = -int(shift) % extent",
        "first = -shift % extent",
        (_ARGUMENTS, "-k", "sizes"),
    ),
    Mutant(
        "the keys of a dict are widths",
        _SHAPE,
        "elif isinstance(pad_width, Mapping):",
        "elif isinstance(pad_width, str):",
        (_ARGUMENTS, "-k", "dict"),
    ),
    Mutant(
        "random integers of a wide range wrap around",
        _RANDOM,
        "past - least <= 2**31,",
        "past - least <= 2**33,",
        (_ARGUMENTS, "-k", "integers"),
    ),
    Mutant(
        "random integers wrap around in their dtype",
        _RANDOM,
        "check_fits(past - 1, wanted)",
        "check_fits(least, wanted)",
        (_ARGUMENTS, "-k", "integers"),
    ),
    Mutant(
        "an infinite delta multiplies the slope of the line that is not taken",
        "staged/ops/losses.py",
        "slope = where(size < delta, 1.0, delta)",
        "slope = delta",
        (_SPECIAL, "-k", "end_of_their_range"),
    ),
    Mutant(
        "a dropout of everything scales by inf",
        "staged/ops/composites.py",
        "1.0 / where(p < 1.0, 1.0 - p, 1.0)",
        "1.0 / (1.0 - p)",
        (_SPECIAL, "-k", "end_of_their_range"),
    ),
    Mutant(
        "an ellipsis of no axes does not keep index arrays apart",
        "staged/ops/subscript.py",
        "*(fill or [Ellipsis])",
        "*fill",
        ("tests/ops/test_index.py", "-k", "numpy"),
    ),
    Mutant(
        "no elements make one chunk",
        _WORDS,
        "-(-extent // int(chunks)) or [0] * int(chunks)",
        "-(-extent // int(chunks)) or [0]",
        (_TORCH, "-k", "chunk"),
    ),
    Mutant(
        "a row that is selected by one index loses its axis",
        _WORDS,
        "chosen if chosen.ndim else",
        "chosen if True else",
        (_TORCH, "-k", "index_select"),
    ),
)
