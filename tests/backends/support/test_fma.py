"""`st_fma` rounds once where the processor can, on numbers and vectors, for each width of vectors."""

from __future__ import annotations

import numpy as np
import pytest

from staged.code.support.variety import VARIETIES, Variety
from staged.ir.machine import Machine
from tests.backends.support.harness import NUMPY, compiled, machines, pointer, program


@pytest.mark.parametrize("machine", machines(), ids=lambda m: m.name)
@pytest.mark.parametrize("v", VARIETIES, ids=lambda v: v.suffix)
def test_the_sum_is_rounded_once(v: Variety, machine: Machine) -> None:
    lanes = (v.lanes or machine.lanes(v.format.bits // 8)) if v.is_vector else 1
    driver = f"""
void run(const {v.T} *x, const {v.T} *y, const {v.T} *z, {v.T} *result) {{
    result[0] = {v.fma_function}(*x, *y, *z);
}}
"""
    library = compiled(program([v.fma_function], driver, machine), machine.march)
    dtype = NUMPY[v.format.dtype]
    rng = np.random.default_rng(0)
    x, y = (rng.standard_normal(lanes).astype(dtype) for _ in range(2))
    z = -(x * y)  # the sum is what rounding took from the product
    arrays = [np.zeros(lanes + 16, dtype) for _ in range(4)]
    given = []
    for array in arrays:  # vectors are aligned to their size
        start = -array.ctypes.data % 64 // array.itemsize
        given.append(array[start : start + lanes] if start + lanes <= array.size else array[:lanes])
    for place, values in zip(given, (x, y, z), strict=False):
        place[:] = values
    library.run(*map(pointer, given))
    wide = np.longdouble if dtype is np.float64 else np.float64
    once = (x.astype(wide) * y.astype(wide) + z.astype(wide)).astype(dtype)
    width = lanes * v.format.bits // 8
    is_fused = machine.fma and width <= machine.vector_bytes and not (v.is_vector and width < 16)
    if dtype is np.float32 or not is_fused:
        np.testing.assert_array_equal(given[3], once if is_fused else x * y + z)
    else:  # a long double has 11 more bits than a double: enough to tell the two
        assert np.all(np.abs(given[3] - once) <= np.abs(x * y) * 2.0**-63) and np.any(given[3] != x * y + z)

