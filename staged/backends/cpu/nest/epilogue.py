"""An epilogue nest becomes the inline function that a product calls with its finished tiles.

Tested by `tests/backends/host/test_guarded_epilogues.py`.
"""

from __future__ import annotations

from staged.backends.cpu.nest.kernel import CpuNest, in_place_pairs
from staged.code.expr import Index, Infix, Variable, address
from staged.code.kernel_text import Site
from staged.code.nest.lowering import ZERO, global_pointer
from staged.code.nest.value import Value
from staged.code.tree import Function, Parameter, Unused
from staged.code.types import INDEX, scalar
from staged.code.uses import mentioned
from staged.code.writer import Names
from staged.ir.loops import ArrayRef, Load, Local, Loop, Nest, segments, walk
from staged.ir.machine import Machine
from staged.ir.schedule import Schedule


def _parameter_names(nest: Nest) -> tuple[list[str], list[str]]:
    """The names of an epilogue's inputs besides the tile, and of its outputs."""
    names = Names()
    inputs = [names.fresh(source.name, "_in") for source in nest.inputs[1:]]
    return inputs, [names.fresh(output.name, "_out") for output in nest.outputs]


def emit_epilogue(
    nest: Nest, schedule: Schedule, name: str, machine: Machine, site: Site, least: int = 0
) -> tuple[Function, tuple[tuple[str, str], ...], frozenset[str], tuple[tuple[int, int], ...]]:
    """The function, the parameters that it has besides the tile's, the snippets that it uses, and the results that may
    overwrite operands.

    `least` is the least number of columns of a tile. The nest's first input is the tile, with `ld` elements from row to
    row; its columns are counted from `col`.
    """
    cpu = CpuNest(nest, schedule, machine, site)
    low = cpu.low
    finished, *sources = nest.inputs
    assert isinstance(finished, ArrayRef)
    input_names, output_names = _parameter_names(nest)
    inputs: list[Variable] = []
    for input_name, source in zip(input_names, sources, strict=True):
        is_number = isinstance(source, Local)
        type = scalar(source.dtype) if is_number else global_pointer(source.dtype, is_const=True)
        inputs.append(Variable(input_name, type))
        if isinstance(source, Local):
            low.values[source] = Value(inputs[-1], source.dtype)
        else:
            low.arrays[source] = inputs[-1]
    outputs = [
        Variable(output_name, global_pointer(output.dtype))
        for output_name, output in zip(output_names, nest.outputs, strict=True)
    ]
    low.arrays |= dict(zip(nest.outputs, outputs, strict=True))
    batch, row, col, rows, cols, ld, r = (
        Variable(hint, INDEX) for hint in ("batch", "row", "col", "rows", "cols", "ld", "r")
    )
    tile = low.arrays[finished] = Variable("tile", global_pointer(finished.dtype, is_const=True))
    parameters = (batch, row, col, rows, cols, tile, ld, *inputs, *outputs)
    low.names.used |= {variable.text for variable in (*parameters, r)}
    over_batch, over_rows, over_columns = (s for s in walk(nest.body) if isinstance(s, Loop))
    load_operand = low.statements[Load]

    def load(s: Load) -> None:
        if s.array is not finished:
            load_operand(s)
            return
        column = low.axes[over_columns.axis]
        assert isinstance(column, Infix)
        element = Infix("+", Infix("*", r, ld), column.right)
        if cpu.vectors.axis is not None:
            cpu.vectors.load_from(s, address(tile, element))
        else:
            low.bind_scalar(s.target, Index(tile, element), low.loads_in_place)

    low.statements[Load] = load
    low.axes[over_batch.axis] = batch
    with low.loop(r, ZERO, rows):
        low.axes[over_rows.axis] = Infix("+", row, r)
        low.ranges[over_columns.axis] = (ZERO, cols)
        low.origins[over_columns.axis] = col
        if len(segments(over_columns)) < 2:
            low.least[over_columns.axis] = least
        low.loop_names.append(r.text)
        low.body(over_rows.body)
    used = mentioned(low.code.body)
    unused = [Unused((variable,)) for variable in (batch, row, col, *inputs) if variable not in used]
    code = Function(name, tuple(map(Parameter, parameters)), (*unused, *low.code.body), is_inline=True)
    own = tuple((variable.type.before_name, variable.text) for variable in (*inputs, *outputs))
    return code, own, cpu.snippets, in_place_pairs(nest, cpu.loops.stored_twice)
