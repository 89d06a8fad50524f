"""`st.dim`: a dimension whose size is known when the program runs, with a bound that is known while staging."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import numpy as np

from staged.errors import DTypeError, ShapeError, StagedValueError
from staged.frontend.trace.context import TraceContext, current_trace
from staged.ir.declaration import prims
from staged.ir.names import as_name
from staged.ir.nodes import Op
from staged.ir.sizes import Dim, Size
from staged.ops.array import Array, StagedArray, static_hint
from staged.ops.dimension import COUNT, check_size, dim_op
from staged.ops.promote import as_array, read
from staged.source import here


def dim(name: str, value: Any = None, *, max: int | None = None) -> Any:
    """A dimension called `name`, of `value` elements and at most `max`.

    Arrays of that size are made with it (`st.zeros((n, 3))`, `x[start : start + n]`, `h[ids]` for `ids` of `n`
    indices), as the first axis; memory has room for `max`, loops run over `value`. It is an integer too: `total / n`. A
    value below 0 or above `max` stops the program with the line. Arrays of that size cannot leave the loop in which the
    dimension was made: the value may differ in every iteration.

    Without a value: a symbol for types, with a bound if there is one. In eager mode: the value, checked.

    Raises: ShapeError without a bound, or for one below 1; DTypeError for a value that is not an integer.
    """
    if value is None:
        return Dim(name, max)
    if max is None:
        raise ShapeError(
            f"dimension `{name}` needs a bound: memory is planned while staging",
            where=here(),
            hint=f'say how large it may be: `st.dim("{name}", n, max=64)`',
        )
    if not isinstance(max, int | np.integer):
        raise ShapeError(
            f"the bound of dimension `{name}` must be an int that is known while staging, got {max!r}",
            where=here(),
            hint=f"memory is planned while staging; {static_hint(max)}",
        )
    if max < 1:
        raise ShapeError(
            f"dimension `{name}` has room for {max} elements", where=here(), hint="give `max` of at least 1"
        )
    count = read(value)
    if (
        isinstance(count, bool | float | str)
        or isinstance(count, Array)
        and (count.shape or not count.dtype.is_integer)
    ):
        given = count.type if isinstance(count, Array) else repr(count)
        raise DTypeError(
            f"the size of dimension `{name}` is an integer scalar, got {given}",
            where=here(),
            hint="cast it: `st.astype(n, st.i64)`",
        )
    trace = current_trace()
    if trace is None:
        if isinstance(count, Size):
            raise StagedValueError(f"the size {count} has no value here", where=here())
        number = int(count)
        check_size(name, number, int(max))
        return number
    return bound_here(trace, _fresh(trace, Dim(name, int(max))), as_array(count))


def _fresh(trace: TraceContext, dim: Dim) -> Dim:
    """The dimension with the first number that is free."""
    taken = {str(known) for known, _ in trace.dims}
    numbered = (replace(dim, number=number) for number in itertools.count())
    return next(known for known in numbered if str(known) not in taken)


def bind_known(trace: TraceContext, dim: Dim, count: Array) -> StagedArray:
    """Give a fresh dimension a size that is within its bounds."""
    dim = _fresh(trace, dim)
    attrs = {"dim": dim, "most": dim.max, "least": dim.least}
    (size,) = trace.emit_op(Op(prims.DIM, [trace.value_of(count)], [COUNT], attrs=attrs, where=here()))
    trace.dims += ((dim, trace.block),)
    return size


def bind_again(trace: TraceContext) -> None:
    """Give the dimensions of the blocks around their sizes in the open block, which becomes that of a function."""
    for dim, home in trace.dims:
        size = next(op for op in home.ops if op.declared is prims.DIM and op.attrs["dim"] == dim)
        if trace.is_visible(StagedArray(size.result, trace)):
            size.result.hint = as_name(dim.name)  # of the parameter
            trace.emit_op(Op(prims.DIM, [size.result], [COUNT], attrs=size.attrs, where=size.where))


def bound_here(trace: TraceContext, dim: Dim, count: Array) -> Array:
    """Give a dimension its size for the rest of the open block."""
    assert trace.builder.current is not None
    least = {"least": dim.least} if dim.least else {}
    (size,) = trace.bind(dim_op, [count], {"dim": dim, "most": dim.max, **least})
    trace.dims += ((dim, trace.builder.current),)
    return size
