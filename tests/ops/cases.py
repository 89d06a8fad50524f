"""Operands drawn from the samples of the declarations, and the checks that the generated tests make with them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

import staged as st
from staged.eager_mode.context import EagerArray, EagerContext
from staged.ir.types import DType, TensorType, dtype_of, f64
from staged.ops.array import METHODS
from staged.ops.context import current_context, use_context
from staged.ops.primitive import PRIMITIVES, Primitive, Sample

CASES = [(p.name, number) for p in PRIMITIVES.values() for number in range(len(p.samples))]
DIFFERENTIABLE = [
    (name, number)
    for name, number in CASES
    if PRIMITIVES[name].vjp is not None and f64 in PRIMITIVES[name].samples[number].dtypes
]
BAD = [(p.name, number) for p in PRIMITIVES.values() for number in range(len(p.bad))]


def operands_of(sample: Sample, dtype: DType, seed: int = 0) -> list[np.ndarray]:
    """Seeded data for the shapes of a sample; its ready arrays as they are."""
    rng = np.random.default_rng(seed)
    made = []
    for operand in sample.operands:
        if isinstance(operand, np.ndarray):
            made.append(operand)
        elif dtype.is_bool:
            made.append(rng.random(operand) < 0.5)
        elif dtype.is_integer:
            low = max(sample.low, 0) if dtype.kind == "u" else sample.low
            made.append(rng.integers(int(low), int(sample.high) + 1, operand).astype(dtype.numpy))
        else:
            made.append(rng.uniform(sample.low, sample.high, operand).astype(dtype.numpy))
    return [np.asarray(one) for one in made]


def type_of(data: np.ndarray) -> TensorType:
    dtype = dtype_of(data.dtype)
    assert dtype is not None
    return TensorType(dtype, data.shape)


def evaluate(primitive: Primitive, operands: Sequence[np.ndarray], attrs: dict[str, Any]) -> tuple[np.ndarray, ...]:
    """The results by plain NumPy."""
    with np.errstate(all="ignore"):
        made = primitive.reference(*operands, **attrs)
    return made if isinstance(made, tuple) else (made,)


def check_reference(primitive: Primitive, sample: Sample, dtype: DType) -> None:
    """The reference gives what the type rule promises."""
    operands = operands_of(sample, dtype)
    types = primitive.result_types([type_of(one) for one in operands], sample.attrs)
    results = evaluate(primitive, operands, sample.attrs)
    assert len(results) == len(types)
    for result, promised in zip(results, types, strict=True):
        assert isinstance(result, np.ndarray), f"{primitive.name} gave a {type(result).__name__}"
        assert (type_of(result).dtype, result.shape) == (promised.dtype, promised.shape)


def smooth_operands(primitive: Primitive, sample: Sample, operands: Sequence[np.ndarray]) -> list[int]:
    """The operands whose gradient is checked."""
    if sample.differentiate is not None:
        return list(sample.differentiate)
    return [i for i, one in enumerate(operands) if one.dtype.kind == "f" and not isinstance(sample.operands[i], np.ndarray)]


def directional_difference(
    primitive: Primitive, operands: list[np.ndarray], attrs: dict[str, Any], index: int, direction: np.ndarray
) -> list[np.ndarray]:
    """(f(x + h d) - f(x - h d)) / 2h for the float results, in f64."""
    h = 1e-6
    ends = []
    for sign in (1.0, -1.0):
        moved = list(operands)
        moved[index] = operands[index] + sign * h * direction
        ends.append(evaluate(primitive, moved, attrs))
    return [(up - down) / (2 * h) for up, down in zip(*ends, strict=True) if up.dtype.kind == "f"]


def check_vjp(primitive: Primitive, sample: Sample) -> int:
    """<ct, J d> by central differences equals <vjp(ct), d>; how many operands were checked."""
    operands = operands_of(sample, f64)
    smooth = smooth_operands(primitive, sample, operands)
    if not smooth:
        return 0
    rng = np.random.default_rng(1)
    context = EagerContext()
    checked = 0
    with use_context(context):
        handles = [EagerArray(one, type_of(one)) for one in operands]
        results = context.bind(primitive, handles, sample.attrs)
        cts = [EagerArray(rng.standard_normal(r.shape), r.type) if r.dtype.is_float else None for r in results]
        floats = [ct for ct in cts if ct is not None]
        several = len(results) > 1
        given = tuple(cts) if several else cts[0]
        backs = primitive.vjp(given, tuple(results) if several else results[0], *handles, **sample.attrs)
    assert len(backs) == len(operands), f"the vjp of {primitive.name} gave {len(backs)} cotangents"
    assert floats, f"{primitive.name} has a vjp and no float result"
    for index in smooth:
        direction = rng.standard_normal(operands[index].shape)
        slopes = directional_difference(primitive, operands, sample.attrs, index, direction)
        expected = sum(float(np.sum(ct.numpy() * s)) for ct, s in zip(floats, slopes, strict=True))
        back = backs[index]
        if back is None:
            found = 0.0
        else:
            assert back.type == handles[index].type, f"the cotangent of operand {index} is {back.type}"
            found = float(np.sum(back.numpy() * direction))
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7, err_msg=f"vjp, operand {index}")
        checked += 1
    return checked


def check_jvp(primitive: Primitive, sample: Sample) -> int:
    """jvp(d) equals central differences, one operand at a time and all at once."""
    operands = operands_of(sample, f64)
    smooth = smooth_operands(primitive, sample, operands)
    rng = np.random.default_rng(2)
    context = EagerContext()
    for chosen in [*([index] for index in smooth), *([smooth] if len(smooth) > 1 else [])]:
        directions = {index: rng.standard_normal(operands[index].shape) for index in chosen}
        expected = None
        for index, direction in directions.items():
            slopes = directional_difference(primitive, operands, sample.attrs, index, direction)
            expected = slopes if expected is None else [a + b for a, b in zip(expected, slopes, strict=True)]
        with use_context(context):
            handles = [EagerArray(one, type_of(one)) for one in operands]
            results = context.bind(primitive, handles, sample.attrs)
            tangents = [
                EagerArray(directions[i], type_of(directions[i])) if i in directions else None
                for i in range(len(operands))
            ]
            several = len(results) > 1
            pushed = primitive.jvp(tangents, results if several else results[0], handles, **sample.attrs)
        outputs = list(pushed) if several else [pushed]
        outputs = [o for o, r in zip(outputs, results, strict=True) if r.dtype.is_float]
        for output, result, slope in zip(outputs, (r for r in results if r.dtype.is_float), expected, strict=True):
            found = np.zeros(result.shape) if output is None else output.numpy()
            assert output is None or output.type == result.type, f"the tangent is {output.type}"
            np.testing.assert_allclose(found, slope, rtol=2e-6, atol=1e-7, err_msg=f"jvp, operands {chosen}")
    return len(smooth)


def check_second(primitive: Primitive, sample: Sample) -> None:
    """Derivatives of the vjp and of the jvp equal central differences of them, and each other."""
    operands = operands_of(sample, f64)
    smooth = smooth_operands(primitive, sample, operands)

    def results(*moved: Any) -> list[Any]:
        handles = [st.asarray(one) for one in operands]
        for index, array in zip(smooth, moved, strict=True):
            handles[index] = array
        return [one for one in current_context().bind(primitive, handles, sample.attrs) if one.dtype.is_float]

    st.check_grads(results, [operands[index] for index in smooth], order=2, in_eager=True, rtol=1e-5, atol=1e-6)


def functions() -> Iterator[tuple[str, Any]]:
    """Every public function by name."""
    yield from METHODS.items()
