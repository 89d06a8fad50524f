"""Products whose sizes the program finds, against NumPy: every form, one write per element, nothing out of bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.sized import Tiles
from staged.backends.cpu.contraction.spec import ContractionKernel, Epilogue, MatmulSpec, Matrices
from staged.backends.cpu.contraction.vectors import vector_of
from staged.backends.host.product_sizes import with_sizes_first
from staged.code.expr import Literal, Member, Name, Prefix, Variable, call
from staged.code.kernel_text import Filled
from staged.code.printer import print_body
from staged.code.tree import Assign, Declare, Do, For, While
from staged.code.types import INDEX, word
from staged.ir.machine import Machine
from staged.ir.sizes import Dim
from staged.ir.types import DType, bound, f32, f64, row_major
from tests.backends.host.contraction_harness import Kernel, at_end_of_page, machines

TARGETS = [pytest.param(machine, id=machine.name) for machine in machines()]
WIDEST = machines()[-1]
PUT = """
static inline __attribute__((always_inline)) void put(int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols,
        const TYPE *tile, int64_t ld, int64_t B, int64_t M, int64_t N, int64_t K, TYPE *out, int64_t *writes) {
    (void)B; (void)K;
    for (int64_t r = 0; r < rows; ++r) {
        for (int64_t s = 0; s < cols; ++s) {
            out[(batch * M + row + r) * N + col + s] = 2 * tile[r * ld + s];
            writes[(batch * M + row + r) * N + col + s] += 1;
        }
    }
}
"""
FORMS = list(product((False, True), (False, True)))
"""Whether each operand lies transposed in memory."""


def kernel_of(
    most: Mapping[str, int], fixed: str, turned: tuple[bool, bool], dtype: DType, machine: Machine, epilogue: bool,
    repeats: bool = False, square: bool = False,
) -> ContractionKernel:  # fmt: skip
    """The kernel of a product with these bounds; the sizes named in `fixed` are constants. `square`: N is M."""
    dims = {name: Dim(name, most[name]) for name in "BMNK"}
    b, m, n, k = (most[name] if name in fixed else dims[name] for name in "BMNK")
    n = m if square else n
    names = [name for name in "BMNK" if name not in fixed]
    matrices = Matrices(b, m, n, k, turned, tuple(dims[name] for name in names), repeats)
    rows, columns, steps, batch = (most[name] for name in "MNKB")
    put = None
    if epilogue:
        sizes = tuple(("int64_t ", name) for name in "BMNK")
        put = Epilogue("put", (*sizes, (f"{dtype.c_name} *", "out"), ("int64_t *", "writes")))
    a, right, c = (row_major(batch, *shape) for shape in ((rows, steps), (steps, columns), (rows, columns)))
    spec = MatmulSpec(
        "product", rows, columns, steps, dtype, (batch,), a, right, c, put, matrices=matrices, sizes=tuple(names)
    )
    return emit_matmul(spec, machine)


def check(
    most: Mapping[str, int], sizes: Sequence[tuple[int, int, int, int]], fixed: str = "", dtype: DType = f32,
    turned: tuple[bool, bool] = (False, False), machine: Machine = WIDEST, epilogue: bool = False, pieces: int = 1,
    repeats: bool = False, square: bool = False,
) -> None:  # fmt: skip
    """Compare one kernel at all sizes (B, M, N, K)."""
    before = PUT.replace("TYPE", dtype.c_name) if epilogue else ""
    kernel = Kernel(kernel_of(most, fixed, turned, dtype, machine, epilogue, repeats, square), dtype, machine, before)
    rng = np.random.default_rng(0)
    for given in sizes:
        batch, m, n, k = (most[name] if name in fixed else size for name, size in zip("BMNK", given, strict=True))
        a, b = (
            rng.standard_normal((batch, *(shape[::-1] if is_turned else shape))).astype(dtype.numpy)
            for shape, is_turned in (((m, k), turned[0]), ((k, n), turned[1]))
        )
        c = at_end_of_page(np.full((batch, m, n), 3, dtype.numpy))
        writes = np.zeros((batch, m, n), np.int64)
        named = dict(zip("BMNK", (batch, m, n, k), strict=True))
        kernel.run(
            at_end_of_page(a), at_end_of_page(b), c, out=c, count=writes, pieces=pieces, reverse=pieces > 1, sizes=named
        )
        left, right = (
            x.swapaxes(1, 2) if is_turned else x for x, is_turned in zip((a, b), turned, strict=True)
        )
        expected = left.astype(np.float64) @ right.astype(np.float64) * (2 if epilogue else 1)
        if epilogue:
            assert (writes >= 1).all() if repeats else (writes == 1).all(), given
        tolerance = {f32: 3e-7, f64: 6e-16}[dtype] * max(1, k) ** 0.5 * 20
        np.testing.assert_allclose(c, expected.astype(dtype.numpy), rtol=tolerance, atol=tolerance, err_msg=str(given))


def around(lanes: int) -> list[tuple[int, int, int, int]]:
    """Sizes around those of tiles and vectors, each several times among others."""
    rows = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 18, 19, 29, 64]
    columns = [0, 1, *(count * lanes + more for count in (1, 2, 3, 5, 9) for more in (-1, 0, 1)), 70]
    steps = [0, 1, 2, lanes - 1, lanes, lanes + 1, 40, 150]
    draw = np.random.default_rng(lanes)
    pairs = [(m, n) for m in rows for n in columns]
    return [(int(draw.integers(1, 3)), m, min(n, 70), int(draw.choice(steps))) for m, n in pairs]


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize("turned", FORMS)
def test_all_sizes(machine: Machine, turned: tuple[bool, bool]) -> None:
    for dtype, epilogue, repeats in ((f32, False, False), (f64, True, False), (f32, True, True)):
        sizes = around(machine.lanes(dtype.size))
        check({"B": 2, "M": 70, "N": 70, "K": 150}, sizes, "", dtype, turned, machine, epilogue, repeats=repeats)


@pytest.mark.parametrize("turned", FORMS)
@pytest.mark.parametrize("fixed", ["NK", "MN", "MNK", "BM"])
def test_sizes_that_are_constants(fixed: str, turned: tuple[bool, bool]) -> None:
    for n, k in ((50, 33), (10, 64)):
        most = {"B": 2, "M": n if "M" in fixed else 70, "N": n if "N" in fixed else 70, "K": k if "K" in fixed else 150}
        check(most, around(WIDEST.lanes(4)), fixed, f32, turned)


def test_few_rows_of_a_large_operand_are_read_once() -> None:
    sizes = [(1, m, n, k) for m in (1, 2, 3, 4, 5) for n in (1100, 63) for k in (700, 129, 1)]
    for turned in ((False, False), (False, True)):
        check({"B": 1, "M": 5, "N": 1100, "K": 700}, sizes, turned=turned)
        check({"B": 1, "M": 5, "N": 1100, "K": 700}, sizes, turned=turned, epilogue=True)
    columns = [(1, 700, n, 129) for n in (1, 2, 3)]
    check({"B": 1, "M": 700, "N": 3, "K": 129}, columns, turned=(False, True), epilogue=True)


@pytest.mark.parametrize("epilogue", [False, True])
def test_blocks_of_a_long_inner_dimension(epilogue: bool) -> None:
    sizes = [(1, m, n, k) for m, n in ((3, 50), (40, 35), (37, 50)) for k in (0, 1, 1000, 2048, 2049, 3333, 5000)]
    for turned in FORMS:
        check({"B": 1, "M": 40, "N": 50, "K": 5000}, sizes, turned=turned, epilogue=epilogue)


def test_rows_that_lie_a_power_of_two_apart() -> None:
    for turned in FORMS:
        check({"B": 1, "M": 512, "N": 512, "K": 512}, [(1, 512, 300, 512), (1, 77, 512, 512)], turned=turned)


def test_in_pieces() -> None:
    """As threads take them: any order, each with memory of its own."""
    many = replace(WIDEST, cores=8)
    most = {"B": 3, "M": 700, "N": 300, "K": 150}
    assert kernel_of(most, "", (False, False), f32, many, False).work_items > 8
    sizes = [(3, 0, 300, 150), (1, 1, 300, 150), (2, 239, 300, 150), (3, 700, 290, 7), (1, 700, 33, 150)]
    for epilogue in (False, True):
        check(most, sizes, machine=many, pieces=5, epilogue=epilogue)


@pytest.mark.parametrize("turned", FORMS)
def test_one_dimension_for_rows_and_columns(turned: tuple[bool, bool]) -> None:
    check({"B": 1, "M": 150, "N": 150, "K": 20}, [(1, m, m, 20) for m in range(151)], "K", turned=turned, square=True)


def test_one_dimension_leaves_few_tiles() -> None:
    """A square product with columns of two vectors has more rows than a vector has lanes."""
    tokens, lanes = Dim("T", 100), WIDEST.lanes(4)
    tiles = Tiles(Matrices(1, tokens, tokens, 20, (False, True), (tokens,)), WIDEST, vector_of(WIDEST, f32))
    least = (lanes + 1) // -(-(lanes + 1) // tiles.height)
    assert min(rows for rows, vectors in tiles.functions() if rows and vectors > 1) >= least - 2


def test_constants_leave_few_tiles() -> None:
    """A row of 64 columns is one width, or two of which the second has a vector less."""
    dims = tuple(Dim(name, 40) for name in "BM")
    tiles = Tiles(Matrices(*dims, 64, 20, (False, False), dims), WIDEST, vector_of(WIDEST, f32))
    functions = tiles.functions()
    for rows in {rows for rows, _ in functions} - {0}:
        assert len([place for place in functions if place[0] == rows]) <= 2 + tiles.may_turn * bound(dims[0])


def test_loops_have_sizes_that_they_do_not_change_before_them_once() -> None:
    head, rows = Variable("head", INDEX), Name("T")
    kernel = Filled("sums", "st_product_f32", "st_sized_f32", "st_matrices", (Dim("0"), 32), (False,), "sums_sizes")
    made = [
        Declare(Variable(name, word(kernel.type)), kernel.value([size]))
        for name, size in (("first", rows), ("again", rows), ("other", head), ("field", Member(Name("m"), "count")))
    ]
    calls = [Do(call("sums", Prefix("&", Name(each.variable.text)))) for each in made]
    body = tuple(each for pair in zip(made, calls, strict=True) for each in pair)
    *before, loop = with_sizes_first(For(head, Literal("0"), rows, body))
    assert before == [made[0]]
    again = Do(call("sums", Prefix("&", Name("first"))))
    left = For(head, Literal("0"), rows, (calls[0], again, made[2], calls[2], made[3], calls[3]))
    assert print_body([loop]) == print_body([left])
    onwards = Assign(rows, Literal("1"), "+")
    changes = While(None, (*body[:4], onwards))
    assert with_sizes_first(changes) == (changes,)
