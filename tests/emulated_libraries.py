"""Build the libraries of the emulated device once per run of the tests, before a test needs them.

`python -m tests.emulated_libraries` builds the libraries that the program cache does not have. Only one process builds; other
processes that start the command wait until the libraries are there.
"""

from __future__ import annotations

import fcntl
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

AT_ONCE = 2
"""Compilers that run at the same time."""


def build_for(items: list[pytest.Item]) -> None:
    """Build the libraries if a test runs programs on the emulated device. Without a C++ compiler these tests fail by themselves."""
    if any(may_use(path) for path in {item.path for item in items}):
        command = [sys.executable, "-m", "tests.emulated_libraries"]
        subprocess.run(command, cwd=Path(__file__).parent.parent, capture_output=True, check=False)


def may_use(path: Path) -> bool:
    """Return whether a module of tests may run programs on the emulated device."""
    return "cublas_cudnn" in path.parts or re.search("emulat|STAGED_CUDA|GPU", path.read_text(encoding="utf-8")) is not None


def main() -> int:
    import cuda_emulator
    from staged.runtime.cache import default_cache
    from staged.runtime.cuda import emulated

    root = default_cache().root
    root.parent.mkdir(parents=True, exist_ok=True)
    with Path(f"{root}.building").open("w") as lock, ThreadPoolExecutor(AT_ONCE) as pool:
        fcntl.flock(lock, fcntl.LOCK_EX)
        races = pool.submit(cuda_emulator.build, cuda_emulator.RACES)
        pool.submit(emulated.emulator).result()
        list(pool.map(emulated.emulated_library, emulated.LIBRARIES))
        races.result()
    return 0


if __name__ == "__main__":
    sys.exit(main())
