"""Dtypes and shapes of operands together: arrays, Python numbers, NumPy arrays and lists."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import staged as st
from staged.eager_mode.context import wrap
from staged.ir.builder import Builder
from staged.ir.sizes import Dim
from staged.ir.types import DTYPES, TensorType, bool_, f32, f64, i8, i16, i32, i64, u8, u16, u32, u64
from staged.ops.context import use_context
from staged.ops.dtypes import _result_dtype, promote_dtypes, result_dtype
from staged.ops.promote import as_array
from staged.ops.record import RecordContext
from tests.errors.said import refusals, refuses

WEAK_F, WEAK_I, WEAK_B = (TensorType(dtype, (), True) for dtype in (f64, i64, bool_))
F32, F64, I32, I64, U8 = (TensorType(dtype, (2,)) for dtype in (f32, f64, i32, i64, u8))


def record(f, *types):
    """The types of what f gives for staged operands of `types`, and the names of the recorded ops."""
    builder = Builder()
    with builder.block(list(types)) as opened:
        context = RecordContext(builder)
        with use_context(context):
            result = f(*(context.handle(param) for param in opened.params))
        builder.end("return", [context.value_of(result)])
    return result.type, [op.name for op in opened.block.ops]


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (f32, f64, f64),
        (i32, f32, f32),
        (i64, f32, f32),
        (bool_, i32, i32),
        (bool_, f32, f32),
        (i32, i64, i64),
        (u8, i32, i32),
        (u8, u32, u32),
        (i32, u32, i64),
        (u32, i64, i64),
        (i8, i16, i16),
        (i8, u8, i16),
        (u8, i16, i16),
        (i8, u16, i32),
        (u16, i16, i32),
        (u16, i32, i32),
        (u16, u32, u32),
        (i16, u32, i64),
        (i8, u32, i64),
        (u32, u64, u64),
        (bool_, u64, u64),
        (u64, f32, f32),
        (i16, f64, f64),
    ],
)
def test_arrays_promote_as_in_the_array_api(a, b, expected) -> None:
    assert promote_dtypes(a, b) is expected is promote_dtypes(b, a)


@pytest.mark.parametrize("signed", [i8, i16, i32, i64])
def test_u64_beside_a_signed_integer_is_refused(signed) -> None:
    for one, other in ((u64, signed), (signed, u64)):
        with pytest.raises(st.DTypeError, match="u64 and i.* have no common integer dtype"):
            promote_dtypes(one, other)
    add = st.function(lambda a, b: a + b)
    x, y = np.array([2**63], np.uint64), np.ones(1, signed.numpy)
    with pytest.raises(st.DTypeError, match=r"st.astype\(x, st.i64\)"):
        add(x, y)
    with st.eager(), pytest.raises(st.DTypeError, match=r"st.astype\(x, st.i64\)"):
        add(x, y)
    assert add(x, 1)[0] == 2**63 + 1  # a number of Python's takes the dtype that it meets


def test_promotion_is_associative() -> None:
    for a, b, c in itertools.product([dtype for dtype in DTYPES.values() if dtype is not u64], repeat=3):
        left = promote_dtypes(promote_dtypes(a, b), c)
        right = promote_dtypes(a, promote_dtypes(b, c))
        if left is right:
            continue
        raise AssertionError(f"{a}, {b}, {c}: {left} or {right}")


@pytest.mark.parametrize(
    ("f", "types", "expected"),
    [
        (lambda x: x + 2.5, [F32], F32),
        (lambda x: 2 * x, [F32], F32),
        (lambda x: x + 2.5, [I32], TensorType(f32, (2,))),
        (lambda x: x + 2, [I32], I32),
        (lambda x: x + 2, [U8], U8),
        (lambda x: x + True, [I32], I32),
        (lambda x, n: x * n, [F32, WEAK_F], F32),
        (lambda x, n: x * n, [F64, WEAK_F], F64),
        (lambda x, n: x * n, [I64, WEAK_F], TensorType(f32, (2,))),
        (lambda x, n: x * n, [F32, WEAK_I], F32),
        (lambda n, m: n * m, [WEAK_I, WEAK_F], WEAK_F),
        (lambda n, m: n / m, [WEAK_I, WEAK_I], WEAK_F),
        (lambda n, m: n // m, [WEAK_I, WEAK_I], WEAK_I),
        (lambda n: n < 3, [WEAK_I], WEAK_B),
        (lambda n: st.sqrt(n), [WEAK_F], WEAK_F),
        (lambda x: st.exp(x), [I32], TensorType(f32, (2,))),
        (lambda x, y: x / y, [I32, I32], TensorType(f32, (2,))),
        (lambda n: st.broadcast_to(n, (3,)), [WEAK_F], TensorType(f32, (3,))),
        (lambda n: st.broadcast_to(n, (3,)), [WEAK_I], TensorType(i64, (3,))),
        (lambda n: st.full((3,), n), [WEAK_F], TensorType(f32, (3,))),
        (lambda n: st.stack([n, 2]), [WEAK_F], TensorType(f32, (2,))),
        (lambda x, n: st.where(x > 0, x, n), [F32, WEAK_F], F32),
        (lambda x: st.sum(x), [I32], TensorType(i64)),
        (lambda x: st.sum(x), [F32], TensorType(f32)),
        (lambda x: st.mean(x), [I32], TensorType(f32)),
        (lambda x: st.sum(x > 1), [I32], TensorType(i64)),
    ],
)
def test_numbers_are_weak(f, types, expected) -> None:
    assert record(f, *types)[0] == expected


def test_a_number_becomes_a_constant_of_the_dtype_it_meets() -> None:
    assert record(lambda x: x + 2, F32)[1] == ["constant", "broadcast_to", "add"]


def test_operands_of_one_type_need_no_further_op() -> None:
    assert record(lambda x, y: x + y, F32, F32)[1] == ["add"]


def test_symbolic_extents_pass_through() -> None:
    n = Dim("N")
    x, w = TensorType(f32, (n, 4)), TensorType(f32, (4, 3))
    assert record(lambda a, b: st.relu(a @ b + 1.0), x, w)[0] == TensorType(f32, (n, 3))
    assert record(lambda a: st.sum(a, axis=0), x)[0] == TensorType(f32, (4,))
    assert record(lambda a: st.mean(a), x)[0] == TensorType(f32)
    assert record(lambda a: st.softmax(a) - a[:, :1], x)[0] == x
    assert record(lambda a: a.reshape(-1, 2, 2), x)[0] == TensorType(f32, (n, 2, 2))
    assert record(lambda a: a.T, x)[0] == TensorType(f32, (4, n))
    with pytest.raises(st.ShapeError, match="do not broadcast"):
        record(lambda a, b: a + b, x, TensorType(f32, (Dim("M"), 4)))


def test_shapes_that_do_not_broadcast_are_named() -> None:
    with pytest.raises(st.ShapeError) as caught:
        record(lambda a, b: a * b, TensorType(f32, (2, 3)), TensorType(f32, (4, 3)))
    text = str(caught.value)
    assert "multiply: shapes (2, 3) and (4, 3) do not broadcast" in text
    assert "test_promote.py" in text and "To fix:" in text


def test_an_error_names_both_operands_and_the_line() -> None:
    with pytest.raises(st.ShapeError) as caught:
        record(lambda a, b: a @ b, TensorType(f32, (64, 784)), TensorType(f32, (748, 128)))
    text = str(caught.value)
    assert "matmul needs equal inner sizes, got (64, 784) @ (748, 128)" in text
    assert "f32 (64, 784)" in text and "f32 (748, 128)" in text and "a @ b" in text and "To fix: make" in text


@pytest.mark.parametrize(
    ("value", "dtype", "shape"),
    [
        ([1, 2], i64, (2,)),
        ([1.5, 2], f32, (2,)),
        ([[True], [False]], bool_, (2, 1)),
        (np.float32(2), f32, ()),
        (np.zeros((2, 3), np.uint8), u8, (2, 3)),
        ([], f32, (0,)),
        ([wrap(1.0), 2.0], f32, (2,)),
        ([[wrap(1), 2], [3, 4]], i64, (2, 2)),
    ],
)
def test_arrays_come_from_lists_and_numpy(value, dtype, shape) -> None:
    assert as_array(value).type == TensorType(dtype, shape)


@pytest.mark.parametrize(
    ("value", "error", "match"),
    [
        (np.zeros(2, np.longdouble), st.DTypeError, "longdouble|float128"),
        (np.zeros(2, np.clongdouble), st.DTypeError, "complex256"),
        ("text", st.DTypeError, "got str"),
        (None, st.DTypeError, "got NoneType"),
        ([[1, 2], [3]], st.ShapeError, "rows differ"),
    ],
)
def test_what_is_no_array_is_refused(value, error, match) -> None:
    with refuses(error, match):
        as_array(value)


test_dtypes_that_do_not_go_are_refused_with_words = refusals(
    (lambda: wrap(np.zeros(2, np.uint8)) + 300, "300 does not fit u8"),
    (lambda: wrap(np.zeros(2, np.uint8)) + -1, "-1 does not fit u8"),
    (lambda: wrap(np.zeros(2, bool)) + np.zeros(2, bool), "add needs numbers"),
    (lambda: -wrap(np.zeros(2, bool)), "negative needs numbers"),
    (lambda: wrap(np.zeros(2, np.float32)) & 1, "bitwise_and needs integers"),
    (lambda: ~wrap(np.zeros(2, np.float32)), "bitwise_invert needs integers"),
    (lambda: st.astype(np.zeros(2), "longdouble"), "is not a dtype"),
    (lambda: st.where(np.zeros(2), 1, 2), "bool condition"),
    usual=st.DTypeError,
)


def test_the_table_of_pairs_says_what_the_rule_says() -> None:
    types = [TensorType(dtype, (), weak) for dtype in DTYPES.values() for weak in (False, True)]
    for _ in range(2):  # the second time from the table
        for one, other in itertools.product(types, types):
            both = {one.dtype, other.dtype}
            if one.weak == other.weak and u64 in both and "i" in {dtype.kind for dtype in both}:
                continue  # refused
            assert result_dtype([one, other]) == _result_dtype([one, other])
