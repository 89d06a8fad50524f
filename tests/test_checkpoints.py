"""`st.save` and `st.load`: files of the safetensors format, from programs, eager mode, regions and exports."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged import GPU, nn, optim, with_backend
from staged.errors import ProgramFileError
from staged.frontend.calls.arguments import flatten_arguments
from staged.ir.types import ALL_DTYPES
from staged.random import Generator
from tests.sanitized import run_sanitized

X = np.arange(12, dtype=np.float32).reshape(4, 3)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def the_library() -> Any:
    """The library of the format, which tests compare with where it is installed."""
    return pytest.importorskip("safetensors.numpy", reason="the library `safetensors` is not installed")


def everywhere(f: Any, *args: Any) -> dict[str, bytes]:
    """The files that a program writes; eager mode and a program under sanitizers write the same."""
    found = []
    for run in (lambda: f(*args), lambda: _eagerly(f, *args), lambda: _sanitized(f, *args)):
        run()
        found.append({path.name: path.read_bytes() for path in sorted(Path().iterdir()) if path.is_file()})
        for path in Path().iterdir():
            path.unlink()
    assert found[0] == found[1], "eager mode writes other bytes"
    assert found[0] == found[2], "at -O0 under sanitizers the program writes other bytes"
    return found[0]


def _eagerly(f: Any, *args: Any) -> None:
    with st.eager():
        f(*args)


def _sanitized(f: Any, *args: Any) -> None:
    program = f.stage(*args)
    values = [argument.value for argument in flatten_arguments(f.__wrapped__, args, {}).staged]
    buffers = [variable.numpy() for variable in program._traced.variables]
    (outcome,) = run_sanitized(program._artifact, [([*values, *program._traced.hidden], buffers)])
    assert outcome.error is None


# ---- the bytes of a file ----


@st.function
def in_a_loop(x: Any, n: Any) -> Any:
    for step in st.range(n):
        x = x * 0.5
        if step % 2 == 1:
            st.save(f"step-{step:02d}-{x.sum():.1f}.safetensors", {"x": x, "half": x[:2]})
    st.save("last.safetensors", {"x": x})
    return x


def test_paths_and_values_are_those_of_the_program_at_that_line() -> None:
    files = everywhere(in_a_loop, X, 5)
    assert list(files) == ["last.safetensors", "step-01-16.5.safetensors", "step-03-4.1.safetensors"]
    library = the_library()
    for name, steps in (("last.safetensors", 5), ("step-03-4.1.safetensors", 4)):
        read = library.load(files[name])
        np.testing.assert_array_equal(read["x"], X * np.float32(0.5**steps))
        assert files[name] == library.save(read), "the library writes other bytes"


def test_every_dtype_and_shape_is_as_the_library_writes_it(folder: Path) -> None:
    library = the_library()
    rng = np.random.default_rng(0)
    tree = {}
    for dtype in ALL_DTYPES:
        for shape in ((), (3,), (0, 2), (2, 1, 3)):
            values = rng.integers(0, 2 if dtype.is_bool else 100, size=shape)
            tree[f"{dtype}.{len(shape)}"] = np.asarray(values).astype(dtype.numpy)

    @st.function
    def f(tree: Any) -> Any:
        st.save("all.safetensors", tree)
        return 0

    (data,) = everywhere(f, tree).values()
    assert data == library.save(tree)
    (folder / "other").write_bytes(data)
    for read in (st.load("other"), library.load(data)):
        assert read.keys() == tree.keys()
        for name, values in tree.items():
            assert read[name].dtype == values.dtype
            np.testing.assert_array_equal(read[name], values)
        read["f32.1"][0] = 7  # it belongs to the caller


def test_names_are_quoted_as_json() -> None:
    library = the_library()
    names = ['a "quote"', "back\\slash", "täb\tnew\n", "日本", "%s %d", "/* ??/ */"]

    @st.function
    def f(x: Any) -> Any:
        st.save("names", {name: x + index for index, name in enumerate(names)})
        return x

    (data,) = everywhere(f, X).values()
    assert data == library.save({name: X + np.float32(index) for index, name in enumerate(names)})


def test_an_empty_tree_is_a_file_without_arrays() -> None:
    @st.function
    def f(x: Any) -> Any:
        st.save("empty", {})
        return x

    (data,) = everywhere(f, X).values()
    Path("empty").write_bytes(data)
    assert st.load("empty") == {}
    assert data[8:].rstrip() == b'{"__metadata__":{"staged.tree": "{\\"dict\\":[]}"}}'


# ---- trees ----


def test_a_training_goes_on_from_its_checkpoint_to_the_bit() -> None:
    def make() -> tuple[Any, Any, Any]:
        st.seed(3)
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 1))
        return model, optim.AdamW(model.parameters(), lr=0.05), Generator(5)

    @st.function
    def train(model: Any, opt: Any, rng: Any, x: Any, first: Any, last: Any) -> Any:
        loss = 0.0
        for step in st.range(first, last):
            noise = rng.normal(x.shape)
            loss, grads = st.value_and_grad(lambda noise=noise: st.mean((model(x + noise) - 1.0) ** 2), wrt=model)()
            opt.step(grads)
            if step % 4 == 3:
                st.save(f"{step}.safetensors", {"model": model, "opt": opt, "rng": rng, "step": step, "of": "test"})
        return loss

    model, opt, rng = make()
    expected = train(model, opt, rng, X, 0, 12)
    saved = {name: np.array(value) for name, value in model.state_dict().items()}
    again, opt_again, rng_again = make()
    state = st.load("3.safetensors")
    assert state["step"] == 3 and type(state["step"]) is int and state["of"] == "test"
    assert state["opt"]["param_groups"][0]["params"] == [0, 1, 2, 3, 4, 5]
    assert state["opt"]["param_groups"][0]["amsgrad"] is False
    again.load_state_dict(state["model"])
    opt_again.load_state_dict(state["opt"])
    rng_again.load_state_dict(state["rng"])
    assert train(again, opt_again, rng_again, X, state["step"] + 1, 12) == expected
    for name, value in again.state_dict().items():
        np.testing.assert_array_equal(value, saved[name])


def test_names_in_the_file_are_torch_s() -> None:
    library = the_library()
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))

    @st.function
    def f(model: Any) -> Any:
        st.save("model.safetensors", model)
        return 0

    f(model)
    read = library.load_file("model.safetensors")
    assert set(read) == set(model.state_dict())
    assert "1.num_batches_tracked" in read and "0.weight" in read
    assert st.load("model.safetensors").keys() == read.keys()


def test_a_tree_comes_back_as_it_was() -> None:
    tree = {
        "list": [np.float32(1.5), X, None, "text"],
        7: (1, 2.5, True, [1, 2, 3], (0.1, 0.2), [], (), [True]),
        "variable": st.Variable(X * 2, name="v"),
        "f64": 0.1,
    }

    @st.function
    def f(tree: Any, n: Any) -> Any:
        st.save("tree", {**tree, "staged": n, "both": [n, 1], "mixed": [n, 0.5]})
        return n

    files = everywhere(f, tree, 3)
    Path("tree").write_bytes(files["tree"])
    read = st.load("tree")
    assert list(read) == ["list", 7, "variable", "f64", "staged", "both", "mixed"]
    assert read[7] == (1, 2.5, True, [1, 2, 3], (0.1, 0.2), [], (), [True]) and read["f64"] == 0.1
    assert [type(value) for value in read[7][:3]] == [int, float, bool]
    assert read["staged"] == 3 and read["both"] == [3, 1] and read["mixed"] == [3, 0.5]
    assert read["list"][2:] == [None, "text"] and read["list"][0].dtype == np.float32
    np.testing.assert_array_equal(read["list"][1], X)
    np.testing.assert_array_equal(read["variable"], X * 2)
    assert "tree" in the_library().load(files["tree"]) or "list.1" in the_library().load(files["tree"])


# ---- where it runs ----


def test_plain_python_saves_too() -> None:
    st.save("plain.safetensors", {"x": X, "n": np.int8(3)})
    read = st.load("plain.safetensors")
    np.testing.assert_array_equal(read["x"], X)
    assert read["n"].dtype == np.int8 and read["n"] == 3


@pytest.mark.parametrize("dtype", [st.f16, st.bf16], ids=str)
def test_plain_python_saves_halves(dtype: Any, folder: Path) -> None:
    half = st.Variable(st.asarray([0.5, -2.0, 1e-3], dtype=dtype))
    st.save("half.safetensors", {"half": half})
    found = st.load("half.safetensors")["half"]
    assert found.dtype == dtype.numpy and found.tobytes() == half.numpy().tobytes()


def test_a_derivative_saves_once() -> None:
    def loss(x: Any) -> Any:
        y = x * x
        st.save(f"{x.sum():.0f}", {"y": y})
        return y.sum()

    @st.function
    def f(x: Any) -> Any:
        return st.grad(loss)(x)

    for run in (lambda: f(X), lambda: st.grad(loss)(X)):
        np.testing.assert_array_equal(run(), 2 * X)
        (file,) = Path().iterdir()
        np.testing.assert_array_equal(st.load(file)["y"], X * X)
        file.unlink()


def test_only_what_is_saved_leaves_a_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGED_CUDA", "emulate")

    @st.function
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            for step in st.range(n):
                x = x * 0.5
                y = st.exp(x)
                if step == 2:
                    st.save(f"{step}", {"x": x, "sum": x.sum(), "step": step})
                x = x + 0.0 * y
        return x

    f(X, 4)
    read = st.load("2")
    np.testing.assert_array_equal(read["x"], X / 8)
    assert read["sum"] == np.float32(X.sum() / 8) and read["step"] == 2
    copies = [(copy.what, copy.why) for copy in f.stage(X, 4).transfers() if copy.source != st.CPU]
    assert sorted(copies) == [("x", "result"), ("x", "save"), ("x.sum()", "save")]


def test_an_exported_program_saves_without_python(folder: Path) -> None:
    in_a_loop.stage(X, 5).export("program")
    np.save("program/x.npy", X)
    subprocess.run(["make", "-s", "-C", "program"], check=True)
    command = ["./in_a_loop", "--x", "x.npy", "--n", "5", "--out", "."]
    subprocess.run(command, cwd="program", check=True, capture_output=True)
    in_a_loop(X, 5)
    for name in ("last.safetensors", "step-01-16.5.safetensors"):
        assert (folder / "program" / name).read_bytes() == (folder / name).read_bytes()
    # There is room for a part of the file only: it does not appear, and nothing is left beside it.
    (folder / "program" / "step-01-16.5.safetensors").write_text("the one before")
    before = {path.name: path.read_bytes() for path in Path("program").iterdir()}
    limited = f"trap '' XFSZ; ulimit -f 0; {' '.join(command)}"
    failed = subprocess.run(["sh", "-c", limited], cwd="program", capture_output=True, text=True)
    assert failed.returncode != 0
    assert 'cannot save "step-01-16.5.safetensors": File too large' in failed.stderr
    assert re.search(r"test_checkpoints.py, line \d+, in in_a_loop", failed.stderr)
    assert {path.name: path.read_bytes() for path in Path("program").iterdir()} == before


# ---- what is refused ----


def test_a_file_that_cannot_be_written_stops_the_program_at_the_line() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        st.save(f"no/such/folder-{n}", {"x": x})
        return x

    for run in (lambda: f(X, 1), lambda: _eagerly(f, X, 1)):
        with pytest.raises(ProgramFileError, match="cannot save .no/such/folder-1.: No such file") as caught:
            run()
        assert isinstance(caught.value, OSError)
        assert 'st.save(f"no/such/folder-{n}", {"x": x})' in str(caught.value)

    @st.function
    def long(x: Any) -> Any:
        st.save("x" * 2000, {"x": x})
        return x

    with pytest.raises(ProgramFileError, match="too long"):
        long(X)


def test_a_file_takes_the_place_of_no_device_or_pipe() -> None:
    os.mkfifo("pipe")
    os.symlink("pipe", "link")

    @st.function
    def f(x: Any, at: Any) -> Any:
        st.save(at, {"x": x})
        return x

    for path in ("pipe", "link"):
        for run in (lambda: f(X, path), lambda: _eagerly(f, X, path)):  # noqa: B023
            with pytest.raises(ProgramFileError, match=f'cannot save "{path}": a device or pipe has that name'):
                run()
    assert Path("pipe").is_fifo()
    assert sorted(os.listdir()) == ["link", "pipe"]


def test_a_path_with_a_zero_character_is_not_cut_there() -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        st.save(f"step-{n}\0.safetensors", {"x": x})
        return x

    for run in (lambda: f(X, 1), lambda: _eagerly(f, X, 1)):
        with pytest.raises(st.ArgumentError, match="the path of a file has a zero character") as caught:
            run()
        assert "st.save(f" in str(caught.value)
    assert os.listdir() == []


@pytest.mark.parametrize("is_eager", [False, True])
def test_threads_that_save_to_one_path_each_write_a_whole_file(is_eager: bool, folder: Path) -> None:
    @st.function
    def f(x: Any, value: Any) -> Any:
        st.save("shared", {f"x{number}": x + value for number in range(3)})
        return x

    x = np.zeros((200_000,), np.float32)
    f(x, 1.0)

    def save(value: float) -> None:
        for _ in range(4):
            _eagerly(f, x, value) if is_eager else f(x, value)
            found = {array[place] for array in st.load("shared").values() for place in (0, -1)}
            assert len(found) == 1, "one file has the values of two calls"

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(save, [1.0, 2.0, 3.0, 4.0]))
    assert os.listdir() == ["shared"]


def test_a_temporary_file_of_another_machine_stays(folder: Path) -> None:
    """Two machines with one folder may have equal process ids."""

    @st.function
    def f(x: Any) -> Any:
        st.save("file", {"x": x})
        return x

    other = folder / f"file.{os.getpid()}-0.tmp"
    other.write_bytes(b"theirs")
    for run in (lambda: f(X), lambda: _eagerly(f, X)):
        run()
        np.testing.assert_array_equal(st.load("file")["x"], X)
        assert other.read_bytes() == b"theirs"
        assert sorted(os.listdir()) == ["file", other.name]


def test_an_array_with_more_axes_than_a_file_of_the_program_has_room_for() -> None:
    @st.function
    def f(x: Any) -> Any:
        st.save("file", {"x": x})
        return x

    @st.function
    def g(x: Any) -> Any:
        st.save("file", {"x": x.reshape((1,) * 33)})
        return x

    most = np.arange(2, dtype=np.float32).reshape(2, *[1] * 31)
    (data,) = everywhere(f, most).values()
    Path("file").write_bytes(data)
    np.testing.assert_array_equal(st.load("file")["x"], most)
    eager = [lambda x: _eagerly(g, x)] if np.lib.NumpyVersion(np.__version__) >= "2.0.0" else []  # before: 32 axes
    for run in (g, *eager):
        with pytest.raises(st.ArgumentError, match="at most 32 axes, `x` has 33") as caught:
            run(X[:1, :1])
        assert 'st.save("file", {"x": x.reshape((1,) * 33)})' in str(caught.value)


@pytest.mark.parametrize("what", ["path", "name"])
def test_half_of_a_surrogate_pair_leaves_no_file(what: str) -> None:
    path, name = ("fi\ud800le", "x") if what == "path" else ("file", "x\ud800")

    @st.function
    def f(x: Any) -> Any:
        st.save(path, {name: x})
        return x

    for run in (lambda: f(X), lambda: _eagerly(f, X)):
        with pytest.raises(st.ArgumentError, match="text must be valid Unicode") as caught:
            run()
        assert "st.save(path, {name: x})" in str(caught.value)
    assert os.listdir() == []


@pytest.mark.parametrize("path", ["a\0b", "a\ud800b"])
def test_a_path_that_no_file_has_cannot_be_read(path: str) -> None:
    with pytest.raises(st.DataError, match="cannot read"):
        st.load(path)


def test_a_try_that_waits_for_its_error_is_refused_as_that_of_open_is() -> None:
    @st.function
    def f(x: Any) -> Any:
        try:
            st.save("no/such/folder", {"x": x})
        except OSError:
            return x
        return x + 1

    with pytest.raises(st.StagingError, match="may stop the program with an OSError") as caught:
        f(X)
    assert 'st.save("no/such/folder", {"x": x})' in str(caught.value)


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ({"a": {"b": X}, "a.b": X}, "two arrays of the file would be called `a.b`"),
        ({"__metadata__": X}, "keeps the name `__metadata__`"),
        ({"a": object()}, "`st.save` takes arrays, .*, a is object"),
        ({1.5: X}, "keys are texts or integers, the tree has 1.5"),
    ],
)
def test_trees_that_are_no_files(tree: Any, words: str) -> None:
    def f(x: Any) -> Any:
        st.save("file", tree)
        return x

    for run in (lambda: st.function(f)(X), lambda: f(X)):
        with pytest.raises(st.ArgumentError, match=words) as caught:
            run()
        assert 'st.save("file", tree)' in str(caught.value)


def test_complex_numbers_are_refused_with_the_line() -> None:
    @st.function
    def f(z: Any) -> Any:
        st.save("z", {"z": z})
        return z

    for run in (lambda: f(X + 1j), lambda: _eagerly(f, X + 1j)):
        with pytest.raises(st.DTypeError, match="takes real numbers") as caught:
            run()
        assert 'st.save("z", {"z": z})' in str(caught.value)


def test_it_is_refused_under_vmap_with_the_line() -> None:
    @st.function
    def f(x: Any) -> Any:
        def row(r: Any) -> Any:
            st.save("row", {"r": r})
            return r

        return st.vmap(row)(x)

    with pytest.raises(st.StagingError, match="`st.save` inside") as caught:
        f(X)
    assert 'st.save("row", {"r": r})' in str(caught.value)


def test_load_is_refused_in_staged_code() -> None:
    @st.function
    def f(x: Any) -> Any:
        return x + st.load("x")["x"]

    for run in (lambda: f(X), lambda: _eagerly(f, X)):
        with pytest.raises(st.StagingError, match=r"`st.load` cannot be staged"):
            run()


def _file(header: Any, rest: bytes = b"") -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + rest


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"abc", "cut off"),
        (b"\xff" * 20, "cut off"),
        (_file([1]), "not an object"),
        (_file(b"{]"), "Expecting"),
        (_file(b"[" * 100_000), "maximum recursion depth"),
        (_file({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}, b"1234"), "`x` is not where"),
        (_file({"x": {"dtype": "F32", "shape": [2], "data_offsets": [0, 4]}}, b"1234"), "`x` is not where"),
        (_file({"x": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, b"12345678"), "4 bytes belong to no"),
        (_file({"x": {"dtype": "F8_E4M3", "shape": [4], "data_offsets": [0, 4]}}, b"1234"), "the dtype F8_E4M3"),
        (_file({"x": {"shape": [4], "data_offsets": [0, 4]}}, b"1234"), "dtype"),
    ],
)
def test_files_that_are_damaged_are_refused(data: bytes, words: str) -> None:
    Path("damaged").write_bytes(data)
    with pytest.raises(st.DataError, match=f'"damaged" is not a safetensors file: .*{words}'):
        st.load("damaged")
    with pytest.raises(st.DataError, match='cannot read "missing": No such file'):
        st.load("missing")


@pytest.mark.parametrize(
    "tree",
    ["", "{", "7", "[]", "{}", '{"array":"y"}', '{"table":[]}', '{"dict":[["x"]]}', '{"number":"x"}', '{"dict":[[[],null]]}'],
)
def test_a_tree_that_is_damaged_is_refused(tree: str) -> None:
    row = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
    Path("damaged").write_bytes(_file({"__metadata__": {"staged.tree": tree}, "x": row}, b"12345678"))
    with pytest.raises(st.DataError, match='"damaged" has arrays, but the tree in its metadata is damaged: '):
        st.load("damaged")
