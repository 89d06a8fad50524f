"""Long sums go in pieces, so that no total takes in many numbers before it is passed on."""

from __future__ import annotations

import re
from itertools import pairwise

import numpy as np
import pytest
from harness import MACHINE, Program, fused, kernels, record, tensor

import staged as st
from staged.ir.cascade import levels
from staged.ir.loops import Tile, walk
from staged.ir.machine import PORTABLE, X86_64_V3
from staged.kernels.fuse import fuse
from staged.ops import reduction as R
from staged.ops import shape as S
from staged.ops.choice import astype


def tiles(f, *types, machine=MACHINE):
    (kernel,) = kernels(fused(f, *types, machine=machine))
    return [s for s in walk(kernel.attrs["nest"].body) if isinstance(s, Tile)]


def test_a_column_of_33_million_ones_is_33_million():
    """2^24 + 1 is no f32: one total would stay at 2^24."""
    n = 1 << 25
    program = Program(fuse(record(lambda x: R.sum_(astype(x, "f32"), axis=0), tensor("u8", n, 1)), MACHINE))
    assert program(np.ones((n, 1), np.uint8))[0] == [n]


CASES = {
    "columns": ((3000, 5), lambda x: R.sum_(x, axis=0), lambda x: x.sum(axis=0)),
    "rows": ((3, 9001), lambda x: R.sum_(x, axis=1), lambda x: x.sum(axis=1)),
    "a middle axis": ((3, 700, 4), lambda x: R.sum_(x, axis=1), lambda x: x.sum(axis=1)),
    "the outer axes": ((40, 50, 3), lambda x: R.sum_(x, axis=(0, 1)), lambda x: x.sum(axis=(0, 1))),
    "all but one axis": ((90, 3, 20), lambda x: R.sum_(x, axis=(0, 2)), lambda x: x.sum(axis=(0, 2))),
    "all": ((100, 73), R.sum_, np.sum),
    "every other element": ((4, 4000), lambda x: R.sum_(x[:, ::2], axis=1), lambda x: x[:, ::2].sum(axis=1)),
    "turned around": ((4, 300), lambda x: R.sum_(S.permute_dims(x, (1, 0)), axis=0), lambda x: x.sum(axis=1)),
    "a mean of rows' maxima": ((500, 7), lambda x: R.mean(R.max_(x, axis=1)), lambda x: x.max(axis=1).mean()),
    "beside the largest": (
        (3, 9001),
        lambda x: (R.sum_(x, axis=1), R.max_(x, axis=1)),
        lambda x: (x.sum(axis=1), x.max(axis=1)),
    ),
    "beside what is summed": (
        (700, 33),
        lambda x: (x * 2, R.sum_(x * 2, axis=0)),
        lambda x: (x * 2, (x * 2).sum(axis=0)),
    ),
    "columns between": ((70, 2, 60, 5), lambda x: R.sum_(x, axis=(0, 2)), lambda x: x.sum(axis=(0, 2))),
    "columns between, few": ((3, 2, 60, 5), lambda x: R.sum_(x, axis=(0, 2)), lambda x: x.sum(axis=(0, 2))),
    **{
        f"columns of {shape}, and their total": (
            shape,
            lambda x: (R.sum_(x * x, axis=0), R.sum_(x * x)),
            lambda x: ((x * x).sum(axis=0), (x * x).sum()),
        )
        for shape in ((40, 5), (700, 5), (40, 300))
    },
    "variances of columns": ((700, 64), lambda x: R.var(x, axis=0), lambda x: x.var(axis=0)),
    "a variance": ((2, 9001), lambda x: R.var(x, axis=1), lambda x: x.var(axis=1)),
}


@pytest.mark.parametrize("machine", [PORTABLE, X86_64_V3, MACHINE], ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_sums_of_every_form_are_exact_to_a_few_roundings(machine, dtype):
    """Positive numbers of very different sizes: one total of them would lose a hundred roundings."""
    rng = np.random.default_rng(0)
    numpy_type = {"f32": np.float32, "f64": np.float64}[dtype]
    functions = [fused(f, tensor(dtype, *shape), machine=machine) for shape, f, _ in CASES.values()]
    for (name, (shape, _, right)), program in zip(CASES.items(), Program.many(functions, machine), strict=True):
        x = np.exp(rng.normal(0, 3, shape)).astype(numpy_type)
        wanted = right(x.astype(np.longdouble))
        for got, want in zip(program(x), wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
            np.testing.assert_allclose(got, want.astype(numpy_type), rtol=4 * np.finfo(numpy_type).eps, err_msg=name)


def test_the_pieces_depend_on_the_sizes_alone_and_the_bits_not_on_the_number_of_them():
    shape = (3000, 300)
    program = Program(fused(lambda x: (R.sum_(x, axis=0), R.sum_(x, axis=1)), tensor("f32", *shape)))
    x = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    found = []
    for program.pieces in (1, 3, 7):
        found.append([part.tobytes() for part in program(x)])
    assert found[0] == found[1] == found[2]


def test_short_sums_are_one_total():
    assert not tiles(lambda x: R.sum_(x, axis=1), tensor("f32", 10, 4096))
    assert [tile.size for tile in tiles(lambda x: R.sum_(x, axis=0), tensor("f32", 32, 10))] == [2048]
    assert not tiles(lambda x: R.max_(x, axis=1), tensor("f32", 10, 100000))
    assert not tiles(lambda x: R.sum_(x, axis=1), tensor("i32", 10, 100000))


def test_one_number_more_is_a_level_more():
    assert [tile.size for tile in tiles(lambda x: R.sum_(x, axis=1), tensor("f32", 10, 4097))] == [2048]
    assert [tile.size for tile in tiles(lambda x: R.sum_(x, axis=0), tensor("f32", 33, 10))] == [2048, 16]


def test_a_total_takes_in_few_numbers_whatever_the_size():
    for turns in [*range(1, 3000), 4096 * 16, 1 << 20, (1 << 25) + 1, 1 << 30]:
        sizes = levels(turns, 32, 16)
        assert sizes == tuple(sorted(set(sizes)))
        if not sizes:
            assert turns <= 32
            continue
        assert sizes[0] == 16
        taken = [inside // outside for outside, inside in pairwise(sizes)]
        taken.append(-(-turns // sizes[-1]))
        assert all(2 <= count <= max(16, round(4 * turns**0.25)) for count in taken), (turns, sizes)


def test_the_sums_of_a_size_that_the_program_finds_go_in_pieces_of_it():
    """Its bound may be far away: the pieces are of what is there."""

    @st.function
    def sums(x, n):
        rows = st.dim("rows", n, max=5000)
        part = x[:rows]
        return st.sum(part, axis=0), st.mean(part)

    x = np.random.default_rng(2).random((5000, 3)).astype(np.float32)
    for n in (0, 1, 15, 16, 17, 33, 4999, 5000):
        columns, mean = sums(x, n)
        np.testing.assert_allclose(columns, x[:n].astype(np.float64).sum(axis=0), rtol=2e-7)
        if n:
            np.testing.assert_allclose(mean, x[:n].astype(np.float64).mean(), rtol=3e-7)


def test_the_text_passes_totals_on():
    text = Program(fused(lambda x: R.sum_(x, axis=1), tensor("f32", 10, 100000))).text
    assert re.search(r"double x_total_i = 0\.0;\s+for \(int64_t first = 0; first < 100000; first \+= 2048\)", text)
    assert "x_total_i += (double)partial_x;" in text
