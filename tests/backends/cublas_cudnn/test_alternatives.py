"""Programs on a device whose libraries support less: what runs instead, the notes, and the numbers of eager mode."""

from __future__ import annotations

import gc
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.runtime import cuda
from staged.testing import compare_trees
from tests.backends.cublas_cudnn.harness import nothing_is_left

pytestmark = pytest.mark.usefixtures("device")
RANDOM = np.random.default_rng(8)
WITHOUT = "no-algorithms no-engines"


def normal(*shape: int) -> np.ndarray[Any, Any]:
    return RANDOM.normal(size=shape).astype("f4")


def fresh(function: Callable[..., Any]) -> Any:
    """A staged function that has no program yet."""
    return st.function(target="portable")(function)


def agrees(function: Callable[..., Any], arguments: Any, device: Emulator, rtol: float = 1e-4) -> Any:
    """Run with and without the libraries' algorithms, at once and late, and compare with eager mode; the program."""
    with st.eager():
        expected = function(*arguments)
    for words in ("", WITHOUT, f"{WITHOUT} lazy shuffled seed=2"):
        device.configure(words)
        staged = fresh(function)
        for _ in range(2):
            compare_trees(staged(*arguments), expected, rtol=rtol, atol=rtol)
        program = staged.stage(*arguments)
        assert bool(program.report().notes) == bool(words)
    return program


# ---- training -----------------------------------------------------------------------------------


def classify(params: Any, x: Any) -> Any:
    w, b, v, c, u = params
    h = st.max_pool2d(st.relu(st.conv2d(x, w, b, padding=1)), 2)
    return st.gelu(st.reshape(h, (4, -1)) @ v + c, approximate="tanh") @ u


def train(params: Any, xs: Any, labels: Any, rate: Any) -> Any:
    with with_backend(GPU, params, xs, labels):
        total = 0.0
        for i in st.range(6):
            loss, grads = st.value_and_grad(lambda p, i=i: st.cross_entropy(classify(p, xs[i % 3]), labels))(params)
            params = [p - rate * g for p, g in zip(params, grads, strict=True)]
            total += loss
    return total, params


def test_a_convolutional_network_trains_in_graphs(device: Emulator) -> None:
    params = [normal(3, 2, 3, 3) / 3, normal(3), normal(48, 5) / 7, normal(5), normal(5, 4)]
    arguments = params, normal(3, 4, 2, 8, 8), np.array([0, 3, 1, 2], "i4"), np.float32(0.1)
    program = agrees(train, arguments, device)
    notes = program.report().notes
    line, update = classify.__code__.co_firstlineno + 2, train.__code__.co_firstlineno + 5
    sizes = r"x \(4, 2, 8, 8\), w \(3, 2, 3, 3\), y \(4, 3, 8, 8\)"
    wanted = [
        rf"test_alternatives.py:{line}: cuDNN has no algorithm with a bias for {sizes}: forward "
        r"\(CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH\): a kernel runs instead",
        rf"test_alternatives.py:{update}: cuDNN has no deterministic algorithm for {sizes}: backward filter "
        r"\(none fits\): a kernel runs instead",
        rf"test_alternatives.py:{line + 1}: cublasLt has no algorithm for \(4, 48\) @ \(48, 5\) with the epilogue BIAS "
        r"\(.+\): cuBLAS and a kernel run instead",
    ]
    for each in wanted:
        assert any(re.fullmatch(each, note) for note in notes), (each, notes)
    assert str(program.report()).endswith("\n".join(notes))
    before = device.counts()
    program(*arguments)
    # The kernel of the convolution's own gradient reads an address of the turn: there is a graph on each side of it.
    assert (device.counts() - before).graph_launches == 12


def test_a_weight_is_updated_in_its_place_by_a_rate_of_the_caller(device: Emulator) -> None:
    def update(w: Any, x: Any, ct: Any, rate: Any) -> Any:
        with with_backend(GPU, w, x, ct):
            for _ in st.range(3):
                d_w = st.grad(lambda w: st.sum(ct * st.conv2d(x, w, padding=1, stride=2, groups=2)))(w)
                w = w * 0.5 - rate * d_w
        return w

    program = agrees(update, (normal(4, 1, 3, 3), normal(2, 2, 6, 6), normal(2, 4, 3, 3), np.float32(0.1)), device)
    assert "backward_filter_" in program.source


@pytest.mark.parametrize("attributes", [{"stride": 2, "padding": 1}, {"dilation": (2, 1)}, {"groups": 3}], ids=str)
def test_a_scaled_convolution_is_added_to_an_array(attributes: dict[str, Any], device: Emulator) -> None:
    def add(y: Any, x: Any, w: Any, s: Any) -> Any:
        with with_backend(GPU, y, x, w):
            made = y * 2.0 + s * st.conv2d(x, w, **attributes)
        return made

    x, w = normal(2, 3, 9, 8), normal(6, 3 // attributes.get("groups", 1), 3, 2)
    with st.eager():
        y = normal(*st.conv2d(x, w, **attributes).shape)
    agrees(add, (y, x, w, np.float32(-0.7)), device)


def test_a_bias_of_a_grouped_convolution(device: Emulator) -> None:
    def layer(x: Any, w: Any, b: Any) -> Any:
        with with_backend(GPU, x, w, b):
            made = st.conv2d(x, w, b, groups=2)
        return made

    agrees(layer, (normal(2, 4, 5, 6), normal(6, 2, 3, 3), normal(6)), device)


def test_the_gradients_of_a_layer_without_its_values(device: Emulator) -> None:
    def gradients(x: Any, w: Any, b: Any, ct: Any) -> Any:
        with with_backend(GPU, x, w, b, ct):
            found = st.vjp(lambda w, b: x @ w + b, w, b)[1](ct)
        return found

    for rows, inner, columns in ((8, 6, 5), (700, 40, 64)):
        agrees(gradients, (normal(rows, inner), normal(inner, columns), normal(columns), normal(rows, columns)), device, 1e-3)


# ---- functions, exports -------------------------------------------------------------------------


@st.function
def block(x: Any, w: Any, b: Any) -> Any:
    return st.tanh(st.conv2d(x, w, b, padding=1)) + x


def test_functions_of_the_program_call_it(device: Emulator) -> None:
    def deep(x: Any, w: Any, b: Any) -> Any:
        with with_backend(GPU, x, w, b):
            y = st.grad(lambda w: st.sum(block(block(x, w, b), w, b) ** 2))(w)
        return y

    agrees(deep, (normal(2, 2, 5, 5), normal(2, 2, 3, 3), normal(2)), device)


def test_attention_in_a_training_loop(device: Emulator) -> None:
    def loop(q: Any, k: Any, v: Any) -> Any:
        with with_backend(GPU, q, k, v):
            for _ in st.range(4):
                def loss(q: Any, k: Any, v: Any) -> Any:
                    with st.autocast(st.bf16):
                        y = st.scaled_dot_product_attention(q, k, v, is_causal=True)
                    return st.sum(y * y)

                d_q, d_k, d_v = st.grad(loss, (0, 1, 2))(q, k, v)
                q, k, v = q - 0.1 * d_q, k - 0.1 * d_k, v - 0.1 * d_v
        return q, k, v

    program = agrees(loop, [normal(2, 2, 40, 16) for _ in range(3)], device, 5e-2)
    assert len(program.report().notes) == 2


def test_an_exported_program_says_so_on_standard_error(tmp_path: Path) -> None:
    @st.function
    def layer(x: Any, w: Any, b: Any) -> Any:
        with with_backend(GPU, x, w, b):
            y = x @ w + b
        return y

    x, w, b = normal(3, 5), normal(5, 4), normal(4)
    layer.stage(x, w, b).export(tmp_path)
    for name, array in {"x": x, "w": w, "b": b}.items():
        np.save(tmp_path / f"{name}.npy", array)
    built = subprocess.run(["make", "emu"], cwd=tmp_path, capture_output=True, text=True)
    assert built.returncode == 0, built.stderr
    command = ["./layer_emu", "--x", "x.npy", "--w", "w.npy", "--b", "b.npy", "--out", "."]
    for words in ("", "no-algorithms"):
        environment = {**os.environ, "STAGED_CUDA_EMULATOR": words}
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, env=environment)
        assert done.returncode == 0, done.stderr
        np.testing.assert_allclose(np.load(tmp_path / "result.npy"), x @ w + b, rtol=1e-5, atol=1e-5)
        note = "cublasLt has no algorithm for (3, 5) @ (5, 4) with the epilogue BIAS"
        assert done.stderr.startswith(note) if words else not done.stderr


# ---- what else the library may answer --------------------------------------------------------------


@pytest.mark.usefixtures("misuse")
@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("gpu->cublas_lt_preference, 1, &found", "gpu->cublas_lt_preference, 0, &found", "cublasLtMatmulAlgoGetHeuristic: "),
        ("gpu->cudnn, x, w, window, y,", "gpu->cudnn, y, w, window, x,", "cudnnGetConvolutionForwardWorkspaceSize: CUDNN_STATUS_BAD"),
    ],
)  # fmt: skip
def test_another_error_of_the_library_stops_the_program(old: str, new: str, words: str) -> None:
    def layers(x: Any, w: Any, b: Any) -> Any:
        with with_backend(GPU, x, w, b):
            flat = st.reshape(x, (6, 6))
            y = st.conv2d(x, w, b), flat @ flat.T + st.reshape(b, (6,))
        return y

    arguments = normal(1, 1, 6, 6), normal(6, 1, 2, 2), normal(6)
    program = fresh(layers).stage(*arguments)
    assert program.source.count(old) == 1
    wrong = replace(program._artifact, source=program.source.replace(old, new))
    with pytest.raises(st.ProgramError, match=words):
        cuda.load(wrong)(*arguments)


def test_what_was_made_for_it_is_given_back(device: Emulator) -> None:
    def run(x: Any, w: Any, b: Any) -> Any:
        with with_backend(GPU, x, w, b):
            y = block(x, w, b)
        return y

    gc.collect()
    before = device.counts()
    device.configure(WITHOUT)
    staged = fresh(run)
    staged(normal(1, 2, 4, 4), normal(2, 2, 3, 3), normal(2))
    assert (device.counts() - before).live_descriptors > 0
    del staged
    nothing_is_left(device, before)
