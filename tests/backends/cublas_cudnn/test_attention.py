"""Attention of halves by cuDNN: eager's values and gradients, which attentions are calls, and what they need."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged import GPU, with_backend
from staged.backends.cublas_cudnn.library import attention
from tests.backends.cublas_cudnn.harness import nothing_is_left, on_gpu

pytestmark = pytest.mark.usefixtures("device")
BF16 = ml_dtypes.bfloat16
TOLERANCE: dict[Any, float] = {np.float16: 4e-3, BF16: 3e-2}


def operands(dtype: Any, *shapes: tuple[int, ...]) -> list[Any]:
    random = np.random.default_rng(3)
    return [random.normal(size=shape).astype(dtype) for shape in shapes]


def calls(text: str) -> tuple[int, int]:
    """The numbers of calls of attention, and of its gradient."""
    found = re.findall(r"run_plan\(gpu->cudnn, gpu->(attention(?:_backward)?)_", text)
    return found.count("attention"), found.count("attention_backward")


def close(found: Any, expected: Any, tolerance: float) -> None:
    """Each array is as near to another as halves are, of its largest number."""
    if isinstance(expected, tuple):
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):
            close(one, other, tolerance)
        return
    found, expected = (np.asarray(x).astype(np.float32) for x in (found, expected))
    np.testing.assert_allclose(found, expected, rtol=tolerance, atol=tolerance * max(1.0, np.abs(expected).max()))


def with_gradients(**options: Any) -> Any:
    """A function of q, k and v: the attention, and the gradients of a loss of it."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            y = st.scaled_dot_product_attention(q, k, v, **options)  # here
            return st.sum(y * st.cos(y)), y

        return st.grad(loss, (0, 1, 2), has_aux=True)(q, k, v)

    return attend


def agrees(staged: Any, device: Emulator, tolerance: float, *arguments: Any) -> None:
    with st.eager():
        expected = staged(*arguments)
    for words in ("eager forward", "lazy shuffled seed=3"):
        device.configure(words)
        close(staged(*arguments), expected, tolerance)


SHAPES = {
    "heads": (((2, 3, 24, 16), (2, 3, 40, 16), (2, 3, 40, 8)), {}),
    "causal, more queries than keys": (((2, 3, 40, 16), (2, 3, 24, 16), (2, 3, 24, 8)), {"is_causal": True}),
    "causal, fewer queries than keys": (((2, 2, 5, 8), (2, 2, 33, 8), (2, 2, 33, 24)), {"is_causal": True}),
    "one head for each two": (((2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 16)), {"enable_gqa": True}),
    "one head for all, causal": (
        ((2, 4, 9, 8), (2, 1, 9, 8), (2, 2, 9, 16)),
        {"enable_gqa": True, "is_causal": True, "scale": 0.7},
    ),
    "no heads": (((7, 16), (5, 16), (5, 16)), {}),
    "no batch": (((3, 7, 16), (3, 5, 16), (3, 5, 16)), {"scale": 1.5}),
    "two batch axes": (((2, 3, 2, 6, 8), (2, 3, 2, 7, 8), (2, 3, 2, 7, 8)), {"is_causal": True}),
    "wide": (((1, 1, 3, 128), (1, 1, 4, 128), (1, 1, 4, 128)), {}),
    "one query": (((2, 2, 1, 8), (2, 2, 9, 8), (2, 2, 9, 8)), {}),
}


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, BF16) for name in SHAPES), *((name, np.float16) for name in ("heads", "no heads"))]
)
def test_values_and_gradients_agree_with_eager(device: Emulator, name: str, dtype: Any) -> None:
    shapes, options = SHAPES[name]
    arguments = operands(dtype, *shapes)
    staged = on_gpu(with_gradients(**options))
    # The program has no kernel for the gradient of keys and values with different heads.
    has_kernels = arguments[1].shape[:-2] == arguments[2].shape[:-2]
    assert calls(staged.stage(*arguments).source) == (1, int(has_kernels))
    agrees(staged, device, TOLERANCE[dtype], *arguments)
    assert staged.stage(*arguments).report().notes == ()
    device.configure("no-engines")
    without = on_gpu(with_gradients(**options))
    with st.eager():
        expected = without(*arguments)
    close(without(*arguments), expected, TOLERANCE[dtype])
    notes = without.stage(*arguments).report().notes
    assert len(notes) == 1 + has_kernels and all("(no engine): kernels run instead" in note for note in notes)


def test_any_order_of_sums_adds_up_in_f32(device: Emulator) -> None:
    arguments = operands(BF16, (2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 16))
    staged = on_gpu(with_gradients(enable_gqa=True), deterministic=False)
    text = staged.stage(*arguments).source
    assert calls(text) == (1, 1)
    assert "ATTENTION_D_Q_SUMS}" in text and "&sizes, false," in text
    agrees(staged, device, TOLERANCE[BF16], *arguments)


@pytest.mark.parametrize("deterministic", [True, False])
def test_one_order_of_sums_gives_the_same_bits(deterministic: bool, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--on-gpu") and not deterministic:
        pytest.skip("a GPU may add in the same order again")
    # Another order changes the last bit of one bf16 number in some 2,000: there are 46,080.
    arguments = operands(BF16, (36, 4, 40, 8), (36, 2, 48, 8), (36, 2, 48, 16))
    staged = on_gpu(with_gradients(enable_gqa=True), deterministic=deterministic)
    runs = [[np.asarray(x).tobytes() for x in staged(*arguments)[0]] for _ in range(3)]
    assert (runs[0] == runs[1] == runs[2]) is deterministic  # the emulated device changes the order in every call


UNLIKE = {
    "f32": (np.float32, ((2, 9, 8), (2, 9, 8), (2, 9, 8)), {}),
    "width 12": (BF16, ((2, 9, 12), (2, 9, 12), (2, 9, 8)), {}),
    "values of width 136": (BF16, ((2, 3, 8), (2, 3, 8), (2, 3, 136)), {}),
    "batches that broadcast": (BF16, ((2, 2, 9, 8), (1, 2, 9, 8), (2, 2, 9, 8)), {}),
    "one key": (BF16, ((2, 1, 8), (2, 1, 8), (2, 1, 8)), {}),
    "a mask": (BF16, ((2, 9, 8), (2, 9, 8), (2, 9, 8)), {"attn_mask": np.tri(9, dtype=bool)}),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_what_cudnn_does_not_take_has_the_programs_kernels(device: Emulator, name: str) -> None:
    dtype, shapes, options = UNLIKE[name]
    arguments = operands(dtype, *shapes)
    staged = on_gpu(with_gradients(**options))
    assert calls(staged.stage(*arguments).source) == (0, 0)
    close(staged(*arguments), with_eager(staged, *arguments), 3e-2)


def with_eager(staged: Any, *arguments: Any) -> Any:
    with st.eager():
        return staged(*arguments)


def test_dropout_is_the_programs_own() -> None:
    arguments = operands(BF16, (2, 9, 8), (2, 9, 8), (2, 9, 8))
    staged = on_gpu(lambda q, k, v: st.scaled_dot_product_attention(q, k, v, dropout_p=0.5))
    assert calls(staged.stage(*arguments).source) == (0, 0)


def test_gradients_of_many_scores_need_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "MOST_KEPT", 2 * 9 * 11 - 1)
    arguments = operands(BF16, (1, 9, 8), (1, 11, 8), (1, 11, 8))
    staged = on_gpu(with_gradients())
    assert calls(staged.stage(*arguments).source) == (1, 0)
    close(staged(*arguments), with_eager(staged, *arguments), TOLERANCE[BF16])
    assert calls(on_gpu(with_gradients(), deterministic=False).stage(*arguments).source) == (1, 1)


def test_a_loop_differentiates_with_one_plan_of_each(device: Emulator) -> None:
    def layers(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            y = q
            for _ in st.range(3):
                y = q + st.scaled_dot_product_attention(y, k, v, is_causal=True)
            return st.sum(st.sin(y))

        return st.grad(loss, (0, 1, 2))(q, k, v)

    arguments = operands(BF16, (1, 3, 5, 8), (1, 3, 7, 8), (1, 3, 7, 8))
    staged = on_gpu(layers)
    assert calls(staged.stage(*arguments).source) == (1, 1)
    agrees(staged, device, 5e-2, *arguments)


def test_second_derivatives_are_those_of_the_blocks(device: Emulator) -> None:
    def second(q: Any, k: Any, v: Any) -> Any:
        def first(q: Any) -> Any:
            return st.sum(st.grad(lambda q: st.sum(st.sin(st.scaled_dot_product_attention(q, k, v))))(q) ** 2)

        return st.grad(first)(q)

    arguments = operands(BF16, (1, 5, 8), (1, 6, 8), (1, 6, 8))
    close(on_gpu(second)(*arguments), with_eager(on_gpu(second), *arguments), 5e-2)


def test_autocast_reaches_it(device: Emulator) -> None:
    arguments = operands(np.float32, *[(2, 2, 6, 8)] * 3)

    def attend(q: Any, k: Any, v: Any) -> Any:
        def loss(q: Any, k: Any, v: Any) -> Any:
            with st.autocast(st.bf16):
                y = st.scaled_dot_product_attention(q, k, v, is_causal=True)
            return st.sum(y * y)

        return st.grad(loss, (0, 1, 2))(q, k, v)

    staged = on_gpu(attend)
    assert calls(staged.stage(*arguments).source) == (1, 1)
    agrees(staged, device, TOLERANCE[BF16], *arguments)


def test_where_cudnn_has_no_engine_kernels_run_and_a_note_names_the_line(
    monkeypatch: pytest.MonkeyPatch, device: Emulator
) -> None:
    # What is staged is then taken for something that cuDNN takes on other devices.
    monkeypatch.setattr(attention, "WIDTH_STEP", 4)
    arguments = operands(BF16, (2, 9, 12), (2, 9, 12), (2, 9, 8))
    staged = on_gpu(with_gradients(is_causal=True))
    agrees(staged, device, TOLERANCE[BF16], *arguments)
    lines = Path(__file__).read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if text.endswith("  # here"))
    notes = staged.stage(*arguments).report().notes
    case = "for bf16 (1, 2, 9, 12) with 9 keys, causal (no engine): kernels run instead"
    assert notes == (
        f"test_attention.py:{line}: cuDNN 9.19.0 has no attention {case}",
        f"test_attention.py:{line}: cuDNN 9.19.0 has no gradient of attention with one order of sums {case}",
    )


def test_nothing_of_it_stays_alive(device: Emulator) -> None:
    def run(*arguments: Any) -> int:
        before = device.counts()
        on_gpu(with_gradients(enable_gqa=True, is_causal=True))(*arguments)
        made = (device.counts() - before).descriptors_created
        nothing_is_left(device, before)
        return made

    assert run(*operands(BF16, (2, 4, 9, 8), (2, 2, 11, 8), (2, 2, 11, 16))) > 100


@pytest.mark.slow
def test_an_exported_program_runs_it(tmp_path: Path) -> None:
    arguments = operands(np.float32, *[(2, 2, 6, 8)] * 3)

    @st.function(target="portable")
    def attend(q: Any, k: Any, v: Any) -> Any:
        with with_backend(GPU, q, k, v):
            halves = [st.astype(x, st.bf16) for x in (q, k, v)]
            return st.astype(st.scaled_dot_product_attention(*halves, is_causal=True), st.f32)

    attend.stage(*arguments).export(tmp_path)
    flags = []
    for name, array in zip("qkv", arguments, strict=True):
        np.save(tmp_path / f"{name}.npy", array)
        flags += [f"--{name}", f"{name}.npy"]
    command = ["make", "emu", "EMULATORFLAGS=-std=c++17 -O1 -Wall -Wextra"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0 and "warning" not in done.stderr, done.stderr
    done = subprocess.run(["./attend_emu", *flags, "--out", "."], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    close(np.load(tmp_path / "result.npy"), with_eager(attend, *arguments), TOLERANCE[BF16])
