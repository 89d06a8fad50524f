"""`st.linalg` against NumPy's and torch's, eagerly and in programs, mapped, on devices, in f64 and f32, and its refusals."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.testing import compare_trees
from tests import opencl_device
from tests.errors.said import refusals, refuses
from tests.ops.against_torch import agree

RNG = np.random.default_rng(7)


def square(*shape: int) -> np.ndarray:
    """Matrices whose systems are well conditioned."""
    return RNG.standard_normal(shape) + 3.0 * np.eye(shape[-1])


def definite(x):
    """A positive definite matrix, of a square one."""
    eye = np.eye(x.shape[-1])
    return x @ x.mT + (st.asarray(eye, x.dtype) if isinstance(x, st.Array) else eye)


def of_torch(x):
    import torch

    return x @ x.mT + torch.eye(x.shape[-1], dtype=x.dtype)


def substituted(a, b, upper, unit=False, left=True):
    """NumPy's solution of a triangular system."""
    a = np.triu(a) if upper else np.tril(a)
    if unit:
        a = a - a * np.eye(a.shape[-1]) + np.eye(a.shape[-1])
    return np.linalg.solve(a, b) if left else np.linalg.solve(a.mT, b.mT).mT


def eliminated(a):
    """The factors p, l, u by the textbook, with the largest pivot of each column."""
    if a.ndim > 2:
        return [np.stack(parts) for parts in zip(*map(eliminated, a), strict=True)]
    n, upper = len(a), a.copy()
    lower, order = np.zeros_like(a), np.arange(n)
    for step in range(n):
        pivot = step + np.abs(upper[step:, step]).argmax()
        for rows in (upper, lower, order):
            rows[[step, pivot]] = rows[[pivot, step]]
        lower[step:, step] = upper[step:, step] / upper[step, step]
        upper[step + 1 :] -= lower[step + 1 :, step, None] * upper[step]
        upper[step + 1 :, step] = 0.0
    return [np.eye(n)[order].T, lower, upper]


def squares(parts, joined):
    """Squares of singular vectors, the values, and the product of all."""
    u, values, vh = parts
    product = (u * values[..., None, :]) @ vh
    return joined([u**2, values[..., None, :], (vh**2).mT, product.mT if product.shape[-1] > u.shape[-1] else product], -2)


def taylor(a):
    """The exponential by its series, of a matrix made small."""
    a = a / 2.0**12
    total = term = np.broadcast_to(np.eye(a.shape[-1]), a.shape)
    for power in range(1, 8):
        term = term @ a / power
        total = total + term
    for _ in range(12):
        total = total @ total
    return total


def torch_of(name, *given):
    import torch

    found = getattr(torch, name)
    return found(*given) if given else found


# name: (ours, NumPy's, torch's, shapes of the operands)
CASES = {
    "cholesky": (
        lambda x: st.linalg.cholesky(definite(x)),
        lambda x: np.linalg.cholesky(definite(x)),
        lambda t, x: t.cholesky(of_torch(x)),
        [(4, 4)],
    ),
    "cholesky upper": (
        lambda x: st.linalg.cholesky(definite(x), upper=True),
        lambda x: np.linalg.cholesky(definite(x)).mT,
        lambda t, x: t.cholesky(of_torch(x), upper=True),
        [(2, 3, 3)],
    ),
    "solve_triangular": (
        lambda a, b: st.linalg.solve_triangular(a, b, upper=False),
        lambda a, b: substituted(a, b, False),
        lambda t, a, b: t.solve_triangular(a, b, upper=False),
        [(2, 4, 4), (4, 3)],
    ),
    "solve_triangular upper": (
        lambda a, b: st.linalg.solve_triangular(a, b, upper=True),
        lambda a, b: substituted(a, b, True),
        lambda t, a, b: t.solve_triangular(a, b[:, None], upper=True)[:, 0],
        [(4, 4), (4,)],
    ),
    "solve_triangular right": (
        lambda a, b: st.linalg.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        lambda a, b: substituted(a, b, True, unit=True, left=False),
        lambda t, a, b: t.solve_triangular(a, b, upper=True, left=False, unitriangular=True),
        [(3, 3), (2, 5, 3)],
    ),
    "solve": (st.linalg.solve, np.linalg.solve, lambda t, a, b: t.solve(a, b), [(2, 4, 4), (2, 4, 3)]),
    "solve vector": (st.linalg.solve, np.linalg.solve, lambda t, a, b: t.solve(a, b), [(4, 4), (4,)]),
    "inv": (st.linalg.inv, np.linalg.inv, lambda t, a: t.inv(a), [(2, 3, 3)]),
    "det": (st.linalg.det, np.linalg.det, lambda t, a: t.det(a), [(2, 3, 3)]),
    "slogdet": (
        lambda a: st.stack(st.linalg.slogdet(a)),
        lambda a: np.stack(np.linalg.slogdet(a)),
        lambda t, a: torch_of("stack", tuple(t.slogdet(a))),
        [(3, 4, 4)],
    ),
    "lu": (
        lambda a: st.stack(st.linalg.lu(a)),
        lambda a: np.stack(eliminated(a)),
        lambda t, a: torch_of("stack", tuple(t.lu(a))),
        [(5, 5)],
    ),
    "lu_factor": (
        lambda a: st.linalg.lu_factor(a)[0],
        lambda a: np.tril(eliminated(a)[1], -1) + eliminated(a)[2],
        lambda t, a: t.lu_factor(a)[0],
        [(2, 4, 4)],
    ),
    "pivots": (
        lambda a: a[0] * st.linalg.lu_factor(a)[1],
        lambda a: a[0] * np.array([3, 2, 3]),
        lambda t, a: a[0] * t.lu_factor(a)[1],
        [np.array([[1.0, 2.0, 7.0], [2.0, 5.0, 1.0], [4.0, 1.0, 1.0]])],
    ),
    "matrix_power": (
        lambda a: st.linalg.matrix_power(a, 5) + st.linalg.matrix_power(a, 0),
        lambda a: np.linalg.matrix_power(a, 5) + np.linalg.matrix_power(a, 0),
        lambda t, a: t.matrix_power(a, 5) + t.matrix_power(a, 0),
        [(2, 2, 2)],
    ),
    "negative power": (
        lambda a: st.linalg.matrix_power(a, -3),
        lambda a: np.linalg.matrix_power(a, -3),
        lambda t, a: t.matrix_power(a, -3),
        [(3, 3)],
    ),
    "multi_dot": (
        lambda *xs: st.linalg.multi_dot(xs),
        lambda *xs: np.linalg.multi_dot(xs),
        lambda t, *xs: t.multi_dot(xs),
        [(3,), (3, 4), (4, 2), (2, 5)],
    ),
    "qr": (
        lambda a: st.concat(st.linalg.qr(a), -2),
        lambda a: np.concatenate(np.linalg.qr(a), -2),
        lambda t, a: torch_of("cat", t.qr(a), -2),
        [(2, 5, 3)],
    ),
    "wide qr": (
        lambda a: st.concat(st.linalg.qr(a), -1),
        lambda a: np.concatenate(np.linalg.qr(a), -1),
        lambda t, a: torch_of("cat", t.qr(a), -1),
        [(3, 5)],
    ),
    # Squares and products of vectors, since their signs are arbitrary.
    "eigh": (
        lambda a: st.concat([st.linalg.eigh(a + a.mT)[0][:, None], st.linalg.eigh(a + a.mT)[1] ** 2], -2),
        lambda a: np.concatenate([np.linalg.eigh(a + a.mT)[0][:, None], np.linalg.eigh(a + a.mT)[1] ** 2], -2),
        lambda t, a: torch_of("cat", [t.eigh(a + a.mT)[0][:, None], t.eigh(a + a.mT)[1] ** 2], -2),
        [(2, 4, 4)],
    ),
    "eigvalsh": (
        lambda a: st.linalg.eigvalsh(definite(a)),
        lambda a: np.linalg.eigvalsh(definite(a)),
        lambda t, a: t.eigvalsh(of_torch(a)),
        [(5, 5)],
    ),
    "svd": (
        lambda a: squares(st.linalg.svd(a, full_matrices=False), st.concat),
        lambda a: squares(np.linalg.svd(a, full_matrices=False), np.concatenate),
        lambda t, a: squares(t.svd(a, full_matrices=False), lambda xs, axis: torch_of("cat", xs, axis)),
        [(2, 4, 3)],
    ),
    "wide svd": (
        lambda a: squares(st.linalg.svd(a, full_matrices=False), st.concat),
        lambda a: squares(np.linalg.svd(a, full_matrices=False), np.concatenate),
        lambda t, a: squares(t.svd(a, full_matrices=False), lambda xs, axis: torch_of("cat", xs, axis)),
        [(3, 5)],
    ),
    "svdvals": (st.linalg.svdvals, np.linalg.svdvals, lambda t, a: t.svdvals(a), [(2, 3, 4)]),
    "pinv": (st.linalg.pinv, np.linalg.pinv, lambda t, a: t.pinv(a), [(2, 5, 3)]),
    "wide pinv": (st.linalg.pinv, np.linalg.pinv, lambda t, a: t.pinv(a), [(3, 4)]),
    "lstsq": (
        lambda a, b: st.linalg.lstsq(a, b)[0],
        lambda a, b: np.linalg.lstsq(a, b)[0],
        lambda t, a, b: t.lstsq(a, b).solution,
        [(5, 3), (5, 2)],
    ),
    "residuals": (
        lambda a, b: st.linalg.lstsq(a, b)[1],
        lambda a, b: np.linalg.lstsq(a, b)[1],
        lambda t, a, b: ((a @ (t.pinv(a) @ b) - b) ** 2).sum(0, keepdim=True),
        [(5, 3), (5,)],
    ),
    "matrix_exp": (
        lambda a: st.linalg.expm(2.0 * a) / 1000.0,
        lambda a: taylor(2.0 * a) / 1000.0,
        lambda t, a: t.matrix_exp(2.0 * a) / 1000.0,
        [(2, 4, 4)],
    ),
    "cond": (st.linalg.cond, np.linalg.cond, lambda t, a: t.cond(a), [(2, 4, 3)]),
    "cond 1": (
        lambda a: st.linalg.cond(a, 1),
        lambda a: np.linalg.cond(a, 1),
        lambda t, a: t.matrix_norm(a, 1) * t.matrix_norm(t.inv(a), 1),
        [(3, 3)],
    ),
    **{
        f"matrix_norm {ord}": (
            lambda a, ord=ord: st.linalg.matrix_norm(a, ord=ord, keepdims=True),
            lambda a, ord=ord: np.linalg.matrix_norm(a, ord=ord, keepdims=True),
            lambda t, a, ord=ord: t.matrix_norm(a, ord, keepdim=True),
            [(2, 3, 4)],
        )
        for ord in ("fro", "nuc", 1, -1, 2, -2, np.inf, -np.inf)
    },
    "norm": (
        lambda a: st.linalg.norm(a, 1, (2, 0)) + st.linalg.norm(a) + st.linalg.norm(a, 3, 1)[0, :1],
        lambda a: np.linalg.norm(a, 1, (2, 0)) + np.linalg.norm(a) + np.linalg.norm(a, 3, 1)[0, :1],
        lambda t, a: t.norm(a, 1, (2, 0)) + t.norm(a) + t.norm(a, 3, 1)[0, :1],
        [(2, 3, 4)],
    ),
    "diagonal": (
        lambda a: st.linalg.diagonal(a, offset=1) + st.linalg.trace(a)[:, None],
        lambda a: np.linalg.diagonal(a, offset=1) + np.linalg.trace(a)[:, None],
        lambda t, a: t.diagonal(a, offset=1) + t.diagonal(a).sum(-1, keepdim=True),
        [(2, 3, 3)],
    ),
    "outer": (st.linalg.outer, np.linalg.outer, lambda t, a, b: a[:, None] * b, [(3,), (4,)]),
    "vector_norm": (
        lambda x: st.linalg.vector_norm(x, axis=(0, 2), ord=3),
        lambda x: np.linalg.vector_norm(x, axis=(0, 2), ord=3),
        lambda t, x: t.vector_norm(x, 3, dim=(0, 2)),
        [(2, 3, 4)],
    ),
}
OPERANDS = {
    name: [
        shape if isinstance(shape, np.ndarray) else
        square(*shape) if shape[-2:-1] == shape[-1:] else RNG.standard_normal(shape) for shape in case[3]
    ]
    for name, case in CASES.items()
}


WITH_RULES = (
    "cholesky", "solve_triangular", "solve", "det", "slogdet", "lu_factor", "wide qr", "eigh", "svd", "wide pinv", "matrix_exp"
)  # fmt: skip
"""A call of each composite that has a derivative of its own."""
RULED = {name: OPERANDS[name] for name in WITH_RULES}


def all_of(operands):
    return {name: CASES[name][0](*given) for name, given in operands.items()}


def expected(operands):
    return {name: CASES[name][1](*given) for name, given in operands.items()}


@pytest.mark.parametrize("name", CASES)
def test_values_and_gradients_agree_with_torch(name: str) -> None:
    agree(CASES[name][0], lambda F, *given: CASES[name][2](torch_of("linalg"), *given), *OPERANDS[name])


def test_a_program_and_its_map_give_numpys_values() -> None:
    compare_trees(st.function(all_of)(OPERANDS), expected(OPERANDS), rtol=1e-11, atol=1e-12)
    twice = {name: [np.stack([x, 1.5 * x]) for x in given] for name, given in OPERANDS.items()}
    mapped = st.function(st.vmap(all_of))({name: twice[name] for name in RULED})
    other = expected({name: [1.5 * x for x in given] for name, given in RULED.items()})
    compare_trees({name: value[1] for name, value in mapped.items()}, other, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_agree_with_differences(order: int) -> None:
    given = RULED if order == 1 else {name: x for name, x in RULED.items() if name not in ("wide qr", "lu_factor", "wide pinv")}
    st.check_grads(all_of, (given,), order=order, rtol=1e-4)


def test_derivatives_of_a_map_agree_with_differences() -> None:
    """Some operands are mapped, the others are the same for all."""
    twice = {name: [np.stack([x, 1.5 * x]) if n == 0 else x for n, x in enumerate(xs)] for name, xs in RULED.items()}

    def mapped(operands):
        def call(name, given):
            return st.vmap(CASES[name][0], in_axes=(0, *[None] * (len(given) - 1)))(*given)

        return {name: call(name, given) for name, given in operands.items()}

    st.check_grads(mapped, (twice,), rtol=1e-4)


@pytest.mark.parametrize("back_end", ["cuda", "opencl"])
def test_a_device_gives_the_same(emulated_device, back_end: str) -> None:
    if back_end == "opencl":
        opencl_device.require()

    @st.function
    def program(operands):
        with st.with_backend(st.GPU, operands, using=None if back_end == "cuda" else back_end):
            return all_of(operands)

    names = ("cholesky", "solve", "wide qr", "eigh") if back_end == "cuda" else ("cholesky", "solve")
    given = {name: [x.astype(np.float32) for x in OPERANDS[name]] for name in names}
    compare_trees(program(given), st.function(all_of)(given), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("n", [0, 1, 70, 200])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sizes_from_nothing_to_several_blocks(n: int, dtype: type) -> None:
    x = RNG.standard_normal((n, n)).astype(dtype)
    a, b = definite(x).astype(dtype), RNG.standard_normal((n, 2)).astype(dtype)

    @st.function
    def program(x, a, b):
        factor = st.linalg.cholesky(a)
        return {
            "factor": factor @ factor.mT,
            "inverse": a @ st.linalg.inv(a),
            "general": (x - 4.0) @ st.linalg.solve(x - 4.0, b),
            "logdet": st.linalg.slogdet(a)[1] - 2.0 * st.sum(st.log(st.diagonal(factor))),
            "lower": factor @ st.linalg.solve_triangular(factor, b, upper=False),
            "upper": factor.mT @ st.linalg.solve_triangular(factor.mT, b, upper=True),
        }

    found = program(x, a, b)
    tolerance = np.finfo(dtype).eps * max(n, 1) * 10
    right = {"factor": a, "inverse": np.eye(n, dtype=dtype), "logdet": 0.0, **dict.fromkeys(("general", "lower", "upper"), b)}
    compare_trees(found, {**right, "logdet": np.zeros((), dtype)}, rtol=tolerance, atol=tolerance * 50)


def test_only_one_triangle_is_read() -> None:
    a = definite(square(3, 3))
    above = a + np.triu(np.full((3, 3), np.nan), 1)
    compare_trees(st.function(st.linalg.cholesky)(above), np.linalg.cholesky(a), rtol=1e-12)
    compare_trees(
        st.function(lambda a: st.linalg.solve_triangular(a, a[:, :1], upper=False))(above),
        substituted(a, a[:, :1], False),
        rtol=1e-12,
    )


def test_numpys_functions_are_ours() -> None:
    a = definite(square(3, 3))
    compare_trees(st.function(lambda a: np.linalg.cholesky(a))(a), np.linalg.cholesky(a), rtol=1e-12)
    assert isinstance(np.linalg.cholesky(wrap(a)), st.Array)
    compare_trees(st.function(lambda a: np.linalg.matrix_transpose(np.linalg.inv(a)))(a), np.linalg.inv(a.T), rtol=1e-12)


def test_an_ill_conditioned_system_has_a_small_residual() -> None:
    a = 1.0 / (np.arange(12)[:, None] + np.arange(12) + 1.0)
    b = a @ np.ones(12)
    found = np.asarray(st.function(st.linalg.solve)(a, b))
    assert np.linalg.cond(a) > 1e15
    np.testing.assert_allclose(a @ found, b, rtol=1e-14)


@pytest.mark.parametrize("n", [1, 2, 3])
def test_the_determinant_of_a_singular_matrix_has_a_derivative(n: int) -> None:
    a = np.array([[1.0, 2.0, 3.0], [2.0, 4.0, 6.0], [1.0, 0.0, 1.0]])[:n, :n] * (n > 1)
    cofactors = [
        [(-1) ** (i + j) * np.linalg.det(np.delete(np.delete(a, i, 0), j, 1)) for j in range(n)] for i in range(n)
    ]
    np.testing.assert_allclose(np.asarray(st.function(st.grad(st.linalg.det))(a)), cofactors, atol=1e-13)
    assert [float(part) for part in st.linalg.slogdet(a)] == [0.0, -np.inf]
    st.check_grads(st.linalg.det, (a,), order=2)


def test_the_second_derivative_of_a_larger_singular_determinant_stops() -> None:
    """Forward mode, whose result may be unused, gives NaN there. Regular matrices of the batch have theirs."""
    cofactor = lambda a: st.grad(lambda b: st.sum(st.linalg.det(b)))(a)[..., 0, 1]  # noqa: E731
    slope = st.grad(lambda a: st.sum(cofactor(a)))
    regular = np.eye(4)[[1, 0, 2, 3]] * 2.0
    found = np.asarray(st.function(slope)(regular[None]))[0]
    minors = np.zeros((4, 4))
    minors[1, 0], minors[2, 2], minors[3, 3] = -4.0, -4.0, -4.0
    np.testing.assert_allclose(found, minors, atol=1e-12)
    singular = np.stack([regular, np.ones((4, 4))])
    for run in (slope, st.function(slope)):
        with pytest.raises(st.ProgramError, match="of more than three rows, the second derivative is not known") as caught:
            run(singular)
        assert "test_linalg.py, line" in str(caught.value)
    along = np.asarray(st.jvp(cofactor, (singular,), (np.ones_like(singular),))[1])
    assert np.isnan(along).tolist() == [False, True]



def test_eigenvalues_of_equal_ones_have_a_derivative_and_their_vectors_have_none(emulated_device) -> None:
    a = np.diag([2.0, 2.0, 1.0])
    compare_trees(st.function(st.grad(lambda a: st.sum(st.linalg.eigvalsh(a) ** 2)))(a), 2.0 * a, rtol=1e-12)
    projector = lambda a: (lambda v: v @ v.mT)(st.linalg.eigh(a)[1][:, 1:])  # noqa: E731
    compare_trees(st.function(st.grad(lambda a: st.sum(projector(a) * np.arange(9.0).reshape(3, 3))))(a)[2, 1], 6.0, rtol=1e-12)
    for name, f in {
        "eigen": lambda a: st.linalg.eigh(a)[1][0, 1] ** 2 + st.linalg.eigh(a)[1][0, 2] * 3.0,
        "singular ": lambda a: st.linalg.svd(a)[0][0, 0] + 2.0 * st.linalg.svd(a)[2][0, 1],
    }.items():
        with pytest.raises(ValueError, match=f"of equal {name}values, .*vectors have no derivative") as caught:
            st.function(st.grad(f))(a)
        assert "test_linalg.py" in str(caught.value)
    tangent = np.ones((3, 3))
    assert np.isnan(np.asarray(st.function(lambda a: st.jvp(st.linalg.eigh, (a,), (tangent,))[1][1])(a))).any()
    assert np.isfinite(np.asarray(st.function(lambda a: st.jvp(st.linalg.eigvalsh, (a,), (tangent,))[1])(a))).all()


def check_basis(q):
    unit = np.broadcast_to(np.eye(q.shape[-1], dtype=q.dtype), (*q.shape[:-2], *q.shape[-1:] * 2))
    compare_trees(q.conj().mT @ q, unit, rtol=0, atol=1e-13)


SPECIAL = {
    "zeros": np.zeros((4, 4)),
    "ones": np.ones((5, 5)),
    "identity": -np.eye(3),
    "equal": np.diag([1.0, 2.0, 1.0, 2.0, 3.0]),
    "graded": np.diag([1e10, 1.0, 1e-10]) + 1e-3,
    "hilbert": 1.0 / (np.arange(12)[:, None] + np.arange(12) + 1.0),
    "tall": RNG.standard_normal((2, 7, 3)),
    "wide": RNG.standard_normal((3, 7)),
    "one": np.full((1, 1), -3.0),
    "large": 1e200 * definite(square(4, 4)),
    "no rows": np.zeros((0, 3)),
    "no columns": np.zeros((2, 3, 0)),
    "nothing": np.zeros((0, 0)),
}


def factors(a, is_large=False):
    found = {} if is_large else {"qr": st.linalg.qr(a, "complete"), "svd": st.linalg.svd(a)}
    if a.shape[-1] == a.shape[-2]:
        found["eigh"] = st.linalg.eigh(a)
    return found


@pytest.mark.parametrize("name", SPECIAL)
def test_factors_of_special_matrices(name: str) -> None:
    check_factors(SPECIAL[name], st.function(factors)(SPECIAL[name], name == "large"))


def check_factors(a, factors) -> None:
    """The factors of a matrix: orthonormal, with the matrix as their product, and NumPy's values."""
    found = {key: [np.asarray(part) for part in parts] for key, parts in factors.items()}
    atol = 1e-13 * np.abs(a).max(initial=1.0)
    if "qr" in found:
        q, r = found["qr"]
        check_basis(q)
        compare_trees([q @ r, np.tril(r, -1)], [a, np.zeros_like(r)], rtol=0, atol=atol)
        u, values, vh = found["svd"]
        check_basis(u)
        check_basis(vh.conj().mT)
        count = values.shape[-1]
        compare_trees(values, np.linalg.svd(a)[1], rtol=0, atol=atol)
        compare_trees((u[..., :count] * values[..., None, :]) @ vh[..., :count, :], a, rtol=0, atol=atol)
    if "eigh" in found:
        values, vectors = found["eigh"]
        check_basis(vectors)
        compare_trees(values, np.linalg.eigvalsh(a), rtol=0, atol=atol)
        compare_trees(a @ vectors, vectors * values[..., None, :], rtol=0, atol=atol)


def test_a_matrix_of_less_than_full_rank_has_a_pseudo_inverse_and_a_smallest_solution() -> None:
    a, b = np.outer(np.arange(1.0, 5.0), [1.0, 2.0, 4.0]), np.array([1.0, 0.0, 2.0, -1.0])

    @st.function
    def program(a, b):
        return st.linalg.pinv(a), st.linalg.lstsq(a, b)[0], st.linalg.matrix_rank(a), st.linalg.matrix_rank(0.0 * a)

    right = np.linalg.pinv(a), np.linalg.lstsq(a, b)[0], np.array(1), np.array(0)
    compare_trees(program(a, b), right, rtol=1e-13)


def test_each_matrix_may_have_a_tolerance_of_its_own() -> None:
    a, rtol = np.stack([np.diag([1.0, 0.1]), np.diag([1.0, 0.1])]), np.array([0.5, 0.01])

    @st.function
    def program(a, rtol):
        loss = lambda a: st.sum(st.linalg.pinv(a, rtol))  # noqa: E731
        return st.linalg.pinv(a, rtol), st.linalg.matrix_rank(a, rtol=rtol), st.grad(loss)(a)

    inverse, rank, slope = program(a, rtol)
    compare_trees((inverse, rank), (np.linalg.pinv(a, rtol), np.array([1, 2])), rtol=1e-13)
    compare_trees(slope[1], -np.outer(*[np.array([1.0, 10.0])] * 2), rtol=1e-12)


@pytest.mark.parametrize("scale", [0.0, 1e-3, 1.0, 50.0])
def test_exponentials_of_small_and_large_matrices(scale: float) -> None:
    """Of a matrix of order 2 that turns, and one that grows."""
    turn, grow = np.array([[0.0, -scale], [scale, 0.0]]), np.array([[scale, scale], [0.0, scale]])
    found = st.function(st.linalg.expm)(np.stack([turn, grow]))
    c, s, e = np.cos(scale), np.sin(scale), np.exp(scale)
    compare_trees(found[0], np.array([[c, -s], [s, c]]), rtol=1e-12)
    compare_trees(found[1], np.array([[e, scale * e], [0.0, e]]), rtol=1e-12)


SINGULAR = np.array([[1.0, 2.0], [2.0, 4.0]])
STOPS = {
    "cholesky": (st.linalg.cholesky, np.array([[1.0, 2.0], [2.0, 1.0]]), "the matrix is not positive definite"),
    "solve": (lambda a: st.linalg.solve(a, a), SINGULAR, "linalg.solve: the matrix is singular"),
    "inv": (st.linalg.inv, SINGULAR, "linalg.inv: the matrix is singular"),
}


@pytest.mark.parametrize("name", STOPS)
def test_a_matrix_that_has_none_stops_the_program_in_the_users_line(emulated_device, name: str) -> None:
    function, a, words = STOPS[name]

    @st.function
    def program(a):
        return function(a)

    @st.function
    def on_device(a):
        with st.with_backend(st.GPU, a):
            return function(a)

    mapped = st.function(st.vmap(program))
    for run, given in ((function, a), (program, a), (on_device, a), (mapped, np.stack([np.eye(2), a]))):
        with refuses(st.ProgramError, words) as caught:
            run(given)
        assert isinstance(caught.value, ValueError)
        assert "test_linalg.py" in str(caught.value)


X = np.ones((2, 3))
REFUSED = {
    "multi_dot": (lambda: st.linalg.multi_dot([X]), st.ShapeError, "two or more matrices"),
    "multi_dot inside": (lambda: st.linalg.multi_dot([X, X[0], X]), st.ShapeError, "vectors at the ends"),
    "mode": (lambda: st.linalg.qr(X, "raw"), st.ArgumentError, "the mode is 'reduced', 'complete' or 'r', got 'raw'"),
    "ord": (lambda: st.linalg.matrix_norm(X, ord=3), st.ArgumentError, "ord is one of"),
    "axes": (lambda: st.linalg.norm(np.ones((2, 2, 2)), 1), st.ArgumentError, "a vector or a matrix, got 3 axes"),
    "tolerance": (lambda: st.linalg.pinv(X, rtol="small"), st.ArgumentError, "the tolerance is a number"),
    "sides": (lambda: st.linalg.lstsq(X, X[0]), st.ShapeError, "has not the rows that belong to"),
    "outer": (lambda: st.linalg.outer(X, X), st.ShapeError, "takes two vectors"),
    "vector": (lambda: st.linalg.cholesky(X[0]), st.ShapeError, "linalg.cholesky takes a matrix"),
    "square": (lambda: st.linalg.cholesky(X), st.ShapeError, "linalg.cholesky takes square matrices"),
    "rows": (
        lambda: st.linalg.solve_triangular(np.eye(3), X, upper=True),
        st.ShapeError,
        "has not the rows that belong to",
    ),
    "columns": (
        lambda: st.linalg.solve_triangular(np.eye(2), X, upper=True, left=False),
        st.ShapeError,
        "has not the columns that belong to",
    ),
}

test_refused_with_words = refusals(REFUSED)


def test_a_matrix_may_have_a_size_that_the_program_finds() -> None:
    @st.function
    def program(x, n):
        part = x[: st.dim("rows", n, max=3)]
        return st.sum(st.linalg.eigvalsh(part @ part.mT)), st.sum(st.linalg.svdvals(part))

    for rows in (2, 0):
        compare_trees(program(np.eye(3), rows), (float(rows), float(rows)), rtol=1e-12)


def test_a_batch_may_have_a_size_that_the_program_finds() -> None:
    x, b = definite(square(4, 3, 3)), RNG.standard_normal((3, 2))

    @st.function
    def program(x, b, n):
        factor = st.linalg.cholesky(x[: st.dim("matrices", n, max=4)])
        return st.sum(factor, 0), st.sum(st.linalg.solve_triangular(factor, b, upper=False), 0)

    factor = np.linalg.cholesky(x[:2])
    compare_trees(program(x, b, 2), (factor.sum(0), np.linalg.solve(factor, b).sum(0)), rtol=1e-12)


@pytest.mark.parametrize("shape", [(4, 3), (3, 4), (2, 3, 3)])
@pytest.mark.parametrize(("dtype", "scale"), [("float32", 1e33), ("float32", 1e-33), ("float64", 1e290), ("float64", 1e-290)])
def test_singular_and_eigenvalues_of_matrices_whose_squares_are_not_numbers(shape, dtype, scale):
    """The values of equal large elements were NaN, in no order: found by the suite of the Array API."""
    a = (scale * np.random.default_rng(0).normal(size=shape)).astype(dtype)
    for x in (a, np.full(shape, scale, dtype)):
        u, values, v = st.linalg.svd(x, full_matrices=False)
        np.testing.assert_allclose(values, np.linalg.svd(x)[1], rtol=1e-4, atol=1e-5 * scale)
        np.testing.assert_allclose((u * np.asarray(values)[..., None, :]) @ np.asarray(v), x, rtol=1e-4, atol=1e-5 * scale)
        if shape[-1] == shape[-2]:
            both = x + np.swapaxes(x, -1, -2)
            np.testing.assert_allclose(st.linalg.eigvalsh(both), np.linalg.eigvalsh(both), rtol=1e-4, atol=1e-5 * scale)


def test_matrix_rank_takes_a_tolerance_for_each_matrix():
    a = np.stack([np.diag([1.0, 1e-3, 1e-9]), np.diag([1.0, 0.5, 1e-17])])
    least, part = np.array([1e-5, 0.0]), np.array([1e-12, 0.7])
    np.testing.assert_array_equal(st.linalg.matrix_rank(a, atol=least), [2, 2])  # as torch's, where 0 is no tolerance
    np.testing.assert_array_equal(st.linalg.matrix_rank(a, atol=part, rtol=np.array([1e-2, 1e-3])), [1, 1])
    np.testing.assert_array_equal(st.function(lambda a, t: st.linalg.matrix_rank(a, atol=t))(a, least), [2, 2])
    with pytest.raises(st.ArgumentError, match="the tolerance is a number or an array"):
        st.linalg.matrix_rank(a, atol="small")


@pytest.mark.parametrize("shape", [(5, 3), (3, 5), (4, 4), (2, 4, 3)], ids=str)
def test_factors_alone(shape):
    """The r of `qr`, the values of `svd`: as NumPy's, eagerly and in programs."""
    a = np.random.default_rng(5).standard_normal(shape)

    def alone(a):
        return st.linalg.qr(a, mode="r"), st.linalg.svd(a, compute_uv=False)

    expected = np.linalg.qr(a, mode="r"), np.linalg.svd(a, compute_uv=False)
    with st.eager():
        compare_trees(alone(wrap(a)), expected, rtol=1e-12, atol=1e-13)
    compare_trees(st.function(alone)(a), expected, rtol=1e-12, atol=1e-13)
