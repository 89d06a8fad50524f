"""The support snippets as text: chosen by need, in one order, clean for a strict compiler, told the same to cffi."""

from __future__ import annotations

import subprocess

import pytest

from staged.base.artifact import ErrorKind
from staged.code.support import library
from staged.code.support.library import Snippet, render
from staged.runtime.compiler import BASE_FLAGS, LIBRARIES, find_compiler
from staged.runtime.guard import ffi
from tests.runtime.programs import STRICT

OURS = ("host", "fail", "stop", "write", "team")


def test_only_what_is_needed_comes_in_one_order():
    top, text = render(["stop"])
    assert "st_write" not in text and "pthread" not in "".join(top)
    assert text.index("typedef struct st_host") < text.index("static int st_fail(") < text.index("st_stop_requested")
    assert render(["write", "team", "stop"]) == render(["stop", "write", "team", "stop", "host"])
    assert render([]) == ((), "")


def test_definitions_stand_before_includes():
    top, _ = render(OURS)
    kinds = [line.split()[0] for line in top]
    assert kinds == sorted(kinds)
    assert len(set(top)) == len(top)


def test_unknown_and_circular_needs_are_our_bugs(monkeypatch):
    with pytest.raises(AssertionError, match="no support snippet is called nonsense"):
        render(["nonsense"])
    table = {"a": Snippet("a", "", needs=("b",)), "b": Snippet("b", "", needs=("a",)), "c": Snippet("c", "", ("d",))}
    monkeypatch.setattr(library, "snippets", lambda: table)
    with pytest.raises(AssertionError, match="a -> b -> a"):
        render(["a"])
    with pytest.raises(AssertionError, match="no support snippet is called d, which c needs"):
        render(["c"])


@pytest.mark.parametrize("name", OURS)
def test_each_snippet_compiles_alone_without_a_warning(name, tmp_path):
    top, text = render([name])
    source = tmp_path / "alone.c"
    # A translation unit must not be empty, and a program need not use all of a snippet.
    source.write_text("\n".join(top) + "\n" + text + "\nint main(void) { return 0; }\n")
    command = [*find_compiler().command, *BASE_FLAGS, "-O2", *STRICT, "-o", str(tmp_path / "alone"), str(source)]
    compiled = subprocess.run([*command, *LIBRARIES], capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


def test_no_snippet_has_a_warning(tmp_path):
    top, text = render(library.snippets())
    source = tmp_path / "all.c"
    widths = [line for line in top if line.startswith("#define ST_VECTOR_BYTES")]  # one is enough
    source.write_text("\n".join(line for line in top if line not in widths[1:]) + "\n" + text)
    command = [*find_compiler().command, *BASE_FLAGS, *STRICT, "-Wno-unused-function", "-fsyntax-only", str(source)]
    compiled = subprocess.run(command, capture_output=True, text=True)
    assert compiled.returncode == 0, compiled.stderr


def test_the_host_struct_is_laid_out_as_cffi_thinks(tmp_path):
    top, text = render(["host"])
    fields = [name for name, _ in ffi.typeof("st_host").fields]
    prints = "".join(f'    printf("%zu\\n", offsetof(st_host, {name}));\n' for name in fields)
    kinds = "".join(f'    printf("%d\\n", ST_{kind.name});\n' for kind in ErrorKind)
    source = tmp_path / "layout.c"
    source.write_text(
        "\n".join(top) + "\n#include <stddef.h>\n#include <stdio.h>\n" + text
        + 'int main(void) {\n    printf("%zu\\n", sizeof(st_host));\n' + prints + kinds + "    return 0;\n}\n"
    )  # fmt: skip
    binary = tmp_path / "layout"
    subprocess.run([*find_compiler().command, "-std=c11", "-o", str(binary), str(source)], check=True)
    numbers = [int(line) for line in subprocess.run([binary], capture_output=True, text=True).stdout.split()]
    offsets = [ffi.offsetof("st_host", name) for name in fields]
    assert numbers == [ffi.sizeof("st_host"), *offsets, *(kind.value for kind in ErrorKind)]


def test_without_a_writer_text_goes_to_standard_output(tmp_path):
    top, text = render(["write", "fail", "failed"])
    source = tmp_path / "alone.c"
    source.write_text(
        "\n".join(top) + "\n" + text + 'int main(void) {\n    st_host host = {0};\n    st_write(&host, "a\\nb", 3);\n'
        '    st_flush(&host);\n    return st_failed(&host) ? 9 : st_fail(&host, ST_VALUE_ERROR, 0, "no");\n}\n'
    )
    binary = tmp_path / "alone"
    subprocess.run([*find_compiler().command, "-std=c11", *STRICT, "-o", str(binary), str(source)], check=True)
    run = subprocess.run([binary], capture_output=True, text=True)
    assert (run.stdout, run.returncode) == ("a\nb", ErrorKind.VALUE_ERROR)


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_exp_of_minus_infinity_does_not_underflow(dtype, tmp_path):
    """A product that does takes some 100 cycles, and masked attention has one for each score that no query sees."""
    top, text = render([f"st_exp_{dtype}"])
    name = {"f32": "float", "f64": "double"}[dtype]
    main = f"""
#include <fenv.h>
#include <math.h>
#include <stdio.h>
int main(int count, char **words) {{
    (void)words;
    volatile {name} x = ({name})-INFINITY * count, y = st_exp_{dtype}(x);
    printf("%g %d ", (double)y, fetestexcept(FE_UNDERFLOW) != 0);
    x = ({name}){"-100" if dtype == "f32" else "-740"}, y = st_exp_{dtype}(x);
    printf("%d %d\\n", y > 0, fetestexcept(FE_UNDERFLOW) != 0);
    return 0;
}}
"""
    source = tmp_path / "exp.c"
    source.write_text("\n".join(top) + "\n" + text + main)
    command = [*find_compiler().command, *BASE_FLAGS, "-O2", "-o", str(tmp_path / "exp"), str(source), *LIBRARIES]
    subprocess.run(command, check=True)
    assert subprocess.run([str(tmp_path / "exp")], capture_output=True, text=True).stdout == "0 0 1 1\n"
