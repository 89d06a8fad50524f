"""The ops that become one kernel, and the order of kernels."""

from __future__ import annotations

import numpy as np
import pytest
from harness import Program, check, fused, interpret, kernels, record, sample, tensor

import staged as st
from staged.ir.builder import Builder
from staged.ir.declaration import Declaration
from staged.ir.machine import X86_64_V4
from staged.ir.nodes import FAIL, IO, Effect, Function, VariableRef
from staged.ir.types import TensorType, f32
from staged.ir.verifier import verify
from staged.kernels.fuse import fuse
from staged.ops import contraction as D
from staged.ops import elementwise as E
from staged.ops import index as I
from staged.ops import reduction as R
from staged.ops import shape as S
from staged.ops.choice import select

MACHINE = X86_64_V4.with_cores(2)


def names(function: Function) -> list[str]:
    return [
        op.attrs.get("fused", op.name) if op.name in ("kernel", "contraction") else op.name for op in function.block.ops
    ]


def test_every_fused_function_verifies():
    def f(x, w, b):
        h = E.maximum(D.matmul(x, w) + b, 0.0)
        return h, R.sum_(h, axis=0), S.reshape(h, (160,))

    verify(fused(f, tensor("f32", 8, 12), tensor("f32", 12, 20), tensor("f32", 20)))


def test_reshape_of_a_whole_array_stays_a_view():
    function = fused(lambda x: S.reshape(E.exp(x), (20,)), tensor("f32", 4, 5))
    assert names(function) == ["exp", "reshape"]


def test_an_array_that_is_read_in_two_shapes_is_one_input():
    """`st.cross_entropy` reads its labels as a column and as a row: they are passed once."""

    def columns(x, y):
        return E.exp(x) * S.reshape(y, (8, 1)) + S.expand_dims(S.expand_dims(y, 0)[0], 1)

    function = fused(columns, tensor(f32, 8, 16), tensor(f32, 8))
    (kernel,) = kernels(function)
    assert kernel.operands == function.params

    @st.function
    def loss(x, y, z):
        return st.value_and_grad(st.cross_entropy)(x, y), st.exp(x) * z[:, None] + z[None][0][:, None]

    x, y, z = np.cos(np.arange(40.0)).reshape(8, 5), np.arange(8) % 5, np.arange(8.0)
    assert loss.stage(x, y, z).source.count("args->y") == 1
    (value, slope), product = loss(x, y, z)
    shares = np.exp(x) / np.exp(x).sum(1, keepdims=True)
    np.testing.assert_allclose(value, -np.log(shares[range(8), y]).mean(), rtol=1e-12)
    np.testing.assert_allclose(slope, (shares - np.eye(5)[y]) / 8, rtol=1e-12, atol=1e-15)
    np.testing.assert_allclose(product, np.exp(x) * z[:, None] + z[:, None], rtol=1e-12)


def test_leading_slice_stays_a_view():
    function = fused(lambda x: R.sum_(D.matmul(x[2], x[3])), tensor("f32", 5, 6, 6))
    assert [name for name in names(function) if name == "slice"] == ["slice", "slice"]


def test_numbers_stay_plain_ops():
    function = fused(lambda x, rate: x * (rate * 2.0), tensor("f32", 50), tensor("f32"))
    assert names(function) == ["constant", "multiply", "multiply"]


def test_broadcasts_and_constants_never_exist_in_memory():
    function = fused(lambda b: E.exp(S.broadcast_to(b, (8, 50)) + 1.0), tensor("f32", 50))
    assert len(kernels(function)) == 1 and len(function.block.ops) == 1


def test_dear_values_are_not_computed_for_every_row():
    program = check(lambda x, b: x + E.exp(b), tensor("f32", 8, 50), tensor("f32", 50))
    assert [op.attrs["fused"] for op in kernels(program.function)] == ["exp", "add"]


def test_a_result_used_by_a_product_is_written_once():
    def f(x, w):
        h = E.exp(x)
        return D.matmul(h, w) + R.sum_(h)

    check(f, tensor("f32", 12, 12), tensor("f32", 12, 12), rtol=1e-4)


def test_groups_that_wait_for_each_other_stay_apart():
    def f(x):
        total = R.sum_(x * 2.0)
        return x * 2.0 + total, E.exp(x) * total

    check(f, tensor("f32", 30, 40), rtol=1e-4)


def test_long_sums_are_cut_and_agree():
    check(lambda x: R.sum_(x * x), tensor("f64", 1 << 17), count=2)
    check(lambda x: R.max_(x), tensor("f32", 512, 512), count=2)


def test_checked_gathers_keep_their_order():
    def f(table, i, j):
        a = I.take(table, i, axis=0)
        b = I.take(table, j, axis=0)
        return a * 2.0 + b

    rng = np.random.default_rng(0)
    check(
        f, tensor("f32", 9, 20), tensor("i64", 5), tensor("i64", 5),
        arguments=[rng.normal(size=(9, 20)), rng.integers(0, 9, 5), rng.integers(0, 9, 5)],
    )  # fmt: skip


def build_with_effects() -> Function:
    """read v; y = exp(v); write v = v * 2; print y; z = exp(v read again) + old."""
    variable = VariableRef("v", TensorType(f32, (40,)), True)
    type = variable.type
    b = Builder()
    with b.block([]) as body:
        old = b.op(
            "variable_read", [], [type], attrs={"variable": variable}, effects=(Effect("read", variable),)
        ).result
        y = b.op("exp", [old], [type]).result
        twice = b.op("add", [old, old], [type]).result
        b.op("variable_write", [twice], [], attrs={"variable": variable}, effects=(Effect("write", variable),))
        b.op("print", [y], [], attrs={"parts": (), "end": "\n", "file": "stdout"}, effects=IO)
        new = b.op(
            "variable_read", [], [type], attrs={"variable": variable}, effects=(Effect("read", variable),)
        ).result
        z = b.op("add", [new, y], [type]).result
        b.op(Declaration(name="check", kind="structured"), [z], [], effects=FAIL)
        b.end("return", [z])
    return Function("f", body.block, variables=[variable])


def test_effects_keep_their_order_and_reads_come_before_writes():
    function = fuse(build_with_effects(), MACHINE)
    order = names(function)
    write = order.index("variable_write")
    reads = [n for n, name in enumerate(order) if name == "variable_read"]
    assert reads[0] < write < reads[1]
    first = next(n for n, op in enumerate(function.block.ops) if op.name == "kernel")
    assert first < write, "what uses the old value runs before the write"
    assert write < order.index("print") < order.index("check")
    verify(function)


def test_kernel_names_come_from_the_user():
    def softmax(x):
        e = E.exp(x - R.max_(x, axis=1, keepdims=True))
        p = e / R.sum_(e, axis=1, keepdims=True)
        p.value.hint = "p"
        return p

    (kernel,) = kernels(fused(softmax, tensor("f32", 4, 50)))
    assert kernel.attrs["name"] == "compute_p"


@pytest.mark.parametrize("seed", range(12))
def test_random_programs_agree_with_the_references(seed):
    """Chains of random ops over a few shapes, fused as they come."""
    rng = np.random.default_rng(seed)
    rows, columns = (int(n) for n in rng.integers(1, 40, 2))

    def f(x, y, b):
        pool = [x, y]
        for _ in range(12):
            p, q = (pool[int(n)] for n in rng.integers(0, len(pool), 2))
            match int(rng.integers(0, 9)):
                case 0:
                    new = E.tanh(p) + q
                case 1:
                    new = E.maximum(p, q) * 0.5
                case 2:
                    new = p - R.mean(p, axis=1, keepdims=True)
                case 3:
                    new = q + R.max_(p, axis=0, keepdims=True)
                case 4:
                    new = p * b
                case 5:
                    new = select(p > q, p, q * 0.3)
                case 6:
                    new = S.reshape(S.reshape(p, (rows * columns,)) * 0.9, (rows, columns))
                case 7:
                    new = S.permute_dims(S.permute_dims(p, (1, 0)) + 0.1, (1, 0))
                case _:
                    new = p + R.sum_(q * q) * 0.01
            pool.append(new)
        return pool[-1], pool[-2], R.sum_(pool[-3], axis=0)

    types = [tensor("f64", rows, columns), tensor("f64", rows, columns), tensor("f64", columns)]
    function = record(f, *types)
    arguments = [sample(type, rng) for type in types]
    expected = interpret(function, arguments)
    program = Program(fuse(function, MACHINE), MACHINE)
    for pieces, in_place in ((1, False), (2, False), (1, True)):
        program.pieces, program.in_place = pieces, in_place
        for got, want in zip(program(*arguments), expected, strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


def test_what_a_loop_reads_from_memory_is_made_once_before_it():
    @st.function
    def f(x, rows):
        turned = st.matrix_transpose(x)  # no op's loops can hold the transpose for a scatter
        total = st.zeros((4, 6))
        for i in st.range(3):
            total = st.scatter_add(total, rows[i], st.dynamic_slice(turned, i, 2))
        return total

    x, rows = np.arange(30, dtype=np.float32).reshape(6, 5), np.array([[0, 3], [1, 1], [2, 0]])
    program = f.stage(x, rows)
    before = program.lowered_ir[: program.lowered_ir.index("for(")]
    assert "fused='permute'" in before and program.lowered_ir.count("fused='permute'") == 1
    with st.eager():
        expected = f(x, rows)
    np.testing.assert_array_equal(f(x, rows), expected)
