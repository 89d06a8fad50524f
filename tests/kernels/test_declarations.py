"""Every primitive's own samples through kernels: what is declared is what is compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from harness import Program, interpret, kernels, record

from staged.ir.machine import PORTABLE, X86_64_V4
from staged.ir.types import TensorType, dtype_of
from staged.kernels.fuse import fuse
from staged.ops.context import bind_all
from staged.ops.primitive import PRIMITIVES, Primitive, Sample

MACHINES = [PORTABLE, X86_64_V4]
_PLAIN = {"index_check", "dim", "extent"}  # numbers only: the structure around kernels writes them
_REPLACED = {"to_device", "accumulate", "from_parts", "real_part", "imag_part", "quantized_layer", "vary"}
# By passes before: placement makes copies, the simplifier additions, complex numbers are split, marks removed.


def operands_of(sample: Sample, dtype: Any, rng: np.random.Generator) -> list[np.ndarray[Any, Any]]:
    found = []
    for operand in sample.operands:
        if isinstance(operand, tuple):
            low, high = sample.low, sample.high
            if dtype.is_bool:
                found.append(np.asarray(rng.integers(0, 2, operand), bool))
            elif dtype.is_integer:
                found.append(
                    np.asarray(rng.integers(0 if dtype.kind == "u" else round(low), max(round(high), 1) + 1, operand))
                )
            else:
                found.append(np.asarray(rng.uniform(low, high, operand)))
            found[-1] = found[-1].astype(dtype.numpy)
        else:
            found.append(np.asarray(operand))
    return found


def cases_of(primitive: Primitive) -> list[tuple[Any, list[np.ndarray[Any, Any]]]]:
    cases = []
    rng = np.random.default_rng(3)
    for sample in primitive.samples:
        for dtype in sample.dtypes:
            arguments = operands_of(sample, dtype, rng)
            types = [TensorType(dtype_of(a.dtype), a.shape) for a in arguments]
            try:
                primitive.result_types(types, sample.attrs)
            except Exception:
                continue  # a dtype that only some operands of the sample take

            def f(*operands, sample=sample):
                return bind_all(primitive, list(operands), **sample.attrs)

            cases.append((record(f, *types), arguments))
    return cases


@pytest.mark.parametrize("machine", MACHINES, ids=lambda m: m.name)
def test_samples_of_every_primitive(machine):
    cases = [
        (name, *case) for name, primitive in PRIMITIVES.items() if name not in _PLAIN | _REPLACED for case in cases_of(primitive)
    ]
    fused = [fuse(function, machine) for _, function, _ in cases]
    programs = Program.many(fused, machine, ["-O0"])
    compiled = set()
    for (name, function, arguments), program in zip(cases, programs, strict=True):
        try:
            expected = interpret(function, arguments)
        except (ZeroDivisionError, IndexError):
            with pytest.raises((ZeroDivisionError, IndexError)):
                program(*arguments)
            continue
        results = program(*arguments)
        if kernels(program.function):
            compiled.add(name)
        for got, want in zip(results, expected, strict=True):
            assert got.shape == want.shape and got.dtype == want.dtype, name
            tolerance = 2e-5 if want.dtype == np.float32 else 1e-10
            np.testing.assert_allclose(
                got, want, rtol=tolerance, atol=tolerance, err_msg=f"{name} {[a.shape for a in arguments]}"
            )
    assert len(compiled) > 0.8 * len(PRIMITIVES)
