"""The preparation of the GPU check: noted programs, their way to the machine, and the limit of what travels."""

from __future__ import annotations

import lzma
import os
import pickle
import subprocess
from pathlib import Path

import numpy as np
import pytest

from staged.runtime.cuda import loading
from tests import cuda_wheels
from tests.backends.cublas_cudnn import programs as staged_programs
from tests.gpu_check import prepare, programs

X = np.ones((3, 4), np.float32)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folders of the preparation, elsewhere."""
    scratch = tmp_path / "prepared" / "scratch"
    scratch.mkdir(parents=True)
    noted = tmp_path / "noted"
    noted.mkdir()
    for module, name, value in (
        (programs, "FOLDER", noted),
        (programs, "NOTED", scratch.parent / "noted.pickle.xz"),
        (programs, "KERNELS", scratch.parent / "kernels.tar.xz"),
        (programs, "CACHE", scratch / "programs"),
        (prepare, "PREPARED", scratch.parent),
        (prepare, "WHEELS", tmp_path / "wheels"),
        (prepare, "ROOT", tmp_path),
    ):
        monkeypatch.setattr(module, name, value)
    monkeypatch.setenv(programs.NOTES, str(noted))
    return tmp_path


@pytest.mark.usefixtures("emulated_device")
def test_programs_that_run_on_the_emulated_device_are_noted_once(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "compile_emulated", loading.compile_emulated)
    programs.note_emulated()
    for _ in range(2):
        loading.load(staged_programs.double.stage(X)._artifact)
    (path,) = (folders / "noted").iterdir()
    artifact, options = pickle.loads(path.read_bytes())
    assert artifact.source == staged_programs.double.stage(X).source and options.optimise == "2"
    monkeypatch.delenv(programs.NOTES)
    loading.load(staged_programs.maths.stage(X)._artifact)
    assert len(list((folders / "noted").iterdir())) == 1


def test_kernels_are_found_in_the_cache_on_another_machine(
    folders: Path, needs_nvrtc: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    artifact = staged_programs.double.stage(X)._artifact
    programs.note(artifact)
    monkeypatch.setenv("STAGED_CACHE_DIR", "")  # restored after the test, which sets it
    assert programs.compile_and_pack() == []
    assert pickle.loads(lzma.decompress(programs.NOTED.read_bytes()))[0][0] == artifact
    before = programs.CACHE.rename(folders / "another")
    programs.unpack()
    assert sorted(path.name for path in programs.CACHE.rglob("*")) == sorted(path.name for path in before.rglob("*"))
    monkeypatch.setattr("staged.runtime.cuda.nvrtc._compile", None)  # a compilation would raise
    kernels = programs.compile_kernels(artifact, programs.CAPABILITY)
    assert kernels.cubin.is_relative_to(programs.CACHE)


BUILD = "import pickle, sys\nfrom tests.gpu_check import programs\nprograms.build(pickle.load(open(sys.argv[1], 'rb')))"


@pytest.mark.usefixtures("needs_cuda_wheels")
def test_a_noted_program_is_built_as_on_the_machine_with_the_device(folders: Path) -> None:
    programs.note(staged_programs.double.stage(X)._artifact)
    (path,) = (folders / "noted").iterdir()
    environment = {**os.environ, "STAGED_CACHE_DIR": str(folders / "kept"), "PYTHONPATH": str(cuda_wheels.ROOT)}
    environment.pop("STAGED_CUDA", None)
    command = [str(cuda_wheels.python()), "-c", BUILD, str(path)]
    run = subprocess.run(command, env=environment, cwd=folders, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert {each.suffix for each in (folders / "kept").rglob("double_.*")} >= {".so", ".cubin"}


def test_more_than_the_machine_accepts_is_an_error_with_the_largest_files(
    folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subprocess.run(["git", "init", "-q"], cwd=folders, check=True)
    (folders / ".gitignore").write_text("/prepared/\n/noted/\n/wheels/\n/ignored\n")
    (folders / "source.py").write_bytes(b"x" * 1000)
    (folders / "ignored").write_bytes(b"x" * 5000)
    (folders / "prepared" / "kernels").write_bytes(b"x" * 2000)
    monkeypatch.setattr(prepare, "MOST_BYTES", 3500)
    assert prepare.size() == "0.0 MiB travel"
    (folders / "wheels").mkdir()
    (folders / "wheels" / "large.whl").write_bytes(b"x" * 3000)
    with pytest.raises(prepare.UnpreparedError, match=r"(?s)limit is 0 MiB.*largest files:\n.* wheels/large.whl\n.* prepared/kernels"):
        prepare.size()


def test_a_command_that_fails_is_an_error_with_its_last_lines(folders: Path) -> None:
    with pytest.raises(prepare.UnpreparedError, match=r"status 3: why"):
        prepare.done("sh", "-c", "echo why; exit 3")
    assert os.environ[programs.NOTES]
