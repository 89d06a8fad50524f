"""`st.linalg` of complex matrices against PyTorch's and NumPy's, eagerly and in programs, and where it has no derivative."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

import staged as st
from staged.testing import compare_trees
from tests.ops.test_linalg import check_factors, factors
from tests.ops.test_numpy_factors import run_bodies
from tests.torch_reference import reference

RNG = np.random.default_rng(11)


def draw(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape) + 1j * RNG.standard_normal(shape)


def definite(x):
    """A positive definite matrix of ours, of NumPy's or of torch's."""
    if isinstance(x, np.ndarray | st.Array):
        return x @ x.conj().mT + np.eye(x.shape[-1])
    return x @ x.mH + x.new_tensor(np.eye(x.shape[-1]))


def joined(linalg, parts):
    """Arrays of ours or of torch's as one vector."""
    if linalg is st.linalg:
        return st.concat([x.reshape((-1,)) for x in parts])
    import torch

    return torch.cat([x.reshape(-1) for x in parts])


def sizes_and_product(linalg, u, values, vh):
    """The parts of singular vectors that do not depend on their phases."""
    product = (u[..., :2] * values[..., None, :2]) @ vh[..., :2, :]
    return joined(linalg, [product, abs(u) ** 2, abs(vh) ** 2, values])


def projector(linalg, values, vectors):
    return joined(linalg, [vectors[..., :2] @ vectors[..., :2].conj().mT, abs(vectors) ** 2, values])


# of `st.linalg` or `torch.linalg` and the operands: a function, shapes of the operands
CASES = {
    "cholesky": (lambda F, x: F.cholesky(definite(x)), [(2, 4, 4)]),
    "cholesky upper": (lambda F, x: F.cholesky(definite(x), upper=True), [(3, 3)]),
    "solve_triangular": (lambda F, a, b: F.solve_triangular(a, b, upper=False), [(3, 3), (3, 2)]),
    "solve_triangular right": (
        lambda F, a, b: F.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        [(3, 3), (2, 3)],
    ),
    "solve": (lambda F, a, b: F.solve(a, b), [(2, 3, 3), (2, 3, 2)]),
    "inv": (lambda F, a: F.inv(a), [(3, 3)]),
    "det": (lambda F, a: F.det(a), [(2, 3, 3)]),
    "slogdet": (lambda F, a: joined(F, list(F.slogdet(a))), [(2, 3, 3)]),
    "lu": (lambda F, a: joined(F, list(F.lu(a))), [(2, 4, 4)]),
    "lu_factor": (lambda F, a: F.lu_factor(a)[0], [(4, 4)]),
    "qr": (lambda F, a: joined(F, list(F.qr(a))), [(2, 5, 3)]),
    "wide qr": (lambda F, a: joined(F, list(F.qr(a))), [(3, 5)]),
    "eigh": (lambda F, a: projector(F, *F.eigh(definite(a))), [(2, 4, 4)]),
    "eigh upper": (lambda F, a: projector(F, *F.eigh(definite(a), "U")), [(3, 3)]),
    "eigvalsh": (lambda F, a: F.eigvalsh(definite(a)), [(4, 4)]),
    "svd": (lambda F, a: sizes_and_product(F, *F.svd(a, full_matrices=False)), [(4, 3)]),
    "wide svd": (lambda F, a: sizes_and_product(F, *F.svd(a, full_matrices=False)), [(2, 3, 5)]),
    "polar factor": (lambda F, a: (lambda u, s, vh: u @ vh)(*F.svd(a, full_matrices=False)), [(4, 3)]),
    "svdvals": (lambda F, a: F.svdvals(a), [(3, 4)]),
    "pinv": (lambda F, a: F.pinv(a), [(5, 3)]),
    "wide pinv": (lambda F, a: F.pinv(a), [(2, 3, 5)]),
    "lstsq": (lambda F, a, b: F.lstsq(a, b)[0], [(5, 3), (5, 2)]),
    "matrix_exp": (lambda F, a: F.matrix_exp(a), [(2, 3, 3)]),
    "matrix_power": (lambda F, a: F.matrix_power(a, 3) + F.matrix_power(a, -2), [(3, 3)]),
    "multi_dot": (lambda F, *xs: F.multi_dot(xs), [(3,), (3, 4), (4, 2)]),
    "cond": (lambda F, a: F.cond(a), [(3, 3)]),
    "vector_norm": (lambda F, x: F.vector_norm(x), [(2, 3)]),
    **{
        f"matrix_norm {ord}": (lambda F, a, ord=ord: F.matrix_norm(a, ord), [(2, 3, 4)])
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
}
OPERANDS = {name: [draw(*shape) for shape in shapes] for name, (_, shapes) in CASES.items()}
WITH_RULES = (
    "cholesky", "solve_triangular", "solve", "det", "slogdet", "lu", "wide qr", "eigh", "wide svd", "wide pinv", "matrix_exp"
)  # fmt: skip
"""A call of each composite that has a derivative of its own."""


def weights(shape):
    n = np.arange(int(np.prod(shape))).reshape(shape)
    return np.cos(n), np.sin(n + 1.0)


def loss_of(name):
    """A real loss of a case's operands that sees both parts of its value."""

    def loss(*operands):
        value = CASES[name][0](st.linalg, *operands)
        re, im = weights(value.shape)
        return st.sum(st.real(value) * re) + st.sum(st.imag(value) * im), value

    return loss


def values_and_gradients(operands):
    found = {}
    for name, given in operands.items():
        (_, value), back = st.value_and_grad(loss_of(name), argnums=tuple(range(len(given))), has_aux=True)(*given)
        found[name] = [value, *back]
    return found


def torch_values_and_gradients(torch, name, *operands):
    inputs = [torch.tensor(x, requires_grad=True) for x in operands]
    value = CASES[name][0](torch.linalg, *inputs)
    re, im = map(torch.tensor, weights(tuple(value.shape)))
    loss = (value.real * re).sum() + (value.imag * im).sum() if value.is_complex() else (value * re).sum()
    found = [value, *torch.autograd.grad(loss, inputs)]
    return [torch.view_as_real(x.resolve_conj()) if x.is_complex() else x for x in found]


def expected(name):
    found = reference(torch_values_and_gradients, name, *OPERANDS[name])
    whole = [x if is_real else x[..., 0] + 1j * x[..., 1] for x, is_real in zip(found, is_real_of(name), strict=True)]
    return whole


def is_real_of(name):
    real = {"eigvalsh", "svdvals", "cond", "vector_norm"} | {n for n in CASES if n.startswith("matrix_norm")}
    return [name in real, *[False] * len(OPERANDS[name])]


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str) -> None:
    with st.eager():
        found = values_and_gradients({name: OPERANDS[name]})[name]
    compare_trees(found, expected(name), rtol=1e-10, atol=1e-11)


@pytest.mark.slow
def test_a_programs_agree_with_torch() -> None:
    found = st.function(values_and_gradients)({name: OPERANDS[name] for name in WITH_RULES})
    compare_trees(found, {name: expected(name) for name in WITH_RULES}, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("name", CASES)
def test_forward_mode_is_the_gradients_product(name: str) -> None:
    given = OPERANDS[name]
    directions = [draw(*x.shape) for x in given]
    with st.eager():
        _, slope = st.jvp(lambda *xs: loss_of(name)(*xs)[0], tuple(given), tuple(directions))
    products = [(g.conj() * d).real.sum() for g, d in zip(expected(name)[1:], directions, strict=True)]
    np.testing.assert_allclose(slope, sum(products), rtol=1e-9)


@pytest.mark.parametrize("name", WITH_RULES)
def test_second_derivatives_agree_with_differences(name: str) -> None:
    given = [x[0] if x.ndim > 2 else x for x in OPERANDS[name]]
    directions = [draw(*x.shape) for x in given]

    def slopes(*xs):
        return st.grad(lambda *xs: loss_of(name)(*xs)[0], argnums=tuple(range(len(xs))))(*xs)

    with st.eager():
        _, found = st.jvp(slopes, tuple(given), tuple(directions))
        h = 1e-6
        up, down = (slopes(*(x + s * h * d for x, d in zip(given, directions, strict=True))) for s in (1, -1))
    for one, high, low in zip(found, up, down, strict=True):
        difference = (np.asarray(high) - np.asarray(low)) / (2 * h)
        np.testing.assert_allclose(one, difference, rtol=1e-5, atol=1e-5 * np.abs(difference).max())


@pytest.mark.parametrize("n", [0, 1, 70])
@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_sizes_from_nothing_to_several_blocks(n: int, dtype: type) -> None:
    x, b = draw(n, n).astype(dtype), draw(n, 2).astype(dtype)
    a = definite(x).astype(dtype)

    @st.function
    def program(x, a, b):
        factor = st.linalg.cholesky(a)
        general = x - 4.0
        return {
            "factor": factor @ factor.conj().mT,
            "general": general @ st.linalg.solve(general, b),
            "logdet": st.linalg.slogdet(a)[1] - 2.0 * st.sum(st.log(st.real(st.diagonal(factor)))),
            "upper": factor.conj().mT @ st.linalg.solve_triangular(factor.conj().mT, b, upper=True),
            "eigenvalues": st.linalg.eigvalsh(a),
            "qr": st.matmul(*st.linalg.qr(x)),
        }

    tolerance = np.finfo(dtype).eps * max(n, 1) * 20
    nothing = np.zeros((), np.finfo(dtype).dtype)
    right = {"factor": a, "general": b, "logdet": nothing, "upper": b, "eigenvalues": np.linalg.eigvalsh(a), "qr": x}
    compare_trees(program(x, a, b), right, rtol=tolerance, atol=tolerance * 50)


HILBERT = 1.0 / (np.arange(9)[:, None] + np.arange(9) + 1.0)
SPECIAL = {
    "zeros": np.zeros((3, 3), complex),
    "equal": np.array([[1.0, 1j, 0.0], [-1j, 1.0, 0.0], [0.0, 0.0, 2.0]]),
    "hilbert": HILBERT * np.exp(1j * (np.arange(9)[:, None] - np.arange(9))),
    "graded": np.diag([1e10, 1.0, 1e-10]) + np.array([[0.0, 1e-3j, 0.0], [-1e-3j, 0.0, 1e-3], [0.0, 1e-3, 0.0]]),
    "tall": draw(2, 7, 3),
    "wide": draw(3, 7),
    "real": -np.eye(3, dtype=complex),
    "one": np.full((1, 1), -3.0 + 0j),
    "no columns": np.zeros((2, 3, 0), complex),
    "nothing": np.zeros((0, 0), complex),
}


@pytest.mark.parametrize("name", SPECIAL)
def test_factors_of_special_matrices(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By NumPy, and by the bodies that programs have."""
    with st.eager():
        check_factors(SPECIAL[name], factors(SPECIAL[name]))
        run_bodies(monkeypatch)
        check_factors(SPECIAL[name], factors(SPECIAL[name]))


def test_factors_in_a_program() -> None:
    check_factors(SPECIAL["hilbert"], st.function(factors)(SPECIAL["hilbert"]))


def test_pivots_are_lapacks() -> None:
    """By the sum of both parts' absolute values: |3 + 3i| is below |4.5|, the sum above it."""
    a = np.array([[4.5, 1.0, 2j], [3.0 + 3.0j, 2.0, 1.0], [1j, 0.5, 1.0]])
    p, lower, upper = st.function(st.linalg.lu)(a)
    compare_trees([np.asarray(x) for x in (p, lower, upper)], [x.astype(complex) for x in scipy.linalg.lu(a)], rtol=1e-13)
    assert np.asarray(p)[1, 0] == 1.0


def test_one_triangle_is_read_and_no_imaginary_part_of_the_diagonal() -> None:
    a = definite(draw(3, 3))
    above = np.tril(a) + np.triu(np.full((3, 3), np.nan), 1) + 5j * np.eye(3)
    compare_trees(st.function(st.linalg.cholesky)(above), np.linalg.cholesky(a), rtol=1e-12, atol=1e-13)
    compare_trees(st.function(st.linalg.eigvalsh)(above), np.linalg.eigvalsh(a), rtol=1e-12)


def test_what_depends_on_phases_has_no_derivative() -> None:
    a = definite(draw(3, 3))
    for name, f in {
        "eigh": lambda a: st.sum(st.real(st.linalg.eigh(a)[1])),
        "svd": lambda a: st.sum(st.imag(st.linalg.svd(a)[0])),
    }.items():
        with pytest.raises(ValueError, match=f"linalg.{name}: the phases of complex vectors are arbitrary") as caught:
            st.function(st.grad(f))(a)
        assert "test_complex_linalg.py" in str(caught.value)


def test_a_matrix_that_has_none_stops_the_program() -> None:
    indefinite = np.array([[1.0, 2j], [-2j, 1.0]])
    with pytest.raises(ValueError, match="not positive definite"):
        st.function(st.linalg.cholesky)(indefinite)
    singular = np.array([[1j, 2j], [2.0, 4.0]])
    with pytest.raises(ValueError, match="the matrix is singular"):
        st.function(st.linalg.inv)(singular)
    sign, size = st.linalg.slogdet(singular)
    assert complex(sign) == 0 and float(size) == -np.inf


def test_a_map_and_a_device_give_the_same(emulated_device) -> None:
    a, b = draw(2, 3, 3).astype(np.complex64), draw(3, 2).astype(np.complex64)

    @st.function
    def on_device(a, b):
        with st.with_backend(st.GPU, a, b):
            return st.linalg.solve(a, b), st.linalg.det(a)

    right = np.linalg.solve(a, b), np.linalg.det(a)
    mapped = st.function(lambda a, b: st.vmap(lambda a: (st.linalg.solve(a, b), st.linalg.det(a)))(a))
    for found in (on_device(a, b), mapped(a, b)):
        compare_trees(found, right, rtol=1e-4, atol=1e-5)


def test_loops_carry_parts_and_not_pairs() -> None:
    """A pair would be taken apart and put together in every iteration: the whole matrix for one row."""
    source = st.function(st.linalg.solve).stage(draw(8, 8), draw(8, 2)).source
    assert "factors_re" in source and "factors_im" in source
