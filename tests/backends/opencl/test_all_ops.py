"""The op table's samples, between neighbours that fuse with them, on an OpenCL device."""

from __future__ import annotations

import pytest

import staged as st
from staged.testing import compare_trees
from tests import opencl_device
from tests.backends.cublas_cudnn.test_all_ops import samples_of
from tests.backends.native.test_all_ops import KINDS


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "size"])
def test_ops_between_neighbours(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opencl_device.require()
    monkeypatch.setenv("STAGED_BACKEND", "opencl")
    program, groups = samples_of(kind)
    assert "// backend opencl" in program.stage(groups).source
    with st.eager():
        expected = program(groups)
    compare_trees(program(groups), expected, rtol=5e-6, atol=5e-6)
