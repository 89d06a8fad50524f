"""Kernels are one where nothing but their comments and their own names differ: products by what is asked for."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

import staged as st
from staged import optim
from staged.backends.cpu.kernel_library import _with_names_of
from staged.code.expr import Literal, Variable
from staged.code.printer import print_function
from staged.code.tree import Assign, For, Function, Parameter
from staged.code.types import INDEX

A = np.linspace(-1, 1, 12 * 24, dtype=np.float32).reshape(12, 24)
B = np.linspace(-2, 1, 24 * 24, dtype=np.float32).reshape(24, 24)
X = np.linspace(-1, 1, 2 * 3 * 6 * 6, dtype=np.float32).reshape(2, 3, 6, 6)
W = np.linspace(-1, 1, 3 * 3 * 3 * 3, dtype=np.float32).reshape(3, 3, 3, 3)


def two_products(a, b):
    first = st.tanh(a @ b)
    second = st.tanh(first @ b)
    return second


def other_epilogues(a, b):
    first = st.tanh(a @ b)
    second = st.exp(first @ b)
    return second


def two_convolutions(x, w):
    first = st.relu(st.conv2d(x, w, padding=1))
    second = st.relu(st.conv2d(first, w, padding=1))
    return second


def other_padding(x, w):
    first = st.relu(st.conv2d(x, w, padding=1))
    second = st.relu(st.conv2d(first, w, padding=0))
    return second


@pytest.mark.parametrize("target", ["portable", "x86-64-v3"])
@pytest.mark.parametrize(
    ("function", "args", "bodies"),
    [
        (two_products, (A, B), 1),
        (other_epilogues, (A, B), 2),
        (two_convolutions, (X, W), 1),
        (other_padding, (X, W), 2),
    ],
)
def test_equal_products_share_a_function(
    function: Callable[..., object], args: tuple, bodies: int, target: str
) -> None:
    lines = st.function(function, target=target).stage(*args).source.splitlines()
    heads = [line for line in lines if line.startswith("static void ")]
    assert len(heads) == bodies
    assert ("first" in "".join(heads)) == (bodies > 1)


def initial_values(seed):
    """Kernels that differ in a counter and in two constants."""
    st.seed(seed)
    first_weight = st.random.uniform(size=(64,), low=-0.5, high=0.25)
    second_weight = st.random.uniform(size=(48,), low=-0.1, high=0.3)
    return first_weight, second_weight


def pools(a, b):
    """Kernels that differ in small sizes."""
    first_pool = st.max_pool2d(a, 2)
    second_pool = st.max_pool2d(b, 2)
    return first_pool, second_pool


def row_sums(a, b):
    """Kernels of which only the first adds so many numbers that it adds them in pieces."""
    first_sum = st.sum(a, axis=1)
    second_sum = st.sum(b, axis=1)
    return first_sum, second_sum


def channel_sums(a, b):
    """Kernels whose rows have two vectors and eight, four of which are added at a time."""
    first_sum = st.sum(a, axis=(0, 2))
    second_sum = st.sum(b, axis=(0, 2))
    return first_sum, second_sum


VALUES = np.random.default_rng(0).standard_normal(48 * 4096).astype(np.float32)


@pytest.mark.parametrize(
    ("function", "args", "name"),
    [
        (initial_values, (3,), "draw_weight_uniform"),
        (pools, (VALUES[: 6 * 32 * 32].reshape(2, 3, 32, 32), VALUES[: 6 * 16 * 16].reshape(2, 3, 16, 16)), "max_pool2d"),
        (row_sums, (VALUES.reshape(48, 4096), VALUES.reshape(-1, 1024)), "sum"),
        (channel_sums, (VALUES[:8192].reshape(16, 32, 16), VALUES[:32768].reshape(16, 32, 64)), "sum"),
    ],
)
def test_kernels_that_differ_in_numbers_share_a_function(
    function: Callable[..., object], args: tuple, name: str
) -> None:
    together = st.function(function, target="x86-64-v3")
    heads = re.findall(r"^static void (\w+)\(", together.stage(*args).source, re.MULTILINE)
    assert [head for head in heads if not head.startswith("place_")] == [name]
    for number, got in enumerate(together(*args)):
        alone = st.function(lambda *args, number=number: function(*args)[number], target="x86-64-v3")(*args)
        assert np.asarray(got).tobytes() == np.asarray(alone).tobytes()


@pytest.mark.parametrize("target", ["portable", "x86-64-v3"])
def test_gradients_of_convolution_weights_differ_in_tables_alone(target: str) -> None:
    weights = [st.Variable(np.full(shape, 0.1, np.float32), name=name)
               for name, shape in (("first", (64, 3, 3, 3)), ("second", (128, 64, 1, 1)))]  # fmt: skip

    @st.function(target=target)
    def step(x):
        first, second = weights

        def loss():
            return st.sum(st.tanh(st.conv2d(st.tanh(st.conv2d(x, first, padding=1)), second)))

        for weight, gradient in zip(weights, st.grad(loss, wrt=tuple(weights))(), strict=True):
            weight.value = weight.value - 0.1 * gradient

    source = step.stage(X).source
    assert len(re.findall(r"= st_gradient_of_weights_f32\(sizes, (item|0), x, d_y, scratch, NULL\);", source)) == 1
    assert len(re.findall(r"^static const st_weights_f32 update_(first|second)_sizes = {$", source, re.M)) == 2
    assert re.search(r"update\(.*&update_first_sizes,", source) and re.search(r"update\(.*&update_second_sizes,", source)


def test_a_kernel_leaves_the_name_of_a_call_to_the_function_of_the_host():
    def clipped(a, b, c, d):
        return optim.clip_grad_norm([a, b, c, d], 1.0)

    source = str(st.function(clipped).stage(*(np.ones(size, np.float32) for size in (4000, 5000, 6000, 7000))).source)
    assert "static void clip_grad_norm_square_sum(" in source and " clip_grad_norm(" not in source, source


def test_convolutions_that_differ_in_sizes_share_a_function_and_those_of_equal_sizes_a_table() -> None:
    @st.function(target="x86-64-v3")
    def convolutions(x, first, second, third):
        y = st.relu(st.conv2d(x, first, padding=1))
        z = st.relu(st.conv2d(y, second))
        return z, st.conv2d(y, third)

    shapes = (1, 32, 8, 8), (48, 32, 3, 3), (32, 48, 1, 1), (32, 48, 1, 1)
    source = convolutions.stage(*(np.ones(shape, np.float32) for shape in shapes)).source
    assert len(re.findall(r"^static const st_convolution_f32 \w+_sizes = {$", source, re.M)) == 2
    assert len(re.findall(r"^    while \(st_next_convolved_f32\(sizes, .*, NULL, scratch, 1, &tile\)\) {$", source, re.M)) == 1
    assert len(re.findall(r"^static void \w+\(", re.sub(r"place_\w+", "", source), re.M)) == 2


def test_a_kernel_has_the_parameters_that_its_calls_need() -> None:
    @st.function
    def losses(rows, scores, labels):
        picked = st.take_along_axis(scores, labels[:, None], axis=1)
        grid = st.zeros((8, 40), dtype=scores.dtype)
        grid[rows, :] = st.sin(scores[0])
        return st.sum(st.astype(labels.reshape(2, 4), "f32")) + st.sum(picked), grid

    arguments = np.int64(3), np.ones((8, 40), np.float32), np.arange(8)
    source = losses.stage(*arguments).source
    heads = dict(re.findall(r"^static void (\w+)\(([^)]*)\)", source, re.M))
    assert "(void)" not in source and heads, source
    assert not re.search(r"\(\w+(?:->|\.)\w+, .*\b0, \d+\);", source), source
    total, grid = losses(*arguments)
    assert float(total) == 28 + 8 and np.count_nonzero(np.asarray(grid)) == 40


def test_a_number_in_a_name_goes_with_the_name_that_it_was_apart_from() -> None:
    first, second, ln_1 = (Variable(name, INDEX) for name in ("first", "first_2", "ln_1"))
    inner = For(second, Literal("0"), Literal("8"), (Assign(ln_1, second),))
    before = Function("f", (Parameter(ln_1),), (For(first, Literal("0"), Literal("8"), (inner,)),))
    text = print_function(_with_names_of(before, replace(before, body=(inner,))))
    assert "for (int64_t first = 0; first < 8; ++first)" in text and "ln_1 = first;" in text


def test_kernels_of_short_sums_have_constants() -> None:
    source = st.function(two_convolutions, target="x86-64-v3").stage(X, W).source
    assert re.search(r"st_next_convolved_f32\(&\w+_sizes, ", source)


def test_an_update_that_variables_share_is_named_after_what_their_names_share():
    weight, bias = (st.Variable(np.ones(48, np.float32), name=f"fc_{name}") for name in ("weight", "bias"))
    optimizer = optim.SGD([weight, bias], lr=0.1)

    def step(d_weight, d_bias):
        optimizer.step([d_weight, d_bias])

    source = str(st.function(step).stage(*2 * [np.ones(48, np.float32)]).source)
    assert re.search(r"static void update_fc_parameter\(.*\bfloat \*fc_parameter\b", source), source
    assert source.count("static void update") == 1 and source.count(" update_fc_parameter(") == 3, source


def two_layers(a, b, c, d):
    first = st.tanh(a @ b)
    second = st.tanh(c @ d.T)
    return first, second


def plain_products(a, b, c, d):
    first = a @ b
    second = c @ d.T
    return first, second


@pytest.mark.parametrize("target", ["portable", "x86-64-v3"])
@pytest.mark.parametrize("function", [two_layers, plain_products])
def test_products_of_other_sizes_differ_in_tables_alone(function: Callable[..., object], target: str) -> None:
    args = [VALUES[: m * n].reshape(m, n) for m, n in ((33, 100), (100, 45), (41, 70), (29, 70))]
    together = st.function(function, target=target)
    source = together.stage(*args).source
    assert len(re.findall(r"^static const st_product_f32 \w+_sizes = {$", source, re.M)) == 2
    assert "_epilogue" not in source
    heads = re.findall(r"^static void (\w+)\(", source, re.M)
    assert len([head for head in heads if not head.startswith("place_")]) == (function is two_layers)
    assert len(re.findall(r"&\w*(first|second)_sizes, ", source)) == 2
    for number, got in enumerate(together(*args)):
        alone = st.function(lambda *args, number=number: function(*args)[number], target=target)(*args)
        assert np.asarray(got).tobytes() == np.asarray(alone).tobytes()
