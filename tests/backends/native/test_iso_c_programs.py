"""Programs for the target 'c99': they build without any extension, and give what native ones give."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from staged.backends.host.standalone import iso_c as folder_files
from staged.code.support import iso_c as support_forms
from staged.errors import UnsupportedError
from tests import embedded_check
from tests.embedded_check import CASES, FLAGS, missing, on_cortex_m, on_host, run

FORBIDDEN = re.compile(
    r"__\w+__\(|__builtin|__atomic|__extension__|#pragma|vector_size|pthread|alloc\(|\bdouble\b|<stdatomic"
)
COUNT = 4


@pytest.mark.parametrize("name", CASES)
def test_it_is_iso_c_and_gives_what_the_native_program_gives(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    found = on_host(case, tmp_path)
    for path in tmp_path.glob(f"{case.program.name}*"):
        if path.suffix in (".c", ".h") and not path.name.endswith("_example.c"):
            assert not FORBIDDEN.search(path.read_text()), path
    np.testing.assert_allclose(found, case.expected.reshape(-1), rtol=2e-5, atol=1e-6)
    run("make", "example", f"CFLAGS={' '.join(FLAGS)}", folder=tmp_path)


@pytest.mark.skipif(bool(missing()), reason=f"not installed: {', '.join(missing())}")
@pytest.mark.parametrize("name", CASES)
def test_an_emulated_board_gives_what_the_native_program_gives(name: str, tmp_path: Path) -> None:
    case = CASES[name]()
    np.testing.assert_allclose(on_cortex_m(case, tmp_path), case.expected.reshape(-1), rtol=2e-5, atol=1e-6)


def test_the_check_of_boards_says_what_it_misses(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(embedded_check.shutil, "which", lambda tool: None)
    embedded_check.main()
    assert capsys.readouterr().out.startswith("skipped, nothing was checked: not installed: gcc-arm-none-eabi")


def strided(x: Any) -> Any:
    return (st.conv2d(st.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1))), st.ones((4, 1, 3, 3)), stride=2, groups=2),)


def with_epilogue(x: Any) -> Any:
    y = st.conv2d(x, st.cos(x[:, :1, :3, :3]), padding=1, groups=2)
    return st.relu(y + x) * st.sum(x, axis=(0, 2, 3))[:, None, None], y


def convolution_gradients(x: Any) -> Any:
    weight = st.sin(x[:1, :, :2, :2])
    return st.grad(lambda a, b: st.sum(st.conv2d(a, b, stride=2, padding=1) ** 2), argnums=(0, 1))(x, weight)


def varied(x: Any) -> Any:
    """Text, checks, loops with exits, draws and functions."""
    total = 0.0
    for i in st.range(0, COUNT, 2):
        if st.sum(x) > 30.0:
            break
        x = st.softmax(x + x[i % 3], axis=0) + st.rsqrt(st.abs(x) + 1.0)
        total += st.sum(st.log(x))
    print(f"{total:.3f}", x)
    assert total < 1000.0, f"too much: {total}"
    return st.argmax(x), st.dropout(x, 0.5), x // 2.0


def growing(x: Any) -> Any:
    def loss(y: Any) -> Any:
        while st.sum(y) < 100.0:
            y = y * y + 1.0
        return st.sum(y)

    return st.grad(loss)(x)


def progress(x: Any) -> Any:
    for _ in st.progress(st.range(COUNT)):
        x = x * 2.0
    return x


X = np.random.default_rng(1).standard_normal((2, 2, 6, 6)).astype(np.float32)


@pytest.mark.parametrize("function", [strided, with_epilogue, convolution_gradients])
def test_convolutions_in_plain_loops_give_what_templates_give(function: Any) -> None:
    plain, native = (st.function(function, target=target)(X) for target in ("c99", "portable"))
    for one, other in zip(plain, native, strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=1e-4, atol=1e-5)


def test_text_checks_and_draws_are_iso_c(tmp_path: Path) -> None:
    program = st.function(varied).stage(np.ones(3, np.float32))
    program.export(tmp_path, target="c99")
    run("gcc", *FLAGS, "varied.c", "varied_example.c", "-lm", "-o", "program", folder=tmp_path)
    assert run("./program", folder=tmp_path)


def recursive(x: Any) -> Any:
    @st.function
    def halved(n: Any) -> Any:
        if n < 1.0:
            return n
        return halved(n / 2.0) + 1.0

    return halved(st.sum(x))


def on_a_device(x: Any) -> Any:
    with st.with_backend(st.GPU, x):
        y = st.tanh(x)
    return y


@pytest.mark.parametrize(
    ("function", "words", "line"),
    [
        (growing, "a loop without a known end.*the target 'c99' has no way to", "while st.sum(y) < 100.0:"),
        (progress, "draws a progress bar.*the target 'c99' has no way to", "for _ in st.progress(st.range(COUNT)):"),
        (recursive, "recurses.*the target 'c99' has no way to", "def halved(n: Any) -> Any:"),
        (on_a_device, "the target 'c99' is for the CPU alone", "y = st.tanh(x)"),
    ],
)
def test_what_c99_has_no_way_to_is_refused_in_words(function: Any, words: str, line: str, tmp_path: Path) -> None:
    with pytest.raises(UnsupportedError, match=words) as error:
        st.function(function).stage(np.ones(3, np.float32)).export(tmp_path, target="c99")
    assert error.value.where is not None and error.value.where.text.strip() == line
    assert not list(tmp_path.iterdir())


def test_the_dialect_is_short() -> None:
    """Its own lines, without blank ones."""
    modules = (Path(module.__file__) for module in (folder_files, support_forms))
    assert sum(bool(line.strip()) for path in modules for line in path.read_text().splitlines()) <= 150
