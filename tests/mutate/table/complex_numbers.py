"""Faults planted in complex numbers: their products, derivatives, places in memory and edges."""

from __future__ import annotations

from tests.mutate.mutant import Mutant

_TEST = "tests/ops/test_complex.py"
_SPECIAL = "tests/ops/test_complex_special_values.py"
_FOURIER = "tests/ops/test_fourier.py"
_LINALG = "tests/ops/test_complex_linalg.py"

MUTANTS: tuple[Mutant, ...] = (
    Mutant(
        "the vjp of a holomorphic function is not conjugated, as in JAX",
        "ops.primitive:diagonal.vjp",
        'functions.conj, functions.conj(ct)',
        "lambda x: x, ct",
        (_TEST, "-k", "torchs_convention"),
    ),
    Mutant(
        "the gradient by the imaginary part has the other sign",
        "library.elementwise.complex_numbers:_imag_op",
        "join(zeros_of(ct), ct)",
        "join(zeros_of(ct), -ct)",
        (_TEST, "-k", "torchs_convention"),
    ),
    Mutant(
        "imaginary parts are read where the real ones are",
        "passes.split_complex:_Splitter.take_apart",
        "(*kept, number)",
        "(*kept, 0)",
        (_TEST, "-k", "agree_with_numpy and program"),
    ),
    Mutant(
        "the logarithm near the unit circle is that of the length",
        "library.elementwise.complex_functions:_log_length",
        "longer < 2.0",
        "longer < 0.5",
        (_TEST, "-k", "keep_to_the_range"),
    ),
    Mutant(
        "the squares in the logarithm of a length are rounded",
        "library.elementwise.complex_functions:_pieces",
        "high, x - high",
        "x, zeros_of(high)",
        (_SPECIAL, "-k", "unit_circle and eager"),
    ),
    Mutant(
        "an infinite exponential has a direction that is no number",
        "library.elementwise.complex_functions:_turn",
        "select(isinf(a) & ~isfinite(b), zeros_of(b), b)",
        "b",
        (_SPECIAL, "-k", "annex_g and eager"),
    ),
    Mutant(
        "a function that knows real numbers alone takes complex ones",
        "ops.composite:Composite.__call__",
        "not self.takes_complex",
        "False",
        (_TEST, "-k", "refused"),
    ),
    Mutant(
        "the twiddle factors of an inverse transform are those of the forward one",
        "library.fft.fourier:_twiddles.make",
        "sign * np.multiply.outer(np.arange(r), np.arange(s))",
        "np.multiply.outer(np.arange(r), np.arange(s))",
        (_FOURIER, "-k", "eager_transforms"),
    ),
    Mutant(
        "a real result sees the imaginary part of the spectrum's first element",
        "library.fft.fourier:_to_real",
        "pad(within, [(0, 0)] * last + [ends])",
        "imag(rows)",
        (_FOURIER, "-k", "eager_transforms"),
    ),
    Mutant(
        "the product with an adjoint takes the transposed matrix",
        "library.linalg.matrices:product",
        "conj(b) if adjoint_b else b",
        "b",
        (_LINALG, "-k", "agree_with_torch and eigh"),
    ),
    Mutant(
        "the derivative of singular vectors lacks that of their common phase",
        "library.linalg.spectral:_svd_vjp",
        "_over(against, row + column, both_zero)",
        "_over(against, row + column, both_zero | ~_off_diagonal(values))",
        (_LINALG, "-k", "agree_with_torch and polar"),
    ),
    Mutant(
        "a loss may depend on the phases of eigenvectors",
        "library.linalg.spectral:_eigh_vjp",
        '_check_phases("eigh", turns, d_vectors)',
        "",
        (_LINALG, "-k", "depends_on_phases"),
    ),
    Mutant(
        "the sign of a complex determinant is a constant to derivatives",
        "library.linalg.lu:slogdet",
        "angle - stop_gradient(angle)",
        "stop_gradient(angle - angle)",
        (_LINALG, "-k", "agree_with_torch and slogdet"),
    ),
    Mutant(
        "LAPACK's eigenvectors of a Hermitian matrix stay those of its conjugate",
        "backends.native.lapack.ways:_eigh",
        "adjoint(vectors)",
        "turned(vectors)",
        ("tests/runtime/test_lapack.py", "-k", "eigenvalues and complex128"),
    ),
    Mutant(
        "LAPACK's cosingular vectors of a complex matrix are not conjugated",
        "backends.native.lapack.ways:_svd",
        "adjoint(vh)",
        "turned(vh)",
        ("tests/runtime/test_lapack.py", "-k", "singular_values and complex128"),
    ),
)
