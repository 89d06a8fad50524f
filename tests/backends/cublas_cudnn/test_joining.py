"""Kernels that share a launch: only what is independent of the others, whatever order the text has them in."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged import GPU, with_backend
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.joining import _in_place, _Plan, _Step
from staged.ir.loops import Nest
from staged.ir.nodes import Effect, Op, Value, VariableRef
from staged.ir.structure import VARIABLE_READ, VARIABLE_WRITE
from staged.ir.types import TensorType, f32

SHAPES = [(40, 8), (8, 40), (40, 40), (3,), (1,), (130,)]


def arrays(seed: int) -> list[Any]:
    random = np.random.default_rng(seed)
    return [random.integers(-8, 9, shape).astype(np.float32) / 4 for shape in SHAPES]


def test_alike_updates_of_variables_that_read_one_another(emulated_device: Any) -> None:
    """Each new value needs the next one's old value, or the one before's new value."""
    old, given = arrays(0), arrays(1)
    pairs = [st.Variable(value) for value in (old[2], given[2], old[2].T.copy())]

    @st.function
    def run(g: Any, n: Any) -> Any:
        a, b, c = pairs
        kept = g
        with with_backend(GPU, g):
            for _ in st.range(n):
                before = a.value
                a.value = a.value * 0.5 + b.value
                b.value = b.value * 0.5 + c.value
                c.value = c.value * 0.5 + a.value
                a.value = a.value * 0.5 + before
                kept = before * 0.5 + g
        return kept

    a, b, c = old[2], given[2], old[2].T
    for _ in range(3):
        before = a
        a = a * 0.5 + b
        b = b * 0.5 + c
        c = c * 0.5 + a
        a = a * 0.5 + before
        kept = before * 0.5 + given[0][:1, :1]
    g = np.broadcast_to(given[0][:1, :1], (40, 40)).copy()
    np.testing.assert_allclose(run(g, 3), kept, rtol=1e-5)
    for variable, wanted in zip(pairs, (a, b, c), strict=True):
        np.testing.assert_allclose(np.asarray(variable.value), wanted, rtol=1e-5)


def kernel(*operands: Value) -> Op:
    """A kernel whose result may be made in the place of its first operand."""
    nest = Nest("alike", (), (), (), (), 1, ((0, 0),))
    return Op("kernel", operands, [operands[0].type], attrs={"nest": nest}, device=GPU)


def test_no_member_is_made_in_the_place_of_what_another_reads() -> None:
    """Blocks of one launch run in any order: as an array of another shape, too, the operand is needed to the end."""
    x, y = Value(TensorType(f32, (40, 8))), Value(TensorType(f32, (40, 8)))
    flat = Op("reshape", [x], [TensorType(f32, (320,))], attrs={"shape": (320,)}).result
    assert _in_place([kernel(x), kernel(y)]) == [(0, 0), (1, 1)]
    assert _in_place([kernel(x), kernel(flat)]) == []
    assert _in_place([kernel(x, y), kernel(y, x)]) == []
    assert _in_place([kernel(x, x), kernel(y)]) == [(0, 0), (1, 2)]


def test_a_kernel_waits_for_what_its_launch_makes() -> None:
    x = Value(TensorType(f32, (40, 8)))
    first, second = kernel(x), kernel(x)
    flat = Op("reshape", [second.result], [TensorType(f32, (320,))], attrs={"shape": (320,)}, device=GPU)
    plan = _Plan(CUDA_GPU)
    plan.steps = [_Step([first]), _Step([second]), _Step([kernel(x)]), _Step([flat])]
    plan.made_at = {first.result: 0, second.result: 1, flat.result: 3}
    needed: list[Op] = []
    assert plan.can_be_there(x, 0, needed) and plan.can_be_there(first.result, 1, needed)
    assert plan.can_be_there(flat.result, 2, needed) and needed == [flat]  # a view of what is there
    assert not plan.can_be_there(second.result, 1, []) and not plan.can_be_there(flat.result, 1, [])
    assert not plan.can_be_there(second.result, 0, [])


def test_a_variable_is_not_read_before_a_write() -> None:
    written, other = (VariableRef(name, TensorType(f32, (3,)), outer=False, device=GPU) for name in "ab")
    write = Op(VARIABLE_WRITE, [Value(written.type)], [], attrs={"variable": written}, effects=(Effect("write", written),))
    plan = _Plan(CUDA_GPU)
    for variable, is_movable in ((written, False), (other, True)):
        read = Op(VARIABLE_READ, [], [variable.type], attrs={"variable": variable}, effects=(Effect("read", variable),))
        plan.steps, plan.made_at = [_Step([write]), _Step([read])], {read.result: 1}
        assert plan.is_movable(read, 0) is is_movable
