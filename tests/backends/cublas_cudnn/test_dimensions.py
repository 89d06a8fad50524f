"""Sizes that the program finds (`st.dim`) in a GPU region: the programs of the CPU's table, their gradients, and what moves."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.errors import ProgramError, ProgramIndexError, ProgramValueError
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import on_gpu
from tests.frontend import test_dimensions as programs
from tests.frontend.harness import Case, differentiated, each, gradient_of

pytestmark = pytest.mark.usefixtures("device")
MOST, X, W = programs.MOST, programs.X, programs.W
CASES = [*programs.CASES, programs.TREES]


def outcome(function: Any, arguments: tuple[Any, ...]) -> tuple[Any, str]:
    """The result of a call, or the error that stops it."""
    try:
        return function(*arguments), ""
    except ProgramError as error:
        return None, str(error).splitlines()[0]


def check(function: Any, runs: Any, tolerance: float, device: Emulator) -> None:
    """A function gives in a region what eager mode gives, and stops where that stops, with work done at once or late."""
    staged = on_gpu(function)
    for number, arguments in enumerate(runs):
        device.configure("lazy shuffled seed=3" if number % 2 else "eager forward")
        st.seed(0)
        with st.eager():
            expected, stopped = outcome(staged, arguments)
        st.seed(0)
        found, words = outcome(staged, arguments)
        assert bool(words) == bool(stopped), (words, stopped)
        if not stopped:
            compare_trees(found, expected, rtol=tolerance, atol=tolerance)


@each(CASES)
def test_programs(case: Case, device: Emulator, capsys: pytest.CaptureFixture[str]) -> None:
    check(case.function, case.runs, max(case.rtol, 2e-5), device)


@each(differentiated(CASES))
def test_gradients(case: Case, device: Emulator) -> None:
    check(gradient_of(case.function, case.wrt), case.runs[-3:], 5e-5, device)


def test_second_derivatives(device: Emulator) -> None:
    given = X.astype(np.float64), W.astype(np.float64), programs.SIZES
    check(programs.second_derivatives, [given], 1e-9, device)


def test_one_program_serves_every_size_and_a_launch_has_the_blocks_that_there_are_elements_for(
    device: Emulator,
) -> None:
    def f(x: Any, n: Any) -> Any:
        n = st.dim("N", n, max=1000)
        y = st.tanh(x[:n])
        return st.sum(y, axis=0)

    x = np.ones((1000, 8), np.float32)
    staged = on_gpu(f)
    texts = {staged.stage(x, n).source for n in (0, 3, 1000)}
    assert len(texts) == 1
    (text,) = texts
    assert "int64_t n" in text

    def rows(x: Any, n: Any) -> Any:
        out = st.zeros((1000, 8))
        n = st.dim("N", n, max=1000)
        out[:n] = st.tanh(x[:n])
        return out

    text = on_gpu(rows).stage(x, 3).source
    assert re.search(r"const int64_t blocks = \(n \* (8|2) \+ 255\) / 256;", text)
    np.testing.assert_allclose(on_gpu(rows)(x, 700)[699:701], [np.tanh(x[0]), 0 * x[0]], rtol=1e-6)


def test_an_array_of_no_rows_needs_no_launch(device: Emulator) -> None:
    def f(x: Any, n: Any) -> Any:
        n = st.dim("N", n, max=MOST)
        return st.sum(st.tanh(x[:n] * 2.0) @ st.ones((5, 3)), axis=0)

    program = on_gpu(f).stage(X, 3)
    launches = []
    for n in (3, 0):
        before = device.counts()
        program(X, n)
        launches.append((device.counts() - before).launches)
    assert launches[1] < launches[0]


def test_a_size_that_the_device_has_computed_is_one_number_copied() -> None:
    def f(x: Any) -> Any:
        n = st.dim("N", st.sum(x[:, 0] > 0.0), max=MOST)
        return st.sum(st.exp(x[:n]), axis=0), n

    staged = on_gpu(f)
    moved = [transfer for transfer in staged.stage(X).transfers() if transfer.why == "decision"]
    assert [(transfer.target.kind, transfer.nbytes) for transfer in moved] == [("cpu", 8)]
    count = int(np.sum(X[:, 0] > 0))
    total, n = staged(X)
    assert n == count
    np.testing.assert_allclose(total, np.exp(X[:count]).sum(axis=0), rtol=1e-5)


def test_rows_of_the_host_cross_as_many_as_there_are(device: Emulator) -> None:
    @st.function
    def f(x: Any, start: Any, n: Any) -> Any:
        n = st.dim("N", n, max=MOST)
        rows = x[start : start + n]
        with with_backend(GPU, rows):
            y = st.exp(rows)
        with with_backend(st.CPU, y):
            total = st.sum(y * 2.0)
        return total

    program = f.stage(X, 1, 2)
    for start, n in ((0, MOST), (MOST - 3, 3), (MOST, 0), (5, 7)):
        before = device.counts()
        assert program(X, start, n) == pytest.approx(2 * np.exp(X[start : start + n]).sum(), rel=1e-5)
        seen = device.counts() - before
        assert seen.bytes_to_device == seen.bytes_to_host == n * 5 * 4


def test_products_of_no_rows_leave_what_they_are_added_to(device: Emulator) -> None:
    def f(x: Any, c: Any, s: Any, n: Any) -> Any:
        n = st.dim("N", n, max=MOST)
        a = x[:n]
        return c + 2.0 * (a.T @ a), s * c - a.T @ a, st.sum(a, axis=1) @ a, st.sum(a, axis=1) @ st.sum(a * a, axis=1)

    c = np.arange(25, dtype=np.float32).reshape(5, 5)
    check(f, [(X, c, 0.5, n) for n in (0, 1, 2, MOST)], 5e-5, device)
    assert "cublasSgemm" in on_gpu(f).stage(X, c, 0.5, 1).source


@pytest.mark.parametrize("n", [-1, MOST + 1])
def test_a_size_out_of_bounds_stops_with_the_line(n: int) -> None:
    with pytest.raises(ProgramValueError, match=f"dimension `N` is {n}, it may be 0 to {MOST}"):
        on_gpu(programs.elementwise)(X, n)


def test_an_index_is_checked_against_the_size() -> None:
    def f(x: Any, i: Any, n: Any) -> Any:
        n = st.dim("N", n, max=8)
        a = x[:n] * 2.0
        return st.sum(a[st.arange(n) + i])

    with pytest.raises(ProgramIndexError, match="index 5 is out of range for an axis of 5") as caught:
        on_gpu(f)(X, 1, 5)
    assert "a[st.arange(n) + i]" in str(caught.value)


@pytest.mark.parametrize(
    ("function", "words", "hint"), programs.REFUSED, ids=[case[0].__name__ for case in programs.REFUSED]
)
def test_what_the_cpu_refuses_is_refused_with_the_line(function: Any, words: str, hint: str) -> None:
    # A number on the device is an array of one element, which is what some are told.
    with pytest.raises(st.StagedError, match=words.removesuffix("\\)")) as caught:
        on_gpu(function).stage(X, 3).source  # noqa: B018  (some are refused when the text is asked for)
    assert re.search(r"(test_dimensions|harness)\.py, line", str(caught.value))
    assert hint in str(caught.value)


def softened(x: Any, n: Any) -> Any:
    n = st.dim("N", n, max=70)
    return st.sum(st.softmax(x[:n], axis=2), axis=0), st.max(x[:n], axis=0)


def turned(x: Any, n: Any) -> Any:
    n = st.dim("N", n, max=70)
    y = st.permute(x[:n], (0, 2, 1)) * 2.0
    out = st.zeros((70, 64, 36))
    out[:n] = y
    return out


def columns(x: Any, n: Any) -> Any:
    n = st.dim("N", n, max=70)
    return st.sum(st.sum(x[:n], axis=1) * 2.0, axis=0), st.sum(st.argmax(x[:n], axis=1))


def by_blocks(x: Any, n: Any) -> Any:
    n = st.dim("N", n, max=70)
    rows = st.reshape(x[:n], (n, 36 * 64))
    return st.sum(st.softmax(rows, axis=1), axis=0), st.sum(rows, axis=1) @ rows[:, :3]


def mapped(x: Any, n: Any) -> Any:
    n = st.dim("N", n, max=70)
    a = st.exp(x[:n])
    return st.sum(a @ st.permute(a, (0, 2, 1)), axis=0)


@pytest.mark.parametrize(("function", "words"), [
    (softened, "_warp_sum_f32"), (columns, "_column_sum_f32"), (by_blocks, "_block_sum_f32"), (turned, "_tile["), (mapped, "f32x4")
])  # fmt: skip
def test_where_the_bound_is_large_threads_work_as_they_do_on_large_arrays(
    function: Any, words: str, device: Emulator
) -> None:
    """Rows by warps and blocks, columns side by side, transposes by tiles, 16 bytes at once."""
    x = np.random.default_rng(3).standard_normal((70, 36, 64)).astype(np.float32)
    assert words in on_gpu(function).stage(x, 7).source
    check(function, [(x, n) for n in (1, 7, 70)], 5e-5, device)


def test_a_loop_has_graphs_between_what_is_counted(device: Emulator) -> None:
    def f(x: Any, w: Any, steps: Any) -> Any:
        total = st.zeros((5,))
        for step in st.range(steps):
            n = st.dim("N", step % 4, max=4)
            total = total + st.sum(x[:n] * w[0], axis=0)
            h = st.tanh(x @ w)
            w = w - 0.1 * (x.T @ (h @ w - x))
        return w, total

    square = np.eye(5, dtype=np.float32) * 0.5
    staged = on_gpu(f)
    staged(X, square, 6)
    before = device.counts()
    check(f, [(X, square, 9)], 5e-5, device)
    assert (device.counts() - before).graph_launches > 0


@st.gpu_func
def doubled(x: Any, out: Any) -> None:
    i = st.cuda.global_index.x
    if i < len(x):
        out[i] = x[i] * 2.0 + len(x)


def test_a_kernel_of_the_users_own_knows_the_size(device: Emulator) -> None:
    def f(x: Any, n: Any) -> Any:
        n = st.dim("N", n, max=MOST)
        a = st.exp(x[:n, 0])
        out = st.zeros((n,))
        return st.sum(doubled[2, 32](a, out))

    for n in (1, 33, MOST):
        assert on_gpu(f)(X, n) == pytest.approx(2 * np.exp(X[:n, 0]).sum() + n * n, rel=1e-5)


def test_rows_that_a_loop_keeps_at_the_end_of_an_array_are_those_that_there_are(device: Emulator) -> None:
    """Of a window of one row at the end of an array the loop has no more than that row to keep."""

    def f(x: Any, turns: Any) -> Any:
        i, total = 0, st.zeros((5,), dtype=x.dtype)
        while i < turns:
            k = st.dim("K", 3 - i % 3, max=MOST)
            rows = x[MOST - k : MOST]
            part = st.exp(total) * rows
            total = total + st.sum(part * rows, axis=0) * 0.1
            x = x * 0.5
            i += 1
        return total

    x = X.astype(np.float64)
    gradient = gradient_of(f, (0,))
    check(gradient, [(x, 4), (x, 1)], 1e-9, device)
    assert "st_device_stack_push_part" in on_gpu(gradient).stage(x, 4).source


def test_what_is_not_finite_is_looked_for_among_the_rows_that_there_are(device: Emulator) -> None:
    @st.function(check_nan=True)
    def f(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            n = st.dim("N", n, max=MOST)
            logs = st.log(x[:n])
            return st.sum(logs @ st.ones((5, 2)), axis=0)

    x = np.ones((MOST, 5), np.float32)
    x[20] = 0.0
    for n in (0, 20):
        assert not np.any(f(x, n))
    with pytest.raises(ProgramError, match=r"`logs` has an infinity at position 100"):
        f(x, 21)


def test_rows_cross_from_one_gpu_to_another(device: Emulator) -> None:
    @st.function
    def f(x: Any, n: Any) -> Any:
        n = st.dim("N", n, max=MOST)
        with with_backend(GPU, x):
            a = st.exp(x[:n])
        with with_backend(GPU(1)):
            return st.sum(a * 2.0, axis=0)

    for words in ("devices=2", "lazy shuffled seed=5 devices=2"):
        device.configure(words)
        for n in (0, 1, 17, MOST):
            np.testing.assert_allclose(f(X, n), 2 * np.exp(X[:n]).sum(axis=0), rtol=1e-5)
    device.configure()


def test_counted_rows_are_added_by_atomics_where_a_region_allows_that(device: Emulator) -> None:
    case = next(case for case in CASES if case.function is programs.gathers)
    staged = on_gpu(gradient_of(case.function, case.wrt), deterministic=False)
    assert "atomicAdd" in staged.stage(*case.runs[-1]).source
    for arguments in case.runs[:3]:
        with st.eager():
            expected = staged(*arguments)
        compare_trees(staged(*arguments), expected, rtol=1e-4, atol=1e-4)
