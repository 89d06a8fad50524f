"""The function of a kernel that goes through its work items, and the kernel's text with it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from staged.backends.c_family.contraction.spec import (
    ITEM_SIZES,
    Conv2dSpec,
    KernelText,
    MatmulSpec,
    Parameter,
    Phase,
)
from staged.backends.c_family.contraction.text import Text
from staged.backends.c_family.contraction.tile import declared
from staged.backends.c_family.contraction.vectors import Vector, support_for


def over_items(
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    t: Text,
    parameters: Sequence[Parameter],
    emit_item: Callable[[], None],
    work_items: int,
    scratch_items: int,
    items_text: str = "",
) -> KernelText:
    """Finish the text of a kernel that has one phase: `emit_item` writes what it does with the work item `item`."""
    with t.function(f"static void {spec.name}", list(map(declared, parameters))):
        with t.block("for (int64_t item = begin; item < end; ++item)"):
            emit_item()
    return KernelText(
        support_for(str(t), vector),
        str(t),
        (Phase(spec.name, work_items, items_text),),
        tuple(parameters),
        scratch_items * ITEM_SIZES[spec.dtype],
    )
