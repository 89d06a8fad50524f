"""Exported programs with sizes that they find in files: one build serves all sizes, under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from examples.char_lstm.model import CharLSTM
from examples.mnist.models import CNN
from staged import nn, optim
from staged.backends.host.standalone.arrays import flag_names
from staged.frontend.values import trees
from tests.dynamic_sizes import layer_cases  # noqa: F401  # which adds to the table
from tests.dynamic_sizes.cases import CASES, Case
from tests.exported import build, compile_c, run

STRICT = "-std=c11 -O0 -Wall -Wextra -Wconversion -Wshadow -Wpedantic -Werror -fsanitize=address,undefined"


class Exported:
    """A program in a folder, built under the sanitizers."""

    def __init__(self, function: Any, folder: Path, *given: Any, target: str = "portable") -> None:
        self.folder = folder
        self.program = function.stage(*given)
        self.name = self.program.name
        self.state: list[str] = []
        """The flags of Variables that are read from other files than those of the export."""
        self.program.export(folder, target=target)
        build(self.name, folder, times=False)

    def run(self, *given: Any) -> subprocess.CompletedProcess[str]:
        """Run with arguments: arrays, from files, and numbers."""
        words = list(self.state)
        for number, (argument, value) in enumerate(zip(self.program._traced.arguments, given, strict=True)):
            if argument.type.shape:
                np.save(self.folder / f"argument{number}.npy", value)
                value = self.folder / f"argument{number}.npy"
            words.append(f"--{argument.path}={value}")
        return run(self.folder, f"{self.name}.run", *words, "--out", str(self.folder))

    def __call__(self, *given: Any) -> Any:
        """The results of a run, in the function's tree."""
        done = self.run(*given)
        assert (done.returncode, done.stderr) == (0, ""), done.stderr
        artifact = self.program._artifact
        names = flag_names(artifact)
        results = [each for each in artifact.parameters if each.role == "output"]
        return self.program._traced.rebuild([np.load(self.folder / f"{names[each.place]}.npy") for each in results])

    def error(self, *given: Any) -> str:
        """The message of a run that refuses its files."""
        done = self.run(*given)
        assert done.returncode == 2, done.stderr
        return done.stderr.partition("--")[2].strip()


def _same(found: Any, right: Any, **tolerances: float) -> None:
    for one, other in zip(trees.flatten(found)[0], trees.flatten(right)[0], strict=True):
        assert np.shape(one) == np.shape(other)
        np.testing.assert_allclose(one, other, **tolerances)


@pytest.mark.parametrize("made", [made for made in CASES if made.exported], ids=lambda made: made.name)
def test_exported_cases_have_the_values_of_the_program(made: Case, tmp_path: Path) -> None:
    function = st.function(dims=made.axes)(made.function)
    exported = Exported(function, tmp_path, *made.arguments(made.sizes[0]))
    for number, sizes in enumerate(made.sizes):
        given = made.arguments(sizes, number)
        _same(exported(*given), function(*given), rtol=1e-10, atol=1e-10)


def test_a_char_lstm_samples_texts_of_all_lengths(tmp_path: Path) -> None:
    st.seed(3)
    model = CharLSTM(20, 16)

    @st.function(dims={"noise": ("T <= 200", 20)})
    def sample(first: Any, noise: Any) -> Any:
        """A text as long as the noise that chooses its characters."""
        state, x, text = model.start(1), first, st.zeros(noise.shape[0], dtype=st.i64)
        for t in range(noise.shape[0]):
            state, scores = model.step(state, x[None])
            x = st.argmax(scores[0] + noise[t])
            text[t] = x
        return text, state[0]

    draw = np.random.default_rng(0)
    noises = [draw.gumbel(size=(length, 20)).astype(np.float32) for length in (1, 2, 7, 64, 199, 200, 0)]
    exported = Exported(sample, tmp_path, np.int64(4), noises[1])
    for number, noise in enumerate(noises):
        _same(exported(number, noise), sample(np.int64(number), noise), rtol=1e-6, atol=1e-6)
    assert "axis 0 has 201 elements, `T` must be 0 to 200" in exported.error(1, np.zeros((201, 20), np.float32))


def test_a_cnn_reads_batches_of_all_sizes(tmp_path: Path) -> None:
    st.seed(3)
    model = CNN()

    @st.function(dims={"images": ("N <= 64", 1, 28, 28)})
    def classify(images: Any) -> Any:
        scores = model(images)
        return {"scores": scores, "class": st.argmax(scores, axis=1)}

    draw = np.random.default_rng(0)
    batches = [draw.standard_normal((count, 1, 28, 28)).astype(np.float32) for count in (1, 3, 17, 63, 64)]
    exported = Exported(classify, tmp_path, batches[2])
    for images in batches:
        _same(exported(images), classify(images), rtol=1e-6, atol=1e-6)


def test_training_writes_variables_and_files_of_all_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    st.seed(3)
    model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 3))
    optimiser = optim.SGD(model.parameters(), lr=0.5)

    @st.function(dims={"x": ("N <= 50", 4), "y": "N"})
    def step(x: Any, y: Any, path: Any) -> Any:
        loss, grads = st.value_and_grad(lambda: st.cross_entropy(model(x), y), wrt=model)()
        optimiser.step(grads)
        st.save(f"{path}.safetensors", {"model": model.state_dict(), "rows": x * 2.0})
        return loss

    draw = np.random.default_rng(0)
    exported = Exported(step, tmp_path / "step", np.ones((3, 4), np.float32), np.zeros(3, np.int64), 0)
    for number, count in enumerate((5, 50, 17)):
        x, y = draw.standard_normal((count, 4)).astype(np.float32), draw.integers(0, 3, count)
        right = step(x, y, number)
        _same(exported(x, y, number + 10), right, rtol=1e-6)
        for name, array in model.state_dict().items():
            np.testing.assert_allclose(np.load(exported.folder / f"{name}.npy"), array, rtol=1e-5, atol=1e-6)
        one, other = (st.load(f"{name}.safetensors") for name in (number + 10, number))
        _same(one, other, rtol=1e-5, atol=1e-6)
        exported.state = [f"--{name}={exported.folder / name}.npy" for name in model.state_dict()]


def odd_rows(x: Any, y: Any, w: Any, z: Any) -> Any:
    return x * y[1::2, None] + w[:, None], y[::2], st.topk(z, 2)[0]


ODD = st.function(dims={"x": ("N <= 40", 3), "y": "2 * N + 1", "w": "N", "z": "M <= 8"})(odd_rows)


def _odd(n: int = 3, m: int = 4, **other: Any) -> list[Any]:
    given = {"x": np.ones((n, 3)), "y": np.ones(2 * n + 1), "w": np.ones(n), "z": np.arange(float(m))}
    return list((given | other).values())


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported(ODD, tmp_path_factory.mktemp("odd"), *_odd())


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (_odd(41), "axis 0 has 41 elements, `N` must be 0 to 40"),
        (_odd(y=np.ones(82)), "axis 0 has 82 elements, `2 * N + 1` must be 1 to 81"),
        (_odd(y=np.ones(0)), "axis 0 has 0 elements, `2 * N + 1` must be 1 to 81"),
        (_odd(y=np.ones(8)), "y: axis 0 has 8 elements, `2 * N + 1` must be 7: `N` is 3, `M` is 4"),
        (_odd(w=np.ones(4)), "axis 0 has 4 elements, `N` is 3 by axis 0 of `x`"),
        (_odd(x=np.ones((3, 2))), "expected {'descr': '<f8', 'fortran_order': False, 'shape': (3, 3), }"),
        (_odd(x=np.ones(3)), "expected {'descr': '<f8', 'fortran_order': False, 'shape': (N, 3), }"),
        (_odd(z=np.ones((2, 2))), "expected {'descr': '<f8', 'fortran_order': False, 'shape': (M,), }"),
        (_odd(x=np.ones((3, 3), np.float32)), "the file has {'descr': '<f4'"),
        (_odd(x=np.ones((3, 3), order="F") * np.ones((3, 3), order="F")), "'fortran_order': True"),
    ],
)
def test_a_size_that_does_not_fit_is_an_error(odd: Exported, given: Any, message: str) -> None:
    assert message in odd.error(*given)


@pytest.mark.parametrize(
    ("rows", "message"),
    [(b"40", "is cut off"), (b"-3", "(N, 3)"), (b"9" * 30, "must be 0 to 40"), (b"3.", "(N, 3)"), (b"", "(N, 3)")],
)
def test_a_damaged_header_is_an_error(odd: Exported, rows: bytes, message: str) -> None:
    odd.run(*_odd())
    file = odd.folder / "argument0.npy"
    text = file.read_bytes()
    header = text[10:128].replace(b"(3, 3)", b"(" + rows + b", 3)").rstrip(b" \n")
    file.write_bytes(text[:10] + header.ljust(117) + b"\n" + text[128:])
    words = [f"--{name}={odd.folder / f'argument{number}.npy'}" for number, name in enumerate("xywz")]
    done = run(odd.folder, "odd_rows.run", *words)
    assert done.returncode == 2 and message in done.stderr


def test_relations_are_in_the_header_and_checked(odd: Exported) -> None:
    done = odd.run(*_odd(m=1))
    assert done.returncode == 1 and "topk: there are no 2 elements along axis 0 of f64 (M,); M is 1" in done.stderr
    header = (odd.folder / "odd_rows.h").read_text()
    assert "//     M >= 2  test_exports.py:" in header
    assert "#define ODD_ROWS_N_MAX 40\n" in header and "int64_t M;" in header
    assert "M (0 to 8)" in (odd.folder / "README.md").read_text().replace("`", "")


def last_rows(x, y):
    return x[-y.shape[0] :] * y


def test_sizes_that_are_sums_of_dimensions_are_found_in_files(tmp_path: Path) -> None:
    function = st.function(dims={"x": ("N <= 20", 2), "y": ("M <= 20", 2)})(last_rows)
    exported = Exported(function, tmp_path, np.ones((5, 2)), np.ones((3, 2)))
    for n, m in ((5, 3), (20, 20), (4, 1)):
        given = np.arange(2.0 * n).reshape(n, 2), np.arange(2.0 * m).reshape(m, 2)
        _same(exported(*given), last_rows(*given), rtol=1e-10)
    assert "dimension `N - M` is -1, it may be 0 to 20" in exported.run(np.ones((2, 2)), np.ones((3, 2))).stderr


CALLER = r"""
#include <stdio.h>
#include <stdlib.h>
#include "odd_rows.h"

// Exact sizes: the sanitizer reports accesses behind an array.
static double *array(size_t count) {
    return calloc(count + (count == 0), sizeof(double));
}

int main(void) {
    static st_host host;
    void *const arena = odd_rows_arena_create();
    static double most[ODD_ROWS_Y_SIZE(ODD_ROWS_N_MAX)];
    if (sizeof most / sizeof most[0] != 81) {
        return 1;
    }
    const int64_t sizes[][2] = {{3, 4}, {0, 2}, {40, 8}, {-1, 4}, {41, 4}, {3, 9}, {3, 1}};
    for (size_t k = 0; k < sizeof sizes / sizeof sizes[0]; ++k) {
        const int64_t N = sizes[k][0], n = N < 0 ? 0 : N, M = sizes[k][1];
        double *const x = array(ODD_ROWS_X_SIZE(n)), *const y = array(ODD_ROWS_Y_SIZE(n));
        double *const w = array(ODD_ROWS_W_SIZE(n)), *const z = array(ODD_ROWS_Z_SIZE(M));
        double *const rows = array(ODD_ROWS_RESULT_0_SIZE(n)), *const even = array(ODD_ROWS_RESULT_1_SIZE(n));
        double *const largest = array(ODD_ROWS_RESULT_2_SIZE);
        const odd_rows_args args = {
            .x = x, .y = y, .w = w, .z = z, .N = N, .M = M, .result_0 = rows, .result_1 = even, .result_2 = largest
        };
        const int error = odd_rows(&args, arena, &host);
        printf("%d %s\n", error, error == ST_OK ? "" : host.message);
        free(x), free(y), free(w), free(z), free(rows), free(even), free(largest);
    }
    odd_rows_arena_free(arena);
    return 0;
}
"""


def test_c_sets_the_sizes_and_allocates_by_macros(odd: Exported) -> None:
    (odd.folder / "caller.c").write_text(CALLER)
    compile_c(odd.folder, "caller.c", "odd_rows.c", "odd_rows_library.c", "-o", "caller.run", flags=STRICT)
    done = run(odd.folder, "caller.run")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "0 ",
        "0 ",
        "0 ",
        "4 dimension `N` is -1, it may be 0 to 40",
        "4 dimension `N` is 41, it may be 0 to 40",
        "4 dimension `M` is 9, it may be 0 to 8",
        "4 topk: there are no 2 elements along axis 0 of f64 (M,); M is 1",
    ]


def test_all_files_compile_without_warnings(odd: Exported, tmp_path: Path) -> None:
    compile_c(odd.folder, "-c", "main.c", "odd_rows_example.c", flags=STRICT)
    odd.program.export(tmp_path, target="c99")
    compile_c(tmp_path, "odd_rows.c", "odd_rows_example.c", "-o", "example", flags=STRICT.replace("c11", "c99"))
    done = run(tmp_path, "example")
    assert (done.returncode, done.stderr) == (0, "") and "| `N` | dimension N, 0 to 40 |" in (
        tmp_path / "README.md"
    ).read_text()


def test_memory_is_a_formula_with_a_bound() -> None:
    @st.function(dims={"x": ("N <= 40", 3)})
    def softmax_of_products(x: Any) -> Any:
        return st.softmax(x @ np.ones((3, 5)), axis=0) @ np.ones((5, 2))

    memory = softmax_of_products.stage(np.ones((4, 3))).memory
    (row, *_) = (row for row in memory.rows if row.formula)
    assert row.formula == "40 * N" and row.nbytes == 1600
    assert memory.bounds == "N <= 40" and "for N <= 40\n" in str(memory)
    ((device, formula),) = memory.formulas
    assert device == "" and "N" in formula and f"peak: {formula} bytes" in str(memory)
