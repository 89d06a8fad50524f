"""Every primitive, compiled: the samples of the declarations, run by the native back end, against the references."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import staged as st
from staged.ops.context import bind_all
from staged.ops.primitive import PRIMITIVES
from staged.ops.ranks import Collective
from tests.ops.cases import evaluate, operands_of, smooth_operands

KINDS = sorted({primitive.kind for primitive in PRIMITIVES.values()})

# What the back end computes with polynomials and other orders of summation may differ by this much.
TOLERANCE = {"float32": {"rtol": 3e-6, "atol": 3e-6}, "float64": {"rtol": 1e-13, "atol": 1e-13}}


def cases_of(kind):
    """(primitive, sample, dtype, operands) for every sample of the primitives of a kind."""
    for primitive in PRIMITIVES.values():
        if primitive.kind != kind or primitive.name == "constant":
            continue
        for sample in primitive.samples:
            for dtype in sample.dtypes if sample.operands else sample.dtypes[:1]:
                yield primitive, sample, dtype, operands_of(sample, dtype)


def run_all(cases):
    """All the cases in one program; the results of each."""

    @st.function
    def program(groups):
        return [bind_all(case[0], list(group), **case[1].attrs) for case, group in zip(cases, groups, strict=True)]

    return program([tuple(case[3]) for case in cases])


def check(cases) -> None:
    wrong = []
    for (primitive, sample, dtype, operands), results in zip(cases, run_all(cases), strict=True):
        expected = evaluate(primitive, operands, sample.attrs)
        for got, want in zip(map(np.asarray, results), expected, strict=True):
            label = f"{primitive.name} {dtype} {[o.shape for o in operands]} {sample.attrs}"
            if got.dtype != want.dtype or got.shape != want.shape:
                wrong.append(f"{label}: {got.dtype} {got.shape} in place of {want.dtype} {want.shape}")
            elif not np.allclose(got, want, equal_nan=True, **TOLERANCE.get(str(want.dtype), {"rtol": 0, "atol": 0})):
                wrong.append(f"{label}: {got} in place of {want}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_primitives_agree_with_their_references(kind) -> None:
    cases = list(cases_of(kind))
    if not cases:
        pytest.fail(f"no samples of kind {kind}")
    check(cases)


def test_a_planted_wrong_kernel_is_caught() -> None:
    tanh = PRIMITIVES["tanh"]
    right = [case for case in cases_of("elementwise") if case[0] is tanh]
    check(right)
    # The back end goes by the name: this one is compiled as a sine and compared with the hyperbolic tangent.
    wrong = [(dataclasses.replace(tanh, name="sin"), *case[1:]) for case in right]
    with pytest.raises(AssertionError, match="in place of"):
        check(wrong)


# ---- gradients ------------------------------------------------------------------------------------


def gradients(cases):
    """The gradient of sum(results * weights) by the float operands, for every case, in one compiled program."""

    def weighted(primitive, attrs, operands):
        total = 0.0
        for result in bind_all(primitive, operands, **attrs):
            if result.dtype.is_float:
                if isinstance(primitive, Collective):  # a result is local: the sum over ranks has a derivative
                    result = st.all_reduce(result)
                total = total + st.sum(result * np.cos(np.arange(result.size)).reshape(result.shape))
        return total

    @st.function
    def program(groups):
        made = []
        for (primitive, sample, _, operands), group in zip(cases, groups, strict=True):
            smooth = smooth_operands(primitive, sample, operands)
            made.append(st.grad(lambda *xs, p=primitive, s=sample: weighted(p, s.attrs, xs), tuple(smooth))(*group))
        return made

    groups = [tuple(case[3]) for case in cases]
    with st.eager():
        expected = program(groups)
    return program(groups), expected


# The slope of a draw is that of its distribution: tests/ops/test_rejection.py.
DIFFERENTIABLE = sorted({primitive.kind for primitive in PRIMITIVES.values() if primitive.vjp} - {"random"})


@pytest.mark.parametrize("kind", DIFFERENTIABLE)
def test_compiled_gradients_agree_with_the_tape(kind) -> None:
    cases = [
        case
        for case in cases_of(kind)
        if case[0].vjp is not None and case[2] is st.f64 and smooth_operands(*case[:2], case[3])
    ]
    found, expected = gradients(cases)
    wrong = []
    for (primitive, sample, _, operands), got, want in zip(cases, found, expected, strict=True):
        for mine, other in zip(got, want, strict=True):
            if not np.allclose(mine, other, rtol=1e-12, atol=1e-12, equal_nan=True):
                label = f"{primitive.name} {[o.shape for o in operands]} {sample.attrs}"
                wrong.append(f"{label}: {mine} in place of {other}")
    assert cases and not wrong, "\n".join(wrong)
