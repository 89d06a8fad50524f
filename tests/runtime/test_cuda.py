"""Finding a device, and saying what is missing."""

from __future__ import annotations

import numpy as np
import pytest

from staged.errors import CompilerError, DependencyError, UnsupportedError
from staged.runtime import cuda
from staged.runtime.cuda import devices
from tests.backends.cublas_cudnn.programs import double


def test_without_a_gpu_the_error_names_the_emulated_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_CUDA", raising=False)
    monkeypatch.setattr(devices, "gpu_count", lambda: (0, "cudaErrorNoDevice"))
    with pytest.raises(DependencyError) as caught:
        double(np.ones((3,), np.float32))
    assert "no GPU was found" in str(caught.value)
    assert "cudaErrorNoDevice" in str(caught.value)
    assert "STAGED_CUDA=emulate" in str(caught.value)


def test_staging_needs_no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGED_CUDA", raising=False)
    assert "__global__" in double.stage(np.ones((3,), np.float32)).source


def test_gpu_count_gives_a_reason_where_there_is_none() -> None:
    count, reason = cuda.gpu_count()
    assert count > 0 or reason


def test_another_value_of_the_variable_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "simulate")
    with pytest.raises(UnsupportedError, match="STAGED_CUDA=simulate means nothing"):
        cuda.is_emulated()


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match="no-such-compiler"):
        cuda.find_cxx()
