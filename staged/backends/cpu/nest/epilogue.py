"""An epilogue nest becomes the inline function that a product calls with its finished tiles.

Tested by `tests/backends/host/test_epilogues.py` and `tests/backends/host/test_guarded_epilogues.py`.
"""

from __future__ import annotations

from staged.backends.cpu.nest.kernel import CpuNest, in_place_pairs
from staged.code.expr import Index, Infix, Variable, address
from staged.code.kernel_text import Site
from staged.code.nest.lowering import ZERO, global_pointer
from staged.code.tree import Function, Parameter, Unused
from staged.code.types import INDEX
from staged.code.uses import mentioned
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Store, segments, walk
from staged.ir.machine import Machine
from staged.ir.schedule import Schedule
from staged.ir.sizes import Extent


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
    finished = nest.inputs[0]
    assert isinstance(finished, ArrayRef)
    batch, row, col, rows, cols, ld, r = (
        Variable(hint, INDEX) for hint in ("batch", "row", "col", "rows", "cols", "ld", "r")
    )
    tile = low.arrays[finished] = Variable("tile", global_pointer(finished.dtype, is_const=True))
    place = (batch, row, col, rows, cols, tile, ld)
    low.names.used |= {variable.text for variable in (*place, r)}
    given = [parameter.variable for parameter in low.parameters()]
    low.parameter_names = set(low.names.used)
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
        low.axes[over_columns.axis] = col
        for terms in starts(over_columns):
            low.starts[terms] = low.constant("row_start", INDEX, low.index(Affine(tuple(terms))))
        low.loop_names.append(r.text)
        low.body(over_rows.body)
    used = mentioned(low.code.body)
    unused = [Unused((variable,)) for variable in (batch, row, col, *given) if variable not in used]
    code = Function(name, tuple(map(Parameter, (*place, *given))), (*unused, *low.code.body), is_inline=True)
    own = tuple((variable.type.before_name, variable.text) for variable in given)
    return code, own, cpu.snippets, in_place_pairs(nest, cpu.loops.stored_twice)


def starts(columns: Loop) -> set[frozenset[tuple[Axis | Local, Extent]]]:
    """The terms of the indices with which a loop over columns reads or writes neighbours in rows of arrays."""
    found = {frozenset(s.index.terms) for s in walk(columns.body) if isinstance(s, Load | Store)}
    return {terms for terms in found if len(terms) > 1 and (columns.axis, 1) in terms}
