"""The one check for tests that run kernels on an OpenCL device: the device's compiler builds an empty kernel."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.plugin import unavailable

PROCESSORS = {("AuthenticAMD", 26): "AMD Zen 5"}
"""Processors that the LLVM 14 of the wheel's PoCL 3.0 does not support, by vendor and family of `/proc/cpuinfo`: it reports "unknown
target CPU 'generic'". There OpenCL tests skip in CI too."""


def processor(information: Path = Path("/proc/cpuinfo")) -> tuple[str, int]:
    """The vendor and the family of this machine's processor; empty and 0 if the system has no such file."""
    found = information.read_text() if information.exists() else ""
    vendor, family = (re.search(rf"^{key}\s*:\s*(\S+)$", found, re.MULTILINE) for key in ("vendor_id", "cpu family"))
    return (vendor[1], int(family[1])) if vendor and family else ("", 0)


@cache
def why_none() -> str:
    """The message of the compiler that does not build an empty kernel, or the reason why there is no device; else empty."""
    from staged import system

    name, reason = system.opencl()
    return f"{name or 'OpenCL'} builds no kernel: {' '.join(reason.split())}" if reason else ""


def require() -> None:
    """Skip the running test without the extra `opencl`, or with the compiler's message if an empty kernel does not build.

    In CI the second is a failure, except on the processors of the list.
    """
    pytest.importorskip("pyopencl", reason="needs the extra `opencl`")
    reason = why_none()
    if reason and processor() in PROCESSORS:
        pytest.skip(f"{reason} ({PROCESSORS[processor()]} is on the list of `tests/opencl_device.py`)")
    if reason:
        unavailable(reason)
