"""Loops whose iterations threads share: the same bits with any number of threads, no races, and none where iterations
depend on one another.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import numpy as np
import pytest

import staged as st
from staged.ir.loop_windows import LoopWindows
from staged.runtime.compiler import BASE_FLAGS, LIBRARIES, find_compiler
from staged.runtime.machine import native_machine
from tests.runtime.programs import STRICT

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((8, 40_000)).astype(np.float32)
HEADS = tuple(RNG.standard_normal((6, 200, 16)).astype(np.float32) for _ in range(4))
PAIRS = RNG.standard_normal((40, 2, 96)).astype(np.float32), RNG.standard_normal((96, 96)).astype(np.float32)


def rows_apart(x):
    y = st.zeros((8, 40_000))
    for i in st.range(8):
        scaled = st.tanh(x[i]) * 2.0
        y[i] = scaled - st.mean(scaled)
    return y


def rows_of_any_length(x: st.Array[8, "N <= 40000"]):  # noqa: F821, UP037
    y = st.zeros(x.shape)
    for i in st.range(8):
        scaled = st.tanh(x[i]) * 2.0
        y[i] = scaled - st.mean(scaled)
    return y


def rows_of_rows(x, scale):
    """An inner loop whose threads need a number from outside of the outer loop."""
    y = st.zeros((4, 2, 40_000))
    shift = scale * 3
    for i in st.range(4):
        for j in st.range(2):
            scaled = st.tanh(x[i * 2 + j]) * shift
            y[i, j] = scaled - st.mean(scaled)
    return y


def row_after_row(x):
    y = st.zeros((8, 40_000))
    y[0] = x[0]
    for i in st.range(1, 8):
        y[i] = st.tanh(y[i - 1]) + x[i]
    return y


def one_row(x):
    y = st.zeros((8, 40_000))
    for i in st.range(8):
        scaled = st.tanh(x[i]) * 2.0
        y[i // 8] = scaled - st.mean(scaled)
    return y


def last_row(x):
    last = st.zeros((40_000,))
    y = st.zeros((8, 40_000))
    for i in st.range(8):
        y[i] = st.tanh(x[i]) + last
        last = x[i]
    return y


def products(x, w):
    """Two rows by a matrix: on every processor this is a function of the back end, and not a nest of loops."""
    y = st.zeros((40, 2, 96))
    for i in st.range(40):
        y[i] = x[i] @ w
    return y


def attention(q, k, v, c):
    def loss(q, k, v):
        return st.sum(st.scaled_dot_product_attention(q, k, v, is_causal=True) * c)

    return st.value_and_grad(loss, argnums=(0, 1, 2))(q, k, v)


@pytest.fixture
def in_threads(monkeypatch):
    """Stages a function for a number of threads."""

    def program(function, threads, *given):
        monkeypatch.setenv("STAGED_NUM_THREADS", str(threads))
        native_machine.cache_clear()
        found = st.function(function).stage(*given)
        assert found.source
        return found

    yield program
    monkeypatch.delenv("STAGED_NUM_THREADS", raising=False)
    native_machine.cache_clear()


def flat(result):
    return [
        np.asarray(each)
        for each in (result if isinstance(result, tuple) else (result,))
        for each in (each if isinstance(each, tuple) else (each,))
    ]


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (rows_apart, (ROWS,)),
        (attention, HEADS),
        (rows_of_any_length, (ROWS,)),
        (products, PAIRS),
        (rows_of_rows, (ROWS, 7)),
    ],
)
def test_results_are_the_same_bits_with_any_number_of_threads(function, given, in_threads):
    found = []
    for threads in (1, 2, 3, 8):
        program = in_threads(function, threads, *given)
        assert ("ST_SHARE_LOOP" in program.source) == (threads > 1)
        found.append([flat(program(*given)) for _ in range(3)])
    for others in found:
        for other in others:
            for one, two in zip(found[0][0], other, strict=True):
                assert np.array_equal(one.view(np.uint32), two.view(np.uint32))


@pytest.mark.parametrize("function", [row_after_row, one_row, last_row])
def test_iterations_that_depend_on_one_another_stay_in_order(function, in_threads):
    program = in_threads(function, 4, ROWS)
    assert "ST_SHARE_LOOP" not in program.source
    with st.eager():
        expected = st.function(function)(ROWS)
    assert np.allclose(program(ROWS), expected, atol=1e-6)


@pytest.mark.parametrize(("heads", "is_shared"), [(144, True), (2, False)])
def test_a_loop_is_shared_where_all_of_its_iterations_are_much_work(heads, is_shared, in_threads):
    given = [np.zeros((heads, 16, 16), np.float32)] * 4
    assert ("ST_SHARE_LOOP" in in_threads(attention, 2, *given).source) == is_shared


def test_a_shared_loop_has_names_of_its_own(in_threads):
    source = in_threads(attention, 2, *([np.zeros((144, 16, 16), np.float32)] * 4)).source
    for name in ("each_head", "each_head_backward"):
        body = source.partition(f"static void {name}(")[2].partition("\n}\n")[0]
        assert "(int64_t head = begin;" in body and "head_2" not in body


def test_an_array_that_a_loop_writes_as_a_whole_is_not_filled_before(in_threads):
    sources = [in_threads(function, 2, ROWS).source for function in (rows_apart, rows_of_any_length, one_row)]
    fills = ["memset(args" in text or "st_clear, args" in text for text in sources]
    assert fills == [False, False, True]


MAIN = """
#include <stdlib.h>
#include <string.h>
#include "{name}.h"

int main(void) {{
    st_host host = {{0}};
    host.team = {name}_team_create({threads});
    void *arena = aligned_alloc(64, {NAME}_ARENA_BYTES);
    memset(arena, 0, {NAME}_ARENA_BYTES);
    {name}_args args;
{arrays}
    for (int i = 0; i < 20; ++i) {{
        if ({name}(&args, arena, &host) != 0) {{
            return 1;
        }}
    }}
    {name}_team_destroy(host.team);
    return 0;
}}
"""


def raced(program, folder: Path, threads: int) -> str:
    """The words of the thread sanitizer about a program whose inputs are zeros."""
    artifact = program._artifact
    arrays = "\n".join(f"    args.{each.place} = calloc(1, 1 << 21);" for each in artifact.parameters)
    texts = {
        f"{artifact.name}.c": artifact.source,
        f"{artifact.name}.h": artifact.header,
        f"{artifact.name}_support.h": artifact.support,
        "main.c": MAIN.format(name=artifact.name, NAME=artifact.name.upper(), threads=threads, arrays=arrays),
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    sources = [str(folder / name) for name in texts if name.endswith(".c")]
    flags = [*BASE_FLAGS, *artifact.flags, "-O1", "-g", "-fsanitize=thread", *STRICT]
    built = subprocess.run(
        [*find_compiler().command, *flags, "-o", str(folder / "main"), *sources, *LIBRARIES],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    run = subprocess.run([folder / "main"], capture_output=True, text=True, timeout=300)
    assert run.returncode == 0 or "data race" in run.stderr, run.stderr
    return run.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("function", "given"), [(rows_apart, (ROWS,)), (attention, HEADS), (products, PAIRS)])
def test_the_thread_sanitizer_is_silent(function, given, in_threads, tmp_path):
    program = in_threads(function, 4, *given)
    assert "ST_SHARE_LOOP" in program.source
    assert raced(program, tmp_path, 4) == ""


@pytest.mark.slow
def test_the_thread_sanitizer_sees_iterations_that_depend_on_one_another(monkeypatch, in_threads, tmp_path):
    monkeypatch.setattr(LoopWindows, "are_apart", lambda self: True)
    assert "data race" in raced(in_threads(one_row, 4, ROWS), tmp_path, 4)
