"""Kernels end to end: fused, compiled, run whole, in pieces and in place, against the ops' references."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check, kernels, tensor

from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4
from staged.library.pooling import pooling as P
from staged.ops import elementwise as E
from staged.ops import index as I
from staged.ops import reduction as R
from staged.ops import shape as S
from staged.ops import source as C
from staged.ops.array import METHODS
from staged.ops.choice import select
from staged.ops.joining import concat, stack

INTEGERS = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"]

MACHINES = [PORTABLE, X86_64_V3, X86_64_V4]
f32 = "f32"


def softmax(x, axis=-1):
    e = E.exp(x - R.max_(x, axis=axis, keepdims=True))
    return e / R.sum_(e, axis=axis, keepdims=True)


def layer_norm(x, scale, shift):
    mean = R.mean(x, axis=-1, keepdims=True)
    centred = x - mean
    var = R.mean(centred * centred, axis=-1, keepdims=True)
    return centred * E.rsqrt(var + 1e-5) * scale + shift


def test_elementwise_chain_is_one_loop_without_division():
    program = check(lambda x, y: E.exp(x + y) * 2.0 - x, tensor(f32, 5, 37), tensor(f32, 5, 37), count=1)
    assert "%" not in program.kernels[0].text and "/ " not in program.kernels[0].text.split("{", 1)[1]


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("shape", [(7, 100), (3, 64), (2, 5), (4, 1), (1, 33), (2, 3, 20)])
def test_softmax_is_one_kernel(machine, shape):
    check(softmax, tensor(f32, *shape), count=1, machine=machine)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_softmax_over_any_axis(axis):
    check(lambda x: softmax(x, axis), tensor(f32, 4, 9, 17), count=1)


def test_layer_norm_is_one_kernel():
    check(layer_norm, tensor(f32, 6, 130), tensor(f32, 130), tensor(f32, 130), count=1)


def test_row_sum_of_a_chain():
    check(lambda x, y, z: R.sum_(E.exp(x) + y * z, axis=1), *[tensor(f32, 12, 200)] * 3, count=1)


@pytest.mark.parametrize("axes", [0, 1, 2, (0, 1), (0, 2), (1, 2), (0, 1, 2), None])
@pytest.mark.parametrize("reduce", ["sum", "max", "min", "prod"])
def test_reductions_over_any_axes(axes, reduce):
    check(lambda x: METHODS[reduce](x * 0.9, axis=axes), tensor(f32, 5, 11, 18), count=1, rtol=1e-4)


@pytest.mark.parametrize("axes", [(0, 2, 3), (1,), (2, 3), (0, 1)])
def test_reductions_of_images(axes):
    check(lambda x: R.sum_(x * x, axis=axes), tensor(f32, 3, 4, 5, 20), count=1)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool", "f64"])
def test_reductions_of_other_dtypes(dtype):
    x = tensor(dtype, 6, 70)
    if dtype == "bool":
        check(lambda x: (R.any_(x, axis=1), R.all_(x, axis=0)), x)
    else:
        check(lambda x: (METHODS["sum"](x, axis=1), METHODS["max"](x, axis=0)), x)


@pytest.mark.parametrize("axis", [0, 1])
def test_argmax_and_argmin_take_the_first(axis):
    x = np.random.default_rng(1).integers(0, 4, (9, 30)).astype(np.float32)
    check(lambda x: (R.argmax(x, axis=axis), R.argmin(x, axis=axis)), tensor(f32, 9, 30), arguments=[x], count=1)


def test_nan_goes_through_maximum_and_max():
    x = np.random.default_rng(2).normal(size=(4, 40)).astype(np.float32)
    x[1, 3] = x[2, 37] = np.nan
    check(lambda x: (E.maximum(x, 0.0), E.minimum(x, x * 2.0)), tensor(f32, 4, 40), arguments=[x], count=1)
    check(lambda x: R.max_(x, axis=1), tensor(f32, 4, 40), arguments=[x], count=1)
    check(lambda x: R.argmax(x, axis=1), tensor(f32, 4, 40), arguments=[x], count=1)


def test_bias_gradient_with_the_gradient_itself():
    def f(ct, y):
        d = S.broadcast_to(ct, (8, 50)) * METHODS["astype"](y > 0.0, "f32")
        return d, R.sum_(d, axis=0)

    check(f, tensor(f32, 8, 50), tensor(f32, 8, 50), count=1)


def test_mean_of_everything_then_scaled_back():
    check(lambda x: x - R.mean(x), tensor(f32, 30, 40))


def test_cross_entropy_forward_is_one_kernel():
    def f(x, labels):
        shifted = x - R.max_(x, axis=1, keepdims=True)
        logp = shifted - E.log(R.sum_(E.exp(shifted), axis=1, keepdims=True))
        chosen = I.take_along_axis(logp, S.reshape(labels, (16, 1)), axis=1)
        return -R.mean(chosen)

    labels = np.random.default_rng(3).integers(0, 10, 16)
    x = np.random.default_rng(4).normal(size=(16, 10)).astype(np.float32)
    check(f, tensor(f32, 16, 10), tensor("i64", 16), arguments=[x, labels], count=1)
    with pytest.raises(IndexError):
        check(f, tensor(f32, 16, 10), tensor("i64", 16), arguments=[x, labels + 5])


@pytest.mark.parametrize(
    "op", ["add", "subtract", "multiply", "maximum", "minimum", "floor_divide", "remainder", "pow"]
)
@pytest.mark.parametrize("dtype", ["f32", "f64", *INTEGERS])
def test_binary_arithmetic(op, dtype):
    rng = np.random.default_rng(6)
    a = rng.integers(1, 9, (3, 50)).astype(dtype.replace("f", "float").replace("i", "int").replace("u", "uint"))
    b = rng.integers(1, 5, (3, 50)).astype(a.dtype)
    check(lambda a, b: METHODS[op](a, b), tensor(dtype, 3, 50), tensor(dtype, 3, 50), arguments=[a, b], count=1)


@pytest.mark.parametrize("dtype", ["f32", "f64", *INTEGERS])
def test_comparisons_and_select(dtype):
    def f(a, b):
        return select(a < b, a, b), a == b, (a <= b) & ~(a != b), (a > b) | (a >= b)

    check(f, tensor(dtype, 3, 70), tensor(dtype, 3, 70), count=1)


@pytest.mark.parametrize("source", ["f32", "f64", *INTEGERS, "bool"])
@pytest.mark.parametrize("target", ["f32", "f64", *INTEGERS, "bool"])
def test_casts(source, target):
    from staged.ir.types import dtype_of
    from staged.ops.promote import cast

    x = np.abs(np.random.default_rng(7).integers(0, 9, (3, 50)))
    check(lambda x: cast(x, dtype_of(target)), tensor(source, 3, 50), arguments=[x])


@pytest.mark.parametrize(
    "name", "exp expm1 log1p sqrt sin cos tanh erf floor ceil round trunc negative abs sign square".split()
)
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_unary_maths(name, dtype):
    x = np.random.default_rng(8).uniform(0, 3, (3, 50))
    check(lambda x: getattr(E, name, METHODS.get(name))(x), tensor(dtype, 3, 50), arguments=[x], count=1)


def test_transposes_slices_and_pads_are_read_in_place():
    check(lambda x: S.permute_dims(x, (1, 0)) + 1.0, tensor(f32, 40, 50), count=1)
    check(lambda x: S.permute_dims(x, (2, 0, 1)) * 2.0, tensor(f32, 4, 5, 6), count=1)
    check(lambda x: x + S.permute_dims(x, (1, 0)), tensor(f32, 20, 20), count=1)
    check(lambda x: S.flip(x, axis=1) * 2.0, tensor(f32, 6, 40), count=1)
    check(lambda x: x[:, 3:20] * 2.0, tensor(f32, 6, 40), count=1)
    check(lambda x: x[1:4, ::3] * 2.0, tensor(f32, 6, 40), count=1)
    check(lambda x: S.pad(x, ((1, 2), (3, 0)), value=4.0) * 2.0, tensor(f32, 6, 40), count=1)


def test_reshape_between_elementwise_ops_is_free():
    check(lambda x: E.exp(S.reshape(x * 2.0, (6, 20))) + 1.0, tensor(f32, 6, 4, 5), count=1)
    check(lambda x, b: S.reshape(x, (6, 4, 5)) * b, tensor(f32, 24, 5), tensor(f32, 4, 5), count=1)


def test_iota_and_constants_cost_no_array():
    check(lambda x: x + C.arange(40, dtype="f32"), tensor(f32, 6, 40), count=1)


def test_gather_rows_and_columns():
    rng = np.random.default_rng(9)
    table, rows = rng.normal(size=(12, 33)), rng.integers(-12, 12, (4, 5))
    check(
        lambda t, i: I.take(t, i, axis=0) * 2.0,
        tensor(f32, 12, 33),
        tensor("i64", 4, 5),
        arguments=[table, rows],
        count=1,
    )
    columns = rng.integers(0, 33, 7)
    check(lambda t, i: I.take(t, i, axis=1), tensor(f32, 12, 33), tensor("i32", 7), arguments=[table, columns], count=1)
    with pytest.raises(IndexError):
        check(lambda t, i: I.take(t, i, axis=0), tensor(f32, 12, 33), tensor("i64", 4, 5), arguments=[table, rows + 9])


def test_integer_division_by_zero_stops():
    x = np.arange(-5, 5)
    with pytest.raises(ZeroDivisionError):
        check(lambda a, b: a // b, tensor("i64", 10), tensor("i64", 10), arguments=[x, x])


def test_empty_arrays():
    check(lambda x: E.exp(x) + 1.0, tensor(f32, 0, 4))
    check(lambda x: R.sum_(x, axis=0), tensor(f32, 0, 4))
    check(lambda x: R.sum_(x, axis=1), tensor(f32, 3, 0))


def test_neighbours_of_one_size_are_joined_in_one_loop():
    shapes = [(5, 20)] * 9 + [(5, 3), (5, 20)]
    program = check(lambda *arrays: concat(arrays, axis=1), *(tensor(f32, *shape) for shape in shapes))
    assert program.kernels[0].text.count("for (int64_t j") == 4


def test_concat_and_stack():
    check(lambda x, y: concat([x, y], axis=1), tensor(f32, 5, 20), tensor(f32, 5, 3))
    check(lambda x, y: concat([x, y * 2.0, x], axis=0), tensor(f32, 5, 20), tensor(f32, 2, 20))
    check(lambda x, y: stack([x, y], axis=1), tensor(f32, 5, 20), tensor(f32, 5, 20))


def test_pools():
    check(lambda x: P.max_pool2d(x, 2), tensor(f32, 2, 3, 8, 10))
    check(lambda x: P.max_pool2d(x, 2), tensor(f32, 2, 3, 24, 24))
    check(lambda x: P.max_pool2d(x, 2), tensor(f32, 1, 2, 7, 71))
    check(lambda x: P.avg_pool2d(x, 2), tensor(f32, 2, 3, 8, 10))
    check(lambda x: P.max_pool2d(x, 3, stride=2, padding=1), tensor(f32, 2, 3, 9, 11))
    check(lambda x: P.avg_pool2d(x, 3, stride=2, padding=1), tensor(f32, 2, 3, 9, 11))


def test_siblings_read_their_input_once():
    program = check(lambda x: (E.exp(x), x * 2.0), tensor(f32, 8, 50), count=1)
    assert len(kernels(program.function)) == 1


@pytest.mark.parametrize("name", ["uniform", "normal", "bernoulli", "random_bits"])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_random_numbers_are_the_references(name, dtype):
    from staged.ir.types import dtype_of
    from staged.ops.context import bind
    from staged.ops.primitive import PRIMITIVES

    more = [] if name != "bernoulli" else [tensor("f32")]
    attrs = {"dtype": dtype_of(dtype)} if name in ("uniform", "normal") else {}
    numbers = [7, 2, 5, *([0.3] if more else [])]

    def f(*key):
        return bind(PRIMITIVES[name], list(key), shape=(3, 37), **attrs)

    types = [tensor("i64")] * 3 + more
    check(f, *types, arguments=[np.asarray(n) for n in numbers], rtol=1e-5 if name == "normal" else 1e-12)


def test_permutation():
    from staged.ops.context import bind
    from staged.ops.primitive import PRIMITIVES

    def f(seed, stream, counter):
        return bind(PRIMITIVES["permutation"], [seed, stream, counter], n=100)

    check(f, *[tensor("i64")] * 3, arguments=[np.asarray(n) for n in (7, 2, 5)])


def test_scatter_and_update():
    from staged.ops.context import bind
    from staged.ops.primitive import PRIMITIVES

    rng = np.random.default_rng(10)
    x, rows, updates = rng.normal(size=(6, 20)), rng.integers(-6, 6, 9), rng.normal(size=(9, 20))
    check(
        lambda x, i, u: bind(PRIMITIVES["scatter_add"], [x, i, u], axis=0),
        tensor("f64", 6, 20), tensor("i64", 9), tensor("f64", 9, 20), arguments=[x, rows, updates],
    )  # fmt: skip
    along = rng.integers(0, 20, (6, 4))
    check(
        lambda x, i, u: bind(PRIMITIVES["scatter_add_along"], [x, i, u], axis=1),
        tensor("f64", 6, 20), tensor("i64", 6, 4), tensor("f64", 6, 4), arguments=[x, along, updates[:6, :4]],
    )  # fmt: skip
    check(
        lambda x, u, i, j: bind(PRIMITIVES["dynamic_update"], [x, u, i, j]),
        tensor("f64", 6, 20), tensor("f64", 2, 20), tensor("i64"), tensor("i64"),
        arguments=[x, updates[:2], np.asarray(3), np.asarray(0)],
    )  # fmt: skip


@pytest.mark.parametrize("number", [0.0, -0.0, 2.5])
def test_a_scatter_into_zeros_is_one_kernel(number):
    from staged.ops.context import bind
    from staged.ops.primitive import PRIMITIVES

    rng = np.random.default_rng(11)
    rows, updates = rng.integers(-6, 6, 9), rng.normal(size=(9, 20))
    program = check(
        lambda i, u: bind(PRIMITIVES["scatter_add"], [C.full((6, 20), number, "f64"), i, u], axis=0),
        tensor("i64", 9), tensor("f64", 9, 20), arguments=[rows, updates],
        count=1 if str(number) == "0.0" else 2,
    )  # fmt: skip
    assert ("memset" in program.text) == (str(number) == "0.0")


@pytest.mark.parametrize("shape", [(2, 3, 8, 10), (1, 2, 24, 24), (1, 2, 7, 71), (1, 2, 5, 5)])
@pytest.mark.parametrize("window", [(2, 2, 0), (3, 2, 1), (2, 1, 0)])
def test_gradients_of_pools(shape, window):
    from staged.ops.context import bind, bind_all
    from staged.ops.primitive import PRIMITIVES

    kernel, stride, padding = window
    attrs = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "padding": (padding,) * 2}

    def f(x):
        values, places = bind_all(PRIMITIVES["max_pool2d"], [x], dilation=(1, 1), **attrs)
        ct = values * 0.5
        spread = bind(PRIMITIVES["max_pool2d_backward"], [ct, places], input_shape=shape, dilation=(1, 1), **attrs)
        return spread, bind(PRIMITIVES["avg_pool2d_backward"], [ct], input_shape=shape, **attrs)

    rng = np.random.default_rng(11)
    check(f, tensor(f32, *shape), arguments=[rng.integers(-3, 3, shape)])


@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_division_of_rows_by_extreme_numbers(dtype):
    kind = np.float32 if dtype == "f32" else np.float64
    tiny, huge = np.finfo(kind).tiny, np.finfo(kind).max
    d = np.array([1, 3, tiny, tiny / 8, huge, huge / 3, 0, -0.0, np.inf, np.nan, -7, 1e-30, 1e30], kind)
    x = np.concatenate([np.random.default_rng(12).normal(size=30), [0, tiny, huge, np.inf, np.nan, -0.0]]).astype(kind)
    x = np.stack([x] * len(d))
    # Relative to the result: numbers that overflow or vanish do so in both.
    check(lambda x, d: x / S.reshape(d, (13, 1)), tensor(dtype, 13, 36), tensor(dtype, 13), arguments=[x, d], rtol=3e-7)


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("dtype", ["f32", "f64", "i32", "i64", "u32"])
@pytest.mark.parametrize("reduce", ["sum", "max", "min"])
def test_what_is_left_of_a_vector(machine, dtype, reduce):
    x = (
        np.random.default_rng(13)
        .integers(0, 1000, (64, 64))
        .astype(dtype.replace("f", "float").replace("i", "int").replace("u", "uint"))
    )
    check(lambda x: METHODS[reduce](x, axis=1), tensor(dtype, 64, 64), arguments=[x], machine=machine, rtol=1e-6)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
def test_floats_out_of_range_convert_alike_in_vectors_and_in_their_tail(dtype):
    from staged.ir.types import dtype_of
    from staged.ops.promote import cast

    x = np.tile(np.array([np.nan, np.inf, -np.inf, 3e30, -3e30, 1.9, -1.9], np.float32), 5)
    check(lambda x: cast(x, dtype_of(dtype)), tensor("f32", 35), arguments=[x])


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
@pytest.mark.parametrize("rows", [1, 20])
@pytest.mark.parametrize("widths", [(50, 50, 50, 50), (3, 40, 1, 20), (16, 16), (1, 2, 40), (90, 7)])
def test_sums_of_padded_parts_are_a_vector_loop_for_each_part(widths, rows, machine):
    def side_by_side(*parts):
        total, before = None, 0
        for part, width in zip(parts, widths, strict=True):
            padded = S.pad(part, ((0, 0), (before, sum(widths) - before - width)))
            total, before = padded if total is None else total + padded, before + width
        return total, R.sum_(total, axis=0)

    program = check(side_by_side, *[tensor(f32, rows, width) for width in widths], count=1, machine=machine)
    assert rows == 1 or "&&" not in program.kernels[0].text  # no element asks where it is


def test_padded_parts_that_overlap_or_leave_gaps():
    def overlapping(x, y):
        return S.pad(x, ((2, 30),), value=1.5) * S.pad(y, ((20, 2),), value=-2.0)

    check(overlapping, tensor(f32, 40), tensor(f32, 50), count=1)


@pytest.mark.parametrize("extent", [16, 17, 31, 33, 50])
def test_the_last_vector_of_a_dear_loop_covers_some_elements_again_and_overwrites_no_operand(extent):
    def f(x, bias):
        return E.tanh(x + bias) * x

    program = check(f, tensor(f32, 5, extent), tensor(f32, extent), count=1, machine=X86_64_V4)
    (kernel,) = program.kernels
    assert ("int64_t at = " in kernel.text) == (extent % 16 != 0) == (not kernel.may_alias)


def test_a_zero_may_be_repeated_and_be_a_place():
    from staged.ops.context import bind
    from staged.ops.primitive import PRIMITIVES

    def f(u):
        zero = C.full((), 0, "i64")
        return bind(PRIMITIVES["dynamic_update"], [METHODS["broadcast_to"](zero, (6,)), u, zero])

    check(f, tensor("i64", 2))
