"""Normalisations and norms against PyTorch: values, gradients, statistics, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest

import staged as st
from tests.errors.said import refusals
from tests.ops.against_torch import agree, agree_compiled

RNG = np.random.default_rng(5)
IMAGES = RNG.standard_normal((3, 4, 5, 2)) * 2 + 1
WEIGHT, BIAS = RNG.standard_normal(4), RNG.standard_normal(4)
MEAN, VAR = RNG.standard_normal(4), RNG.random(4) + 0.5
ROWS = RNG.standard_normal((6, 5))
SCALE = RNG.standard_normal(5)


def torch_statistics(F, x):
    """Fresh running statistics, which torch's function needs in order to use the batch's."""
    return x.detach().new_zeros(x.shape[1]), x.detach().new_ones(x.shape[1])


NORMALISATIONS = {
    "batch_norm_training": (
        lambda x, w, b: st.batch_norm_training(x, w, b, eps=1e-3)[0],
        lambda F, x, w, b: F.batch_norm(x, *torch_statistics(F, x), w, b, training=True, eps=1e-3),
        (IMAGES, WEIGHT, BIAS),
    ),
    "batch_norm_training_plain": (
        lambda x: st.batch_norm_training(x)[0],
        lambda F, x: F.batch_norm(x, *torch_statistics(F, x), training=True),
        (IMAGES,),
    ),
    "batch_norm_training_rows": (
        lambda x, w: st.batch_norm_training(x, w)[0],
        lambda F, x, w: F.batch_norm(x, *torch_statistics(F, x), w, training=True),
        (ROWS, SCALE),
    ),
    "batch_norm_training_statistics": (
        lambda x: sum(st.sum(st.sin(part)) for part in st.batch_norm_training(x)),
        lambda F, x: (
            F.batch_norm(x, *torch_statistics(F, x), training=True).sin().sum()
            + x.mean((0, 2, 3)).sin().sum()
            + x.var((0, 2, 3), correction=0).sin().sum()
        ),
        (IMAGES,),
    ),
    "batch_norm": (
        lambda x, w, b: st.batch_norm(x, MEAN.astype(x.dtype.numpy), VAR.astype(x.dtype.numpy), w, b),
        lambda F, x, w, b: F.batch_norm(x, x.new_tensor(MEAN), x.new_tensor(VAR), w, b),
        (IMAGES, WEIGHT, BIAS),
    ),
    "batch_norm_of_its_statistics": (
        lambda x, m, v: st.batch_norm(x, m, v),
        lambda F, x, m, v: (x - m.view(1, -1, 1, 1)) / (v.view(1, -1, 1, 1) + 1e-5).sqrt(),
        (IMAGES, MEAN, VAR),
    ),
    "group_norm": (
        lambda x, w, b: st.group_norm(x, 2, w, b),
        lambda F, x, w, b: F.group_norm(x, 2, w, b),
        (IMAGES, WEIGHT, BIAS),
    ),
    "group_norm_plain": (lambda x: st.group_norm(x, 4), lambda F, x: F.group_norm(x, 4), (IMAGES,)),
    "instance_norm": (
        lambda x, w, b: st.instance_norm(x, weight=w, bias=b),
        lambda F, x, w, b: F.instance_norm(x, weight=w, bias=b),
        (IMAGES, WEIGHT, BIAS),
    ),
    "rms_norm": (
        lambda x, w: st.rms_norm(x, 5, w, eps=1e-6),
        lambda F, x, w: F.rms_norm(x, (5,), w, eps=1e-6),
        (ROWS, SCALE),
    ),
    "rms_norm_two_axes": (lambda x: st.rms_norm(x, (6, 5), eps=0.1), lambda F, x: F.rms_norm(x, (6, 5), eps=0.1), (ROWS,)),
}


@pytest.mark.parametrize("name", NORMALISATIONS)
def test_normalisation_agrees_with_torch(name) -> None:
    ours, theirs, operands = NORMALISATIONS[name]
    agree_compiled(ours, theirs, *operands)


def test_batch_norm_gives_the_statistics_of_the_batch() -> None:
    _, mean, var = st.batch_norm_training(IMAGES)
    np.testing.assert_allclose(mean, IMAGES.mean((0, 2, 3)), rtol=1e-12)
    np.testing.assert_allclose(var, IMAGES.var((0, 2, 3)), rtol=1e-12)


def test_rms_norms_default_eps_is_the_dtypes() -> None:
    tiny = np.full((1, 2), 1e-20, np.float64)
    np.testing.assert_allclose(st.rms_norm(tiny), tiny / np.sqrt(1e-40 + np.finfo(np.float64).eps), rtol=1e-12)


@pytest.mark.parametrize("ord", [0, 1, 2, 3, 2.5, 0.5, -1, -2, math.inf, -math.inf])
@pytest.mark.parametrize("axis", [None, 0, (1, 3), (0, 1, 2, 3)])
def test_norms_over_any_axes_agree_with_torch(ord, axis) -> None:
    agree(
        lambda x: st.norm(x, ord, axis),
        lambda F, x: vector_norm(x, ord, axis),
        IMAGES,
    )


def vector_norm(x, ord, axis):
    import torch

    return torch.linalg.vector_norm(x, ord, dim=axis)


@pytest.mark.parametrize("ord", [1, 2, 3, math.inf])
def test_compiled_norms_agree_with_torch(ord) -> None:
    agree_compiled(lambda x: st.norm(x, ord, (0, 2)), lambda F, x: vector_norm(x, ord, (0, 2)), IMAGES)


@pytest.mark.parametrize("ord", [1, 2, 3, 0.5, math.inf])
def test_the_gradient_of_a_norm_at_zero_is_zero(ord) -> None:
    grad = st.grad(lambda x: st.norm(x, ord=ord))(np.zeros(3))
    np.testing.assert_array_equal(grad, np.zeros(3))


test_bad_calls_are_refused_with_words = refusals(
    (lambda: st.batch_norm_training(IMAGES[:1, :, :1, :1]), "more than one element per channel"),
    (lambda: st.batch_norm_training(np.zeros(3)), r"needs an input of \(N, C, ...\)"),
    (lambda: st.batch_norm_training(IMAGES, WEIGHT[:3]), "the weight is"),
    (lambda: st.batch_norm(IMAGES, MEAN[:2], VAR), "the mean is"),
    (lambda: st.batch_norm(IMAGES, MEAN, VAR[:2]), "the variance is"),
    (lambda: st.group_norm(IMAGES, 3), "do not divide into 3 groups"),
    (lambda: st.instance_norm(IMAGES[:, :, :1, :1]), "more than one element per channel"),
    (lambda: st.rms_norm(ROWS, 4), "does not fit"),
    (lambda: st.norm(ROWS, ord="nuc"), "ord is a number"),
)


def test_the_second_derivative_of_batch_norm_is_that_of_the_formula() -> None:
    def formula(x):
        mean = st.mean(x, axis=0)
        return (x - mean) / st.sqrt(st.mean((x - mean) ** 2.0, axis=0) + 1e-5)

    @st.function
    def second(x, direction):
        def along(f):
            return st.grad(lambda x: st.sum(st.grad(lambda x: st.sum(st.sin(f(x))))(x) * direction))(x)

        return along(lambda x: st.batch_norm_training(x)[0]), along(formula)

    ours, expected = second(ROWS, RNG.standard_normal(ROWS.shape))
    np.testing.assert_allclose(ours, expected, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("layout", ["(N, C)", "(N, C, 1)"])
def test_one_row_that_is_found_when_the_program_runs_is_refused(layout) -> None:
    """As a single row is that is known while staging: its channels have no variance."""
    x = np.arange(12, dtype=np.float32).reshape(4, 3)
    x = x if layout == "(N, C)" else x[:, :, None]

    @st.function
    def f(x, count):
        n = st.dim("N", count, max=4)
        return st.batch_norm_training(x[:n])[1]

    for count in (2, 4):
        np.testing.assert_allclose(np.asarray(f(x, count)), x[:count].mean(0).reshape(3), rtol=1e-6)
    for run in (f, st.grad(lambda x, count: f(x, count).sum())):
        with pytest.raises(ValueError, match="batch_norm_training needs more than one element per channel") as refused:
            run(x, 1)
        assert "st.batch_norm_training(x[:n])" in str(refused.value)
