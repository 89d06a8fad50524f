"""Libraries for the tests that call them: the reference cuDNN of the emulated device, and the BLAS of SciPy."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.runtime.cudnn_library import Cudnn


@pytest.fixture(scope="module")
def loaded_cudnn() -> Cudnn:
    return Cudnn()


@pytest.fixture
def cudnn(loaded_cudnn: Cudnn) -> Iterator[Cudnn]:
    with loaded_cudnn.session():
        yield loaded_cudnn


@pytest.fixture
def scipys_blas(monkeypatch: pytest.MonkeyPatch) -> None:
    """The OpenBLAS of SciPy's wheel, with BLAS and LAPACK, as `STAGED_BLAS`."""
    scipy = pytest.importorskip("scipy")
    found = sorted((Path(scipy.__file__).parent.parent / "scipy.libs").glob("libscipy_openblas-*.so"))
    if not found:
        pytest.skip("this SciPy brings no OpenBLAS with 32-bit integers")
    monkeypatch.setenv("STAGED_BLAS", str(found[0]))
    monkeypatch.setenv("STAGED_BLAS_SYMBOLS", "scipy_{}")
