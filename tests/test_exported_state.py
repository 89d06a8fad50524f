"""Exported folders have the state of their programs: each is built and run with nothing else, and compared with Python."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import staged as st
from staged import nn
from staged.base.artifact import ErrorKind
from staged.frontend.values import trees
from tests.exported import build, compile_c, flags_of, run
from tests.exported_programs import CASES, SOC, X


@pytest.mark.parametrize("name", CASES)
def test_an_exported_program_runs_on_its_files_alone_and_leaks_nothing(name: str, tmp_path: Path) -> None:
    function, arguments = CASES[name]()
    folder, out = tmp_path / "folder", tmp_path / "out"
    out.mkdir()
    program = function.stage(*arguments)
    program.export(folder, target="portable")
    entry = program._artifact.name
    build(entry, folder)
    done = run(folder, f"{entry}.run", *flags_of(program, tmp_path), "--out", str(out))
    assert (done.returncode, done.stderr) == (0, "")
    repeated = run(folder, "times.run", str(folder))
    assert (repeated.returncode, repeated.stderr) == (0, "")
    variables = program._traced.variables
    before = [variable.numpy() for variable in variables]
    leaves, _ = trees.flatten(program(*arguments))
    for path, leaf in zip(program._traced.function.result_paths, leaves, strict=True):
        np.testing.assert_allclose(np.load(out / f"{path}.npy"), leaf, rtol=1e-6, atol=1e-7, err_msg=path)
    kept = [
        variable.part or not np.array_equal(was, variable.numpy())
        for was, variable in zip(before, variables, strict=True)
    ]
    assert len(list(out.glob("*.npy"))) == len(leaves) + sum(map(bool, kept))  # what it only reads is not a result


def test_weights_have_the_names_of_the_state_dict_and_are_constant(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    captured = st.function(lambda x: model(x))
    passed = st.function(lambda net, x: net(x))
    for number, program in enumerate((captured.stage(X), passed.stage(model, X))):
        folder = tmp_path / str(number)
        program.export(folder, target="portable")
        held, state = st.load(folder / "weights.safetensors"), model.state_dict()
        assert held.keys() == state.keys()
        assert all(np.array_equal(held[name], state[name]) for name in state)
        header, text = (next(folder.glob(name)).read_text() for name in ("*_weights.h", "README.md"))
        header = next(path for path in folder.glob("*.h") if "_args;" in path.read_text()).read_text()
        assert "const float *linear0_weight;" in header and "variable  0.weight" in header
        assert "| `--0.weight` | f32 (8, 4), a .npy file (default: weights.safetensors) |" in text
        assert "| `0.weight.npy`" not in text and "`weights.safetensors` has the Variables" in text


def test_names_begin_with_the_model_if_there_are_several(tmp_path: Path) -> None:
    function, arguments = CASES["two_models"]()
    function.stage(*arguments).export(tmp_path)
    names = {f"{model}.0.{each}" for model in ("actor", "critic") for each in ("weight", "bias")}
    assert st.load(tmp_path / "weights.safetensors").keys() == names


def test_a_variable_of_several_modules_has_the_name_of_the_outermost(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2))
    first = model[0]
    st.function(lambda x: first(x) + model(x)[:, :1]).stage(X).export(tmp_path)
    assert st.load(tmp_path / "weights.safetensors").keys() == model.state_dict().keys()


def test_edited_files_are_not_overwritten(tmp_path: Path) -> None:
    scale = st.Variable(2.0, name="scale")
    program = st.function(lambda x: x * scale).stage(X)
    for _ in range(2):
        program.export(tmp_path)  # nothing has changed
    (tmp_path / "main.c").write_text("int main(void) { return 0; }")
    st.save(tmp_path / "weights.safetensors", {"scale": np.array(3.0, np.float32)})
    with pytest.raises(st.ArgumentError, match="changed: main.c, weights.safetensors") as caught:
        program.export(tmp_path)
    assert "overwrite=True" in str(caught.value)
    assert "return 0; }" in (tmp_path / "main.c").read_text()
    program.export(tmp_path, overwrite=True)
    assert st.load(tmp_path / "weights.safetensors")["scale"] == 2.0
    program.export(tmp_path)


def test_files_of_others_are_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "README.md").write_text("My project")
    with pytest.raises(st.ArgumentError, match="changed: README.md in"):
        st.function(lambda x: x * 2.0).stage(X).export(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


@pytest.mark.parametrize("target", ["portable", "x86-64-v3", "c99"])
def test_the_target_of_the_function_is_the_default_of_export(target: str, tmp_path: Path) -> None:
    st.function(lambda x: x * 2.0, target=target).stage(X).export(tmp_path)
    assert (
        f"target {target};" in next(path for path in tmp_path.glob("*.c") if "target" in path.read_text()).read_text()
    )
    assert not list(tmp_path.glob("*_dispatch.c"))
    text = (tmp_path / "README.md").read_text()
    st.function(lambda x: x * 2.0).stage(X).export(tmp_path / "other")
    assert "all processors" in (tmp_path / "other" / "README.md").read_text()
    assert f"target is `{target}`" in text or f"the target `{target}`" in text


# ---- the interface ------------------------------------------------------------------------------


@st.function
def fields(data: Any, count: Any) -> Any:
    weight = data["weight"] * count
    return {
        "speed": weight + 1.0,
        "angle": {"z": weight, "b": (data["bias"], 7, "text")},
        "Area": Pair(weight, weight * 2.0),
    }


class Pair(NamedTuple):
    second: Any
    first: Any


NULLS = """
#include <stdio.h>
#include "fields.h"
int main(void) {
    static float arrays[6][4];
    static st_host host;
    void *const arena = fields_arena_create();
    for (int left_out = 0; left_out < 8; ++left_out) {
        float *at[8];
        for (int i = 0; i < 8; ++i) {
            at[i] = i == left_out ? NULL : arrays[i % 6];
        }
        const fields_args args = {.data_bias = at[0], .data_weight = at[1], .count = 2.0f, .speed = at[2],
            .angle_z = at[3], .angle_b_0 = at[4], .Area_0 = at[5], .Area_1 = at[6]};
        const int status = fields(&args, arena, &host);
        printf("%d %s\\n", status, status == ST_OK ? "" : host.message);
    }
    fields_arena_free(arena);
    return 0;
}
"""
NAMES = "data_bias data_weight speed angle_z angle_b_0 Area_0 Area_1".split()


def test_results_of_a_dict_are_in_its_order_and_null_is_an_error(tmp_path: Path) -> None:
    given = {"weight": X[0], "bias": X[1]}
    fields.stage(given, np.float32(2.0)).export(tmp_path, target="portable")
    header, text = (tmp_path / "fields.h").read_text(), (tmp_path / "README.md").read_text()
    struct = header[header.index("typedef struct fields_args") :]
    found = re.findall(r"(\w+);  +// \(", struct)
    assert found == [*NAMES[:2], "count", *NAMES[2:]]
    assert "(those of a dict in its order)" in header and "(those of a dict in its order)" in text
    (tmp_path / "nulls.c").write_text(NULLS)
    compile_c(tmp_path, "nulls.c", "fields.c", "fields_library.c", "-o", "nulls")
    lines = run(tmp_path, "nulls").stdout.splitlines()
    assert lines == [*(f"{ErrorKind.VALUE_ERROR.value} `{name}` of the arguments is NULL" for name in NAMES), "0 "]


READ_RSS = """
#include <stdio.h>
#include "first.h"
int __real_first(const first_args *args, void *arena, st_host *host);
int __wrap_first(const first_args *args, void *arena, st_host *host) {
    const int status = __real_first(args, arena, host);
    FILE *const file = fopen("/proc/self/status", "r");
    char line[256];
    while (fgets(line, sizeof line, file) != NULL) {
        long bytes = 0;
        if (sscanf(line, "RssAnon: %ld kB", &bytes) == 1) {
            fprintf(stderr, "%ld", bytes);
        }
    }
    fclose(file);
    return status;
}
"""


def test_a_program_for_c99_has_its_arrays_in_c(tmp_path: Path) -> None:
    weight = st.Variable(np.array([1 + 2j, np.inf, -3j]), name="weight")
    flags, step = st.Variable(np.array([True, False, True]), name="flags"), st.Variable(1.0, name="step")

    @st.function
    def turned(x: Any) -> Any:
        step.value = step.value * 2.0
        return st.sum(st.where(flags, weight, 1.0).real * SOC[:3]) + x * step

    turned.stage(3.0).export(tmp_path, target="c99")
    done = subprocess.run(["make", "-s", "example"], cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    assert run(tmp_path, "turned_example").stdout == f"step[0] = 2\nresult[0] = {SOC[1]:g}\n"


def test_arrays_of_the_module_keep_their_names_and_are_defaults(tmp_path: Path) -> None:
    def charge(x: Any) -> Any:
        return x + SOC

    st.function(charge).stage(3.0).export(tmp_path)
    np.testing.assert_array_equal(np.load(tmp_path / "SOC.npy"), SOC)
    text, header = (tmp_path / "README.md").read_text(), (tmp_path / "charge_arrays.h").read_text()
    assert "| `--SOC` | f64 (4,), a .npy file (default: SOC.npy) |" in text and "`SOC.npy` has arrays" in text
    assert '"SOC.npy"' in header


def test_large_files_are_mapped(tmp_path: Path) -> None:
    size = 1 << 22  # 16 MiB
    table = st.Variable(np.zeros(size, np.float32), name="table")

    @st.function
    def first(x: Any) -> Any:
        return x[:4] + table[:4]

    x = np.zeros(size, np.float32)
    x[:4] = [1, 2, 3, 4]
    first.stage(x).export(tmp_path, target="portable")
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "rss.c").write_text(READ_RSS)
    texts = "main.c first.c first_library.c first_weights.c rss.c".split()
    done = subprocess.run(
        ["gcc", "-O0", "-Wl,--wrap=first", *texts, "-o", "first", "-lm"], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    done = run(tmp_path, "first", "--x", str(tmp_path / "x.npy"), "--out", str(tmp_path))
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), [1, 2, 3, 4])
    assert int(done.stderr) < 4096, "kB of anonymous memory"


# ---- other files ----------------------------------------------------------------------------------

WEIGHT, BIAS = np.arange(8, dtype=np.float32).reshape(2, 4), np.array([0.5, -0.5], np.float32)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A program with a layer, built."""
    model = nn.Linear(4, 2)

    @st.function
    def layer(x: Any) -> Any:
        return model(x)

    path = tmp_path_factory.mktemp("layer")
    layer.stage(X).export(path, target="portable")
    np.save(path / "x.npy", X)
    compile_c(path, "main.c", "layer.c", "layer_library.c", "layer_weights.c", "-o", "layer")
    return path


def result_of(folder: Path, *words: str) -> np.ndarray[Any, Any] | str:
    """The result with the file of weights as it is; what the program says if it stops."""
    done = run(folder, "layer", "--x", str(folder / "x.npy"), "--out", str(folder), *words)
    return np.load(folder / "result.npy") if done.returncode == 0 else done.stderr


def safetensors_text(header: str, data: bytes) -> bytes:
    return len(header.encode()).to_bytes(8, "little") + header.encode() + data


ROWS = '"weight":{"dtype":"F32","shape":[2,4],"data_offsets":[0,32]},"bias":{"dtype":"F32","shape":[2],"data_offsets":[32,40]}'
DATA = WEIGHT.tobytes() + BIAS.tobytes()


def test_other_weights_may_replace_the_file_and_one_array_its_flag(folder: Path) -> None:
    st.save(folder / "weights.safetensors", {"weight": WEIGHT, "bias": BIAS, "more": np.ones(3)})
    np.testing.assert_allclose(result_of(folder), X @ WEIGHT.T + BIAS, rtol=1e-5)
    np.save(folder / "other.npy", BIAS + 1)
    np.testing.assert_allclose(
        result_of(folder, "--bias", str(folder / "other.npy")), X @ WEIGHT.T + BIAS + 1, rtol=1e-5
    )


@pytest.mark.parametrize(
    "header",
    [
        f'{{"__metadata__":{{"format":"pt","x":"\\"\\u00e9\\ud83d\\ude00"}},{ROWS}}}',
        f" {{ {ROWS} }}\n  ",
        f"{{{ROWS}}}" + " " * (-len(ROWS) - 2 + 3),  # not aligned
        "{" + ROWS.replace('"weight"', '"\\u0077eight"') + "}",
        '{"bias":{"shape":[2],"data_offsets":[32,40],"dtype":"F32"},"weight":{"data_offsets":[0,32],"dtype":"F32","shape":[2,4]}}',
    ],
)
def test_files_of_other_writers_are_read(folder: Path, header: str) -> None:
    (folder / "weights.safetensors").write_bytes(safetensors_text(header, DATA))
    np.testing.assert_allclose(result_of(folder), X @ WEIGHT.T + BIAS, rtol=1e-5)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "weights.safetensors: cannot be opened"),
        (b"", "is not a safetensors file"),
        (b"\xff" * 8, "is not a safetensors file, or it is cut off"),
        (safetensors_text("[]", DATA), "header is damaged"),
        (safetensors_text("{" + ROWS, DATA), "header is damaged"),
        (safetensors_text("{" + ROWS.replace('"F32"', '"F32', 1) + "}", DATA), "header is damaged"),
        (safetensors_text("{" + ROWS.replace("weight", "\\x") + "}", DATA), "header is damaged"),
        (safetensors_text("{" + ROWS.replace("weight", "\\ud800") + "}", DATA), "header is damaged"),
        (safetensors_text("{" + ROWS.replace("[0,32]", "[0,32,1]") + "}", DATA), "header is damaged"),
        (safetensors_text("{" + ROWS.replace("weight", "w") + "}", DATA), "does not have `weight`"),
        (safetensors_text("{" + ROWS.replace("F32", "F16", 1) + "}", DATA), "`weight` must be F32, the file has F16"),
        (safetensors_text("{" + ROWS.replace("[2,4]", "[4,2]") + "}", DATA), "`weight` has another shape"),
        (safetensors_text("{" + ROWS.replace("[0,32]", "[8,32]") + "}", DATA), "the offsets of `weight` are wrong"),
        (safetensors_text("{" + ROWS + "}", DATA[:-1]), "is cut off, or the offsets of `bias` are wrong"),
    ],
)
def test_damaged_files_are_named(folder: Path, content: bytes | None, message: str) -> None:
    path = folder / "weights.safetensors"
    path.unlink(missing_ok=True)
    if content is not None:
        path.write_bytes(content)
    assert message in str(result_of(folder))
