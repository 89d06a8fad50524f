"""`st.linalg`: linear algebra with derivatives of any order, by the names of NumPy's and torch's `linalg`.

Matrices are in the last two axes, leading axes are a batch. The functions are loops and matrix products of the program:
they need no library, on any back end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from staged.base.other_names import unknown_names
from staged.library.linalg.compositions import diagonal, multi_dot, outer, trace, vector_norm
from staged.library.linalg.exponential import expm, matrix_exp
from staged.library.linalg.least_squares import cond, lstsq, matrix_norm, matrix_rank, norm, pinv
from staged.library.linalg.lu import det, inv, lu, lu_factor, matrix_power, slogdet, solve
from staged.library.linalg.qr import qr
from staged.library.linalg.spectral import eigh, eigvalsh, svd, svdvals
from staged.library.linalg.triangular import cholesky, solve_triangular
from staged.ops.contraction import cross, matmul, tensordot, vecdot
from staged.ops.shape import matrix_transpose

__all__ = [
    "cholesky",
    "cond",
    "cross",
    "det",
    "diagonal",
    "eigh",
    "eigvalsh",
    "expm",
    "inv",
    "lstsq",
    "lu",
    "lu_factor",
    "matmul",
    "matrix_exp",
    "matrix_norm",
    "matrix_power",
    "matrix_rank",
    "matrix_transpose",
    "multi_dot",
    "norm",
    "outer",
    "pinv",
    "qr",
    "slogdet",
    "solve",
    "solve_triangular",
    "svd",
    "svdvals",
    "tensordot",
    "trace",
    "vecdot",
    "vector_norm",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name
    __getattr__ = unknown_names("linalg", __all__)
