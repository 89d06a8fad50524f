"""Finding a compiler, choosing flags, and explaining what it says."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import pytest

from staged.base.artifact import Site
from staged.errors import CompilerError
from staged.runtime import compiler
from staged.runtime.c import load
from staged.runtime.compiler import compile_shared, find_compiler
from staged.runtime.options import CompileOptions
from tests.runtime.programs import given, program, result

FUSED = program(
    "fused",
    (given("a", "f64"), given("b", "f64"), given("c", "f64"), result("y", "f64")),
    "*args->y = args->a * args->b + args->c;",
)


def test_no_compiler_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("STAGED_CC", raising=False)
    with pytest.raises(CompilerError, match="no C compiler was found(?s:.*)To fix: .*apt install gcc"):
        find_compiler()


def test_a_named_compiler_that_is_missing_is_named(monkeypatch):
    monkeypatch.setenv("STAGED_CC", "no-such-cc -x")
    with pytest.raises(CompilerError, match="STAGED_CC names was not found: no-such-cc"):
        find_compiler()


def test_a_named_compiler_that_does_not_run_is_explained(monkeypatch, tmp_path):
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho no licence >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("STAGED_CC", str(broken))
    with pytest.raises(CompilerError, match="cannot be run: .*no licence"):
        find_compiler()


def test_unbalanced_quotes_in_flags_are_ours_to_explain(monkeypatch):
    monkeypatch.setenv("STAGED_CFLAGS", "-DX='a")
    with pytest.raises(CompilerError, match="STAGED_CFLAGS cannot be split"):
        compile_shared(FUSED)


def test_flags_are_words_and_never_shell_text(monkeypatch, tmp_path):
    target = tmp_path / "owned"
    monkeypatch.setenv("STAGED_CFLAGS", f"-DX=$(touch${{IFS}}{target}) -DY=`touch {target}`")
    with pytest.raises(CompilerError):  # "{target}`" is read as the name of a further source file
        compile_shared(FUSED)
    assert not target.exists()


def test_the_default_flags_round_products_and_sums_one_by_one():
    a = 1.0 + 2.0**-30
    exact = a * a - 1.0  # rounds twice
    assert load(replace(FUSED, flags=("-march=native",)))(a, a, -1.0)[0] == exact
    if "fma" in _cpu_flags():
        assert load(replace(FUSED, flags=("-march=native", "-ffp-contract=fast")))(a, a, -1.0)[0] != exact


def _cpu_flags() -> str:
    with open("/proc/cpuinfo") as file:
        return file.read()


def test_every_optimisation_level_and_the_undefined_sanitizer_work():
    for options in (CompileOptions("0"), CompileOptions("3"), CompileOptions(sanitize=("undefined",))):
        assert load(FUSED, options)(2.0, 3.0, 4.0)[0] == 10.0


def test_native_code_is_kept_apart_by_cpu(monkeypatch):
    native = replace(FUSED, flags=("-march=native",))
    here = compile_shared(native)
    anywhere = compile_shared(FUSED)
    monkeypatch.setattr(compiler, "cpu_signature", lambda: "another cpu")
    assert compile_shared(native) != here
    assert compile_shared(FUSED) == anywhere


def test_a_refusal_shows_the_words_the_generated_line_and_the_python_line(tmp_path):
    user = tmp_path / "user.py"
    user.write_text("def f(x):\n    y = x * 2\n    return y\n")
    broken = program(
        "broken",
        (given("x"), result("y")),
        "    // user.py:2  y = x * 2\n    *args->y = args->z * 2.0f;",
        sites=(Site(str(user), 2, 8, 13, "f", "y = x * 2"),),
    )
    with pytest.raises(CompilerError) as caught:
        compile_shared(broken)
    text = str(caught.value)
    assert "the C compiler refused the program `broken`" in text
    assert "no member named" in text
    assert "*args->y = args->z * 2.0f;" in text
    assert "user.py, line 2, in f" in text
    assert "y = x * 2\n          ^^^^^" in text
    assert "report it" in text


def test_a_link_failure_is_explained_too():
    unlinked = replace(FUSED, link=("-lno_such_library_anywhere",))
    with pytest.raises(CompilerError, match="no_such_library_anywhere"):
        compile_shared(unlinked)


def test_nothing_of_a_failed_compilation_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("STAGED_CACHE_DIR", str(tmp_path / "cache"))
    with pytest.raises(CompilerError):
        compile_shared(program("bad", (), "nonsense"))
    assert list((tmp_path / "cache" / "programs").iterdir()) == []


def test_an_interrupt_while_compiling_leaves_nothing_behind(tmp_path):
    slow = tmp_path / "slowcc"
    begun = tmp_path / "begun"
    slow.write_text(f'#!/bin/sh\n[ "$1" = --version ] && echo slow && exit\n: > {begun}\nsleep 100\n')
    slow.chmod(0o755)
    code = (
        "import pathlib\n"
        "from tests.interrupts import interrupt_when\n"
        "from tests.runtime.test_compiler import FUSED\n"
        "from staged.runtime.compiler import compile_shared\n"
        f"interrupt_when(pathlib.Path({str(begun)!r}).exists)\n"
        "try:\n    compile_shared(FUSED)\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
    )
    env = {
        **os.environ,
        "STAGED_CC": str(slow),
        "STAGED_CACHE_DIR": str(tmp_path / "cache"),
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=env, timeout=90)
    assert run.stdout == "interrupted\n", run.stderr
    assert list((tmp_path / "cache" / "programs").iterdir()) == []


LOOPS = """\
#include <stdint.h>
#include <stdio.h>

static double numbers[8][64];

__attribute__((noinline)) static void kernel(const double *a, const double *b, const double *p, const double *q, double *sum,
        double *product) {
    for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 3; ++j) {
            const double a_j = a[i * 3 + j];
            const double p_j = (i + (-1) >= 0) && (i + (-1) < 2) ? p[i * 3 + j + (-3)] : 0.0;
            const double times = p_j * a_j;
            const double q_j = (i + (-1) >= 0) && (i + (-1) < 2) ? q[i * 3 + j + (-3)] : 0.0;
            sum[i * 3 + j] = (q_j * a_j + b[i * 3 + j] * p_j) * 0.5;
            product[i * 3 + j] = times * 0.25;
        }
    }
}

__attribute__((noinline)) static double total(const double *x) {
    double total = 0.0;
    for (int64_t i = 0; i < 4; ++i) {
        for (int64_t j = 0; j < 2; ++j) {
            total += x[i * 5 + j + 3] + 0.0;
        }
        for (int64_t j = 2; j < 5; ++j) {
            total += 0.0 + x[i * 5 + j + (-2)];
        }
    }
    return total;
}

int main(void) {
    for (int i = 0; i < 256; ++i) {
        (&numbers[0][0])[i] = i;
    }
    kernel(numbers[0], numbers[1], numbers[2], numbers[3], numbers[4], numbers[5]);
    for (int i = 0; i < 12; ++i) {
        printf("%g ", numbers[5][i]);
    }
    printf("%g", total(numbers[0]));
    return 0;
}
"""


def test_the_compiler_computes_what_is_written_at_every_level(tmp_path):
    """The faults of gcc 12.2 at -O3 without our flags: masked loads in a row, and sums of short rows."""
    source, binary = tmp_path / "loops.c", tmp_path / "loops"
    source.write_text(LOOPS)
    found = find_compiler()
    for level in ("-O0", "-O2", "-O3"):
        flags = [*found.base_flags, level, "-march=native"]
        subprocess.run([*found.command, *flags, str(source), "-o", str(binary)], check=True)
        printed = subprocess.run([binary], check=True, capture_output=True, text=True).stdout
        expected = [0.0] * 3 + [i * (128 + i - 3) * 0.25 for i in range(3, 9)] + [0.0] * 3 + [190.0]
        assert [float(word) for word in printed.split()] == expected, level


@pytest.mark.parametrize(
    ("version", "is_gcc"),
    [
        ("cc (Debian 12.2.0-14+deb12u1) 12.2.0", True),
        ("x86_64-linux-gnu-gcc-13 (Ubuntu 13.2.0-4ubuntu3) 13.2.0", True),
        ("gcc (GCC) 14.1.1 20240522", True),
        ("Debian clang version 14.0.6", False),
        ("Apple clang version 15.0.0 (clang-1500.1.0.2.5)", False),
    ],
)
def test_gcc_is_known_by_what_it_says(version, is_gcc):
    assert compiler.Compiler(("cc",), version).is_gcc == is_gcc
