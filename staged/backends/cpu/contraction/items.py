"""The function of a kernel that goes through its work items, and the kernel's text with it.

Tested by `tests/backends/host/test_contraction_matmul.py` and `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from staged.backends.cpu.contraction.operands import kernel_parameters
from staged.backends.cpu.contraction.shared_tiles import TileCalls
from staged.backends.cpu.contraction.spec import (
    ContractionKernel,
    Conv2dSpec,
    MatmulSpec,
    Parameter,
)
from staged.backends.cpu.contraction.tile import declared
from staged.backends.cpu.contraction.vectors import Vector, support_for
from staged.code.support.library import Snippet
from staged.code.writer import Writer


@contextmanager
def kernel_function(
    t: Writer, spec: MatmulSpec | Conv2dSpec, parameters: Sequence[Parameter], notes: Sequence[str]
) -> Iterator[None]:
    """The function of a kernel around its body, below comments and `notes`."""
    for line in (*spec.comments, *notes):
        t.line(f"// {line}")
    with t.function(f"static void {spec.name}", map(declared, parameters)):
        if isinstance(spec, MatmulSpec) and spec.counted == "batch":
            t.line("(void)count;")
        yield


def over_items(
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    t: Writer,
    notes: Sequence[str],
    emit_item: Callable[[], None],
    work_items: int,
    scratch_items: int,
    items_text: str = "",
    more: Sequence[tuple[str, Snippet]] = (),
    tiles: TileCalls | None = None,
) -> ContractionKernel:
    """Finish the text of a kernel: `emit_item` writes what it does with the work item `item`.

    `more` are functions that it may call (see `support_for`), `tiles` the tiles that `emit_item` calls.
    """
    parameters = kernel_parameters(spec, scratch_items > 0)
    with kernel_function(t, spec, parameters, notes):
        with t.block("for (int64_t item = begin; item < end; ++item)"):
            emit_item()
    text = str(t) if tiles is None else tiles.text + str(t)
    return ContractionKernel(
        spec.name,
        text,
        parameters,
        work_items,
        items_text,
        scratch_items * spec.dtype.size,
        *support_for(text, vector, (*more, *(() if tiles is None else tiles.functions))),
    )


def no_items(spec: MatmulSpec | Conv2dSpec) -> ContractionKernel:
    """The kernel of a result without elements."""
    t, parameters = Writer(), kernel_parameters(spec)
    with kernel_function(t, spec, parameters, ()):
        for _, name in parameters:
            t.line(f"(void){name};")
    return ContractionKernel(spec.name, str(t), parameters, 0)
