"""Complex numbers in the texts of programs: prints, messages, files and bars are eager mode's, on every back end."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.frontend.calls.arguments import flatten_arguments
from tests.sanitized import run_sanitized

INF, NAN = float("inf"), float("nan")
Z = np.array([[1 + 2j, complex(-0.0, -0.5), 0.1j], [complex(INF, -1), complex(NAN, -0.0), 1e20 - 1e-7j]], np.complex64)
W = np.array([1 / 3 + 0.1j, complex(0.0, -INF)])


@st.function
def shown(z: Any, w: Any, k: Any) -> Any:
    total = st.sum(z[0])
    print("z", z, total, f"{total:.3f}|{total:>30}|{total!r:^40}|{z:+.1f}")
    for i in st.range(2):
        print([total, i], {"w": w}, total * i, st.conj(w)[0], str(w[1]), total.imag, 2j * k)
    if st.abs(total) > 1:
        print(f"{w[0]:#.3g}", f"{w[0] * 1e6:,.2f}", -w[1] * 0, end="\n\n")
    assert k < 2, f"k is {k} at {total:.2f} of {w}"
    return total


def test_a_program_prints_what_eager_mode_prints(capsys: pytest.CaptureFixture[str]) -> None:
    with st.eager():
        shown(Z, W, 1)
    expected = capsys.readouterr().out
    assert "(0.3333333333333333+0.1j)" in expected and "(-0-0.5j)" in expected and "(1e+20-1e-07j)" in expected
    assert expected.startswith("z [[        (1+2j)") and f"{complex(np.complex64(1 + 1.6j)):.3f}|" in expected
    shown(Z, W, 1)
    assert capsys.readouterr().out == expected
    program = shown.stage(Z, W, 1)
    values = [argument.value for argument in flatten_arguments(shown.__wrapped__, (Z, W, 1), {}).staged]
    (outcome,) = run_sanitized(program._artifact, [([*values, *program._traced.hidden], ())])
    assert outcome.error is None and outcome.text == expected


def test_messages_have_them() -> None:
    with pytest.raises(st.StagedError, match=r"k is 3 at 1.00\+1.60j of \[\(0.3333333333333333\+0.1j\) ") as error:
        shown(Z, W, 3)
    assert "test_complex_text.py" in str(error.value)

    @st.function
    def raises(z: Any) -> Any:
        if z.real > 0:
            raise ValueError(f"no root of {z}")
        return z

    with pytest.raises(ValueError, match=r"no root of \(1-2j\)"):
        raises(1 - 2j)


def test_in_a_region_of_a_device(emulated_device: Any, capsys: pytest.CaptureFixture[str]) -> None:
    @st.function
    def region(z: Any) -> Any:
        with st.with_backend(st.GPU, z):
            w = z * 2j
            total = st.sum(w[0])
            print(w, f"{total:.2f}")
            assert st.abs(total) < 10, f"{total} of {w[0, :1]}"
        return total

    with st.eager():
        region(Z)
    expected = capsys.readouterr().out
    region(Z)
    assert capsys.readouterr().out == expected
    with pytest.raises(st.StagedError, match=r"of \[\(-40\+20j\)\]"):
        region(np.full((1, 3), 10 + 20j, np.complex64))


def test_an_exported_program_prints_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shown.stage(Z, W, 1).export(tmp_path / "program")
    np.save(tmp_path / "program" / "z.npy", Z)
    np.save(tmp_path / "program" / "w.npy", W)
    strict = "-std=c11 -O1 -g -Wall -Wextra -Wconversion -Werror -fsanitize=address,undefined -fno-sanitize-recover=all"
    subprocess.run(["make", "-s", "-C", tmp_path / "program", f"CFLAGS={strict}"], check=True)
    command = ["./shown", "--z", "z.npy", "--w", "w.npy", "--k", "1"]
    alone = subprocess.run(command, cwd=tmp_path / "program", check=True, capture_output=True, text=True)
    shown(Z, W, 1)
    assert alone.stderr == "" and alone.stdout == capsys.readouterr().out


def test_files_have_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    @st.function
    def writes(z: Any) -> Any:
        with open(f"at {z[0, 0]}.txt", "w") as file:
            print(z[0], file=file)
            file.write(f"{z[1, 2]:.1e}\n")
        return z

    with st.eager():
        writes(Z)
    path = tmp_path / "at (1+2j).txt"
    expected = path.read_text()
    path.unlink()
    writes(Z)
    assert path.read_text() == expected


def test_a_spec_that_python_refuses_is_refused_with_the_line() -> None:
    @st.function
    def padded(z: Any) -> Any:
        print(f"{z:08}")
        return z

    with pytest.raises(st.StagingError, match="does not fit a complex number: Zero padding") as error:
        padded(1j)
    assert "test_complex_text.py" in str(error.value)
