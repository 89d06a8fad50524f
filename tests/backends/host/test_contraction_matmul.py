"""Generated matrix products against NumPy: values, exactly one write per element, no access out of bounds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import staged as st
from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.matmul_plan import merged
from staged.backends.cpu.contraction.multiply import FINISH, ITEMS, NEXT_TILE, PANELS, SIZES
from staged.backends.cpu.contraction.spec import Epilogue, MatmulSpec
from staged.backends.cpu.contraction.vectors import snippet_of, vector_of
from staged.ir.machine import PORTABLE, X86_64_V4, Machine
from staged.ir.types import DType, f32, f64, row_major
from tests.backends.host.contraction_harness import Kernel, at_end_of_page, machines, put_function

TARGETS = [pytest.param(machine, id=machine.name) for machine in machines()]
WIDEST = machines()[-1]

EPILOGUE = Epilogue("put", (("{T} *", "out"), ("int64_t *", "writes")))


def operand(
    rng: np.random.Generator, shape: tuple[int, ...], dtype: DType, transposed: bool
) -> tuple[np.ndarray, np.ndarray, tuple[int, ...]]:
    """(the values as the product sees them, the memory, the strides)."""
    stored = (*shape[:-2], shape[-1], shape[-2]) if transposed else shape
    if dtype.is_float:
        values = rng.standard_normal(stored).astype(dtype.numpy)
    else:
        values = rng.integers(-1000, 1000, stored).astype(dtype.numpy)
    memory = at_end_of_page(values)
    view = memory.swapaxes(-1, -2) if transposed else memory
    return view, memory, tuple(s // memory.itemsize for s in view.strides)


def check(
    m: int,
    n: int,
    k: int,
    dtype: DType = f32,
    machine: Machine = WIDEST,
    transposes: str = "NN",
    batch: tuple[int, ...] = (),
    broadcast: str = "",
    mode: str = "store",
    c_transposed: bool = False,
    pieces: int = 1,
    stored: DType | None = None,
) -> None:
    rng = np.random.default_rng(m * 10007 + n * 101 + k)
    a_batch = () if "a" in broadcast else batch
    b_batch = () if "b" in broadcast else batch
    a, a_memory, a_strides = operand(rng, (*a_batch, m, k), stored or dtype, transposes[0] == "T")
    b, b_memory, b_strides = operand(rng, (*b_batch, k, n), stored or dtype, transposes[1] == "T")
    a_strides = (0,) * (len(batch) - len(a_batch)) + a_strides
    b_strides = (0,) * (len(batch) - len(b_batch)) + b_strides
    start = np.full((*batch, m, n), 3, dtype.numpy)
    c_memory = at_end_of_page(start.swapaxes(-1, -2) if c_transposed else start)
    c = c_memory.swapaxes(-1, -2) if c_transposed else c_memory
    scalar = dtype.c_name
    epilogue = None
    before = ""
    if mode == "epilogue":
        epilogue = Epilogue("put", tuple((ctype.format(T=scalar), name) for ctype, name in EPILOGUE.parameters))
        before = put_function(dtype, n, m * n)
    spec = MatmulSpec(
        "product", m, n, k, dtype, batch, a_strides, b_strides,
        tuple(s // c.itemsize for s in c.strides), epilogue, stored=stored,
    )  # fmt: skip
    kernel = Kernel(emit_matmul(spec, machine), dtype, machine, before, stored=stored)
    count = np.zeros((*batch, m, n), np.int64)
    kernel.run(a_memory, b_memory, c_memory, out=c_memory, count=count, pieces=pieces, reverse=pieces > 1)
    wide = (lambda x: x.astype(np.float64)) if dtype.is_float else (lambda x: x)
    expected = wide(a) @ wide(b)
    if mode == "epilogue":
        expected = 2 * expected
        assert (count == 1).all()
    tolerance = {f32: 3e-7, f64: 6e-16}.get(dtype, 0) * max(1, k) ** 0.5 * 20
    np.testing.assert_allclose(c, expected.astype(dtype.numpy), rtol=tolerance, atol=tolerance)


SHAPES = [
    (1, 1, 1), (2, 3, 5), (5, 1, 7), (1, 9, 33), (7, 17, 1), (13, 31, 29), (16, 16, 16), (33, 47, 61), (64, 10, 128), (10, 64, 20),
    (97, 101, 5), (50, 10, 100), (37, 64, 48), (3, 130, 70), (130, 3, 70), (4, 4, 300), (128, 50, 16), (61, 200, 17),
]  # fmt: skip


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_product_of_every_transposition(machine: Machine, m: int, n: int, k: int) -> None:
    some = ("NN", "TT") if m % 2 else ("TN", "NT")
    for transposes in ("NN", "TN", "NT", "TT") if machine is WIDEST else some:
        check(m, n, k, machine=machine, transposes=transposes)


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_epilogue_receives_every_element_once(machine: Machine, m: int, n: int, k: int) -> None:
    for transposes in ("NN", "TT") if (m + n) % 2 else ("TN", "NT"):
        check(m, n, k, machine=machine, transposes=transposes, mode="epilogue")


@pytest.mark.parametrize(("m", "n", "k"), SHAPES)
def test_column_major_result(m: int, n: int, k: int) -> None:
    check(m, n, k, c_transposed=True, transposes="NT")
    check(m, n, k, c_transposed=True, transposes="TN")


@pytest.mark.parametrize("machine", TARGETS)
@pytest.mark.parametrize(("m", "n", "k"), [(0, 3, 4), (3, 0, 4), (0, 0, 0)])
def test_empty(machine: Machine, m: int, n: int, k: int) -> None:
    check(m, n, k, machine=machine)
    check(m, n, k, machine=machine, mode="epilogue")


@pytest.mark.parametrize("machine", TARGETS)
def test_f64(machine: Machine) -> None:
    for m, n, k in [(3, 5, 7), (13, 31, 29), (64, 10, 128), (61, 75, 90), (1, 40, 50), (40, 1, 50)]:
        for transposes in ("NN", "TN", "NT", "TT"):
            check(m, n, k, f64, machine, transposes)
        check(m, n, k, f64, machine, mode="epilogue")


@pytest.mark.parametrize("machine", [TARGETS[0], TARGETS[-1]])
@pytest.mark.parametrize(("batch", "broadcast"), [((3,), ""), ((2, 3), ""), ((2, 3), "a"), ((2, 3), "b"), ((4, 1), "")])
def test_batches(machine: Machine, batch: tuple[int, ...], broadcast: str) -> None:
    for m, n, k in [(2, 3, 4), (20, 35, 18), (1, 20, 30)]:
        for transposes in ("NN", "TT"):
            check(m, n, k, machine=machine, batch=batch, broadcast=broadcast, transposes=transposes)
        check(m, n, k, machine=machine, batch=batch, broadcast=broadcast, mode="epilogue", pieces=2)


def test_batch_of_rows_against_one_matrix_is_one_product() -> None:
    spec = MatmulSpec("product", 6, 33, 20, f32, (4, 1), (120, 0, 20, 1), (0, 0, 33, 1), (198, 198, 33, 1))
    assert (merged(spec).m, merged(spec).batch) == (24, ())
    spec = MatmulSpec("product", 6, 5, 20, f32, (4,), (0, 20, 1), (5, 20, 1), (5, 20, 1))
    assert (merged(spec).n, merged(spec).batch) == (20, ())
    spec = MatmulSpec("product", 6, 5, 20, f32, (4,), (120, 20, 1), (0, 5, 1), (60, 5, 1))
    assert merged(spec) == spec, "the results do not follow one another"


def test_partly_broadcast_batch() -> None:
    """a (2, 1, m, k) against b (1, 3, k, n): strides of 0 on different axes."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((2, 1, 9, 20)).astype("f"), rng.standard_normal((1, 3, 20, 33)).astype("f")
    c = np.zeros((2, 3, 9, 33), "f")
    spec = MatmulSpec("product", 9, 33, 20, f32, (2, 3), (180, 0, 20, 1), (0, 660, 33, 1), row_major(2, 3, 9, 33))
    Kernel(emit_matmul(spec, WIDEST), f32, WIDEST).run(a, b, c, pieces=3)
    np.testing.assert_allclose(c, a @ b, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("machine", TARGETS)
def test_many_items_in_any_order(machine: Machine) -> None:
    """With several cores and small caches the product splits into blocks of rows and columns."""
    small = replace(machine, cores=3, l1=4096, l2=32768)
    for m, n, k in [(200, 300, 100), (513, 70, 64), (90, 650, 128)]:
        for transposes in ("NN", "TN", "NT", "TT"):
            check(m, n, k, machine=small, transposes=transposes, pieces=5)
        check(m, n, k, machine=small, mode="epilogue", pieces=5, batch=(2,))


@pytest.mark.parametrize("machine", TARGETS)
def test_rows_far_apart_are_packed(machine: Machine) -> None:
    for m, n, k in [(70, 200, 512), (512, 150, 70), (100, 512, 64)]:
        for transposes in ("NN", "TN", "NT", "TT"):
            check(m, n, k, machine=machine, transposes=transposes)


@pytest.mark.parametrize(("machine", "cores"), [(machines()[0], 1), (WIDEST, 1), (WIDEST, 3)])
def test_few_rows_or_columns(machine: Machine, cores: int) -> None:
    """Small caches make these sizes count as large: both skinny forms run, whole and in strips."""
    small = replace(machine, cores=cores, l1=1024, l2=4096)
    for rows, long, k in ((1, 257, 261), (2, 90, 1030), (3, 72, 70), (4, 130, 100)):
        for transposes in ("NN", "TT") if rows % 2 else ("TN", "NT"):
            check(rows, long, k, machine=small, transposes=transposes, pieces=3)
            check(long, rows, k, machine=small, transposes=transposes, pieces=3)
        check(rows, long, k, machine=small, mode="epilogue", pieces=2, batch=(2,))
        check(long, rows, k, machine=small, mode="epilogue", transposes="TN")
        check(long, rows, k, machine=small, mode="epilogue", transposes="NN")
        check(rows, long, k, machine=small, transposes="NT", c_transposed=True)
        check(long, rows, k, machine=small, transposes="TN")


@pytest.mark.parametrize("machine", [TARGETS[0], TARGETS[-1]])
def test_long_inner_dimension(machine: Machine) -> None:
    """Sums are kept between blocks of the inner dimension."""
    for m, n, k in ((20, 35, 2049), (61, 40, 4099), (300, 33, 2560)):
        for transposes in ("NN", "TN", "NT", "TT"):
            check(m, n, k, machine=machine, transposes=transposes)
        check(m, n, k, machine=replace(machine, cores=2, l2=65536), mode="epilogue", pieces=2)
        check(m, n, k, machine=machine, c_transposed=True)


def test_all_products_share_a_function() -> None:
    sizes = ((30, 64, 300), (60, 128, 4100), (17, 640, 256), (30, 64, 20), (20, 45, 50))
    kernels = [emit_matmul(plain(m, n, k), X86_64_V4) for m, n, k in sizes]
    assert {kernel.call({}) for kernel in kernels} == {"st_multiply_f32(a, b, c, &product_sizes, scratch, begin, end)"}
    assert not any(kernel.text for kernel in kernels)
    assert len({kernel.shape for kernel in kernels}) == len(sizes)
    kernels += [emit_matmul(replace(plain(m, n, k), epilogue=EPILOGUE), X86_64_V4) for m, n, k in sizes]
    loop = "while (st_next_tile_f32(&product_sizes, a, b, NULL, scratch, end, &tile)) {"
    assert sum(loop in kernel.text for kernel in kernels) == len(sizes)
    assert all(len(kernel.tables) == 1 for kernel in kernels)
    assert max(table.text.count("\n") for kernel in kernels for table in kernel.tables) < 7
    assert len({snippet.text for kernel in kernels for snippet in kernel.support if "void st_multiply" in snippet.text}) == 1


def plain(m: int, n: int, k: int) -> MatmulSpec:
    return MatmulSpec("product", m, n, k, f32, (), (k, 1), (n, 1), (n, 1))


@pytest.mark.parametrize("machine", TARGETS)
def test_shared_function_computes_every_form_of_product(machine: Machine) -> None:
    """Batches, copies of both operands, a last panel that is padded, blocks of the inner dimension, f64."""
    check(70, 75, 300, machine=machine, batch=(3,), broadcast="a", pieces=2)
    check(70, 75, 2049, machine=machine, transposes="NT", batch=(2,))
    check(90, 300, 512, machine=machine, transposes="TN")
    check(90, 300, 512, machine=machine, transposes="NT")
    check(70, 75, 300, f64, machine)


def test_general_strides() -> None:
    """Neither axis of any operand is contiguous."""
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((20, 2, 30, 3)).astype("f"), rng.standard_normal((30, 5, 40, 2)).astype("f")
    c = np.zeros((20, 2, 40, 2), "f")
    spec = MatmulSpec("product", 20, 40, 30, f32, (), (180, 3), (400, 2), (160, 2))
    Kernel(emit_matmul(spec, WIDEST), f32, WIDEST).run(a, b, c)
    np.testing.assert_allclose(c[:, 0, :, 0], a[:, 0, :, 0] @ b[:, 0, :, 0], rtol=1e-5, atol=1e-5)
    assert (c[:, 1] == 0).all() and (c[..., 1] == 0).all()


def test_same_spec_gives_same_text() -> None:
    spec = MatmulSpec("product", 65, 33, 20, f32, (), (20, 1), (33, 1), (33, 1))
    assert emit_matmul(spec, PORTABLE) == emit_matmul(spec, PORTABLE)


def test_heads_of_support_functions_fit_into_the_columns() -> None:
    words = {"$V": "f64v", "INLINE": "inline __attribute__((always_inline))"}
    texts = [snippet_of(vector_of(PORTABLE, f64), "head", text, words).text for text in (SIZES, ITEMS, PANELS, FINISH, NEXT_TILE)]
    assert max(len(line) for text in texts for line in text.splitlines()) <= 120


def test_variables_of_an_epilogue_are_apart_from_the_arrays() -> None:
    """The array and two variables have the name `t`."""

    def f(x, r, keep):
        t = st.tanh(x + r)
        z = t @ r
        found = []
        for k in range(2):
            x = st.where(keep[k], z, x)
            t = st.tanh(x + r)
            found.append(t * t - t)
        return found

    x = np.random.default_rng(0).standard_normal((12, 12))
    given = x, x.T.copy(), np.array([True, False])
    with st.eager():
        expected = f(*given)
    for found, wanted in zip(st.function(f)(*given), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12)
