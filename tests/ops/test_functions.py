"""The public functions against NumPy's of the same name."""

from __future__ import annotations

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.ops.array import METHODS
from tests.errors.said import refusals

X = np.linspace(-2.0, 3.0, 24).reshape(2, 3, 4)
Y = np.linspace(0.5, 2.5, 12).reshape(3, 4)
V = np.array([3, 0, -7, 2], np.int64)
B = np.array([[True, False], [True, True]])

# ours, NumPy's
SAME = {
    "add_broadcast": (lambda: st.add(X, Y), lambda: X + Y),
    "divide": (lambda: wrap(X) / Y, lambda: X / Y),
    "floor_divide": (lambda: wrap(V) // 2, lambda: V // 2),
    "remainder": (lambda: wrap(V) % 3, lambda: V % 3),
    "remainder_float": (lambda: wrap(X) % Y, lambda: X % Y),
    "pow_2": (lambda: wrap(X) ** 2, lambda: X**2),
    "pow_3": (lambda: wrap(X) ** 3, lambda: X**3),
    "pow_negative": (lambda: wrap(Y) ** -2, lambda: Y**-2.0),
    "pow_negative_cubes": (lambda: wrap(np.array([70, -3], np.int32)) ** -3, lambda: np.array([70.0, -3.0], np.float32) ** -3),
    "pow_negative_integers": (lambda: wrap(np.array([70000, -3], np.int32)) ** -2, lambda: np.array([7e4, -3.0], np.float32) ** -2),
    "pow_half": (lambda: wrap(Y) ** 0.5, lambda: Y**0.5),
    "pow_general": (lambda: wrap(Y) ** 2.7, lambda: Y**2.7),
    "pow_integers": (lambda: wrap(V) ** 5, lambda: V**5),
    "rpow": (lambda: 2.0 ** wrap(X), lambda: 2.0**X),
    "rsub": (lambda: 1.0 - wrap(X), lambda: 1.0 - X),
    "invert": (lambda: ~wrap(B), lambda: ~B),
    "and": (lambda: wrap(B) & B.T, lambda: B & B.T),
    "shift": (lambda: wrap(V) << 3, lambda: V << 3),
    "round": (lambda: st.round(np.array([0.5, 1.5, 2.5, -0.5])), lambda: np.round([0.5, 1.5, 2.5, -0.5])),
    "clip": (lambda: st.clip(X, -1, 2), lambda: np.clip(X, -1, 2)),
    "clip_one_side": (lambda: st.clip(X, max=1.0), lambda: np.clip(X, None, 1.0)),
    "where": (lambda: st.where(X > 0, X, 0), lambda: np.where(X > 0, X, 0)),
    "sum": (lambda: st.sum(X), lambda: X.sum()),
    "sum_axes": (lambda: st.sum(X, axis=(0, -1)), lambda: X.sum((0, -1))),
    "sum_keepdims": (lambda: st.sum(X, axis=1, keepdims=True), lambda: X.sum(1, keepdims=True)),
    "sum_of_bools": (lambda: st.sum(B), lambda: B.sum()),
    "prod": (lambda: st.prod(Y, axis=0), lambda: Y.prod(0)),
    "max": (lambda: wrap(X).max(axis=2), lambda: X.max(2)),
    "min_keepdims": (lambda: st.min(X, keepdims=True), lambda: X.min(keepdims=True)),
    "argmax": (lambda: st.argmax(X), lambda: X.argmax()),
    "argmin_axis": (lambda: st.argmin(X, axis=1), lambda: X.argmin(1)),
    "argmax_keepdims": (lambda: st.argmax(X, axis=1, keepdims=True), lambda: X.argmax(1, keepdims=True)),
    "any": (lambda: st.any(X > 2, axis=0), lambda: (X > 2).any(0)),
    "all_of_numbers": (lambda: st.all(V), lambda: V.all()),
    "mean": (lambda: wrap(X).mean(1), lambda: X.mean(1)),
    "var": (lambda: st.var(X, axis=0), lambda: X.var(0)),
    "std": (lambda: st.std(X, correction=1), lambda: X.std(ddof=1)),
    "var_of_too_few": (lambda: st.var(Y, axis=0, correction=4), lambda: Y.var(0, ddof=4)),
    "std_of_too_few": (lambda: st.std(Y[:, :1], correction=5), lambda: Y[:, :1].std(ddof=5)),
    "batch_norm_variance_of_too_few": (lambda: st.batch_norm_training(Y, correction=3)[2], lambda: Y.var(0, ddof=3)),
    "count_nonzero": (lambda: st.count_nonzero(V), lambda: np.count_nonzero(V)),
    "reshape": (lambda: wrap(X).reshape(4, -1), lambda: X.reshape(4, -1)),
    "flatten": (lambda: st.flatten(X, 1), lambda: X.reshape(2, 12)),
    "permute": (lambda: st.permute_dims(X, (2, 0, 1)), lambda: X.transpose(2, 0, 1)),
    "transpose": (lambda: wrap(X).transpose(), lambda: X.T),
    "matrix_transpose": (lambda: wrap(X).mT, lambda: np.swapaxes(X, 1, 2)),
    "swapaxes": (lambda: st.swapaxes(X, 0, 2), lambda: np.swapaxes(X, 0, 2)),
    "moveaxis": (lambda: st.moveaxis(X, 0, -1), lambda: np.moveaxis(X, 0, -1)),
    "moveaxis_several": (lambda: st.moveaxis(X, (0, 1), (2, 0)), lambda: np.moveaxis(X, (0, 1), (2, 0))),
    "squeeze": (lambda: st.squeeze(X[:1]), lambda: X[0]),
    "expand_dims": (lambda: st.expand_dims(X, -1), lambda: X[..., None]),
    "concat": (lambda: st.concat([X, X[:, :1]], axis=1), lambda: np.concatenate([X, X[:, :1]], 1)),
    "concat_flat": (lambda: st.concat([X, Y], axis=None), lambda: np.concatenate([X, Y], None)),
    "stack": (lambda: st.stack([Y, Y], axis=1), lambda: np.stack([Y, Y], 1)),
    "pad": (lambda: st.pad(Y, ((1, 0), (0, 2)), value=9.0), lambda: np.pad(Y, ((1, 0), (0, 2)), constant_values=9.0)),
    "flip": (lambda: st.flip(X, (0, 2)), lambda: np.flip(X, (0, 2))),
    "roll": (lambda: st.roll(X, 3, 2), lambda: np.roll(X, 3, 2)),
    "roll_flat": (lambda: st.roll(X, -5), lambda: np.roll(X, -5)),
    "tile": (lambda: st.tile(Y, (2, 1, 3)), lambda: np.tile(Y, (2, 1, 3))),
    "repeat": (lambda: st.repeat(Y, 3, axis=1), lambda: np.repeat(Y, 3, 1)),
    "split": (lambda: st.split(Y, 2, axis=1)[1], lambda: np.split(Y, 2, 1)[1]),
    "split_of_nothing": (lambda: st.stack(st.split(Y[:0], 2)), lambda: np.stack(np.split(Y[:0], 2))),
    "vecdot_of_bytes": (
        lambda: st.vecdot(np.array([200, 2], np.uint8), np.array([2, 1], np.uint8)),
        lambda: np.array(146, np.uint8),
    ),
    "split_at": (lambda: st.split(Y, [1, 3], axis=1)[1], lambda: np.split(Y, [1, 3], 1)[1]),
    "broadcast_to": (lambda: st.broadcast_to(Y[:, :1], (2, 3, 4)), lambda: np.broadcast_to(Y[:, :1], (2, 3, 4))),
    "arange": (lambda: st.arange(7, 1, -2), lambda: np.arange(7, 1, -2)),
    "arange_float": (lambda: st.arange(0.0, 1.0, 0.25), lambda: np.arange(0.0, 1.0, 0.25, np.float32)),
    "linspace": (lambda: st.linspace(0, 1, 5, dtype=st.f64), lambda: np.linspace(0, 1, 5)),
    "eye": (lambda: st.eye(3, 4, k=1), lambda: np.eye(3, 4, k=1, dtype=np.float32)),
    "tril": (lambda: st.tril(Y, 1), lambda: np.tril(Y, 1)),
    "triu": (lambda: st.triu(X), lambda: np.triu(X)),
    "pad, NumPy's word": (lambda: st.pad(Y, 1, constant_values=9.0), lambda: np.pad(Y, 1, constant_values=9.0)),
    "meshgrid, sparse": (
        lambda: st.meshgrid(V, V[:2], sparse=True)[0],
        lambda: np.meshgrid(V, V[:2], sparse=True)[0],
    ),
    "meshgrid, sparse ij": (
        lambda: st.meshgrid(V, V[:2], V[:3], indexing="ij", sparse=True)[1],
        lambda: np.meshgrid(V, V[:2], V[:3], indexing="ij", sparse=True)[1],
    ),
    "meshgrid": (lambda: st.meshgrid(V, V[:2])[1], lambda: np.meshgrid(V, V[:2])[1]),
    "one_hot": (lambda: st.one_hot(np.array([1, 0]), 3), lambda: np.eye(3, dtype=np.float32)[[1, 0]]),
    "matmul_vectors": (lambda: wrap(V) @ V, lambda: V @ V),
    "matmul_matrix_vector": (lambda: wrap(Y) @ X[0, 0], lambda: Y @ X[0, 0]),
    "matmul_vector_matrix": (lambda: wrap(X[0, :, 0]) @ Y, lambda: X[0, :, 0] @ Y),
    "matmul_batch": (lambda: wrap(X) @ Y.T, lambda: X @ Y.T),
    "matmul_broadcast": (lambda: wrap(Y) @ np.swapaxes(X, 1, 2), lambda: Y @ np.swapaxes(X, 1, 2)),
    "outer": (lambda: st.outer(V, V), lambda: np.outer(V, V)),
    "dot": (lambda: st.dot(Y, Y[0]), lambda: Y.dot(Y[0])),
    "tensordot": (lambda: st.tensordot(X, Y), lambda: np.tensordot(X, Y)),
    "tensordot_axes": (
        lambda: st.tensordot(X, Y, ([1, 2], [0, 1])),
        lambda: np.tensordot(X, Y, ([1, 2], [0, 1])),
    ),
    "take": (lambda: st.take(Y, np.array([[0, 2], [1, -1]]), axis=1), lambda: np.take(Y, [[0, 2], [1, -1]], 1)),
    "take_along_axis": (
        lambda: st.take_along_axis(Y, np.array([[0], [1], [-1]])),
        lambda: np.take_along_axis(Y, np.array([[0], [1], [-1]]), -1),
    ),
    "norm": (lambda: st.norm(Y, axis=1), lambda: np.linalg.norm(Y, axis=1)),
}


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", SAME)
def test_agrees_with_numpy(name) -> None:
    ours, theirs = SAME[name]
    got, expected = np.asarray(ours()), np.asarray(theirs())
    assert got.dtype == expected.dtype
    # NumPy's functions on f32 are within 4 units in the last place, by the processor.
    np.testing.assert_allclose(got, expected, rtol=2.0**-21 if expected.dtype == np.float32 else 1e-13, atol=0)


test_bad_calls_are_refused_with_words = refusals(
    (lambda: st.sum(X, axis=3), "axis 3 does not exist"),
    (lambda: st.sum(X, axis=(0, 0)), "named twice"),
    (lambda: st.max(np.zeros((0, 2)), axis=0), "no elements"),
    (lambda: st.reshape(X, (5, -1)), "cannot reshape"),
    (lambda: st.reshape(X, (-1, -1)), "only one"),
    (lambda: st.squeeze(X, 0), "not 1"),
    (lambda: st.permute_dims(X, (0, 1)), "does not fit"),
    (lambda: st.concat([X, Y], axis=0), "equal shapes elsewhere"),
    (lambda: st.concat([1.0, 2.0]), "st.stack"),
    (lambda: st.stack([X, Y]), "one shape"),
    (lambda: st.matmul(Y, Y), "equal inner sizes"),
    (lambda: wrap(Y) @ 2.0, "needs arrays"),
    (lambda: st.zeros((-1,)), "not negative"),
    (lambda: st.arange(0, 1, 0), "step cannot be 0"),
    (lambda: st.arange(wrap(3)), "known while staging"),
    (lambda: st.pad(Y, -1), "not negative"),
    (lambda: st.conv2d(X, Y), "conv2d needs"),
    (lambda: st.max_pool2d(X, 5), "larger than"),
    (lambda: st.pow(V, wrap(-1)), "negative integer power"),
    (lambda: wrap(V) // np.array([1, 0, 1, 1]), "integer division or modulo by zero"),
    (lambda: wrap(V) % 0, "modulo by zero"),
    (lambda: st.one_hot(X, 3), "integers"),
)


def test_every_public_function_says_what_it_does() -> None:
    for name, function in METHODS.items():
        words = (function.__doc__ or "").partition("    Examples\n")[0].strip()
        assert words.endswith((".", "-")), f"{name}: {function.__doc__!r}"


def test_everything_listed_is_exported_by_staged() -> None:
    for name in st.library.__all__:
        assert callable(getattr(st, name)), name
