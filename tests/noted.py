"""Notes of a run without `--all`, for the run with `--all --rest` after it: what both would do alike is done once.

`make test ARGS=--note` notes the tests that passed and for which `--all` changes nothing: they asked for no reference of PyTorch,
looked for no library that `test-all` installs, and started no process that could look for one. It also keeps the programs that
tests gave to the emulated device. `--rest` leaves out the noted tests, and CUDA's compiler gets the kept programs by themselves
(`tests/runtime/test_noted_programs.py`). Notes hold for the sources that they were taken of, and for no others.
"""

from __future__ import annotations

import hashlib
import importlib.abc
import os
import pickle
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from tests import torch_reference

if TYPE_CHECKING:
    from staged.base.artifact import Artifact

ROOT = Path(__file__).parent.parent
SOURCES = (
    *("staged", "cuda_emulator", "tests", "examples", "benchmarks", "docs"),
    *("README.md", "CHANGELOG.md", "pyproject.toml", "Makefile", "conftest.py"),
)
LATE_LIBRARIES = ("torch", "cuda", "nvidia")
"""The first words of modules and distributions that `test-all` installs beyond `test`."""


def digest_of_sources() -> str:
    """A number that other sources, or another Python, do not share."""
    state = hashlib.sha256(sys.version.encode())
    for name in SOURCES:
        top = ROOT / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            if path.is_file() and path.suffix not in (".pyc", ".actual"):
                content = path.read_bytes()
                state.update(f"{path.relative_to(ROOT)} {len(content)}\n".encode() + content)
    return state.hexdigest()


@dataclass(frozen=True)
class KeptProgram:
    """A program that a test gave to the emulated device."""

    test: str
    artifact: Artifact


class Notes:
    """The notes in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def begin(self) -> None:
        """Forget earlier notes. Before any process takes some."""
        shutil.rmtree(self.folder, ignore_errors=True)
        (self.folder / "tests").mkdir(parents=True)
        (self.folder / "programs").mkdir()
        (self.folder / "sources").write_text(digest_of_sources())

    def _hold(self) -> bool:
        sources = self.folder / "sources"
        return sources.exists() and sources.read_text() == digest_of_sources()

    def alike(self) -> set[str]:
        """The tests for which `--all` changes nothing but what CUDA's compiler says of their programs."""
        if not self._hold():
            return set()
        return {line for file in (self.folder / "tests").iterdir() for line in file.read_text().splitlines()}

    def programs(self) -> Iterator[KeptProgram]:
        """The programs that tests gave to the emulated device, in an order that all processes share."""
        if self._hold():
            for path in sorted((self.folder / "programs").glob("*.pickle")):
                yield pickle.loads(path.read_bytes())

    def note(self, test: str) -> None:
        """Note that `--all` changes nothing for a test."""
        with (self.folder / "tests" / str(os.getpid())).open("a") as file:
            file.write(f"{test}\n")

    def keep(self, test: str, artifact: Artifact) -> None:
        """Keep a program that a test gave to the emulated device."""
        texts = (artifact.name, artifact.source, artifact.header, artifact.support)
        path = self.folder / "programs" / f"{hashlib.sha256(pickle.dumps(texts)).hexdigest()[:32]}.pickle"
        if not path.exists():
            own = path.with_suffix(f".{os.getpid()}")
            own.write_bytes(pickle.dumps(KeptProgram(test, artifact)))
            own.replace(path)  # by one step: another process may keep the same program


class Watch(importlib.abc.MetaPathFinder):
    """A plugin of pytest that takes the notes, and the finder by which it sees what is looked for."""

    def __init__(self, notes: Notes, records: torch_reference.Records) -> None:
        self.notes, self.records = notes, records
        self.test = ""
        self.looked = self.failed = False
        self.looking_files: set[Path] = set()
        self.differing_fixtures: set[pytest.FixtureDef[Any]] = set()

    def install(self) -> None:
        """See from now on what the process imports and which processes it starts."""
        sys.meta_path.insert(0, self)
        sys.addaudithook(self._audit)

    # ---- what differs with `--all` ----

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        self.looked |= name.partition(".")[0] in LATE_LIBRARIES
        return None

    def find_distributions(self, context: Any = None) -> Iterator[Any]:
        name = getattr(context, "name", None)
        self.looked |= name is None or name.lower().partition("-")[0] in LATE_LIBRARIES
        return iter(())

    def _audit(self, event: str, arguments: tuple[Any, ...]) -> None:
        """A process of Python's may look for libraries itself."""
        if event == "subprocess.Popen":
            executable, words = arguments[:2]
            given = [words] if isinstance(words, str | bytes | os.PathLike) else words
            self.looked |= is_script(executable) or any(b"python" in os.path.basename(os.fsencode(word)) for word in given)
        elif event in ("os.fork", "os.forkpty", "os.system", "os.posix_spawn", "os.exec"):
            self.looked = True

    # ---- hooks ----

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Iterator[None]:
        self.looked = False
        report = yield
        if self.looked:
            self.looking_files.add(collector.path)
        return report  # type: ignore[return-value]

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Iterator[None]:
        """A fixture of several tests is made in one of them: what differs in it differs in all."""
        before, asked = self.looked, self.records.calls
        self.looked = False
        try:
            return (yield)
        finally:
            if self.looked or self.records.calls != asked:
                self.differing_fixtures.add(fixturedef)
            self.looked |= before

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.test = item.nodeid
        self.looked = self.failed = False
        result = yield
        if not (self.failed or self._differs(item)):
            self.notes.note(item.nodeid)
        return result

    def _differs(self, item: pytest.Item) -> bool:
        fixtures = {each for defs in item._fixtureinfo.name2fixturedefs.values() for each in defs}  # type: ignore[attr-defined]
        return (
            self.looked
            or self.records.calls > 0
            or item.path in self.looking_files
            or not fixtures.isdisjoint(self.differing_fixtures)
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.failed |= not report.passed


def is_script(executable: Any) -> bool:
    """Return whether a program is a text for an interpreter, which may be Python."""
    path = shutil.which(os.fsdecode(executable)) if executable is not None else None
    if path is None:
        return False
    with open(path, "rb") as file:
        return file.read(2) == b"#!"
