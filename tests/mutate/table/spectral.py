"""Faults in eigenvalues and singular values by reflections and QR steps."""

from tests.mutate.mutant import Mutant

_SPECTRAL = "tests/ops/test_spectral.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "steps on a singular block have a shift",
        "staged/ops/bidiagonal.py",
        " <= float(np.finfo(d.dtype.numpy).eps) * largest",
        " < 0.0",
        (_SPECTRAL, "-k", "singular_values_of_hard_matrices and zero"),
    ),
    Mutant(
        "vectors whose squares are not numbers of full precision are reflected",
        "staged/ops/tridiagonal.py",
        "places, behind, tiny(d) ** 2)",
        "places, behind)",
        (_SPECTRAL, "-k", "hard_symmetric_matrices and far"),
    ),
    Mutant(
        "a complex number that is alone below the diagonal is taken for a real one",
        "staged/ops/qr.py",
        "(below + square(imag(head)) if x.dtype.is_complex else below) <= least",
        "below <= least",
        (_SPECTRAL, "-k", "whole_panels"),
    ),
    Mutant(
        "eigenvalues that are NaN are put in one place",
        "staged/ops/spectral.py",
        "(~(other > mine) & (iota",
        "((other == mine) & (iota",
        (_SPECTRAL, "-k", "number_is_none"),
    ),
    Mutant(
        "matrices of a region have reflections and QR steps",
        "staged/ops/spectral.py",
        " and context.builder.device == CPU",
        "",
        (_SPECTRAL, "-k", "a_region"),
    ),
    Mutant(
        "the product at the end of a complex panel takes no conjugates",
        "staged/ops/tridiagonal.py",
        "a = a - product(turned(concat([vs, ws], 0)), conj(concat([ws, vs], 0)))",
        "a = a - product(turned(concat([vs, ws], 0)), concat([ws, vs], 0))",
        (_SPECTRAL, "-k", "every_dtype and complex128"),
    ),
)
