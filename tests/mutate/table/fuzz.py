"""Faults that the fuzzer of small functions found, planted again."""

from __future__ import annotations

from tests.mutate.mutant import Mutant, Text

_FUNCTIONS = "tests/ops/test_functions.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "cotangents of halves are added bit by bit",
        "autodiff.reverse:Reverse.add",
        "not left.type.dtype.is_half",
        "left.type.dtype",
        ("tests/ops/test_halves.py::test_cotangents_of_a_half_and_its_view_are_added",),
    ),
    Mutant(
        "the float after a half is that of f32, rounded back to the half",
        "ops.halves:_MOVING",
        Text("nextafter pad random.choice random.trunc"),
        "pad random.choice random.trunc",
        ("tests/ops/test_halves.py::test_the_half_after_each_half_is_numpys",),
    ),
    Mutant(
        "elements of an array of halves are chosen as f32",
        "ops.halves:_MOVING",
        Text("nextafter pad random.choice random.trunc"),
        "nextafter pad random.trunc",
        ("tests/ops/test_halves.py::test_chosen_elements_keep_their_dtype",),
    ),
    Mutant(
        "a grid of complex places is read at their absolute values",
        "library.pooling.interpolation:grid_sample",
        'check_real("grid_sample", image, places)',
        "",
        ("tests/ops/test_complex.py::test_calls_that_pass_by_a_type_rule_are_refused",),
    ),
    Mutant(
        "a dot product of bytes is summed in i64",
        "ops.contraction:vecdot",
        "sum_(product, axis, dtype=product.dtype)",
        "sum_(product, axis)",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "two parts of nothing are one part",
        "ops.joining:split",
        "[width * number for number in range(parts + 1)]",
        "list(range(0, extent + 1, width)) if width else [0, 0]",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "a pool over the edge of a bool image ends in NumPy's words",
        "library.pooling.pooling:maxima",
        "ceil_mode and (image.dtype.is_float or image.dtype.is_integer)",
        "ceil_mode",
        ("tests/ops/test_pooling.py::test_bad_calls_are_refused_with_the_line",),
    ),
    Mutant(
        "a comparison of comparisons without parentheses",
        "code.expr:_operand",
        "operand.op == op and op not in _COMPARISONS",
        "operand.op == op",
        ("tests/backends/test_expr.py",),
    ),
    Mutant(
        "a comparison with the lowest number that may be equal counts as decided",
        "passes.comparisons:compare_with_limit",
        "first[0] > second[1] or strict and first[0] == second[1]",
        "first[0] >= second[1]",
        ("tests/passes/test_rules.py", "-k", "compare_with_limit"),
    ),
    Mutant(
        "what is cast to fewer bits counts as within them",
        "passes.comparisons:_keeps_integers",
        "not source.is_float and fits(limits(source), cast.result.tensor.dtype)",
        "not source.is_float",
        ("tests/passes/test_rules.py", "-k", "compare_with_limit"),
    ),
    Mutant(
        "numbers of 32 bits are subtracted where 64 are meant",
        "code.scalars:wrapping",
        "isinstance(left, Literal) and isinstance(right, Literal)",
        "False",
        ("tests/backends/host/test_scalars.py", "-k", "two_numbers"),
    ),
    Mutant(
        "a variance of too few elements is negative",
        "ops.reduction:freedom_of",
        "max(rest, 0.0) if isinstance(rest, float) else maximum(rest, 0.0)",
        "rest",
        (f"{_FUNCTIONS}::test_agrees_with_numpy",),
    ),
    Mutant(
        "nothing that is shifted by bits is the bits",
        "passes.algebra:bits_with_nothing",
        "number_of(a) == 0 and op.declared in (prims.BITWISE_OR, prims.BITWISE_XOR)",
        "number_of(a) == 0",
        ("tests/passes/test_rules.py", "-k", "bits_with_nothing"),
    ),
    Mutant(
        "a frame around a counting range needs no array of it",
        "kernels.fuse:_BlockFuser.emit_kernel",
        "moves or not _is_source(value)",
        "not _is_source(value)",
        ("tests/kernels/test_evaluation.py",),
    ),
    Mutant(
        "a pool makes the largest values for nothing",
        "kernels.lower_alone:_max_pool_pairs",
        "0 in p.result_numbers or (dy, dx) != (1, 1)",
        "True",
        ("tests/kernels/test_lower_alone.py",),
    ),
    Mutant(
        "integers are trained",
        "optim.groups:_named",
        "not value.dtype.is_float",
        "False",
        ("tests/optim/test_options.py", "-k", "holds_no_floats"),
    ),
    Mutant(
        "a parameter may hold integers",
        "nn.parameters:Parameter.__init__",
        "not self.dtype.is_float",
        "False",
        ("tests/nn/test_refused.py",),
    ),
    Mutant(
        "eagerly, what has no elements is differentiated backwards",
        "eager_mode.tape:Tape.note",
        "result.dtype.is_inexact and has_elements(result)",
        "result.dtype.is_inexact",
        ("tests/eager/test_derivatives_of_nothing.py",),
    ),
    Mutant(
        "eagerly, what has no elements has tangents",
        "eager_mode.tape:Tangents.of",
        "self.found.get(id(array)) if has_elements(array) else None",
        "self.found.get(id(array))",
        ("tests/eager/test_derivatives_of_nothing.py",),
    ),
    Mutant(
        "integers are clipped",
        "optim.clipping:_refuse_parameters",
        "not leaf.dtype.is_float",
        "False",
        ("tests/optim/test_options.py", "-k", "hold_no_floats"),
    ),
    Mutant(
        "a fan of nothing divides by zero",
        "nn.init:_kaiming",
        "max(fan, 1)",
        "fan",
        ("tests/nn/test_init.py", "-k", "no_elements"),
    ),
)
