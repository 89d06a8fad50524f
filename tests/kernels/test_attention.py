"""Folds to several values, and attention as one nest with one: right, and in memory for one row."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from attention_nest import attention_nest, softmax_sum
from harness import FLAGS, MACHINE, aligned_buffer, compile_c
from nest_interpreter import run_nest

from staged.backends.cpu.nest.kernel import kernel_of
from staged.code.dialect import C
from staged.code.support.library import render
from staged.ir.declaration import prims
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Begin,
    Compute,
    Constant,
    Fold,
    Load,
    Local,
    Loop,
    Merge,
    Nest,
    Store,
    Take,
)
from staged.ir.machine import PORTABLE, Machine
from staged.ir.nest_printer import print_nest
from staged.ir.types import f32, f64
from staged.kernels.schedule import schedule


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, causal: bool = False) -> np.ndarray:
    scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
    if causal:
        scores = np.where(np.tri(q.shape[-2], k.shape[-2], dtype=bool), scores, -np.inf)
    e = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True) @ v


def compiled(nest: Nest, inputs: list[np.ndarray], out: np.ndarray, machine: Machine = MACHINE) -> int:
    """Runs the nest as C, and gives the bytes of its workspace."""
    text = kernel_of(nest, schedule(nest, machine), "attention", [], machine, lambda where: 0, C)
    includes, support = render(text.snippets - {"memcpy"})
    lines = ["#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>"]
    lines += ["#include <math.h>", *includes, support, text.text]
    source = "\n".join([*lines, "void *const entry = (void *)(uintptr_t)&attention;"])
    library = compile_c(source, [*FLAGS, *([f"-march={machine.march}"] if machine.march else [])])
    address = ctypes.c_void_p.in_dll(library, "entry").value
    assert address is not None
    scratch = aligned_buffer(text.scratch_bytes)
    arrays = [each.ctypes.data_as(ctypes.c_void_p) for each in (*inputs, out, *([scratch] if text.scratch_bytes else []))]
    ctypes.CFUNCTYPE(None)(address)(*arrays, ctypes.c_int64(0), ctypes.c_int64(text.items))
    return text.scratch_bytes


def operands(heads: int, queries: int, keys: int, depth: int, width: int, dtype: type) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    shapes = ((heads, queries, depth), (heads, keys, depth), (heads, keys, width))
    return [(3 * rng.standard_normal(shape)).astype(dtype) for shape in shapes]


@pytest.mark.parametrize("causal", [False, True])
def test_a_nest_of_attention_is_attention(causal: bool) -> None:
    given = operands(2, 3, 5, 4, 3, np.float64)
    (out,) = run_nest(attention_nest(2, 3, 5, 4, 3, f64, causal), given)
    np.testing.assert_allclose(out.reshape(2, 3, 3), attention(*given, causal), rtol=1e-13)


@pytest.mark.parametrize("machine", [PORTABLE, MACHINE], ids=lambda m: m.name)
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shape", [(2, 37, 53, 16, 24), (1, 5, 9, 7, 3), (3, 1, 1, 20, 40)])
def test_attention_in_c(machine: Machine, causal: bool, shape: tuple[int, int, int, int, int]) -> None:
    given = operands(*shape, np.float32)
    heads, queries, _, _, width = shape
    out = np.full((heads, queries, width), np.nan, np.float32)
    compiled(attention_nest(*shape, f32, causal), given, out, machine)
    np.testing.assert_allclose(out, attention(*[x.astype(np.float64) for x in given], causal), rtol=2e-5, atol=1e-5)


def test_the_workspace_of_attention_does_not_grow_with_the_sequence() -> None:
    """A matrix of these scores has 64 MB; the nest has a row of the result."""
    given = operands(1, 4096, 4096, 8, 16, np.float32)
    out = np.full((1, 4096, 16), np.nan, np.float32)
    assert compiled(attention_nest(1, 4096, 4096, 8, 16, f32), given, out) == 64
    np.testing.assert_allclose(out[:, :50], attention(given[0][:, :50], *given[1:]), rtol=1e-3, atol=1e-4)


def test_scores_that_grow_do_not_overflow() -> None:
    q, k = np.ones((1, 1, 1), np.float32), np.linspace(-500, 500, 64, dtype=np.float32).reshape(1, 64, 1)
    v, out = np.arange(64, dtype=np.float32).reshape(1, 64, 1), np.zeros((1, 1, 1), np.float32)
    compiled(attention_nest(1, 1, 64, 1, 1, f32), [q, k, v], out)
    np.testing.assert_allclose(out.item(), attention(q, k, v).item(), rtol=1e-5)


def test_a_fold_in_two_parts_is_the_fold() -> None:
    """States merge, not only elements: what was found of each half becomes what would be found of both."""
    x, out = ArrayRef("x", f64, 10, "input"), ArrayRef("out", f64, 2, "output")
    (whole, _, _), (half, _, _) = softmax_sum(f64), softmax_sum(f64)
    part, i, element = Axis("part", 2), Axis("i", 5), Local("element", f64)
    inner = Loop(i, (Load(element, x, Affine.of(part, 5) + Affine.of(i)), Take(half, (element, Constant(1.0, f64)))))
    outer = Loop(part, (Begin(half), inner, Take(whole, half.state)))
    stores = tuple(Store(out, Affine((), place), local) for place, local in enumerate(whole.state))
    values = np.random.default_rng(0).standard_normal(10) * 9
    (found,) = run_nest(Nest("halves", (x,), (out,), (), (Begin(whole), outer, *stores), 1), [values])
    np.testing.assert_allclose(found, [values.max(), np.exp(values - values.max()).sum()], rtol=1e-14)


def test_a_merge_sees_the_state_before_it() -> None:
    """All of it: the second value is found of what the first one was."""
    x, out = ArrayRef("x", f64, 6, "input"), ArrayRef("out", f64, 2, "output")
    (total, product), (a, b), (c, d) = ((Local(one, f64), Local(two, f64)) for one, two in (("s", "t"), ("a", "b"), ("c", "d")))
    # Called like their ops, they would be written in place.
    added, multiplied = Local("add", f64), Local("multiply", f64)
    body = (Compute(added, prims.ADD, (a, c), {}), Compute(multiplied, prims.MULTIPLY, (a, d), {}))
    fold = Fold((total, product), (Constant(1.0, f64), Constant(1.0, f64)), Merge((a, b), (c, d), body, (added, multiplied)))
    i, element = Axis("i", 6), Local("element", f64)
    loop = Loop(i, (Load(element, x, Affine.of(i)), Take(fold, (element, element))))
    stores = tuple(Store(out, Affine((), place), local) for place, local in enumerate(fold.state))
    nest = Nest("attention", (x,), (out,), (), (Begin(fold), loop, *stores), 1)
    values, found = np.arange(1.0, 7.0), np.zeros(2)
    compiled(nest, [values], found)
    assert found.tolist() == [22.0, 16.0 * 6] == run_nest(nest, [values])[0].tolist()


def test_a_fold_reads_as_its_rule_and_its_state() -> None:
    lines = print_nest(attention_nest(1, 2, 3, 4, 5, f32)).splitlines()
    assert "      merge((m_1, l_1), (m_2, l_2)):" in lines
    assert "        return largest, sum" in lines
    assert "      m, l = -inf, 0.0" in lines
    assert "        m, l = merge((m, l), (score, 1.0))" in lines
