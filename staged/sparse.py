"""`st.sparse`: matrices of few elements, as compressed sparse rows, times dense vectors and matrices."""

from __future__ import annotations

from staged.library.linalg.sparse import CsrMatrix, CsrTransposed, csr_matrix

__all__ = ["CsrMatrix", "CsrTransposed", "csr_matrix"]


def __dir__() -> list[str]:
    return __all__
