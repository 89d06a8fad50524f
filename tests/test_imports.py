"""`import staged` loads few modules, because each costs every user time: back ends, passes, kernels and the runtime load
at the first compilation. `benchmarks/imports.py` measures the time.
"""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LIST = Path(__file__).with_name("imported_modules.txt")
LATE = ("staged.autodiff", "staged.backends", "staged.batching", "staged.kernels", "staged.passes", "staged.runtime",
        "staged.call.api", "staged.call.program", "staged.pipeline", "cffi", "pycparser", "_cffi_backend")  # fmt: skip
REQUIRED = "import ml_dtypes, numpy, optree, platformdirs"


def imported_by(statement: str) -> set[str]:
    """Return the modules that a statement loads in a new process which has the required packages."""
    code = f"import sys\n{REQUIRED}\nbefore = set(sys.modules)\n{statement}\nprint(*set(sys.modules) - before)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_import_staged_loads_the_modules_of_the_list() -> None:
    modules = {name for name in imported_by("import staged") if name.partition(".")[0] == "staged"}
    listed = set(LIST.read_text().split())
    assert modules == listed, f"edit {LIST.name}: more {sorted(modules - listed)}, fewer {sorted(listed - modules)}"


def test_import_staged_loads_neither_compiler_nor_cffi() -> None:
    late = [name for name in imported_by("import staged") if name.startswith(LATE)]
    assert not late


def test_a_custom_op_loads_no_back_end() -> None:
    loaded = imported_by("import staged; staged.custom_op")
    assert not [name for name in loaded if name.startswith("staged.backends.cublas_cudnn")]


def test_names_that_load_late_are_attributes_of_the_package() -> None:
    lines = (
        "import staged",
        "assert set(staged.__all__) - staged._INTERNAL <= set(dir(staged))",
        "assert all(hasattr(staged, name) for name in staged.__all__)",
    )
    code = "\n".join(lines)
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


@pytest.mark.parametrize(
    "name", "nn optim random linalg fft special data sparse integrate optimize testing".split()
)
def test_completion_lists_the_public_names_alone(name: str) -> None:
    module = importlib.import_module(f"staged.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, each) for each in module.__all__)
