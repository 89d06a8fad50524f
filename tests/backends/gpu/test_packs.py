"""The elements that are read and written sixteen bytes at a time: those that are proven to begin at a multiple."""

from __future__ import annotations

from dataclasses import replace

import pytest

from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.backends.gpu.mapping import Part
from staged.backends.gpu.packs import packed
from staged.ir.loops import Affine, ArrayRef, Axis, Bound, Constant, Load, Local, Store
from staged.ir.types import f32, i64

ROWS = 4096


def packs(
    columns: int = 64, step: int = 64, offset: int = 0, address: int = 16, guarded: bool = False, found: bool = False
) -> tuple[int, list[str]]:
    """(elements at once, which accesses are packs) of y[i, j] = x[i * step + j + offset]."""
    i, j = Axis("i", ROWS), Axis("j", columns)
    x, y = ArrayRef("x", f32, ROWS * step + 64, "input"), ArrayRef("y", f32, ROWS * columns, "output")
    value, row = Local("value", f32), Local("row", i64)
    at = Affine.of(row if found else i, step) + Affine.of(j) + offset
    guards = (Bound(Affine.of(j), columns - 1),) if guarded else ()
    body = (
        Load(value, x, at, guards, Constant(0.0, f32) if guards else None),
        Store(y, Affine.of(i, columns) + Affine.of(j), value),
    )
    width, fitting = packed(Part((i, j), body, ()), {x: address, y: 16}, CUDA_GPU)
    return width, sorted(s.array.name for s in fitting)


def test_accesses_at_multiples_are_packs() -> None:
    assert packs() == (4, ["x", "y"])
    assert packs(step=68, offset=8) == (4, ["x", "y"])


@pytest.mark.parametrize(
    "between", [{"offset": 1}, {"step": 66}, {"address": 8}, {"address": 1}, {"guarded": True}, {"found": True}]
)
def test_what_may_begin_between_packs_is_read_element_by_element(between: dict[str, int]) -> None:
    assert packs(**between) == (4, ["y"])  # type: ignore[arg-type]


def test_rows_that_end_between_packs_have_none() -> None:
    assert packs(columns=66, step=68) == (1, [])


def test_a_single_pack_is_read_element_by_element() -> None:
    """A kernel of one thread does not have a loop over packs."""
    i = Axis("i", 4)
    x, y, value = ArrayRef("x", f32, 4, "input"), ArrayRef("y", f32, 4, "output"), Local("value", f32)
    body = Load(value, x, Affine.of(i)), Store(y, Affine.of(i), value)
    few = replace(CUDA_GPU, busy_items=1)
    assert packed(Part((i,), body, ()), {x: 16, y: 16}, few) == (1, frozenset())
