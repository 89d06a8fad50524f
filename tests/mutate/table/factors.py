"""Planted faults of factors of matrices by cuSOLVER, and of triangular systems by cuBLAS."""

from tests.mutate.mutant import Mutant

LIBRARY, EMULATED = "staged/backends/cublas_cudnn/library/", "cuda_emulator/cuda_emulator/"
WAYS, CALLS = f"{LIBRARY}factors.py", f"{LIBRARY}factors_calls.py"
ON_FACTORS, ON_EMULATED = "tests/backends/cublas_cudnn/test_factors.py", "cuda_emulator/tests/test_cusolver.py"

MUTANTS = (
    Mutant(
        "cuBLAS solves systems of the other triangle",
        "backends.cublas_cudnn.library.factors_calls:emit_triangular.body",
        'LOWER if op.attrs["upper"] else UPPER',
        'UPPER if op.attrs["upper"] else LOWER',
        (ON_FACTORS, "-k", "triangular_systems and float64"),
    ),
    Mutant(
        "rows are exchanged by numbers that count from 0",
        "backends.cublas_cudnn.library.factors:_lu",
        "pivots + 1",
        "pivots",
        (ON_FACTORS, "-k", "what_follows and float64"),
    ),
    Mutant(
        "rows are exchanged with whatever LU names in a column of NaN",
        "backends.cublas_cudnn.library.factors:_lu",
        "where((chosen > steps) & (chosen <= n), chosen - 1, steps)",
        "chosen - 1",
        (ON_FACTORS, "-k", "nan_and_infinity"),
    ),
    Mutant(
        "NaN reaches the iteration for eigenvalues",
        "backends.cublas_cudnn.library.factors:_eigenvalues_of",
        "where(is_finite, lower, 0.0)",
        "lower",
        (ON_FACTORS, "-k", "nan_and_infinity"),
    ),
    Mutant(
        "eigenvalues of a matrix that has NaN are those of zeros",
        "backends.cublas_cudnn.library.factors:_eigenvalues_of",
        "where(squeeze(is_right, -1), values, nan)",
        "values",
        (ON_FACTORS, "-k", "nan_and_infinity"),
    ),
    Mutant(
        "singular vectors are left out where they are used",
        "backends.cublas_cudnn.library.factors:Factors.way",
        "name in _OF_VALUES and not self.reads_vectors(op)",
        "name in _OF_VALUES",
        (ON_FACTORS, "-k", "test_singular_values and float64"),
    ),
    Mutant(
        "what a library spoils is checked for NaN",
        "backends.cublas_cudnn.library.factors:_singular",
        "call(GESVD, [given], types, hints, partly_made=(1,))",
        "call(GESVD, [given], types, hints)",
        (ON_FACTORS, "-k", "checks_for_nan"),
    ),
    Mutant(
        "eigenvectors have the workspace of eigenvalues alone",
        "backends.cublas_cudnn.library.factors_calls:emit_eigenvalues",
        "f\"{n}_{'vectors' if with_vectors else 'values'}\"",
        "n",
        (ON_FACTORS, "-k", "test_eigenvalues and float64"),
    ),
    Mutant(
        "larger batches are calls of cuSOLVER too",
        "backends.cublas_cudnn.library.factors:_fits",
        "0 < batch <= max(1, n // ROWS_PER_MATRIX)",
        "0 < batch",
        (ON_FACTORS, "-k", "large_batches"),
    ),
    Mutant(
        "graphs have calls of cuSOLVER",
        "backends.cublas_cudnn.runs:_goes_on",
        "return kernel.can_be_captured and is_same",
        "return is_same",
        (ON_FACTORS, "-k", "graphs_have"),
    ),
    Mutant(
        "cuSOLVER may give other bits in each run of a program that wants the same",
        "backends.cublas_cudnn.library.cusolver:handle_part",
        '"CUSOLVER_DETERMINISTIC_RESULTS"',
        '"CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS"',
        (ON_FACTORS, "-k", "same_bits"),
    ),
    Mutant(
        "the emulated cuSOLVER takes arrays that overlap",
        f"{EMULATED}cusolver/handle.cpp",
        "other != each && call.ok(); ++other",
        "other != arrays.begin(); ++other",
        (ON_EMULATED, "-k", "does_not_fit"),
    ),
    Mutant(
        "the emulated cuSOLVER lets a graph have its calls",
        f"{EMULATED}cusolver/handle.cpp",
        "!call.ok() || !is_capturing(handle->stream)",
        "true",
        (ON_EMULATED, "-k", "no_graph"),
    ),
    Mutant(
        "the emulated cuBLAS solves from the right as if the matrix were turned",
        f"{EMULATED}cublas/triangular.cpp",
        "(t.operation != CUBLAS_OP_N) == left",
        "t.operation != CUBLAS_OP_N",
        (ON_EMULATED, "-k", "triangular_systems"),
    ),
)
