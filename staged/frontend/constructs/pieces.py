"""Pieces of an axis in a loop, `for i in range(0, n, 32): x[i : i + 32]`: Python cuts the last one at the end.

The number of elements of a piece is a dimension of the loop's body, so one body serves all pieces.

Tested by `tests/dynamic_sizes/test_cases.py` and `tests/dynamic_sizes/test_detection.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.lifetimes import OfBody
from staged.frontend.values.dimensions import bind_known
from staged.frontend.values.size_questions import asked
from staged.ir.declaration import prims
from staged.ir.nodes import Value
from staged.ir.size_questions import Question
from staged.ir.sizes import Dim, Extent, Size, surely
from staged.ir.trips import size_of
from staged.ops.array import StagedArray
from staged.ops.dimension import as_extent, size_number
from staged.ops.elementwise import minimum
from staged.ops.windows import width_of


@dataclass(frozen=True)
class Ranges(OfBody):
    """The ranges of the indices of the loops around: start, stop and step."""

    by_index: Mapping[Value, tuple[Extent, Extent, int]] = field(default_factory=dict)
    counts: dict[tuple[Value, int, Extent], StagedArray] = field(default_factory=dict)
    """The number of elements of pieces, by index, largest number and size of the axis."""


def enter_range(trace: TraceContext, index: StagedArray, bounds: tuple[Any, Any, Any]) -> None:
    """Note the range of a loop's index for its body, if sizes bound it."""
    start, stop, step = map(as_extent, bounds)
    if isinstance(stop, Size) and start is not None and isinstance(step, int) and step > 0:
        trace.put(Ranges({**trace.of(Ranges).by_index, index.value: (start, stop, step)}))


def cut(x: StagedArray, key: Any) -> Any:
    """The key of `x[key]`, with pieces that end at the end of their axis."""
    trace = current_trace()
    if trace is None or not trace.of(Ranges).by_index:
        return key
    parts = list(key) if isinstance(key, tuple) else [key]
    for axis, part in enumerate(parts[: x.ndim]):
        if part is None or part is Ellipsis:
            break
        if isinstance(part, slice) and part.step in (None, 1) and isinstance(part.start, StagedArray):
            parts[axis] = _cut(trace, part, x.shape[axis])
    return tuple(parts) if isinstance(key, tuple) else parts[0]


def _cut(trace: TraceContext, piece: slice, extent: Extent) -> slice:
    width, ends_early = _width(trace, piece, extent)
    start, stop, step = trace.of(Ranges).by_index.get(piece.start.value, (0, 0, 0))
    if not step or not isinstance(width, int) or width < 1:
        return piece
    last = start + (stop - start - 1) // step * step
    is_inside = surely(lambda: start >= 0) and surely(lambda: stop <= extent)
    if not is_inside or (surely(lambda: last + width <= extent) and not ends_early):
        return piece
    if isinstance(extent, Size):
        asked.append(Question(extent, "==", extent // width * width))  # an error may be one of a smaller piece
    counts = trace.of(Ranges).counts
    count = counts.get((piece.start.value, width, extent))
    if count is None or not trace.is_visible(count) or size_of(count.value) not in [known for known, _ in trace.dims]:
        least = minimum(size_number(extent) - piece.start, width)
        count = bind_known(trace, Dim("rows", width, least=1), least)
        counts[piece.start.value, width, extent] = count
    return slice(piece.start, piece.start + count)


def _width(trace: TraceContext, piece: slice, extent: Extent) -> tuple[Extent | None, bool]:
    """The largest number of elements of a piece, and whether its end is `min(..., n)` for the size of the axis."""
    least = piece.stop.value.made_by(prims.MINIMUM) if isinstance(piece.stop, StagedArray) else None
    if least is None:
        return (None if piece.stop is None else width_of(piece.start, piece.stop)), False
    one, other = least.operands
    for end, size in ((one, other), (other, one)):
        if size_of(size) == extent:
            return width_of(piece.start, StagedArray(end, trace)), True
    return None, False
