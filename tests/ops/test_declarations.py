"""Tests generated from the declarations: types, values, derivatives and errors of every primitive."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import staged as st
from staged.errors import StagedError
from staged.ir.types import TensorType, f32, f64
from staged.ops.array import METHODS
from staged.ops.primitive import PRIMITIVES
from tests.ops.cases import (
    BAD,
    CASES,
    DIFFERENTIABLE,
    check_jvp,
    check_reference,
    check_second,
    check_vjp,
    operands_of,
    type_of,
)


@pytest.mark.parametrize(("name", "number"), CASES)
def test_reference_gives_the_type_that_the_rule_promises(name, number):
    primitive = PRIMITIVES[name]
    sample = primitive.samples[number]
    for dtype in sample.dtypes:
        check_reference(primitive, sample, dtype)


@pytest.mark.parametrize(("name", "number"), DIFFERENTIABLE)
def test_vjp_agrees_with_central_differences(name, number):
    primitive = PRIMITIVES[name]
    sample = primitive.samples[number]
    check_vjp(primitive, sample)


@pytest.mark.parametrize(("name", "number"), DIFFERENTIABLE)
def test_jvp_agrees_with_central_differences(name, number):
    primitive = PRIMITIVES[name]
    sample = primitive.samples[number]
    assert primitive.jvp is not None, f"{name} has a vjp and no jvp"
    check_jvp(primitive, sample)


@pytest.mark.parametrize(("name", "number"), {name: (name, number) for name, number in reversed(DIFFERENTIABLE)}.values())
def test_second_derivatives_agree_with_central_differences(name, number):
    primitive = PRIMITIVES[name]
    if name not in CHECKED_ELSEWHERE:
        check_second(primitive, primitive.samples[number])


@pytest.mark.parametrize(("name", "number"), BAD)
def test_bad_operands_are_refused_with_words(name, number):
    primitive = PRIMITIVES[name]
    bad = primitive.bad[number]
    with pytest.raises(bad.error, match=bad.match) as caught:
        primitive.result_types(bad.operands, bad.attrs)
    assert isinstance(caught.value, StagedError)


def test_every_primitive_is_declared_whole():
    for primitive in PRIMITIVES.values():
        assert primitive.samples, f"{primitive.name} has no samples"
        assert primitive.doc, f"{primitive.name} has no doc"
        assert (primitive.vjp is None) == (primitive.jvp is None), f"{primitive.name} has one of vjp and jvp"
        assert (primitive.vjp is None) == bool(primitive.why_not_differentiable), (
            f"{primitive.name} has a vjp, or says why not"
        )


CHECKED_ELSEWHERE = {
    "stop_gradient": "its derivative is none of differences",
    "from_parts": "test_complex.py",
    "real_part": "test_complex.py",
    "imag_part": "test_complex.py",
    "log_gamma_draw": "its slope is that of the distribution's quantiles: test_rejection.py",
}


def test_every_differentiable_primitive_has_a_gradient_checked():
    for primitive in PRIMITIVES.values():
        if primitive.vjp is None or primitive.name in CHECKED_ELSEWHERE:
            continue
        floats = [sample for sample in primitive.samples if f64 in sample.dtypes]
        assert sum(check_vjp(primitive, sample) for sample in floats) > 0, primitive.name


def test_a_planted_wrong_vjp_is_caught():
    right = PRIMITIVES["tanh"]
    wrong = dataclasses.replace(right, vjp=lambda ct, y, x: [ct * (1.0 - y)])
    check_vjp(right, right.samples[0])
    with pytest.raises(AssertionError, match="vjp, operand 0"):
        check_vjp(wrong, right.samples[0])


def test_a_planted_wrong_jvp_is_caught():
    right = PRIMITIVES["multiply"]
    wrong = dataclasses.replace(right, jvp=lambda tangents, y, operands: tangents[0])
    with pytest.raises(AssertionError, match="jvp"):
        check_jvp(wrong, right.samples[0])


def test_a_planted_wrong_reference_is_caught():
    right = PRIMITIVES["sum"]
    wrong = dataclasses.replace(right, reference=lambda x, axes: np.sum(x, axis=axes, keepdims=True))
    check_reference(right, right.samples[0], f32)
    with pytest.raises(AssertionError):
        check_reference(wrong, right.samples[0], f32)


def test_a_planted_wrong_dtype_is_caught():
    right = PRIMITIVES["exp"]
    wrong = dataclasses.replace(right, reference=lambda x: np.exp(x.astype(np.float64)))
    with pytest.raises(AssertionError):
        check_reference(wrong, right.samples[0], f32)


def test_samples_are_the_same_every_time():
    sample = PRIMITIVES["matmul"].samples[0]
    first, second = operands_of(sample, f32), operands_of(sample, f32)
    assert all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    assert type_of(first[0]) == TensorType(f32, (2, 3))


GENERATORS = {"Generator", "default_generator"}
"""Names of `st.random` that are no functions of arrays."""


def not_in_both(module: str) -> list[str]:
    """The names `module.name` that are declared and not exported by the module, or exported and not declared."""
    held = getattr(st, module)
    declared = {name.rpartition(".")[2] for name in METHODS if name.startswith(f"{module}.")}
    known = [*METHODS.values()]
    undeclared = [name for name in held.__all__ if name not in declared | GENERATORS and getattr(held, name) not in known]
    return sorted(f"{module}.{name}" for name in [*(declared - set(held.__all__)), *undeclared])


@pytest.mark.parametrize("module", ["fft", "linalg", "random", "special"])
def test_a_module_exports_the_functions_that_are_declared_for_it(module: str) -> None:
    names = not_in_both(module)
    assert not names, f"{names}: edit `__all__` of staged/{module}.py, or declare the function with `@public`"


def test_an_omission_on_either_side_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(st.special, "__all__", [name for name in st.special.__all__ if name != "i0e"])
    assert not_in_both("special") == ["special.i0e"]
    monkeypatch.delitem(METHODS, "linalg.det")
    assert not_in_both("linalg") == ["linalg.det"]
