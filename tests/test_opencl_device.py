"""The check for OpenCL tests: a compiler that builds no kernel skips them with its message, and in CI fails them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from staged.runtime import opencl
from tests import opencl_device

REFUSED = "PoCL builds no kernel: unknown target CPU 'generic'"


def test_the_message_of_the_compiler_is_the_reason(tmp_path: Path) -> None:
    """PoCL's compiler gets an option that it does not support, in another process and with an empty cache of kernels."""
    opencl_device.require()
    broken = {"POCL_EXTRA_BUILD_FLAGS": "-march=nonsense", "POCL_CACHE_DIR": str(tmp_path)}
    run = subprocess.run(
        [sys.executable, "-c", "from tests import opencl_device; print(opencl_device.why_none())"],
        env=os.environ | broken,
        capture_output=True,
        text=True,
    )
    assert "builds no kernel: clBuildProgram" in run.stdout and "-march=nonsense" in run.stdout, run.stderr


def test_an_error_of_an_old_pocl_names_a_newer_one() -> None:
    """PoCL 3.0 reports an unknown target CPU on a Zen 5 processor."""
    opencl_device.require()
    found = opencl.devices()
    for message, is_hinted in (("unknown target CPU 'generic'", True), ("something else", False)):
        assert found("build", found.device(0), f"#error {message}\n".encode()) == opencl.ffi.NULL
        assert message in found.words() and ("To fix: install PoCL 3.1 or newer" in found.words()) == is_hinted


@pytest.mark.parametrize(
    ("in_ci", "processor", "outcome"),
    [
        ("", ("AuthenticAMD", 25), "skipped"),
        ("true", ("AuthenticAMD", 25), "failed"),
        ("true", ("AuthenticAMD", 26), "skipped"),
    ],
)
def test_it_skips_and_in_ci_fails_unless_the_processor_is_on_the_list(
    in_ci: str, processor: tuple[str, int], outcome: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("pyopencl", reason="needs the extra `opencl`")
    monkeypatch.setenv("CI", in_ci)
    monkeypatch.setattr(opencl_device, "why_none", lambda: REFUSED)
    monkeypatch.setattr(opencl_device, "processor", lambda: processor)
    raised = pytest.skip.Exception if outcome == "skipped" else pytest.fail.Exception
    with pytest.raises(raised, match="unknown target CPU 'generic'"):
        opencl_device.require()


def test_a_device_that_builds_kernels_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyopencl", reason="needs the extra `opencl`")
    monkeypatch.setattr(opencl_device, "why_none", lambda: "")
    opencl_device.require()


def test_the_processor_is_read_by_vendor_and_family(tmp_path: Path) -> None:
    information = tmp_path / "cpuinfo"
    information.write_text("processor\t: 0\nvendor_id\t: AuthenticAMD\ncpu family\t: 26\nmodel\t\t: 2\n")
    assert opencl_device.processor(information) == ("AuthenticAMD", 26)
    assert opencl_device.processor(tmp_path / "absent") == ("", 0)
