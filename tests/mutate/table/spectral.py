"""Faults in eigenvalues and singular values by reflections and QR steps."""

from tests.mutate.mutant import Mutant

_SPECTRAL = "tests/ops/test_spectral.py"
_SPECIAL = "tests/ops/test_special_matrices.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "matrices are not balanced before they are scaled",
        "library.linalg.exponential:_balance.step",
        "abs_(gap) > 6.0",
        "abs_(gap) > 6000.0",
        (_SPECIAL, "-k", "unbalanced"),
    ),
    Mutant(
        "a triangle above a diagonal is not balanced",
        "library.linalg.exponential:_balance.step",
        "rows, columns = maximum(sum_(scaled, -1), diagonals), maximum(sum_(scaled, -2), diagonals)",
        "rows, columns = sum_(scaled, -1), sum_(scaled, -2)",
        (_SPECIAL, "-k", "unbalanced"),
    ),
    Mutant(
        "squares of small columns are 0",
        "library.linalg.qr:_scales",
        "((largest > 0) & (largest <= least))",
        "(largest < 0)",
        (_SPECIAL, "-k", "any_magnitude"),
    ),
    Mutant(
        "squares of large columns are infinite",
        "library.linalg.qr:_scales",
        "((largest >= most) & (largest < float('inf')))",
        "(largest < 0)",
        (_SPECIAL, "-k", "any_magnitude"),
    ),
    Mutant(
        "squares of large f64 add up to an infinite norm",
        "library.elementwise.normalization:_euclid",
        "where(total < math.inf, usual, down)",
        "usual",
        (_SPECIAL, "-k", "any_magnitude"),
    ),
    Mutant(
        "dependent columns have a derivative",
        "library.linalg.qr:_is_dependent",
        "any_(diagonal(size, 0, -2, -1) <= least * squeeze(greatest(size, -2), -2), -1)",
        "any_(diagonal(size, 0, -2, -1) < 0.0 * squeeze(greatest(size, -2), -2), -1)",
        (_SPECIAL, "-k", "dependent"),
    ),
    Mutant(
        "a function of equal eigenvalues and their vectors has the derivative 0",
        "library.linalg.spectral:_eigh_vjp",
        "_matters(turns, turns) | _differ(d_values)",
        "_matters(skew, turns)",
        (_SPECIAL, "-k", "special_matrices_are_right and eigh"),
    ),
    Mutant(
        "cotangents of equal eigenvalues may differ beside vectors",
        "library.linalg.spectral:_eigh_vjp",
        "_matters(turns, turns) | _differ(d_values)",
        "_matters(turns, turns)",
        (_SPECIAL, "-k", "special_matrices_are_right and eigh"),
    ),
    Mutant(
        "singular values of 0 have a slope beside vectors",
        "library.linalg.spectral:_svd_vjp",
        "among & _matters(slopes, slopes)",
        "among & _matters(slopes, slopes) & False",
        (_SPECIAL, "-k", "special_matrices_are_right and svd"),
    ),
    Mutant(
        "a loss may depend on the rotation of added columns",
        "library.linalg.qr:_beside_vjp",
        "skew <= float(np.finfo(q.dtype.numpy).eps) ** 0.5 * most",
        "skew <= float(np.finfo(q.dtype.numpy).eps) ** -0.5 * most",
        (_SPECIAL, "-k", "added_columns"),
    ),
    Mutant(
        "steps on a singular block have a shift",
        "library.linalg.bidiagonal:_first_numbers",
        "min_(where(inside, size, largest)) <= float(np.finfo(d.dtype.numpy).eps) * largest",
        "min_(where(inside, size, largest)) < 0.0",
        (_SPECTRAL, "-k", "singular_values_of_hard_matrices and zero"),
    ),
    Mutant(
        "vectors whose squares are not numbers of full precision are reflected",
        "library.linalg.tridiagonal:_panel.column",
        "reflection(below, head, places, behind, tiny(d) ** 2)",
        "reflection(below, head, places, behind)",
        (_SPECTRAL, "-k", "hard_symmetric_matrices and far"),
    ),
    Mutant(
        "a complex number that is alone below the diagonal is taken for a real one",
        "library.linalg.qr:reflection",
        "below + square(imag(head)) if x.dtype.is_complex else below",
        "below",
        (_SPECTRAL, "-k", "whole_panels"),
    ),
    Mutant(
        "eigenvalues that are NaN are put in one place",
        "library.linalg.spectral:_sorted",
        "~(other > mine)",
        "other == mine",
        (_SPECTRAL, "-k", "number_is_none"),
    ),
    Mutant(
        "matrices of a region have reflections and QR steps",
        "library.linalg.spectral:_has_small_steps",
        "isinstance(context, RecordContext) and context.builder.device == CPU",
        "isinstance(context, RecordContext)",
        (_SPECTRAL, "-k", "a_region"),
    ),
    Mutant(
        "the product at the end of a complex panel takes no conjugates",
        "library.linalg.tridiagonal:_panel",
        "conj(concat([ws, vs], 0))",
        "concat([ws, vs], 0)",
        (_SPECTRAL, "-k", "every_dtype and complex128"),
    ),
    Mutant(
        "eager mode gives factors of the finite numbers of a matrix with NaN",
        "library.linalg.numpy_factors:_factors",
        "result[~is_finite] = np.nan",
        "result[~is_finite] += 0.0",
        ("tests/ops/test_numpy_factors.py", "-k", "results_are_those_of_the_body and nan"),
    ),
    Mutant(
        "a composite without rules is computed by NumPy while it is differentiated",
        "eager_mode.context:EagerContext._results_of",
        "any(one.depends(a) for one in levels)",
        "False",
        ("tests/ops/test_numpy_factors.py", "-k", "without_rules"),
    ),
)
