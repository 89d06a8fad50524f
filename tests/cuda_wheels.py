"""NVIDIA's wheels in a virtual environment outside of the clone: installed once, kept, and shared by all tests that need them.

`python -m tests.cuda_wheels` installs the dependencies and the extra `cuda` of `pyproject.toml`, with the versions of `PINS`. The
folder is `$STAGED_CUDA_WHEELS`, or one in the user's cache; its name contains a digest of all requirements. 2.1 GB on disk.
`make test-all` runs this first. A test that finds no wheels skips with the reason, and fails in CI.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import subprocess
import sys
import time
import tomllib
from functools import cache
from pathlib import Path

import platformdirs

ROOT = Path(__file__).parent.parent
PINS = {
    "cuda-bindings": "13.0.3",
    "cuda-toolkit": "13.0.2",
    "nvidia-cudnn-cu13": "9.19.0.56",
    "nvidia-nvjitlink": "13.0.88",
}
"""The oldest versions that the extra allows, so that results do not change when NVIDIA releases a version."""


def requirements() -> list[str]:
    """Return what `pip install 'staged[cuda]'` installs beside the package."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return sorted([*project["dependencies"], *project["optional-dependencies"]["cuda"]])


def folder() -> Path:
    """The folder of the virtual environment, which may not exist yet."""
    pins = [f"{name}=={version}" for name, version in sorted(PINS.items())]
    words = [*requirements(), *pins, platform.python_version(), platform.machine()]
    top = os.environ.get("STAGED_CUDA_WHEELS") or platformdirs.user_cache_path("staged-tests") / "cuda-wheels"
    return Path(top) / hashlib.sha256("\n".join(words).encode()).hexdigest()[:16]


def python() -> Path:
    """The interpreter of the virtual environment."""
    return folder() / "bin" / "python"


def nvidia() -> Path:
    """The folder `nvidia` that has the headers and libraries: `cu13` and `cudnn`."""
    return next(folder().glob("lib/python3*/site-packages/nvidia"))


@cache
def why_none() -> str:
    """Why there are no wheels; empty if they are installed."""
    if sys.platform != "linux" or platform.machine() != "x86_64":
        return "NVIDIA's wheels are installed on Linux and x86-64 only"
    return "" if (folder() / ".installed").exists() else "NVIDIA's wheels: `python -m tests.cuda_wheels` installs them"


def install() -> None:
    """Install the wheels if they are not there. A second process waits for the first one."""
    place = folder()
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if (place / ".installed").exists():
            return
        begun = time.monotonic()
        print(f"installing NVIDIA's wheels into {place} (1.3 GB are downloaded once)", flush=True)
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run([sys.executable, "-m", "venv", str(place)], check=True)
        constraints = place / "constraints.txt"
        constraints.write_text("".join(f"{name}=={version}\n" for name, version in PINS.items()))
        # Without pip's cache, which would keep a second copy of each wheel.
        words = ["install", "--quiet", "--disable-pip-version-check", "--no-cache-dir", "--constraint", str(constraints)]
        # Isolated: a package on PYTHONPATH would count as installed.
        subprocess.run([str(python()), "-I", "-m", "pip", *words, *requirements()], check=True)
        (place / ".installed").touch()
        print(f"installed in {time.monotonic() - begun:.0f} s", flush=True)


if __name__ == "__main__":
    if sys.platform == "linux" and platform.machine() == "x86_64":
        install()
