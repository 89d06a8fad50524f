"""Attention by kernels of our own: the values and gradients of eager mode, how many launches, memory, which attention has none."""

from __future__ import annotations

import importlib
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import staged as st
from cuda_emulator import Emulator
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.attention.sizes import (
    BACKWARD_KEYS,
    BACKWARD_QUERIES,
    FORWARD,
    AttentionSizes,
    Groups,
    groups_of,
)
from staged.ir.types import f32, f64, i32
from staged.testing import compare_trees
from tests.backends.cublas_cudnn import programs
from tests.backends.cublas_cudnn.harness import on_gpu, run_with_race_detector
from tests.ops.test_attention import CASES, Q, W

pytestmark = pytest.mark.usefixtures("device")
ATTENTION = importlib.import_module("staged.library.sequences.attention")
RNG = np.random.default_rng(7)
ORDERS = ("eager reverse", "lazy shuffled seed=5")


def kernels(text: str) -> list[str]:
    """The kernels of attention in a text, by the words above them."""
    return re.findall(r"^// (attention(?:: the gradient by| of|: gradients by)) \d+", text, re.MULTILINE)


def agrees(device: Emulator, f: Callable[..., Any], *x: Any, tolerance: float = 1e-10) -> str:
    """The text of `f` in a region, which gives what eager mode does in any order of work."""
    staged, expected = on_gpu(f), f(*x)
    for words in ORDERS:
        device.configure(words)
        compare_trees(staged(*x), expected, rtol=tolerance, atol=tolerance)
    return str(staged.stage(*x).source)


def with_gradients(*x: Any, **options: Any) -> Any:
    """The result, and its gradients by queries, keys and values."""

    def attend(*x: Any) -> Any:
        return st.scaled_dot_product_attention(*x, **options)

    return attend(*x), st.grad(lambda *x: st.sum(st.cos(attend(*x))), argnums=(0, 1, 2))(*x)


def of_case(name: str, dtype: type) -> tuple[Callable[..., Any], list[np.ndarray]]:
    k, v, mask, wanted, options = CASES[name]
    mask = mask.astype(dtype) if mask is not None and mask.dtype.kind == "f" else mask
    weights = W.astype(dtype)

    def both(q: Any, k: Any, v: Any, given: Any = mask) -> Any:
        y = st.scaled_dot_product_attention(q, k, v, given, **options)
        return st.sum(weights * y), y

    operands = [x.astype(dtype) for x in (Q, k, v)] + ([mask] if wanted else [])
    return st.value_and_grad(both, argnums=tuple(range(len(operands))), has_aux=True), operands


@pytest.mark.parametrize("name", ["causal", "groups", pytest.param("", marks=pytest.mark.slow)])
def test_values_and_gradients_agree_with_eager(device: Emulator, name: str) -> None:
    """Each case of the op's own table; all of them are one program."""
    for dtype, tolerance in ((np.float64, 1e-10), (np.float32, 1e-5))[0 if name else 1 :]:
        cases = [of_case(each, dtype) for each in ([name] if name else CASES)]

        def everything(*x: Any, cases: Any = cases) -> Any:
            found, left = [], list(x)
            for step, operands in cases:
                found.append(step(*left[: len(operands)]))
                left = left[len(operands) :]
            return found

        x = [operand for _, operands in cases for operand in operands]
        text = agrees(device, everything, *x, tolerance=tolerance)
        assert set(kernels(text)) == {"attention of", "attention: the gradient by", "attention: gradients by"}


@pytest.mark.parametrize("causal", [False, True])
def test_dropout_draws_what_the_composite_draws(
    device: Emulator, causal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where its blocks are several, and not those of the kernels."""
    monkeypatch.setattr(ATTENTION, "BLOCKS", (12, 16))
    monkeypatch.setattr(ATTENTION, "CAUSAL_BLOCKS", (24, 32))

    def dropped(*x: Any) -> Any:
        return with_gradients(*x, is_causal=causal, dropout_p=0.3, generator=st.random.Generator(3))

    x = [RNG.standard_normal((3, length, 6)) for length in (40, 50, 50)]
    assert len(kernels(agrees(device, dropped, *x))) == 3


LEADING = [((2, 3, 4), (2, 1, 4)), ((2, 2, 3, 2), (2, 1, 3, 1)), ((2, 6), (2, 3)), ((3, 2), (1, 1))]


def test_keys_serve_the_heads_of_any_leading_axes(device: Emulator) -> None:
    def everything(*x: Any) -> Any:
        return [with_gradients(*x[n : n + 3], is_causal=True, enable_gqa=True) for n in range(0, len(x), 3)]

    x = [
        RNG.standard_normal((*axes, rows, 4))
        for lead, own in LEADING
        for axes, rows in ((lead, 10), (own, 12), (own, 12))
    ]
    assert len(kernels(agrees(device, everything, *x))) == 3 * len(LEADING)


def test_halves_are_added_up_in_f32(device: Emulator) -> None:
    # Of a width that cuDNN does not take.
    x = [RNG.standard_normal((2, 40, 12)).astype(np.float32) for _ in range(3)]
    for dtype, epsilon in ((st.f16, 2**-11), (st.bf16, 2**-8)):
        rounded = [np.asarray(st.astype(st.astype(each, dtype), st.f32)) for each in x]
        expected = np.asarray(st.scaled_dot_product_attention(*rounded, is_causal=True))

        def halves(*x: Any, dtype: Any = dtype) -> Any:
            return st.astype(
                st.scaled_dot_product_attention(*(st.astype(each, dtype) for each in x), is_causal=True), st.f32
            )

        staged = on_gpu(halves)
        assert "const uint16_t *__restrict__ q" in staged.stage(*x).source, "halves are read, and not an f32 copy"
        found = np.asarray(staged(*x))
        assert np.all(np.abs(found - expected) <= epsilon * np.abs(expected) + 1e-6), "rounded once, at the end"


def test_one_launch_forwards_and_two_backwards(device: Emulator) -> None:
    def forward(q: Any, k: Any, v: Any) -> Any:
        return st.scaled_dot_product_attention(q, k, v, is_causal=True)

    def step(q: Any, k: Any, v: Any, d_out: Any) -> Any:
        y, vjp = st.vjp(forward, q, k, v)
        return y, vjp(d_out)

    x = [RNG.standard_normal((2, 3, 70, 8)).astype(np.float32) for _ in range(4)]
    counted = []
    for f, arguments in ((forward, x[:3]), (step, x)):
        staged = on_gpu(f)
        staged(*arguments)
        before = device.counts()
        staged(*arguments)
        counted.append((device.counts() - before).launches)
    # The offset, a sum along the features of the result times its cotangent, is a kernel of its own.
    assert counted == [1, 4]


def test_only_the_gradients_that_are_wanted_are_computed() -> None:
    def d_query(q: Any, k: Any, v: Any) -> Any:
        return st.grad(lambda q: st.sum(st.cos(st.scaled_dot_product_attention(q, k, v))))(q)

    x = [RNG.standard_normal((1, 40, 4)) for _ in range(3)]
    assert kernels(on_gpu(d_query).stage(*x).source) == ["attention of", "attention: the gradient by"]


def test_memory_at_8192_positions_is_linear() -> None:
    """Not run: the device's memory holds operands and results, and nothing of the size of the scores."""
    sizes = {}
    for length in (4096, 8192):
        x = np.zeros((1, length, 64), np.float32)
        program = on_gpu(with_gradients).stage(x, x, x)
        sizes[length] = sum(program._built.emitted.plan.device_bytes.values())
    assert sizes[8192] < 2.05 * sizes[4096]
    assert sizes[8192] < 12 * 8192 * 64 * 4, "the scores alone have 256 MiB"


def test_second_derivatives_go_through_the_blocks_of_the_composite(device: Emulator) -> None:
    def second(q: Any, k: Any, v: Any) -> Any:
        def inner(*x: Any) -> Any:
            d_key = st.grad(lambda *x: st.sum(st.cos(st.scaled_dot_product_attention(*x, is_causal=True))), argnums=1)
            return st.sum(st.sin(d_key(*x)))

        return st.grad(inner, argnums=(0, 1, 2))(q, k, v)

    agrees(device, second, *(RNG.standard_normal((2, 14, 5)) for _ in range(3)))


def test_in_a_loop_of_training_attention_is_kernels(device: Emulator) -> None:
    """Residuals of a differentiated loop are collected, and the kernels of the reverse read them."""

    def descend(x: Any) -> Any:
        def loss(x: Any) -> Any:
            for _ in range(3):
                x = x + st.scaled_dot_product_attention(x, x, x, is_causal=True)
            return st.sum(st.cos(x))

        for _ in range(2):
            x = x - 0.1 * st.grad(loss)(x)
        return x

    text = agrees(device, descend, RNG.standard_normal((2, 20, 4)))
    assert set(kernels(text)) == {"attention of", "attention: the gradient by", "attention: gradients by"}


def test_what_has_no_kernel_stays_the_composite(device: Emulator) -> None:
    wide = [RNG.standard_normal((1, 6, 200)) for _ in range(3)]
    assert kernels(agrees(device, with_gradients, *wide)) == []
    apart = [RNG.standard_normal((3, 10, 4)), RNG.standard_normal((1, 12, 4)), RNG.standard_normal((3, 12, 4))]
    assert kernels(agrees(device, with_gradients, *apart)) == ["attention of"]


@pytest.mark.parametrize(
    ("kernel", "dtype", "width", "rows", "words"),
    [
        (FORWARD, f32, 64, 8, ""),
        (FORWARD, f32, 160, 2, ""),
        (FORWARD, f32, 200, 0, "heads of 200 and 200 features do not fit"),
        (BACKWARD_QUERIES, f32, 64, 8, ""),
        (BACKWARD_KEYS, f32, 128, 2, ""),
        (BACKWARD_KEYS, f64, 64, 2, ""),
        (BACKWARD_KEYS, f64, 96, 0, "heads of 96 and 96 features do not fit"),
        (FORWARD, i32, 8, 8, "numbers are i32"),
    ],
)
def test_blocks_fit_into_shared_memory(kernel: str, dtype: Any, width: int, rows: int, words: str) -> None:
    sizes = AttentionSizes(kernel, dtype, (2, 8), (2, 8), (2, 8), None, 1000, 1000, width, width, CUDA_GPU)
    assert sizes.rows == rows and sizes.why_not().startswith(words) and bool(words) == bool(sizes.why_not())
    assert not rows or sizes.shared_bytes(rows) <= 48 << 10


def test_neighbouring_axes_are_as_few_groups_as_say_it() -> None:
    assert groups_of((2, 3), (2, 6)) == (Groups(6, 2),)
    assert groups_of((), (2, 6)) == (Groups(1, 12),)
    assert groups_of((2, 1, 4), (2, 3, 4)) == (Groups(2, 3), Groups(4, 1))
    assert groups_of((), ()) == ()


def test_the_kernels_say_what_they_do() -> None:
    x = np.zeros((2, 100, 8), np.float32)
    program = on_gpu(with_gradients).stage(x, x, x)
    text = program.source
    assert (
        "enum { QUERIES = 100, KEYS = 100, WIDTH = 8, DEPTH = 8, BLOCKS = 4, BLOCK = 32, ROWS = 8, TILE = 32 };" in text
    )
    assert "// attention of 100 queries and 100 keys, 2 heads, in tiles of keys" in text
    assert "a block of 4 warps for 32 queries of a head: 8 blocks of 128 threads" in text
    assert "alignas(16) __shared__ float queries[BLOCK][8];" in text
    assert "a block of 4 warps for 32 keys of a head" in program.explain()


@pytest.mark.slow
def test_no_two_threads_meet(tmp_path: Path) -> None:
    done = run_with_race_detector(programs.attention, np.zeros((1, 34, 3), np.float32), tmp_path)
    assert "status 0" in done.stdout, done.stderr
    assert "WARNING: ThreadSanitizer" not in done.stderr, done.stderr


def test_a_region_of_one_array_attends(device: Emulator) -> None:
    """The program of `make gpu-check`, in which queries, keys and values are one array."""
    x = RNG.standard_normal((37, 19)).astype(np.float32)
    with st.eager():
        expected = programs.attention(x)
    compare_trees(programs.attention(x), expected, rtol=1e-5, atol=1e-5)
