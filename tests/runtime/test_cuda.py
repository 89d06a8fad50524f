"""Finding a device, and saying what is missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from staged.errors import CompilerError, DependencyError, UnsupportedError
from staged.runtime import cuda
from staged.runtime.cache import write_texts
from staged.runtime.cuda import devices, emulated, interface
from staged.runtime.cuda.custom import check_kernel
from staged.runtime.options import CompileOptions
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


def test_without_its_package_the_error_has_the_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")
    monkeypatch.setitem(sys.modules, "cuda_emulator.device", None)
    program = double.stage(np.ones((3,), np.float32))
    emulated.emulator.cache_clear()
    choices = [
        lambda: emulated.compile_emulated(program._artifact, CompileOptions()),
        lambda: check_kernel("mine", "mine", "", "__global__ void mine() {}"),
        interface.current_runtime,
    ]
    for chosen in choices:
        with pytest.raises(DependencyError) as caught:
            chosen()
        assert "pip install . ./cuda_emulator" in str(caught.value)


def test_an_export_without_the_package_names_the_command_in_make_emu(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setitem(sys.modules, "cuda_emulator.device", None)
    double.stage(np.ones((3,), np.float32)).export(tmp_path / "folder")
    done = subprocess.run(["make", "emu"], cwd=tmp_path / "folder", capture_output=True, text=True)
    assert done.returncode and "pip install . ./cuda_emulator" in done.stderr


def test_a_missing_compiler_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match="no-such-compiler"):
        cuda.find_cxx()


def test_headers_of_the_emulated_device_are_read_precompiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """gcc says nothing if it cannot take what was precompiled, and reads the headers themselves, in twice the time."""
    if "clang" in cuda.find_cxx()[1]:
        pytest.skip("gcc's way of precompiled headers")
    build = emulated.build
    read = ""

    def build_by_hand(name: str, made: str, texts: Any, command: Any, tail: Any, depends: Any) -> Path:
        nonlocal read
        if f"{name}.cu" not in texts:
            return build(name, made, texts, command, tail, depends)
        write_texts(tmp_path, texts)
        run = subprocess.run([*command, "-H", "-o", made, *tail], cwd=tmp_path, capture_output=True, text=True, check=True)
        read = run.stderr
        return tmp_path / made

    monkeypatch.setattr(emulated, "build", build_by_hand)
    emulated.compile_emulated(double.stage(np.ones((3,), np.float32))._artifact, CompileOptions())
    first, second, *_ = read.splitlines()
    assert first.startswith("! ") and first.endswith("/cuda_runtime.h.gch"), read  # gcc's sign of one that it takes
    assert "double.cu" not in second and "emulated_maths.h" not in read


def test_only_libraries_that_a_program_links_are_loaded() -> None:
    assert emulated.linked_libraries(("-l:libcublas.so.13", "-lm", "-l:libcudnn.so.9", "-lcublasLt")) == [
        "cublas", "cublasLt", "cudnn",
    ]  # fmt: skip
    assert emulated.linked_libraries(("-lcublasXt",)) == []


def test_memory_stays_open_to_the_device_when_another_handler_of_faults_has_gone(tmp_path: Path) -> None:
    # pytest switches Python's faulthandler on before a test loads the device, and off after the last.
    program = tmp_path / "program.py"
    program.write_text("""
import faulthandler
faulthandler.enable()
import numpy as np
import staged as st

@st.function
def double(x):
    with st.with_backend(st.GPU, x):
        return x + x

print(double(np.array([1.0, 2.0])))
faulthandler.disable()
print(double(np.array([3.0, 4.0])))
""")
    done = subprocess.run(
        [sys.executable, str(program)],
        env={**os.environ, "STAGED_CUDA": "emulate"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "[2. 4.]\n[6. 8.]\n", "")
