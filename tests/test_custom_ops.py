"""`st.custom_op`: C functions of the user's in programs, eager mode, derivatives, `vmap`, regions and exports."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, with_backend
from staged.errors import ProgramError
from staged.runtime.compiler import compile_text
from staged.testing import captured_prints

X = np.random.default_rng(0).normal(size=(4, 5))
ROW = np.random.default_rng(1).normal(size=5)

SOURCE = """\
#include <math.h>

static double curve(double x) {
    return tanh(x);
}

// out[i, j] = tanh(scale * x[i, j]) + row[j]
int bend(const double *x, int64_t rows, int64_t columns, const double *row, int64_t size, double scale, double *out) {
    if (size != columns) {
        return 7;
    }
    for (int64_t i = 0; i < rows; ++i) {
        for (int64_t j = 0; j < columns; ++j) {
            out[i * columns + j] = curve(scale * x[i * columns + j]) + row[j];
        }
    }
    return 0;
}
"""


def bend_vjp(cotangent: Any, result: Any, x: Any, row: Any, scale: Any) -> Any:
    inner = cotangent * (1 - (result - row) ** 2)
    return inner * scale, st.sum(cotangent, axis=0), st.sum(inner * x)


ARGUMENTS, RESULTS = [(st.f64, 2), (st.f64, 1), st.f64], [(st.f64, 2)]
bend = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE, vjp=bend_vjp)
plain_bend = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE)
extent = st.custom_op(
    "extent",
    [(st.i32, 1), (st.bool_, 1), st.f32],
    [st.i32, (st.f32, 2), (st.i64, 0)],
    shapes=lambda x, mask, scale: [(), (2, x[0]), ()],
    source="""\
int extent(const int32_t *x, int64_t n, const bool *mask, int64_t m, float scale, int32_t *low, float *both,
           int64_t *chosen) {
    *low = n > 0 ? x[0] : 0;
    *chosen = 0;
    for (int64_t i = 0; i < n; ++i) {
        *low = x[i] < *low ? x[i] : *low;
        both[i] = (float)x[i] * scale;
        both[n + i] = -both[i];
    }
    for (int64_t i = 0; i < m; ++i) {
        *chosen += mask[i];
    }
    return 0;
}
""",
)


def the_bend(x: Any, row: Any = ROW, scale: float = 0.5) -> Any:
    return np.tanh(scale * x) + row


def everywhere(f: Any, *args: Any) -> list[Any]:
    """The results of the program, of eager mode and of plain Python."""
    with st.eager():
        eager = st.function(f)(*args)
    return [st.function(f)(*args), eager, f(*args)]


def test_programs_eager_mode_and_plain_python_call_the_same_function() -> None:
    def f(x: Any, row: Any) -> Any:
        y = x * 2.0
        return bend(y, row, 0.5) + 1.0

    for made in everywhere(f, X, ROW):
        np.testing.assert_allclose(np.asarray(made), the_bend(2 * X) + 1, rtol=1e-14)


def test_several_results_numbers_and_every_kind_of_dtype() -> None:
    x = np.array([5, -3, 8], np.int32)
    mask = np.array([True, False, True, True])
    for low, both, chosen in everywhere(lambda x, mask: extent(x, mask, 2), x, mask):
        assert int(low) == -3 and int(chosen) == 3
        np.testing.assert_array_equal(np.asarray(both), np.stack([2 * x, -2 * x]).astype(np.float32))


def test_in_loops_branches_and_functions_that_recurse() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        for i in st.range(n):
            if i % 2 == 0:
                x = bend(x, ROW, 0.5)
        return x

    np.testing.assert_allclose(f(X, 3), the_bend(the_bend(X)), rtol=1e-14)

    @st.function
    def deep(x: Any, n: Any) -> Any:
        if n > 0:
            return bend(deep(x, n - 1), ROW, 0.5)
        return x

    np.testing.assert_allclose(deep(X, 2), the_bend(the_bend(X)), rtol=1e-14)


def test_the_derivative_is_the_given_one() -> None:
    def loss(x: Any, row: Any, scale: Any) -> Any:
        return st.sum(bend(x, row, scale) ** 2)

    st.check_grads(loss, (X, ROW, np.float64(0.7)), modes=("rev",))
    grads = everywhere(st.grad(loss, argnums=(0, 1, 2)), X, ROW, np.float64(0.7))
    wanted = st.grad(lambda x, row, scale: st.sum((st.tanh(scale * x) + row) ** 2), argnums=(0, 1, 2))
    for made in grads:
        for got, want in zip(made, wanted(X, ROW, np.float64(0.7)), strict=True):
            np.testing.assert_allclose(np.asarray(got), np.asarray(want), rtol=1e-12)


def test_without_a_vjp_a_derivative_is_refused_with_the_line() -> None:
    def loss(x: Any) -> Any:
        return st.sum(plain_bend(x, ROW, 0.5))

    for run in (st.function(st.grad(loss)), st.grad(loss), st.function(lambda x: st.jvp(loss, (x,), (x,)))):
        with pytest.raises(st.GradientError, match="cannot differentiate through `bend`: it is a C function") as caught:
            run(X)
        assert "plain_bend(x, ROW, 0.5)" in str(caught.value)
    beside = st.function(st.grad(lambda x: st.sum(x * plain_bend(st.stop_gradient(x), ROW, 0.5))))
    np.testing.assert_allclose(beside(X), the_bend(X), rtol=1e-14)


def test_vmap_calls_it_for_each_element_or_by_the_given_rule() -> None:
    rows = np.stack([ROW, 2 * ROW, 3 * ROW])
    wanted = np.stack([the_bend(X, row) for row in rows])
    seen: list[Any] = []

    def together(x: Any, row: Any, scale: Any) -> Any:
        seen.append(x.shape)
        return st.tanh(scale[:, None, None] * x) + row[:, None, :]

    ruled = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE, vmap=together)
    for op in (plain_bend, bend, ruled):
        mapped = st.vmap(lambda row, op=op: op(X, row, 0.5))
        for made in everywhere(mapped, rows):
            np.testing.assert_allclose(np.asarray(made), wanted, rtol=1e-14)
    assert seen and set(seen) == {(3, 4, 5)}
    slope = st.vmap(st.grad(lambda row: st.sum(bend(X, row, 0.5) ** 2)))
    for made in everywhere(slope, rows):
        np.testing.assert_allclose(np.asarray(made), 2 * wanted.sum(axis=1), rtol=1e-12)


def test_effects_happen_as_often_as_they_stand_there_and_in_order() -> None:
    source = """\
#include <stdio.h>

int note(double x, int64_t step) {
    FILE *const file = fopen("notes.txt", "a");
    if (file == NULL) {
        return 1;
    }
    fprintf(file, "%lld %.2f\\n", (long long)step, x);
    return fclose(file);
}
"""
    note = st.custom_op("note", [st.f64, st.i64], [], source=source, has_effects=True)

    def f(x: Any, n: Any) -> Any:
        for step in st.range(n):
            x = 0.5 * x
            note(x, step)
        return x

    texts = []
    for run in (lambda: st.function(f)(1.0, 3), lambda: _eagerly(f, 1.0, 3)):
        run()
        texts.append(Path("notes.txt").read_text())
        Path("notes.txt").unlink()
    assert texts[0] == texts[1] == "0 0.50\n1 0.25\n2 0.12\n"
    with pytest.raises(st.StagingError, match="`note`, which has effects, inside"):
        st.function(st.vmap(lambda x: note(x, 1)))(ROW)


def _eagerly(f: Any, *args: Any) -> Any:
    with st.eager():
        return st.function(f)(*args)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_in_a_region_it_runs_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")

    @st.function
    def f(x: Any, row: Any) -> Any:
        with with_backend(GPU, x):
            y = bend(x * 2.0, row, 0.5)
            return y * 3.0

    np.testing.assert_allclose(f(X, ROW), 3 * the_bend(2 * X), rtol=1e-14)
    copies = [(str(copy.source), copy.why) for copy in f.stage(X, ROW).transfers()]
    assert copies == [("cpu", "input"), ("gpu", "value"), ("cpu", "value"), ("gpu", "result")]


def test_an_exported_folder_has_its_source() -> None:
    @st.function
    def f(x: Any, row: Any, n: Any) -> Any:
        for _ in st.range(n):
            x = bend(x, row, 0.5)
        return x

    f.stage(X, ROW, 2).export("folder")
    assert any("int bend(const double *x" in path.read_text() for path in Path("folder").glob("*.[ch]"))
    np.save("folder/x.npy", X)
    np.save("folder/row.npy", ROW)
    subprocess.run(["make", "-s", "-C", "folder"], check=True)
    run = ["./f", "--x", "x.npy", "--row", "row.npy", "--n", "2", "--out", "."]
    subprocess.run(run, cwd="folder", check=True)
    np.testing.assert_allclose(np.load("folder/result.npy"), the_bend(the_bend(X)), rtol=1e-14)


def test_a_function_of_a_library() -> None:
    text = "#include <stdint.h>\nint thrice(const float *x, int64_t n, float *out) "
    text += "{ for (int64_t i = 0; i < n; ++i) { out[i] = 3 * x[i]; } return 0; }\n"
    library = compile_text("thrice", text)
    thrice = st.custom_op("thrice", [(st.f32, 1)], [(st.f32, 1)], library=library)
    x = np.arange(4, dtype=np.float32)
    for made in everywhere(lambda x: thrice(x) + 1.0, x):
        np.testing.assert_array_equal(np.asarray(made), 3 * x + 1)
    f = st.function(lambda x: thrice(x))
    assert str(library) in " ".join(f.stage(x)._artifact.link)
    missing = st.custom_op("four_times", [(st.f32, 1)], [(st.f32, 1)], library=library)
    with pytest.raises(st.CompilerError, match="has no function `four_times`"):
        st.function(lambda x: missing(x))(x)


def test_a_function_that_fails_stops_the_program_with_the_line() -> None:
    @st.function
    def f(x: Any, row: Any) -> Any:
        print("before")
        return plain_bend(x, row, 0.5)

    for run in (lambda: f(X, ROW[:3]), lambda: _eagerly(f, X, ROW[:3])):
        with captured_prints() as printed, pytest.raises(ProgramError, match="`bend` has returned 7") as caught:
            run()
        assert printed.text == "before\n"
        assert "return plain_bend(x, row, 0.5)" in str(caught.value)


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        ((X.astype(np.float32), ROW, 0.5), st.DTypeError, r"argument 1 of `bend` is f64, got f32 \(4, 5\)"),
        ((X, X, 0.5), st.ShapeError, r"argument 2 of `bend` has 1 axes, got f64 \(4, 5\)"),
        ((X, ROW), st.ArgumentError, "`bend` takes 3 arguments, got 2"),
    ],
)
def test_other_arguments_are_refused_with_the_line(args: Any, error: type[Exception], words: str) -> None:
    def f(*args: Any) -> Any:
        return bend(*args)

    for run in (st.function(f), f):
        with pytest.raises(error, match=words) as caught:
            run(*args)
        assert "return bend(*args)" in str(caught.value)


def test_views_are_passed_in_c_s_order() -> None:
    wide = np.asfortranarray(X)
    for made in everywhere(lambda x: bend(x.T[1:, ::2], ROW[:2], 0.5), wide):
        np.testing.assert_allclose(np.asarray(made), the_bend(X.T[1:, ::2], ROW[:2]), rtol=1e-14)


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("int bend(const float *x) { return x[0] > 0; }", "conflicting types"),
        ("int bend(", "does not compile"),
        ("static int other;", "has no function `bend`"),
    ],
)
def test_a_source_that_does_not_define_it_is_refused(source: str, words: str) -> None:
    wrong = st.custom_op("bend", ARGUMENTS, RESULTS, source=source)
    for run in (lambda: st.function(lambda x: wrong(x, ROW, 0.5))(X), lambda: wrong(X, ROW, 0.5)):
        with pytest.raises(st.CompilerError, match=words) as caught:
            run()
        assert "wrong(x" in str(caught.value) or "wrong(X" in str(caught.value)


def test_declarations_that_are_none() -> None:
    for given, words in (
        ({"name": "2x", "source": SOURCE}, "no name for a C function"),
        ({"name": "st_x", "source": SOURCE}, "no name for a C function"),
        ({}, "one of the two"),
        ({"source": SOURCE, "library": "x.so"}, "one of the two"),
        ({"source": SOURCE, "results": []}, "no results and no effects"),
        ({"source": SOURCE, "arguments": ["complex"]}, "dtype, number of axes"),
        ({"source": SOURCE, "has_effects": True, "vjp": bend_vjp}, "has effects"),
    ):
        with pytest.raises(st.ArgumentError, match=words):
            st.custom_op(**{"name": "bend", "arguments": ARGUMENTS, "results": RESULTS, **given})
    wrong = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE, shapes=lambda *shapes: (3,))
    with pytest.raises(st.ShapeError, match=r"the results of `bend` have \[2\] axes, `shapes` gives \[\(3,\)\]"):
        st.function(lambda x: wrong(x, ROW, 0.5))(X)


def test_two_functions_of_one_name_in_a_program_are_refused() -> None:
    other = st.custom_op("bend", [(st.f64, 1)], [(st.f64, 1)], source="int bend(void) { return 0; }")
    f = st.function(lambda x: (plain_bend(x, ROW, 0.5), bend(x, ROW, 0.5)))
    np.testing.assert_allclose(f(X)[1], the_bend(X), rtol=1e-14)  # the same source is there once
    twice = st.custom_op("bend", ARGUMENTS, RESULTS, source=SOURCE + "\n// changed\n")
    with pytest.raises(st.ArgumentError, match="two C functions called `bend`"):
        st.function(lambda x: twice(bend(x, ROW, 0.5), ROW, 0.5))(X)
    assert other.name == "bend"


def test_names_of_the_source_are_not_taken_by_the_program() -> None:
    @st.function
    def f(x: Any) -> Any:
        curve = x * 2.0
        out = bend(curve, ROW, 0.5)
        rows = out + st.sum(out)
        return rows

    np.testing.assert_allclose(f(X), the_bend(2 * X) + the_bend(2 * X).sum(), rtol=1e-12)


def test_a_function_that_was_edited_is_not_taken_for_what_it_was(tmp_path: Path) -> None:
    """In another process, where the op has the same number: its text, and the rule of its `vmap`, are the new ones."""
    script = """
import numpy as np, staged as st
double = st.custom_op("twice", [st.f64], [st.f64], source=\"\"\"
#include <stdint.h>
int twice(double x, double *y) {{ *y = {factor} * x; return 0; }}
\"\"\", shapes=lambda *shapes: [()])
ruled = st.custom_op("twice", [st.f64], [st.f64], source=double.function.source, shapes=lambda *shapes: [()],
                     vmap=lambda x: {factor} * x)
print(st.function(lambda x: double(x))(1.5), st.function(lambda x: st.vmap(ruled)(x))(np.ones(2)))
"""
    path = tmp_path / "edited.py"
    environment = {**os.environ, "STAGED_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": str(Path(st.__file__).parents[1])}
    for factor, wanted in ((2.0, "3.0 [2. 2.]"), (4.0, "6.0 [4. 4.]")):
        path.write_text(script.format(factor=factor))
        run = subprocess.run([sys.executable, str(path)], env=environment, capture_output=True, text=True)
        assert run.stdout.strip() == wanted, run.stderr
