"""Factors of matrices by NumPy, in eager mode, against the bodies of the same composites and against programs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import EagerContext, wrap
from staged.library.linalg import numpy_factors
from staged.ops.composite import COMPOSITES
from staged.ops.context import use_context
from staged.testing import compare_trees

Matrices = np.ndarray[Any, Any]

RNG = np.random.default_rng(3)
NAMES = ("eigh", "svd", "qr", "qr_complete")


def run_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    """From here on eager mode runs the bodies of all composites."""
    monkeypatch.setattr(EagerContext, "_results_of", lambda self, one, arrays, attrs: tuple(map(self.lift, one.run(arrays, attrs))))


def random(*shape: int, dtype: Any = np.float64) -> Matrices:
    x = RNG.standard_normal(shape)
    return (x + 1j * RNG.standard_normal(shape) if np.issubdtype(dtype, np.complexfloating) else x).astype(dtype)


def lone(place: tuple[int, int], number: float) -> Matrices:
    a = random(3, 3)
    a[place] = number
    return np.stack([random(3, 3), a, random(3, 3)])


MATRICES: dict[str, Matrices] = {
    **{str(np.dtype(dtype)): random(2, 4, 4, dtype=dtype) for dtype in (np.float32, np.float64, np.complex64, np.complex128)},
    "batch of two axes": random(2, 1, 3, 3),
    "one": np.array([[-3.0]]),
    "no columns": np.zeros((0, 0)),
    "no matrices": np.zeros((0, 3, 3)),
    "exchange": np.eye(3)[::-1] * 2.0,
    "zeros on the diagonal": 1.0 - np.eye(4),
    "rank 2": random(4, 2) @ random(2, 4),
    "zeros": np.zeros((3, 3)),
    "large": 1e150 * random(3, 3),
    **{f"{number} at {place}": lone(place, number) for number in (np.nan, np.inf) for place in ((1, 1), (2, 0))},
}
TALL: dict[str, Matrices] = {
    "tall": random(2, 5, 3), "tall complex": random(4, 2, dtype=np.complex64), "rows alone": np.zeros((2, 3, 0)),
    "tall NaN": np.where(np.arange(4)[:, None] == 3, np.nan, random(4, 2)),
}  # fmt: skip
CASES = [(name, kind) for name in NAMES for kind in (*MATRICES, *(TALL if name != "eigh" else ()))]


def without_signs(name: str, results: list[Matrices]) -> list[Matrices]:
    """Results of `eigh` and `svd` without phases of vectors: products of vectors, and values. Those of `qr` unchanged."""
    if name.startswith("qr"):
        return results
    *left, right = results if name == "svd" else [results[1], *results]
    u, values = left
    return [(u * values[..., None, :]) @ right.conj().swapaxes(-1, -2), values, u.conj().swapaxes(-1, -2) @ u]


@pytest.mark.parametrize(("name", "kind"), CASES)
def test_results_are_those_of_the_body(name: str, kind: str) -> None:
    """Signs of `qr` too: they are LAPACK's."""
    a = {**MATRICES, **TALL}[kind]
    composite = COMPOSITES[name]
    assert composite.reference is not None
    with use_context(EagerContext()):
        expected = [np.asarray(x) for x in composite.run([wrap(a)], {})]
    found = list(composite.reference(a))
    assert [(x.dtype, x.shape) for x in found] == [(x.dtype, x.shape) for x in expected]
    if kind == "rank 2" and name.startswith("qr"):  # of dependent columns q is arbitrary
        found, expected = [found[0] @ found[1]], [a]
    scale = float(np.abs(np.nan_to_num(a, posinf=0.0)).max(initial=1.0))
    tolerance = 100 * float(np.finfo(a.dtype).eps)
    compare_trees(without_signs(name, found), without_signs(name, expected), rtol=tolerance, atol=tolerance * scale)


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_an_iteration_that_does_not_end_gives_nan_for_its_matrix_alone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compute = getattr(np.linalg, name)

    def fails_for_ones(a: Matrices, *args: Any, **kwargs: Any) -> Any:
        if (a == 1.0).all((-2, -1)).any():
            raise np.linalg.LinAlgError("no convergence")
        return compute(a, *args, **kwargs)

    monkeypatch.setattr(np.linalg, name, fails_for_ones)
    a = np.stack([random(3, 3), np.ones((3, 3)), random(3, 3)])
    results = getattr(numpy_factors, name)(a)
    assert [np.isnan(x).all(tuple(range(1, x.ndim))).tolist() for x in results] == [[False, True, False]] * len(results)
    assert [x.shape[0] for x in results] == [3] * len(results)


def test_the_upper_triangle_is_not_read_and_no_imaginary_part_of_the_diagonal() -> None:
    a = random(3, 3, dtype=np.complex128)
    other = np.tril(a) + np.triu(np.full((3, 3), np.nan), 1) + 5j * np.eye(3)
    compare_trees(numpy_factors.eigh(other), tuple(np.linalg.eigh(a)), rtol=1e-13)


def of_all(a: Any) -> Any:
    """A number that depends on all factors of a matrix, and not on their phases."""
    values, vectors = st.linalg.eigh(a + a.mT.conj())
    u, s, vh = st.linalg.svd(a[:, :3])
    q, r = st.linalg.qr(a[:, :2], "complete")
    some = vectors[:, :2]
    left = u[:, :2] @ vh[:2]
    parts = [st.sum(st.sin(values)), st.sum(s * s * s), st.sum(st.real(q[:, :2] * r[0, 0])), st.linalg.norm(a, "nuc", (0, 1))]
    return sum(parts) + st.sum(st.abs(some @ some.mT.conj()) ** 3) + st.sum(st.abs(left) ** 3) + st.linalg.cond(a)


@pytest.mark.parametrize("dtype", [np.float64, pytest.param(np.complex128, marks=pytest.mark.slow)])
def test_values_and_derivatives_are_those_of_a_program(dtype: Any) -> None:
    a, t = random(4, 4, dtype=dtype), random(4, 4, dtype=dtype)

    def all_derivatives(a: Any, t: Any) -> Any:
        return st.value_and_grad(of_all)(a), st.jvp(of_all, (a,), (t,)), st.vmap(of_all)(st.stack([a, t]))

    expected = st.function(all_derivatives)(a, t)
    compare_trees(all_derivatives(a, t), expected, rtol=1e-9, atol=1e-10)
    with st.eager():
        compare_trees(all_derivatives(a, t), expected, rtol=1e-9, atol=1e-10)


def test_a_composite_without_rules_is_differentiated_by_its_body() -> None:
    """The completed basis: nothing asks for its derivative, and it has one all the same."""
    a = random(3, 2)
    slope = st.grad(lambda a: st.sum(COMPOSITES["qr_complete"](a)[1]))(a)
    compare_trees(slope, st.grad(lambda a: st.sum(st.linalg.qr(a, "r")))(a), rtol=1e-9, atol=1e-12)


def test_half_precision_runs_the_body() -> None:
    a = random(3, 3).astype(np.float16)
    compare_trees(st.linalg.svdvals(a), st.function(st.linalg.svdvals)(a), rtol=2e-2, atol=2e-2)
