"""The BLAS of SciPy, for the tests that call it."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture
def scipys_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The OpenBLAS of SciPy's wheel, with BLAS and LAPACK, as `STAGED_BLAS`."""
    scipy = pytest.importorskip("scipy")
    found = sorted((Path(scipy.__file__).parent.parent / "scipy.libs").glob("libscipy_openblas-*.so"))
    if not found:
        pytest.skip("this SciPy brings no OpenBLAS with 32-bit integers")
    monkeypatch.setenv("STAGED_BLAS", str(found[0]))
    monkeypatch.setenv("STAGED_BLAS_SYMBOLS", "scipy_{}")
