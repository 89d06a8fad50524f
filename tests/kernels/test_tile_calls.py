"""Sums of register tiles as calls of functions that kernels share, and tiles of two numbers of rows in one loop."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest
from harness import MACHINE, Program, fused, kernels, source, tensor

import staged as st
from staged.backends.cpu.nest import kernel as nest_kernel
from staged.backends.cpu.nest.row_tiles import RowTiles, with_row_tiles
from staged.backends.cpu.nest.tile_calls import TileCalls
from staged.ir.loops import map_indices, walk
from staged.ops import contraction as D
from staged.ops import elementwise as E


def product(x, w, b):
    return E.maximum(D.matmul(x, w) + b, 0.0)


def alone(x, w, b):
    return D.matmul(x, w)


def scaled(x, w, b):
    """A long epilogue, which has whole rows in memory where columns do not fill vectors."""
    y = D.matmul(x, w) * 0.5 + b
    return y * b - y * 0.25


CASES = {
    "tiles of two sizes": (product, ("f32", 29, 64), ("f32", 64, 64), ("f32", 64)),
    "panels that overlap": (product, ("f32", 29, 64), ("f32", 64, 70), ("f32", 70)),
    "several smaller tiles": (product, ("f64", 41, 80), ("f64", 80, 32), ("f64", 32)),
    "whole rows": (scaled, ("f32", 29, 70), ("f32", 70, 120), ("f32", 120)),
    "the result itself": (alone, ("f32", 64, 20), ("f32", 20, 64), ("f32", 64)),
}


@pytest.mark.parametrize("name", CASES)
def test_calls_give_the_bits_of_loops(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    f, *types = CASES[name]
    function = fused(f, *(tensor(*each) for each in types))
    rng = np.random.default_rng(3)
    arguments = [rng.standard_normal(shape).astype(np.float32 if dtype == "f32" else float) for dtype, *shape in types]
    called = Program(function)
    monkeypatch.setattr(nest_kernel, "with_tile_calls", lambda nest, schedule, machine: (nest, schedule, ()))
    looped = Program(function)
    assert "st_product_" in called.kernels[-1].text
    assert "_inline(" not in looped.kernels[-1].text
    for pieces in (1, 3):
        called.pieces = looped.pieces = pieces
        for found, expected in zip(called(*arguments), looped(*arguments), strict=True):
            assert found.tobytes() == expected.tobytes()


def kernel_text(name: str) -> str:
    f, *types = CASES[name]
    (text,) = source(fused(f, *(tensor(*each) for each in types)))[1]
    return text.text


def test_an_epilogue_is_written_once() -> None:
    text = kernel_text("tiles of two sizes")
    assert text.count("< rows; ++r)") == 1 and text.count("? 0.0f") + text.count("<= 0.0f") == 1
    assert "const int64_t rows = tile < " in text and "const int64_t row = tile * " in text


def test_without_an_epilogue_sums_go_to_the_result() -> None:
    text = kernel_text("the result itself")
    assert "total" not in text and "for (int64_t r " not in text
    assert re.search(r"x_product \+ tile \* \d+ \+ panel \* 32, 64, false\);", text)


def test_short_sums_before_an_epilogue_stay_in_registers() -> None:
    (text,) = source(fused(product, tensor("f32", 26, 20), tensor("f32", 20, 64), tensor("f32", 64)))[1]
    assert "st_product_" not in text.text and "#pragma GCC unroll" in text.text


def test_portable_programs_have_loops() -> None:
    machine = replace(MACHINE, vector_bytes=0)
    types = [tensor(*each) for each in CASES["tiles of two sizes"][1:]]
    (text,) = source(fused(product, *types, machine=machine), machine=machine)[1]
    assert "st_product_" not in text.text


def test_long_sums_share_a_function() -> None:
    f = fused(alone, tensor("f32", 24, 300), tensor("f32", 300, 64), tensor("f32", 64))
    g = fused(product, tensor("f32", 24, 320), tensor("f32", 320, 64), tensor("f32", 64))
    texts = source(f, g)[1]
    (shared,) = {s.name for s in texts[0].support if "_inline(" in s.text and "noinline" in s.text}
    assert all(f"{shared}(" in text.text for text in texts)


def test_loops_that_differ_in_more_than_rows_stay_apart() -> None:
    (kernel,) = kernels(fused(product, *(tensor(*each) for each in CASES["tiles of two sizes"][1:])))
    nest, schedule = kernel.attrs["nest"], kernel.attrs["schedule"]
    *before, last = TileCalls(schedule, MACHINE).body(nest.body)

    def merged(last: object) -> bool:
        made, _ = with_row_tiles(replace(nest, body=(*before, last)), schedule)
        return any(isinstance(s, RowTiles) for s in walk(made.body))

    (elsewhere,) = map_indices((last,), lambda index: index + 1)
    assert merged(last) and not merged(elsewhere)


def test_loops_that_copy_sums_may_have_axes_of_their_own() -> None:
    """The gradient of causal attention has such loops."""
    texts = np.random.default_rng(4).standard_normal((2, 16, 16)).astype(np.float32)

    def gradient(x):
        return st.grad(lambda x: st.sum(st.scaled_dot_product_attention(x, x * 0.5, x, is_causal=True) ** 2))(x)

    staged = st.function(gradient)
    np.testing.assert_allclose(staged(texts), np.asarray(gradient(texts)), rtol=1e-4, atol=1e-5)
    assert "st_product_f32_" in staged.stage(texts).source


def test_a_row_of_a_spilled_tile_begins_at_a_pointer_of_each_array():
    """Its elements are counted from there, and say neither where the tile nor where the row begins."""

    def two_results(x, w, b):
        y = E.tanh(D.matmul(x, w) + b)
        return y, y <= 0.0

    types = tensor("f32", 64, 100), tensor("f32", 100, 64), tensor("f32", 64)
    text, _ = source(fused(two_results, *types, machine=MACHINE), machine=MACHINE)
    pointers = re.findall(r"(\w+ \*const \w+_r) =\s.* \+ r \* 64 \+ panel \* 32;", text)
    assert len(pointers) == 2 and pointers[1].startswith("bool *const")
    assert "_after" not in text and all(len(line) <= 120 for line in text.splitlines() if "//" not in line)
