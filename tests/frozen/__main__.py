"""Hold the generated texts and results of two states of the project against each other, byte by byte and bit by bit.

python tests/frozen write FOLDER             the texts of the frozen set, for three CPUs and a GPU
python tests/frozen write FOLDER --run       and what the programs return and print, on this CPU and the emulated device
python tests/frozen compare FOLDER [--run]   the same of the package that is imported, against a folder
python tests/frozen against CHECKOUT [--run] both at once, with the package of another checkout
python tests/frozen since COMMIT [--run]     both at once, with the package of a commit (`make frozen BASE=COMMIT`)

The same programs serve both states, so that positions in comments agree; PYTHONPATH says whose package is imported.
"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("STAGED_CUDA", "emulate")
os.environ.setdefault("STAGED_CUDA_EMULATOR", "devices=2")

from programs import PROGRAMS, Frozen

import staged as st

TARGETS = ("portable", "x86-64-v3", "x86-64-v4")
ROOT = Path(__file__).parent.parent.parent
SHOWN = 40
"""Lines of the first difference that are printed."""


def in_a_region(function: Any) -> Any:
    """The function with all of its arguments in one region of a GPU."""

    def on_device(*args: Any) -> Any:
        with st.with_backend(st.GPU, *(arg for arg in args if isinstance(arg, np.ndarray))):
            result = function(*args)
        return result

    return on_device


def variants(name: str, program: Frozen) -> Iterator[tuple[str, Any, tuple[Any, ...]]]:
    """(name of its files, staged function, arguments) for each machine; Variables are made anew for each."""
    for target in TARGETS:
        st.seed(0)
        function, args = program.make()
        yield f"{name}.{target}", st.function(function, target=target), args
    if program.device:
        st.seed(0)
        function, args = program.make()
        yield f"{name}.gpu", st.function(in_a_region(function)), args


def flattened(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        for each in value.values():
            yield from flattened(each)
    elif isinstance(value, (tuple, list)):
        for each in value:
            yield from flattened(each)
    else:
        yield value


def bits(value: Any) -> str:
    """Every leaf of a result with its dtype, shape and bytes."""
    lines = []
    for leaf in flattened(value):
        array = np.asarray(leaf)
        lines.append(f"{array.dtype} {array.shape} {array.tobytes().hex()}")
    return "\n".join(lines) + "\n"


def write(folder: Path, names: list[str], run: bool) -> float:
    """Write the texts, and the results where `run`; returns the seconds of processor time that staging took."""
    folder.mkdir(parents=True, exist_ok=True)
    seconds = 0.0
    for name in names:
        for file, function, args in variants(name, PROGRAMS[name]):
            begin = time.process_time()
            try:
                program = function.stage(*args)
                source = program.source
            except st.StagedError as error:
                source = f"{type(error).__name__}: {error}\n"
                program = None
            seconds += time.process_time() - begin
            (folder / f"{file}.c").write_text(source)
            if run and program is not None and not file.endswith(("portable", "v3")):
                printed = io.StringIO()
                with contextlib.redirect_stdout(printed):
                    result = program(*args)
                (folder / f"{file}.result").write_text(bits(result) + printed.getvalue())
    return seconds


def compare(before: Path, now: Path) -> int:
    """Print what differs; returns the number of files that do."""
    names = sorted({path.name for path in before.iterdir()} | {path.name for path in now.iterdir()})
    different = 0
    for name in names:
        texts = [(side / name).read_text() if (side / name).exists() else "" for side in (before, now)]
        if texts[0] == texts[1]:
            continue
        different += 1
        print(f"differs: {name}")
        if different == 1:
            lines = difflib.unified_diff(
                texts[0].splitlines(), texts[1].splitlines(), "before", "now", lineterm="", n=1
            )
            print("\n".join(line[:200] for line, _ in zip(lines, range(SHOWN), strict=False)))
    print(f"{len(names) - different} of {len(names)} files are equal")
    return different


def package_of(commit: str, folder: Path) -> Path:
    """Write the package of a commit to a folder, and return the folder."""
    git = ["git", "-C", str(ROOT)]
    named = subprocess.run([*git, "rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}"], capture_output=True, text=True)
    if named.returncode or not commit:
        sys.exit(f"the base must be a commit of this repository, got {commit!r} (`make frozen BASE=<commit>`)")
    archive = subprocess.run([*git, "archive", named.stdout.strip(), "staged"], capture_output=True, check=True).stdout
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        files.extractall(folder, filter="data")
    return folder


def against(package: Path, folder: Path, names: list[str], run: bool) -> int:
    """Compare the programs of another package with the programs of this one. Both are written at the same time."""
    arguments = ["write", str(folder / "before"), "--only", *names, *(["--run"] if run else [])]
    environment = {**os.environ, "PYTHONPATH": str(package.resolve())}
    with subprocess.Popen([sys.executable, str(Path(__file__).parent), *arguments], env=environment) as other:
        seconds = write(folder / "now", names, run)
        print(said(names, seconds), flush=True)
    if other.returncode:
        sys.exit(f"the programs of {package} were not written")
    return compare(folder / "before", folder / "now")


def said(names: list[str], seconds: float) -> str:
    return f"{len(names)} programs, staged in {seconds:.1f} s of processor time by {Path(st.__file__).parent}"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "compare", "against", "since"))
    parser.add_argument("base", metavar="FOLDER", help="or the commit of `since`")
    parser.add_argument("--run", action="store_true", help="results too")
    parser.add_argument("--only", nargs="+", choices=PROGRAMS, default=list(PROGRAMS), metavar="PROGRAM")
    options = parser.parse_args()
    if options.what == "write":
        print(said(options.only, write(Path(options.base), options.only, options.run)))
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        if options.what == "compare":
            print(said(options.only, write(folder / "now", options.only, options.run)))
            return 1 if compare(Path(options.base), folder / "now") else 0
        package = package_of(options.base, folder / "package") if options.what == "since" else Path(options.base)
        return 1 if against(package, folder, options.only, options.run) else 0


if __name__ == "__main__":
    sys.exit(main())
