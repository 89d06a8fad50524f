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
        "staged/ops/primitive.py",
        'conj, turned = METHODS["conj"], METHODS["conj"](ct)',
        "conj, turned = lambda x: x, ct",
        (_TEST, "-k", "torchs_convention"),
    ),
    Mutant(
        "the gradient by the imaginary part has the other sign",
        "staged/ops/complex_numbers.py",
        "vjp=lambda ct, y, z: [join(zeros_of(ct), ct)],",
        "vjp=lambda ct, y, z: [join(zeros_of(ct), -ct)],",
        (_TEST, "-k", "torchs_convention"),
    ),
    Mutant(
        "imaginary parts are read where the real ones are",
        "staged/passes/split_complex.py",
        '"start": (*kept, number)',
        '"start": (*kept, 0)',
        (_TEST, "-k", "agree_with_numpy and program"),
    ),
    Mutant(
        "the logarithm near the unit circle is that of the length",
        "staged/ops/complex_functions.py",
        "near = (longer > 0.5) & (longer < 2.0)",
        "near = (longer > 0.5) & (longer < 0.5)",
        (_TEST, "-k", "keep_to_the_range"),
    ),
    Mutant(
        "the squares in the logarithm of a length are rounded",
        "staged/ops/complex_functions.py",
        "    return high, x - high",
        "    return x, zeros_of(high)",
        (_SPECIAL, "-k", "unit_circle and eager"),
    ),
    Mutant(
        "an infinite exponential has a direction that is no number",
        "staged/ops/complex_functions.py",
        "return select(isinf(a) & ~isfinite(b), zeros_of(b), b)",
        "return b",
        (_SPECIAL, "-k", "annex_g and eager"),
    ),
    Mutant(
        "a function that knows real numbers alone takes complex ones",
        "staged/ops/composite.py",
        "if not self.takes_complex and any(",
        "if False and any(",
        (_TEST, "-k", "refused"),
    ),
    Mutant(
        "the twiddle factors of an inverse transform are those of the forward one",
        "staged/ops/fourier.py",
        "return _roots(sign * np.multiply.outer(np.arange(r), np.arange(s)), r * s)[..., None]",
        "return _roots(np.multiply.outer(np.arange(r), np.arange(s)), r * s)[..., None]",
        (_FOURIER, "-k", "eager_transforms"),
    ),
    Mutant(
        "a real result sees the imaginary part of the spectrum's first element",
        "staged/ops/fourier.py",
        "im = pad(within, [(0, 0)] * last + [ends])",
        "im = imag(rows)",
        (_FOURIER, "-k", "eager_transforms"),
    ),
    Mutant(
        "the product with an adjoint takes the transposed matrix",
        "staged/ops/matrices.py",
        "conj(b) if adjoint_b else b",
        "b",
        (_LINALG, "-k", "agree_with_torch and eigh"),
    ),
    Mutant(
        "the derivative of singular vectors lacks that of their common phase",
        "staged/ops/spectral.py",
        "/ values * 1j)",
        "/ values * 0j)",
        (_LINALG, "-k", "agree_with_torch and polar"),
    ),
    Mutant(
        "a loss may depend on the phases of eigenvectors",
        "staged/ops/spectral.py",
        '        _check_phases("eigh", turns)\n',
        "",
        (_LINALG, "-k", "depends_on_phases"),
    ),
    Mutant(
        "the sign of a complex determinant is a constant to derivatives",
        "staged/ops/lu.py",
        "exp((angle - stop_gradient(angle)) * 1j)",
        "exp(stop_gradient(angle - angle) * 1j)",
        (_LINALG, "-k", "agree_with_torch and slogdet"),
    ),
    Mutant(
        "LAPACK's eigenvectors of a Hermitian matrix stay those of its conjugate",
        "staged/backends/native/lapack/ways.py",
        "return values, adjoint(vectors)",
        "return values, turned(vectors)",
        ("tests/runtime/test_lapack.py", "-k", "eigenvalues and complex128"),
    ),
    Mutant(
        "LAPACK's cosingular vectors of a complex matrix are not conjugated",
        "staged/backends/native/lapack/ways.py",
        "return u, values, adjoint(vh)",
        "return u, values, turned(vh)",
        ("tests/runtime/test_lapack.py", "-k", "singular_values and complex128"),
    ),
)
