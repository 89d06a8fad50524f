"""`program.memory` and `program.transfers()` of programs with a device: each figure is of one place, each copy has its own name."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

import staged as st
from staged import GPU, nn, with_backend

X = np.ones((64, 32), np.float32)


def on_both(x: Any, n: Any) -> Any:
    """Values of several sizes on the host and on the device, alive at different times."""
    with with_backend(GPU, x):
        for _ in st.range(n):
            y = st.sin(x) @ x.T
            z = st.softmax(y, axis=1)
            x = z @ st.exp(x)
        total = st.sum(x)
    rows = np.ones((4, 4)) * total
    for _ in st.range(n):
        rows = st.flip(rows, 0) + st.flip(rows, 1)
    return rows, x


def test_sizes_of_the_host_and_of_a_device_stand_apart() -> None:
    report = st.function(on_both).stage(X, 3).memory
    arenas, peaks = {"": report.arena, **dict(report.devices)}, {"": report.peak, **dict(report.device_peaks)}
    for device, arena in arenas.items():
        peak = peaks[device]
        rows = [row for row in report.rows if row.device == device]
        alive = [sum(row.nbytes for row in rows if row.first <= at <= row.last) for at in range(200)]
        assert 0 < peak <= max(alive) and peak <= arena  # a buffer may rest in between
    assert report.total == sum(row.nbytes for row in report.rows if not row.device)
    text = str(report)
    host, device = text.split("buffer of the host")[1].split("buffer on gpu")
    for row in report.rows:
        assert f"{row.name} {row.shape}" in (device if row.device else host)
    assert f"arena on gpu: {arenas['gpu']:,} bytes, peak of values {peaks['gpu']:,}" in text


def test_memory_of_libraries_is_beside_the_arena() -> None:
    def both(x: Any, w: Any) -> Any:
        with with_backend(GPU, x, w):
            return st.conv2d(x, w), st.reshape(x, (1, 64)) @ st.ones((64, 3))

    program = st.function(both).stage(np.ones((1, 1, 8, 8), np.float32), np.ones((2, 1, 3, 3), np.float32))
    report = program.memory
    workspace = int(re.findall(r"#define CUBLAS_WORKSPACE_BYTES (\d+)", program.source)[0])
    assert ("gpu", "workspace of cuBLAS", workspace) in report.beside
    assert ("gpu", "workspace of cuDNN", None) in report.beside
    assert f"beside it on gpu: {workspace:,} bytes, workspace of cuBLAS" in str(report)
    assert "beside it on gpu: as many bytes as the library asks for, workspace of cuDNN" in str(report)


def test_a_program_of_the_host_has_one_table() -> None:
    text = str(st.function(lambda x: st.sum(st.sin(x) @ x.T)).stage(X).memory)
    assert "gpu" not in text and "of the host" not in text and text.count("offset") == 1


def test_copies_have_names_of_their_own_and_say_whether_a_loop_repeats_them() -> None:
    def prints(x: Any, n: Any) -> Any:
        with with_backend(GPU, x):
            y = x * 2.0
            for _ in st.range(n):
                print(st.sum(y), st.max(y))
                print(y[0, 0], x[1, 1])  # the host has x
                y = y + x
            print(st.min(y))
        return y

    listed = st.function(prints).stage(X, 3).transfers()
    assert [(t.what, t.why, t.in_loop) for t in listed] == [
        ("x", "input", False),
        ("st.sum(y)", "print", True),
        ("st.max(y)", "print", True),
        ("y[0, 0]", "print", True),
        ("st.min(y)", "print", False),
        ("y", "result", False),
    ]
    assert ", print, in a loop  test_memory_report.py" in str(listed[1]) and "in a loop" not in str(listed[0])


def test_initial_weights_are_named_after_the_variables_that_they_become() -> None:
    def train(x: Any) -> Any:
        model = nn.Linear(32, 4)
        with with_backend(GPU, x):
            y = model(x)
        return y

    listed = st.function(train).stage(X).transfers()
    assert sorted(t.what for t in listed if t.why == "value") == ["bias", "weight"]
