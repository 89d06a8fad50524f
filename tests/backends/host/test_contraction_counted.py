"""Products with one extent that the program counts, against NumPy: every count, one write per element, nothing out of bounds."""

from __future__ import annotations

import numpy as np
import pytest

from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.matmul_plan import PACK_RIGHT_ROWS
from staged.backends.cpu.contraction.spec import ContractionKernel, Epilogue, MatmulSpec
from staged.ir.machine import Machine
from staged.ir.types import DType, bf16, f16, f32, f64, row_major
from tests.backends.host.contraction_harness import Kernel, at_end_of_page, machines, put_function

TARGETS = [pytest.param(machine, id=machine.name) for machine in machines()]
WIDEST = machines()[-1]


def counts_up_to(most: int) -> list[int]:
    """None, one, around whole tiles of any machine and around the rows that make copying pay, and all."""
    near = [size + off for size in (4, 8, 12, 14, 16, 28, 32, PACK_RIGHT_ROWS * 14, 240) for off in (-1, 0, 1)]
    return sorted({0, 1, 2, most - 1, most, *(n for n in near if 0 <= n <= most)})


def numbers(rng: np.random.Generator, shape: tuple[int, ...], dtype: DType) -> np.ndarray:
    if dtype.is_float:
        return rng.standard_normal(shape).astype(dtype.numpy)
    return rng.integers(-1000, 1000, shape).astype(dtype.numpy)


def text_of(
    m: int, n: int, k: int, counted: str, dtype: DType, machine: Machine, epilogue: bool, batch: tuple[int, ...] = (),
    stored: DType | None = None,
) -> tuple[ContractionKernel, str]:
    """The kernel, and the epilogue that it calls. Of counted steps the left operand is stored as (k, m)."""
    a, b = row_major(*batch, m, k), row_major(*batch, k, n)
    if counted == "k":
        a = (1, m)
    put, before = None, ""
    if epilogue:
        put = Epilogue("put", ((f"{dtype.c_name} *", "out"), ("int64_t *", "writes")))
        before = put_function(dtype, n, m * n)
    c = row_major(*batch, m, n)
    spec = MatmulSpec(
        "product", m, n, k, dtype, batch, a, b, c, put, counted=counted, stored=stored,  # type: ignore[arg-type]
    )  # fmt: skip
    return emit_matmul(spec, machine), before


def check(
    m: int, n: int, k: int, counted: str, dtype: DType = f32, machine: Machine = WIDEST, epilogue: bool = False,
    pieces: int = 1, batch: tuple[int, ...] = (), counts: list[int] | None = None, stored: DType | None = None,
) -> None:  # fmt: skip
    text, before = text_of(m, n, k, counted, dtype, machine, epilogue, batch, stored)
    kernel = Kernel(text, dtype, machine, before, stored=stored)
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    most = {"m": m, "k": k, "batch": batch[0] if batch else 0}[counted]
    for size in counts_up_to(most) if counts is None else counts:
        sizes = {"m": m, "k": k, "batch": most, counted: size}
        lead = (sizes["batch"], *batch[1:]) if batch else ()
        # Only what is counted exists: behind it memory ends.
        a = at_end_of_page(numbers(rng, (sizes["k"], m) if counted == "k" else (*lead, sizes["m"], k), stored or dtype))
        b = at_end_of_page(numbers(rng, (*lead, sizes["k"], n), stored or dtype))
        shape = (*lead, sizes["m"], n)
        c = at_end_of_page(np.full(shape, 3, dtype.numpy))
        writes = np.zeros(shape, np.int64)
        kernel.run(a, b, c, out=c, count=writes, pieces=pieces, reverse=pieces > 1, size=size)
        wide = np.float64 if dtype.is_float else dtype.numpy
        left = a.T if counted == "k" else a
        expected = (left.astype(wide) @ b.astype(wide)) * (2 if epilogue else 1)
        if epilogue:
            assert (writes == 1).all(), size
        tolerance = {f32: 3e-7, f64: 6e-16}.get(dtype, 0) * max(1, sizes["k"]) ** 0.5 * 20
        np.testing.assert_allclose(
            c, expected.astype(dtype.numpy), rtol=tolerance, atol=tolerance, err_msg=f"count {size}"
        )


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize(("n", "k"), [(1, 5), (5, 150), (33, 7), (48, 64), (750, 20)])
def test_counted_rows(machine: Machine, n: int, k: int) -> None:
    check(300, n, k, "m", machine=machine)
    check(300, n, k, "m", machine=machine, epilogue=True)


@pytest.mark.parametrize("machine", [TARGETS[0], TARGETS[-1]])
@pytest.mark.parametrize(("m", "n"), [(1, 5), (5, 1), (16, 33), (150, 75)])
def test_counted_steps(machine: Machine, m: int, n: int) -> None:
    check(m, n, 300, "k", machine=machine)
    check(m, n, 300, "k", machine=machine, epilogue=True)


def test_few_rows_and_products_in_blocks_of_a_long_inner_dimension() -> None:
    check(40, 35, 5000, "m")
    check(40, 35, 5000, "m", epilogue=True)
    long = [0, 1, 1000, 2047, 2048, 2049, 3333, 4999, 5000]
    check(37, 50, 5000, "k", counts=long)
    check(37, 50, 5000, "k", epilogue=True, counts=long)


def test_bounds_of_few_rows() -> None:
    for most in (2, 3, 4, 5, 9):
        check(most, 40, 30, "m")
        check(40, 30, most, "k")


def test_rows_that_lie_a_power_of_two_apart() -> None:
    check(300, 70, 1024, "m", counts=[0, 1, 15, 77, 299, 300])


@pytest.mark.parametrize("machine", [TARGETS[0], TARGETS[-1]])
def test_f64(machine: Machine) -> None:
    for n, k in ((5, 30), (48, 64)):
        check(70, n, k, "m", f64, machine, epilogue=n > 5)
        check(n, k, 70, "k", f64, machine, epilogue=n > 5)


@pytest.mark.parametrize("stored", [f16, bf16])
def test_halves(stored: DType) -> None:
    for counted, epilogue in (("m", False), ("m", True), ("k", False), ("k", True)):
        check(100, 33, 100, counted, epilogue=epilogue, stored=stored)
    check(150, 750, 20, "m", stored=stored)
    check(37, 50, 5000, "k", stored=stored, counts=[0, 1, 2049, 5000])
    check(1, 20, 30, "batch", batch=(9,), stored=stored)


def test_counted_batch() -> None:
    for m, n, k in ((2, 3, 4), (20, 35, 18), (1, 20, 30)):
        check(m, n, k, "batch", batch=(9,))
        check(m, n, k, "batch", batch=(9, 2), epilogue=True)


def test_in_pieces() -> None:
    """As threads take them: any order, each with memory of its own."""
    many = Machine(**{**{f: getattr(WIDEST, f) for f in WIDEST.__dataclass_fields__}, "cores": 8})
    text, _ = text_of(2000, 300, 150, "m", f32, many, False)
    assert text.work_items > 8, text.work_items
    check(2000, 300, 150, "m", machine=many, pieces=5, counts=[0, 1, 239, 240, 500, 1999, 2000])
    check(2000, 300, 150, "m", machine=many, pieces=5, epilogue=True, counts=[0, 17, 500, 2000])


def test_text_does_not_depend_on_the_bound() -> None:
    few, many = (text_of(most, 300, 150, "m", f32, WIDEST, False)[0].text for most in (1000, 2000))
    assert len(few.splitlines()) == len(many.splitlines())
