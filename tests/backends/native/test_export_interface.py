"""The exported folder as a library: built from a clean folder, called from C, C++, Python, on every kind of processor."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.host.standalone.library import guard
from staged.base.artifact import Artifact
from tests.runtime.test_compiler import LOOPS

STRICT = "-std=c11 -O1 -ffp-contract=off -Wall -Wextra -Wpedantic -Wconversion -Werror"
X = np.linspace(-1.0, 1.0, 48, dtype=np.float32).reshape(6, 8)
PARAMS = {"weight": np.linspace(0.0, 1.0, 32, dtype=np.float32).reshape(8, 4), "bias": np.ones(4, np.float32)}
OUTSIDE = np.full((6, 4), 0.25, np.float32)


@st.function
def controller(params: Any, x: Any, rate: Any) -> Any:
    system = np.array([[1.0, 2.0, 3.0, 4.0], [0.0, np.inf, -1.0, 0.5]], np.float32)
    table = np.linspace(0.0, 1.0, 96, dtype=np.float32).reshape(24, 4) ** 2
    scale = np.array(3.0, np.float32)
    h = st.tanh(x @ params["weight"] + params["bias"]) * OUTSIDE
    loss = st.sum(h * table[:6]) * rate + system[0, 3] * scale
    return loss, {"weight": params["weight"] * rate, "bias": params["bias"] + st.sum(table) + system[1]}


ARGUMENTS = (PARAMS, X, 0.5)


def build(folder: Path, *words: str) -> str:
    done = subprocess.run(["make", "-s", *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("controller")
    controller.stage(*ARGUMENTS).export(path)
    build(path, f"CFLAGS={STRICT}", "controller", "lib", "example")
    return path


def test_variants_share_the_functions_that_do_not_depend_on_vectors(folder: Path) -> None:
    common = (folder / "controller_common.h").read_text()
    own = [(folder / f"controller{suffix}_support.h").read_text() for suffix in ("", "_v3", "_v4")]
    assert common.count("static int st_fail(") == 1 and "ST_VECTOR_BYTES ==" not in common
    assert all("st_fail(st_host" not in text and '#include "controller_common.h"' in text for text in own)
    assert "st_exp_f32v(" in own[0] and "st_exp_f32v(" not in common


def call(library: ctypes.CDLL) -> dict[str, np.ndarray]:
    """A call by ctypes, with what the header says: the fields in its order, sizes from functions."""
    arrays = {
        "params_bias": PARAMS["bias"], "params_weight": PARAMS["weight"], "x": X, "rate": 0.5, "OUTSIDE_": OUTSIDE,
        "loss": np.zeros((), np.float32), "result_1_weight": np.zeros((8, 4), np.float32), "result_1_bias": np.zeros(4, np.float32),
    }  # fmt: skip
    fields = [(name, ctypes.c_double if name == "rate" else ctypes.c_void_p) for name in arrays]
    args = type("Args", (ctypes.Structure,), {"_fields_": fields})()
    for name, array in arrays.items():
        setattr(args, name, array if name == "rate" else array.ctypes.data)
    for name in ("host_bytes", "args_bytes", "arena_bytes", "arena_create"):
        getattr(library, f"controller_{name}").restype = ctypes.c_size_t
    assert library.controller_args_bytes() == ctypes.sizeof(args)
    host = ctypes.create_string_buffer(library.controller_host_bytes())
    arena, *more = (library.controller_arena_create() for _ in range(20))
    assert all(each and each % 64 == 0 for each in (arena, *more))
    assert library.controller(ctypes.byref(args), ctypes.c_void_p(arena), host) == 0
    for each in (arena, *more, None):
        library.controller_arena_free(ctypes.c_void_p(each))
    return arrays


def expected() -> tuple[Any, Any]:
    with st.eager():
        return controller(*ARGUMENTS)


def test_arrays_made_in_the_function_are_constants_and_closed_over_ones_are_inputs_by_name(folder: Path) -> None:
    header, source = (folder / "controller.h").read_text(), (folder / "controller.c").read_text()
    assert "system" not in header and "table" not in header and "hidden" not in header and "scale" not in header
    assert re.search(r"const float \*OUTSIDE_; +// \(6, 4\)  input  OUTSIDE", header)
    assert "static const float controller_system_part[4]" in source
    assert "extern const float controller_table[96];" in source
    np.testing.assert_array_equal(np.load(folder / "OUTSIDE.npy"), OUTSIDE)
    assert sorted(path.name for path in folder.glob("*.npy")) == ["OUTSIDE.npy"]


def test_the_program_runs_alone_and_writes_results_under_their_names(folder: Path) -> None:
    for name, array in (("bias", PARAMS["bias"]), ("weight", PARAMS["weight"]), ("x", X)):
        np.save(folder / f"{name}.npy", array)
    flags = (
        "--params.bias bias.npy --params.weight weight.npy --x x.npy --rate 0.5 --OUTSIDE OUTSIDE.npy --out .".split()
    )
    done = subprocess.run(["./controller", *flags], cwd=folder, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    loss, params = expected()
    np.testing.assert_allclose(np.load(folder / "loss.npy"), loss, rtol=1e-6)
    np.testing.assert_allclose(np.load(folder / "result.1.weight.npy"), params["weight"], rtol=1e-6)
    for path in folder.glob("*.npy"):
        if path.name != "OUTSIDE.npy":
            path.unlink()


def test_the_shared_library_is_called_from_python(folder: Path) -> None:
    made = call(ctypes.CDLL(str(folder / "libcontroller.so")))
    loss, params = expected()
    np.testing.assert_allclose(made["loss"], loss, rtol=1e-6)
    np.testing.assert_allclose(made["result_1_bias"], params["bias"], rtol=1e-6)
    np.testing.assert_allclose(made["result_1_weight"], params["weight"], rtol=1e-6)


def test_the_examples_run_as_they_are_in_c_in_cpp_and_in_python(folder: Path) -> None:
    flags = (
        "-Wall -Wextra -Wpedantic -Werror -std=c++17 -x c++ controller_example.c -x none libcontroller.a -lm -pthread"
    )
    subprocess.run(["c++", *flags.split(), "-o", "from_cpp"], cwd=folder, check=True)
    commands = (["./controller_example"], ["./from_cpp"], [sys.executable, "controller_example.py"])
    said = [
        subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout for command in commands
    ]
    with st.eager():
        zeros = {name: np.zeros_like(array) for name, array in PARAMS.items()}
        loss, params = controller(zeros, np.zeros_like(X), 0.0)
    assert said[0] == f"loss[0] = {loss:g}\nresult_1_weight[0] = 0\nresult_1_bias[0] = {params['bias'][0]:g}\n"
    assert said[1] == said[0] and said[2] == said[0]


CALLER = r"""
#include <stdio.h>
#include <string.h>
#include "controller.h"
_Static_assert(CONTROLLER_X_SIZE == 48 && CONTROLLER_PARAMS_WEIGHT_SIZE == 32 && CONTROLLER_LOSS_SIZE == 1, "sizes");
CONTROLLER_STATIC_ARENA(arena);
int main(void) {
    static float weight[CONTROLLER_PARAMS_WEIGHT_SIZE], bias[CONTROLLER_PARAMS_BIAS_SIZE], x[CONTROLLER_X_SIZE];
    static float outside[CONTROLLER_OUTSIDE_SIZE], loss, new_weight[32], new_bias[4];
    const controller_params params = {.params_bias = bias, .params_weight = weight};
    const controller_result result = {.result_1_bias = new_bias, .result_1_weight = new_weight};
    controller_args args = {.x = x, .rate = 2.0, .OUTSIDE_ = outside, .loss = &loss};
    args.params = params;
    args.result = result;
    for (int i = 0; i < 32; ++i) weight[i] = (float)i;
    st_host host = {0};
    if ((size_t)arena % 64 != 0 || controller(&args, arena, &host) != ST_OK) return 1;
    printf("%g %g\n", (double)new_weight[31], (double)loss);
    return 0;
}
"""


def test_parameters_are_a_struct_and_sizes_are_macros(folder: Path) -> None:
    (folder / "caller.c").write_text(CALLER)
    flags = f"{STRICT} caller.c libcontroller.a -lm -pthread -o caller"
    subprocess.run(["cc", *flags.split()], cwd=folder, check=True)
    assert subprocess.run(["./caller"], cwd=folder, capture_output=True, text=True).stdout == "62 12\n"


def test_the_texts_for_every_processor_agree(folder: Path) -> None:
    """Each is built alone, as the choice would take it; those that this machine cannot run are only built."""
    can = {1: True, 3: "avx2" in _cpu(), 4: "avx512dq" in _cpu()}
    loss, params = expected()
    build(folder, f"CFLAGS={STRICT}", "lib")
    for level, runs in can.items():
        library = f"level{level}.so"
        flags = f"{STRICT} -fPIC -shared -DCONTROLLER_LEVEL={level} controller_dispatch.c controller_library.o controller_data.o"
        objects = "controller_v3.o controller_v4.o"
        subprocess.run(
            ["cc", *flags.split(), *objects.split(), "-o", library, "-lm", "-pthread"], cwd=folder, check=True
        )
        if runs:
            made = call(ctypes.CDLL(str(folder / library)))
            np.testing.assert_allclose(made["loss"], loss, rtol=1e-6)
            np.testing.assert_allclose(made["result_1_bias"], params["bias"], rtol=1e-6)


def _cpu() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    return cpuinfo.read_text() if cpuinfo.exists() else ""


def test_the_program_alone_is_one_file_for_any_processor(folder: Path) -> None:
    flags = f"{STRICT} -fPIC -shared controller.c controller_library.c controller_data.c -o alone.so -lm -pthread"
    subprocess.run(["cc", *flags.split()], cwd=folder, check=True)
    np.testing.assert_allclose(call(ctypes.CDLL(str(folder / "alone.so")))["loss"], expected()[0], rtol=1e-6)


@pytest.mark.parametrize("flag", ["-Ofast", "-ffast-math", "-ffinite-math-only"])
def test_flags_that_change_numbers_are_refused_with_words(folder: Path, flag: str) -> None:
    done = subprocess.run(["cc", flag, "-c", "controller.c", "-o", "no.o"], cwd=folder, capture_output=True, text=True)
    assert done.returncode != 0 and "a NaN would go unseen" in done.stderr.replace("NaN would", "a NaN would"), (
        done.stderr
    )


def test_the_text_itself_keeps_gcc_from_its_vectorisers(tmp_path: Path) -> None:
    """The program of `test_compiler.py` that gcc 12.2 gets wrong at -O3, with what stands above every exported text alone."""
    (tmp_path / "loops.c").write_text(guard(Artifact("loops", "", "", (), 0)) + LOOPS)
    expected = [0.0] * 3 + [i * (128 + i - 3) * 0.25 for i in range(3, 9)] + [0.0] * 3 + [190.0]
    for level in ("-O2", "-O3"):
        subprocess.run(["cc", level, "-march=native", "loops.c", "-o", "loops"], cwd=tmp_path, check=True)
        printed = subprocess.run(["./loops"], cwd=tmp_path, check=True, capture_output=True, text=True).stdout
        assert [float(word) for word in printed.split()] == expected, level


@st.function
def parallel(x: Any) -> Any:
    return st.sum(st.exp(x) * 2.0, axis=1)


def test_an_exported_program_has_threads_and_every_count_gives_the_same_bits(tmp_path: Path) -> None:
    x = np.linspace(0.0, 1.0, 400 * 1000, dtype=np.float32).reshape(400, 1000)
    parallel.stage(x).export(tmp_path)
    build(tmp_path, f"CFLAGS={STRICT}")
    np.save(tmp_path / "x.npy", x)
    found = []
    for threads in ([], ["--threads", "1"], ["--threads", "3"]):
        done = subprocess.run(
            ["./parallel", "--x", "x.npy", "--out", ".", *threads], cwd=tmp_path, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        found.append(np.load(tmp_path / "result.npy"))
    assert (
        "(default one per core)"
        in subprocess.run(["./parallel", "--help"], cwd=tmp_path, capture_output=True, text=True).stdout
    )
    np.testing.assert_allclose(found[0], np.exp(x).sum(axis=1) * 2.0, rtol=1e-5)
    assert found[0].tobytes() == found[1].tobytes() == found[2].tobytes()
    for words, message in (
        (["--threads", "0"], "--threads: 0 is not between 1"),
        (["--threads", "x"], "expected an integer"),
    ):
        done = subprocess.run(["./parallel", "--x", "x.npy", *words], cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 2 and message in done.stderr


@st.function
def between(a: Any, b: Any) -> Any:
    return a @ b


def test_a_program_worth_threads_on_some_machines_alone_has_teams_for_all(tmp_path: Path) -> None:
    a, b = np.ones((48, 300), np.float32), np.ones((300, 32), np.float32)
    between.stage(a, b).export(tmp_path)
    shares = {path.name: "ST_SHARE(host->team" in path.read_text() for path in tmp_path.glob("between*.c")}
    assert shares["between_v4.c"] and not shares["between.c"]
    build(tmp_path, f"CFLAGS={STRICT}", "between", "lib", "example")
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    subprocess.run("./between --a a.npy --b b.npy --threads 2 --out .".split(), cwd=tmp_path, check=True)
    assert np.array_equal(np.load(tmp_path / "result.npy"), a @ b)


def test_an_array_that_is_held_elsewhere_too_stays_an_input(tmp_path: Path) -> None:
    kept: list[Any] = []

    def remember(array: Any) -> Any:
        kept.append(array)
        return array

    shared = remember(np.ones((10, 10), np.float32))

    @st.function
    def f(x: Any) -> Any:
        part = shared[:5]
        return x + st.sum(part) + st.sum(np.ones((9, 9), np.float32))

    f.stage(1.0).export(tmp_path, target="portable")
    fields = [path.name for path in tmp_path.glob("*.npy")]
    assert fields == ["part.npy"]
    assert not os.path.exists(tmp_path / "f_dispatch.c")
