"""Matrix products and convolutions with what happens to their elements, end to end."""

from __future__ import annotations

import numpy as np
import pytest
from harness import check, kernels, tensor

from staged.ir.machine import PORTABLE, X86_64_V4
from staged.library.pooling import convolution as V
from staged.ops import contraction as D
from staged.ops import elementwise as E
from staged.ops import reduction as R
from staged.ops import shape as S

f32 = "f32"


@pytest.mark.parametrize("machine", [PORTABLE, X86_64_V4], ids=lambda m: m.name)
@pytest.mark.parametrize("m, k, n", [(64, 20, 10), (1, 7, 33), (37, 5, 1), (5, 1, 50)])
def test_layer_is_one_contraction(machine, m, k, n):
    check(
        lambda x, w, b: E.maximum(D.matmul(x, w) + b, 0.0),
        tensor(f32, m, k), tensor(f32, k, n), tensor(f32, n), count=1, machine=machine, rtol=1e-4,
    )  # fmt: skip


def test_weight_update_happens_in_the_product():
    def f(w, x, d):
        return w - 0.1 * D.matmul(S.permute_dims(x, (1, 0)), d)

    program = check(f, tensor(f32, 40, 30), tensor(f32, 20, 40), tensor(f32, 20, 30), rtol=1e-4)
    assert kernels(program.function)[-1].attrs["fused"] == "matmul, multiply, subtract"
    assert (0, 2) in program.kernels[-1].may_alias


def test_product_with_two_results():
    def f(x, w):
        y = D.matmul(x, w)
        return y, E.exp(y)

    check(f, tensor(f32, 12, 9), tensor(f32, 9, 20), count=1, rtol=1e-4)


def test_batched_product_scaled():
    check(lambda a, b: D.matmul(a, b) * 0.5, tensor(f32, 3, 4, 5, 6), tensor(f32, 3, 4, 6, 7), count=1, rtol=1e-4)
    check(
        lambda a, b, c: D.matmul(a, b) + c,
        tensor(f32, 3, 4, 5, 6), tensor(f32, 3, 4, 6, 7), tensor(f32, 3, 4, 5, 7), count=1, rtol=1e-4,
    )  # fmt: skip


def test_convolution_with_bias_and_relu():
    def f(x, w, b):
        return E.maximum(V.conv2d(x, w) + S.reshape(b, (1, 6, 1, 1)), 0.0)

    check(f, tensor(f32, 2, 3, 9, 10), tensor(f32, 6, 3, 3, 3), tensor(f32, 6), count=1, rtol=1e-4)


def test_softmax_of_a_product_is_two_kernels():
    def f(x, w, b):
        z = D.matmul(x, w) + b
        e = E.exp(z - R.max_(z, axis=1, keepdims=True))
        return e / R.sum_(e, axis=1, keepdims=True)

    check(f, tensor(f32, 16, 20), tensor(f32, 20, 10), tensor(f32, 10), count=2, rtol=1e-4)


def test_double_precision():
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(17, 23)), rng.normal(size=(23, 9))
    check(lambda a, b: D.matmul(a, b) * 2.0, tensor("f64", 17, 23), tensor("f64", 23, 9), arguments=[a, b], count=1)
