"""`st.batches`: a loop over rows of arrays, some at a time, in order or in an order drawn anew."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from staged.errors import ShapeError, StagedValueError, StagingError
from staged.frontend.constructs.iterables import Reversed, StagedIterable
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.notes import Notes
from staged.frontend.values.dimensions import dim
from staged.frontend.values.size_questions import as_numbers
from staged.ir.declaration import prims
from staged.ir.names import LibraryName, has_name
from staged.ir.types import i64
from staged.library.draws.random import permutation
from staged.ops.array import Array, StagedArray, static_hint
from staged.ops.choice import astype
from staged.ops.context import bind, current_context
from staged.ops.dimension import as_extent
from staged.ops.elementwise import minimum
from staged.ops.index import take
from staged.ops.promote import as_array
from staged.ops.subscript import get_item
from staged.source import here


class Batches(StagedIterable):
    """`st.batches(*arrays, size=, shuffle=False, drop_last=True, seed=None)`: consecutive rows of arrays, `size` at a
    time.

    Gives one array per argument (a single array for a single argument). With `shuffle`, the rows are taken in an order
    drawn anew each time the loop starts. With `drop_last=False` the rows left over come last, as a smaller batch.
    """

    index_hint = "batch"

    def __init__(
        self,
        *arrays: Any,
        size: Any,
        shuffle: bool = False,
        drop_last: bool = True,
        seed: Any = None,
        generator: Any = None,
    ) -> None:
        if not arrays:
            raise StagingError("batches needs at least one array", where=here())
        if isinstance(size, Array):
            raise StagedValueError(
                "the batch size must be static: it is a shape",
                where=here(),
                hint=f"{static_hint(size)}, or write the number",
            )
        if size < 1:
            raise StagingError(f"the batch size must be at least 1, got {size}", where=here())
        self.arrays = [_as_array(array) for array in arrays]
        rows = {array.shape[0] if array.shape else None for array in self.arrays}
        first = rows.pop() if len(rows) == 1 else None
        if first is None:
            shapes = ", ".join(str(tuple(array.shape)) for array in self.arrays)
            raise ShapeError(
                f"batches needs arrays with equal first dimensions, got {shapes}",
                where=here(),
                hint="pass arrays with one row per sample each",
            )
        self.rows: Any = first
        self.size = int(size)
        self.shuffle = shuffle
        self.drop_last = drop_last
        self.seed = seed
        self.generator = generator
        self.order: Any = None
        left = self.rows % self.size
        trace = current_trace()
        if trace is not None and isinstance(left, int) and left and drop_last:
            trace.of(Notes).texts.append(f"batches of {size} drop the last {left} of {self.rows} rows (drop_last=True)")

    @property
    def length(self) -> Any:
        return as_numbers((self.rows if self.drop_last else self.rows + self.size - 1) // self.size)

    def __staged_len__(self) -> Any:
        return self.length

    def __len__(self) -> int:
        """The number of batches."""
        return int(self.length)

    def begin(self) -> None:
        if self.shuffle:
            if self.seed is None:
                self.order = permutation(self.rows, generator=self.generator)
            else:
                self.order = self._own_order()
            if isinstance(self.order, StagedArray):
                self.order.value.hint = LibraryName("row_order")

    def _own_order(self) -> Any:
        """Rows in the order of a seed of their own; the generator's counter makes each epoch's order new."""
        _, stream, counter = current_context().next_random(self.generator)
        key = [astype(as_array(part), i64) for part in (self.seed, stream, counter)]
        return bind(prims.PERMUTATION, key, n=self.rows)

    def element(self, index: Any) -> Any:
        row = index * self.size
        if isinstance(row, StagedArray) and not has_name(row.value.hint):
            row.value.hint = LibraryName("row")
        return self._rows(row, self._count(row))

    def _count(self, start: Any) -> Any:
        """The number of rows of the batch from row `start` on: a dimension if the last batch may be smaller."""
        if self.drop_last or self.rows % self.size == 0:
            return self.size
        if not isinstance(start, StagedArray):
            return min(self.size, self.rows - int(start))
        if isinstance(self.rows, int) and self.rows < self.size:
            return self.rows
        return as_extent(dim("rows", minimum(as_numbers(self.rows) - start, self.size), max=self.size))

    def reverse(self) -> StagedIterable:
        return Reversed(self)

    def __reversed__(self) -> Iterator[Any]:
        return iter(self.reverse())

    def _rows(self, start: Any, count: Any) -> Any:
        if self.shuffle:
            chosen = _window(self.order, start, count)
            if isinstance(chosen, StagedArray):
                chosen.value.hint = LibraryName("rows")
            parts = [take(array, chosen, axis=0) for array in self.arrays]
        else:
            parts = [_window(array, start, count) for array in self.arrays]
        return parts[0] if len(parts) == 1 else tuple(parts)


def _as_array(array: Any) -> Any:
    if hasattr(array, "shape"):
        return array
    return np.asarray(array)


def _window(array: Any, start: Any, count: Any) -> Any:
    """`array[start:start + count]`, in range by construction, so nothing needs checking."""
    if isinstance(start, StagedArray):
        array = as_array(array)
        start = as_array(start)
        zero = as_array(0)
        starts = [start, *[zero] * (len(array.shape) - 1)]
        return bind(prims.DYNAMIC_SLICE, [array, *starts], sizes=(count, *array.shape[1:]))
    return get_item(array, slice(int(start), int(start) + count))


def batches(
    *arrays: Any, size: int, shuffle: bool = False, drop_last: bool = True, seed: Any = None, generator: Any = None
) -> Batches:
    """Rows of `arrays`, `size` at a time: `for x, y in batches(images, labels, size=100): ...` is one loop.

    Shapes: arrays with equal first dimensions (N, ...); yields (size, ...) of each, or the array itself for one
    argument. With `shuffle`, the rows come in an order drawn anew each time the loop starts, from `generator` or the
    default one, with `seed` in place of its seed. The N % size rows left over are dropped (with a note), or with
    `drop_last=False` come last as a smaller batch; `x.shape[0]` is then an integer of the program, in one body for all
    batches. Raises: ShapeError for different first dimensions; StagingError for a size below 1.
    """
    return Batches(*arrays, size=size, shuffle=shuffle, drop_last=drop_last, seed=seed, generator=generator)
