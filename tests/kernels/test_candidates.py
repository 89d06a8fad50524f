"""The schedules that a product may have: all give the same bits; the first is the best guess."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
from harness import FLAGS, MACHINE, aligned_buffer, compile_c, fused, kernels, tensor

from staged.backends.cpu.nest.kernel import kernel_of
from staged.code.dialect import C
from staged.code.support.library import render
from staged.code.support.vectors import width_snippet
from staged.ir.loops import Loop, Nest, walk
from staged.ir.machine import C99, X86_64_V3, Machine
from staged.ir.storage_rewrites import Pack
from staged.kernels.candidates import candidates
from staged.ops import contraction as D
from staged.ops import elementwise as E
from staged.ops import reduction as R


def product(m: int, k: int, n: int, turned: bool = False) -> Nest:
    def f(x, w, y):
        return E.maximum(D.matrix_product(x, w, False, turned) + y, 0.0)

    (op,) = kernels(fused(f, tensor("f32", m, k), tensor("f32", *((n, k) if turned else (k, n))), tensor("f32", n), machine=C99))
    nest: Nest = op.attrs["nest"]
    return nest  # without vectors as it is


@pytest.mark.parametrize("machine", [X86_64_V3, MACHINE], ids=lambda m: m.name)
def test_all_candidates_of_a_product_give_the_same_bits(machine: Machine) -> None:
    nest = product(17, 30, 51)
    made = list(candidates(nest, machine))
    texts = [
        kernel_of(each, way, f"way_{n}", [], machine, lambda where: 0, C) for n, (each, way) in enumerate(made)
    ]
    assert len(texts) > 8 and len({str(way) for _, way in made}) == len(texts)
    snippets = {name for text in texts for name in text.snippets} | {width_snippet(machine.vector_bytes)}
    includes, support = render(snippets - {"memcpy"})
    lines = ["#include <stdint.h>", "#include <stdbool.h>", "#include <stddef.h>", "#include <string.h>", *includes, support]
    for text in texts:
        lines += [text.text, f"void *const {text.name}_entry = (void *)(uintptr_t)&{text.name};"]
    library = compile_c("\n".join(lines), [*FLAGS, f"-march={machine.march}"])
    rng = np.random.default_rng(0)
    a, b, y = (rng.standard_normal(shape).astype(np.float32) for shape in ((17, 30), (30, 51), (51,)))
    found = []
    for text in texts:
        out, scratch = np.full((17, 51), np.nan, np.float32), aligned_buffer(text.scratch_bytes)
        arrays = [each.ctypes.data_as(ctypes.c_void_p) for each in (a, b, y, out, *([scratch] if text.scratch_bytes else []))]
        address = ctypes.c_void_p.in_dll(library, f"{text.name}_entry").value
        assert address is not None
        middle = text.items // 2
        for begin, end in ((middle, text.items), (0, middle)):
            ctypes.CFUNCTYPE(None)(address)(*arrays, ctypes.c_int64(begin), ctypes.c_int64(end))
        found.append(out.tobytes())
        np.testing.assert_allclose(out, np.maximum(a.astype(float) @ b + y, 0), rtol=1e-4, atol=1e-5)
    assert len(set(found)) == 1


def test_the_best_guess_keeps_the_multipliers_busy() -> None:
    """With 16 registers by 6 rows of 2 vectors: 4 rows divide 256 better, and have too few totals to hide what an addition takes."""
    nest, way = next(candidates(product(256, 256, 256), X86_64_V3))
    tiles = {s.axis.name: s.axis.extent for s in walk(nest.body) if isinstance(s, Loop) and s.axis.name in ("r", "s")}
    assert tiles["s"] == 2 * X86_64_V3.lanes(4) and tiles["r"] in (5, 6), str(way)


def test_a_candidate_with_a_packed_panel_is_among_them() -> None:
    ways = [way for _, way in candidates(product(64, 40, 64), MACHINE)]
    assert any(isinstance(d, Pack) for way in ways for d in way.rewrites)
    assert not ways[-1].rewrites, "the last one is the nest as it is"


def test_other_nests_have_the_one_schedule_that_they_always_have() -> None:
    (op,) = kernels(fused(lambda x: R.sum_(E.exp(x), axis=1), tensor("f32", 40, 100)))
    ((nest, way),) = candidates(op.attrs["nest"], MACHINE)
    assert nest is op.attrs["nest"] and way.lanes == 16


@pytest.mark.parametrize("machine", [X86_64_V3, MACHINE], ids=lambda m: m.name)
def test_panels_of_a_transposed_operand_are_copied_once_for_all_tiles(machine: Machine) -> None:
    made = list(candidates(product(20, 30, 48, turned=True), machine))
    assert len(made) > 3
    for nest, way in made[:-1]:
        packs = sum(isinstance(d, Pack) for d in way.rewrites)
        assert packs == sum(array.role == "scratch" for array in nest.scratch) > 0, str(way)
    assert made[-1][1].lanes == 1, "without a copy the columns of a transposed operand are no vectors"


def test_transposed_operands_of_short_rows_are_not_copied() -> None:
    ((_, way),) = candidates(product(20, 7, 48, turned=True), X86_64_V3)
    assert way.lanes == 1 and not way.rewrites
