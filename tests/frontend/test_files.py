"""Files that a program writes: the same characters as in plain Python, closed on every way out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.errors import ProgramAssertionError, ProgramFileError, ProgramValueError
from tests.frontend.harness import Case, check_gradient, check_program, check_refusal, each

X = np.array([1.0, 2.0, 3.0])
PATHS: dict[str, str] = {}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    PATHS.update(log=str(tmp_path / "log.txt"), other=str(tmp_path / "other.txt"))
    yield tmp_path


def lines_in_a_loop(x: Any, n: Any) -> Any:
    with open(PATHS["log"], "a") as f:
        f.write("start ä\n")
        for i in range(n):
            x = x * 0.5
            f.write(f"{i}: {x.sum():.3f} {i * 0.5!r:>8}\n")
            print("step", i, i > 1, sep=", ", end=";\n", file=f)
        f.writelines(["end", "\n"])
    return x


def two_files(x: Any, n: Any) -> Any:
    with open(PATHS["log"], "a") as f, open(PATHS["other"], "a", encoding="utf-8") as g:
        for i in range(n):
            if i % 2 == 0:
                print(i, file=f)
            else:
                g.write(f"{i * i}\n")
    with open(PATHS["log"], "a") as f:
        f.write("again\n")
    return x


def left_early(x: Any, n: Any) -> Any:
    total = 0.0
    for i in range(100):
        with open(PATHS["log"], "a") as f:
            f.write(f"open {i}\n")
            if i % 2 == 0:
                continue
            f.write("odd\n")
            if i > n:
                break
        total += i
    return total


def returned_early(x: Any, n: Any) -> Any:
    def helper(k: Any) -> Any:
        with open(PATHS["log"], "a") as f:
            for i in range(50):
                f.write(f"{i} ")
                if i == k:
                    return i * 2
            f.write("all\n")
        return 0

    total = 0
    for k in range(n):
        total += helper(k)
    return total


def closed_by_hand(x: Any, n: Any) -> Any:
    f = open(PATHS["log"], "a")  # noqa: SIM115
    for i in range(n):
        f.write(f"{i}\n")
        f.flush()
    f.close()
    f.close()
    with open(PATHS["log"], "a") as g:
        if n > 2:
            print("many", file=g)
        elif n > 1:
            print(file=g)
    return x


CASES = [
    Case(lines_in_a_loop, [(X, 3), (X, 0)], (0,)),
    Case(two_files, [(X, 5)]),
    Case(left_early, [(X, 40), (X, 5)]),
    Case(returned_early, [(X, 4), (X, 60)]),
    Case(closed_by_hand, [(X, 3), (X, 2), (X, 0)]),
]


@each(CASES)
def test_programs(case: Case, folder: Path) -> None:
    for args in case.runs:
        for _ in range(4):
            case.function(*args)
    texts = {path: path.read_bytes() for path in folder.glob("*.txt")}
    for path in texts:
        path.unlink()
    check_program(case)  # plain, eager, -O3, -O0 with sanitizers: each appends what plain Python writes
    for path, text in texts.items():
        assert path.read_bytes() == text, path


def test_every_way_to_run_writes_the_same_bytes(folder: Path) -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        with open("log.txt", "w") as out:
            for i in st.range(n):
                x = x * 0.7
                print(f"{i:03d}", x, f"{x[0]:+.4e}", x.sum() > 2.0, [x[1], n], file=out)
        return x

    args = (np.array([1.5, -2.0, 1e-7], np.float32), 5)
    f(*args)
    compiled = Path("log.txt").read_bytes()
    with st.eager():
        f(*args)
    assert compiled == Path("log.txt").read_bytes()
    assert compiled.count(b"\n") == 5


def test_paths_with_staged_parts(folder: Path) -> None:
    @st.function
    def f(n: Any) -> Any:
        for i in st.range(n):
            with open(f"part-{i:02d}.txt", "w") as out:
                out.write(f"{i * i}")
        return n

    f(3)
    assert {path.name: path.read_text() for path in folder.glob("part*")} == {
        "part-00.txt": "0", "part-01.txt": "1", "part-02.txt": "4",
    }  # fmt: skip


def test_a_path_object_and_exclusive_creation(folder: Path) -> None:
    path = folder / "new.txt"

    @st.function
    def f() -> Any:
        with open(path, "x") as out:
            out.write("once")
        return 1

    f()
    assert path.read_text() == "once"
    for _ in range(2):
        with pytest.raises(ProgramFileError, match="new.txt.*File exists"):
            f()
        with st.eager(), pytest.raises(ProgramFileError, match="new.txt.*File exists"):
            f()


def test_a_file_that_cannot_be_opened_stops_the_program_with_the_line() -> None:
    @st.function
    def f(x: Any) -> Any:
        with open("no/such/folder.txt", "w") as out:
            out.write("text")
        return x

    for run in (lambda: f(X), lambda: _eagerly(f)):
        with pytest.raises(OSError, match='cannot open "no/such/folder.txt": No such file or directory') as caught:
            run()
        assert isinstance(caught.value, ProgramFileError)
        assert 'with open("no/such/folder.txt", "w") as out:' in str(caught.value)


def _eagerly(f: Any) -> None:
    with st.eager():
        f(X)


def test_a_failed_write_stops_the_program_with_the_line() -> None:
    if not Path("/dev/full").exists():
        pytest.skip("there is no /dev/full")

    @st.function
    def f(n: Any) -> Any:
        with open("/dev/full", "w") as out:
            for i in st.range(n):
                out.write(f"a line of text, number {i}\n")
        return n

    for n in (1, 1000):  # noticed when the file is closed, and while it is written
        with pytest.raises(ProgramFileError, match='cannot write to "/dev/full": No space left on device'):
            f(n)


def test_files_are_closed_when_the_program_fails(folder: Path) -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        with open("log.txt", "w") as out:
            for i in st.range(n):
                out.write(f"{i}\n")
                assert x[i] > 0.0, "negative"
        return x

    before = len(os.listdir("/proc/self/fd"))
    for _ in range(40):  # more than can be open at once
        with pytest.raises(ProgramAssertionError):
            f(np.array([1.0, 2.0, -1.0]), 3)
    assert Path("log.txt").read_text() == "0\n1\n2\n"
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_file_left_open_is_closed_by_the_end(folder: Path) -> None:
    @st.function
    def f(n: Any) -> Any:
        out = open("log.txt", "w")  # noqa: SIM115
        out.write(f"{n}")
        return n

    for n in range(40):
        f(n)
    assert Path("log.txt").read_text() == "39"


def test_a_path_with_a_zero_character_is_not_cut_there(folder: Path) -> None:
    @st.function
    def f(n: Any) -> Any:
        with open(f"log-{n}\0.txt", "w") as out:
            out.write("x")
        return n

    with pytest.raises(st.ArgumentError, match="the path of a file has a zero character") as caught:
        f(1)
    assert "with open(f" in str(caught.value)
    with st.eager(), pytest.raises(ValueError, match="null"):
        f(1)
    assert os.listdir(folder) == []


def test_too_many_open_files_and_a_closed_file_stop_the_program() -> None:
    @st.function
    def opens(n: Any) -> Any:
        for i in st.range(n):
            out = open(f"{i}.txt", "w")  # noqa: SIM115
            out.write("x")
        return n

    with pytest.raises(ProgramFileError, match="too many files are open at once"):
        opens(33)
    opens(32)

    @st.function
    def closed(n: Any) -> Any:
        with open("log.txt", "w") as out:
            out.write("x")
        out.write(f"{n}")
        return n

    with pytest.raises(ProgramValueError, match="I/O operation on closed file"):
        closed(1)


def differentiated(x: Any, n: Any) -> Any:
    with open("log.txt", "a") as out:
        for i in range(n):
            x = x * x * 0.5
            print(i, file=out)
    return x.sum()


def test_writes_inside_differentiated_code_happen_once() -> None:
    slope = st.function(lambda x, n: st.value_and_grad(differentiated)(x, n))
    value, gradient = slope(X, 2)
    assert Path("log.txt").read_text() == "0\n1\n"
    np.testing.assert_allclose(gradient, 0.5 * X**3)
    assert float(value) == pytest.approx(float((X**4).sum()) / 8)
    check_gradient(Case(differentiated, [(X, 2)], (0,)))


@st.function
def _count_down(out: Any, n: Any) -> Any:
    out.write(f"{n} ")
    if n == 0:
        return 0
    return _count_down(out, n - 1) + 1


def test_written_from_a_recursive_function(folder: Path) -> None:
    @st.function
    def f(n: Any) -> Any:
        with open("log.txt", "w") as out:
            return _count_down(out, n)

    assert f(4) == 4
    assert Path("log.txt").read_text() == "4 3 2 1 0 "


@pytest.mark.parametrize(
    ("program", "message", "hint"),
    [
        (lambda x: open("data.txt").read(), "the mode 'r' cannot be staged", "pass the data as arguments"),  # noqa: SIM115
        (lambda x: open("data.bin", "wb"), "the mode 'wb' cannot be staged", "mode `'w'`"),  # noqa: SIM115
        (lambda x: open("data.txt", "w", encoding="latin-1"), "a program writes UTF-8", 'encoding="utf-8"'),  # noqa: SIM115
        (lambda x: open("data.txt", "w").write(x), "a file takes text, got StagedArray", "write an f-string"),  # noqa: SIM115
        (lambda x: open("data.txt", "w").seek(0), "a file of the program has no `seek`", "print(..., file=f)"),  # noqa: SIM115
        (lambda x: open(x, "w"), "the path of a file is text", ""),  # noqa: SIM115
        (lambda x: print(x, file=_PYTHON_FILE), "goes to standard output, or to a file", "with open("),
    ],
)  # fmt: skip
def test_refusals(program: Any, message: str, hint: str) -> None:
    check_refusal(program, (X,), st.StagingError, message, hint)


_PYTHON_FILE = object()
