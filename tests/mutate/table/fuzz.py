"""Faults that the fuzzer of small functions found, planted again."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_FUNCTIONS = "tests/ops/test_functions.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "cotangents of halves are added bit by bit",
        "staged/autodiff/reverse.py",
        "if not left.type.dtype.is_half:",
        "if left.type.dtype:",
        ("tests/ops/test_halves.py::test_cotangents_of_a_half_and_its_view_are_added",),
    ),
    Mutant(
        "the float after a half is that of f32, rounded back to the half",
        "staged/ops/halves.py",
        '"nextafter pad random.choice stop_gradient',
        '"pad random.choice stop_gradient',
        ("tests/ops/test_halves.py::test_the_float_after_a_half_is_refused",),
    ),
    Mutant(
        "elements of an array of halves are chosen as f32",
        "staged/ops/halves.py",
        '"nextafter pad random.choice stop_gradient',
        '"nextafter pad stop_gradient',
        ("tests/ops/test_halves.py::test_chosen_elements_keep_their_dtype",),
    ),
    Mutant(
        "a grid of complex places is read at their absolute values",
        "staged/ops/interpolation.py",
        '    check_real("grid_sample", image, places)\n',
        "",
        ("tests/ops/test_complex.py::test_calls_that_pass_by_a_type_rule_are_refused",),
    ),
    Mutant(
        "a dot product of bytes is summed in i64",
        "staged/ops/contraction.py",
        "return sum_(product, axis, dtype=product.dtype)",
        "return sum_(product, axis)",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "two parts of nothing are one part",
        "staged/ops/joining.py",
        "cuts = [width * number for number in range(1, indices_or_sections)]",
        "cuts = list(range(width, extent, width)) if width else []",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "a pool over the edge of a bool image ends in NumPy's words",
        "staged/ops/pooling.py",
        "if ceil_mode and (array.dtype.is_float or array.dtype.is_integer):",
        "if ceil_mode:",
        ("tests/ops/test_pooling.py::test_bad_calls_are_refused_with_the_line",),
    ),
    Mutant(
        "a comparison of comparisons without parentheses",
        "staged/backends/c_family/expr.py",
        "operand.op == op and op not in _COMPARISONS",
        "operand.op == op",
        ("tests/backends/test_expr.py",),
    ),
    Mutant(
        "a comparison with the lowest number that may be equal counts as decided",
        "staged/passes/comparisons.py",
        "first[0] > second[1] or strict and first[0] == second[1]",
        "first[0] >= second[1]",
        ("tests/passes/test_rules.py", "-k", "compare_with_limit"),
    ),
    Mutant(
        "what is cast to fewer bits counts as within them",
        "staged/passes/comparisons.py",
        "not source.is_float and fits(limits(source), cast.result.tensor.dtype)",
        "not source.is_float",
        ("tests/passes/test_rules.py", "-k", "compare_with_limit"),
    ),
    Mutant(
        "numbers of 32 bits are subtracted where 64 are meant",
        "staged/backends/c_family/scalars.py",
        "if isinstance(left, Literal) and isinstance(right, Literal):",
        "if False:",
        ("tests/backends/c_family/test_scalars.py", "-k", "two_numbers"),
    ),
    Mutant(
        "a variance of too few elements is negative",
        "staged/ops/reduction.py",
        "return max(rest, 0.0) if isinstance(rest, float) else maximum(rest, 0.0)",
        "return rest",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "nothing that is shifted by bits is the bits",
        "staged/passes/algebra.py",
        "return b if number_of(a) == 0 and op.declared in (prims.BITWISE_OR, prims.BITWISE_XOR) else None",
        "return b if number_of(a) == 0 else None",
        ("tests/passes/test_rules.py", "-k", "bits_with_nothing"),
    ),
    Mutant(
        "a frame around a counting range needs no array of it",
        "staged/kernels/fuse.py",
        "value in direct and (moves or not _is_source(value))",
        "value in direct and not _is_source(value)",
        ("tests/kernels/test_evaluation.py",),
    ),
    Mutant(
        "a pool makes the largest values for nothing",
        "staged/kernels/lower_alone.py",
        "if 0 in p.result_numbers or (dy, dx) != (1, 1):",
        "if True:",
        ("tests/kernels/test_lower_alone.py",),
    ),
    Mutant(
        "integers are trained",
        "staged/optim/groups.py",
        "if not value.dtype.is_float:",
        "if False:",
        ("tests/optim/test_options.py", "-k", "holds_no_floats"),
    ),
    Mutant(
        "a parameter may hold integers",
        "staged/nn/parameters.py",
        "if not self.dtype.is_float:",
        "if False:",
        ("tests/nn/test_refused.py",),
    ),
    Mutant(
        "eagerly, what has no elements is differentiated backwards",
        "staged/tape.py",
        "for result in node.results if result.dtype.is_inexact and has_elements(result)",
        "for result in node.results if result.dtype.is_inexact",
        ("tests/eager/test_derivatives_of_nothing.py",),
    ),
    Mutant(
        "eagerly, what has no elements has tangents",
        "staged/tape.py",
        "known = self.found.get(id(array)) if has_elements(array) else None",
        "known = self.found.get(id(array))",
        ("tests/eager/test_derivatives_of_nothing.py",),
    ),
    Mutant(
        "integers are clipped",
        "staged/optim/clipping.py",
        "if not leaf.dtype.is_float:",
        "if False:",
        ("tests/optim/test_options.py", "-k", "hold_no_floats"),
    ),
    Mutant(
        "a fan of nothing divides by zero",
        "staged/nn/init.py",
        "math.sqrt(max(fan, 1))",
        "math.sqrt(fan)",
        ("tests/nn/test_init.py", "-k", "no_elements"),
    ),
)
