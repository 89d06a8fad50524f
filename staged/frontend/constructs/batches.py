"""`st.batches`: a loop over rows of arrays, some at a time, in order or in an order drawn anew."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
from staged.ops.exchange import is_computed_from_part, part_of, whole_of
from staged.ops.index import take
from staged.ops.promote import as_array
from staged.ops.ranks import static_ranks
from staged.ops.source import arange
from staged.ops.subscript import get_item
from staged.source import here


class Batches(StagedIterable):
    """`st.batches(*arrays, size=, shuffle=False, drop_last=True, mask=False, seed=None)`: consecutive rows of arrays,
    `size` at a time.

    Gives one array per argument (a single array for a single argument). With `shuffle`, the rows are taken in an order
    drawn anew each time the loop starts. With `drop_last=False` the rows left over come last, as a smaller batch, or
    with `mask` as a batch of `size` with padding.

    Of arrays of `st.shard`, the batches are those of the whole arrays, and each rank reads its part of each batch.
    """

    index_hint = "batch"

    def __init__(
        self,
        *arrays: Any,
        size: Any,
        shuffle: bool = False,
        drop_last: bool = True,
        mask: bool = False,
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
        if mask and drop_last:
            raise StagingError(
                "`mask` must be False if the rows left over are dropped, got mask=True",
                where=here(),
                hint="pad the last batch with `drop_last=False, mask=True`",
            )
        self.arrays, self.parts = _whole(arrays, size)
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
        self.mask = mask
        self.seed = seed
        self.generator = generator
        self.order: Any = None
        left = self.rows % self.size
        if (self.parts or 1) > 1 and not (drop_last or mask or left == 0):
            raise StagingError(
                "batches of sharded arrays have equal sizes on all ranks: the rows left over need padding",
                where=here(),
                hint="`mask=True` pads the last batch, and the loop gets a mask of its rows: "
                "`for x, y, is_row in st.batches(..., drop_last=False, mask=True)`",
            )
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
        if self.mask:
            return self._padded(row)
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
            parts = self._taken(self._part(_window(self.order, start, count)))
        else:
            parts = [self._part(_window(array, start, count)) for array in self.arrays]
        return parts[0] if len(parts) == 1 else tuple(parts)

    def _padded(self, start: Any) -> Any:
        """The batch from row `start` on, and which of its rows are not padding. Padding repeats the last row."""
        places = self._part(as_array(start) + arange(self.size, dtype=i64))
        chosen = minimum(places, self.rows - 1)
        taken = self._taken(take(self.order, chosen, axis=0) if self.shuffle else chosen)
        return (*taken, places < self.rows)

    def _taken(self, chosen: Any) -> list[Any]:
        if isinstance(chosen, StagedArray):
            chosen.value.hint = LibraryName("rows")
        return [take(array, chosen, axis=0) for array in self.arrays]

    def _part(self, batch: Any) -> Any:
        """The rows of a batch that belong to this rank."""
        return batch if self.parts is None else part_of(batch, 0, self.parts)


def _as_array(array: Any) -> Any:
    if hasattr(array, "shape"):
        return array
    return np.asarray(array)


def _whole(arrays: Sequence[Any], size: int) -> tuple[list[Any], int | None]:
    """The arrays, and None. If they are parts of `st.shard`, the whole arrays and the number of parts."""
    wholes: list[Any] = [whole_of(array) for array in arrays]
    if all(whole is None for whole in wholes):
        for number, array in enumerate(arrays):
            if is_computed_from_part(array):
                raise StagingError(
                    f"batches needs the result of `st.shard` itself: array {number + 1} is computed from the result "
                    "of `st.shard`",
                    where=here(),
                    hint="call `st.shard` last: `st.shard(x / 255)`",
                )
        return [_as_array(array) for array in arrays], None
    for number, whole in enumerate(wholes):
        if whole is None:
            raise StagingError(
                "batches needs arrays that are all sharded or all whole: "
                f"array {number + 1} is not the result of `st.shard`",
                where=here(),
                hint="call `st.shard(x)` for each array, along axis 0",
            )
    ranks = static_ranks()
    if size % ranks:
        raise ShapeError(
            f"each of {ranks} ranks has an equal part of a batch, and {ranks} does not divide the batch size, {size}",
            where=here(),
            hint="`size` is the number of rows of all ranks together",
        )
    return wholes, ranks


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
    *arrays: Any,
    size: int,
    shuffle: bool = False,
    drop_last: bool = True,
    mask: bool = False,
    seed: Any = None,
    generator: Any = None,
) -> Batches:
    """Rows of `arrays`, `size` at a time: `for x, y in batches(images, labels, size=100): ...` is one loop.

    Shapes: arrays with equal first dimensions (N, ...); yields (size, ...) of each, or the array itself for one
    argument. With `shuffle`, the rows come in an order drawn anew each time the loop starts, from `generator` or the
    default one, with `seed` in place of its seed. The N % size rows left over are dropped (with a note), or with
    `drop_last=False` come last as a smaller batch; `x.shape[0]` is then an integer of the program, in one body for all
    batches. With `mask` too, padding completes the last batch, and the loop gets one more array (size,) of bools: False
    for padding. The mean of a batch is then `st.sum(losses * is_row) / st.sum(is_row)`.

    On many ranks, `batches(st.shard(images), st.shard(labels), size=100)` gives each rank its part of every batch, of
    size / ranks rows. The order is one for all ranks, and `size` counts the rows of all ranks. Each rank reads the rows
    of its parts only, also from a file that is mapped into memory.

    Raises: ShapeError for different first dimensions, or if the ranks do not divide `size`; StagingError for a size
    below 1, if only some arrays are sharded, and for a smaller batch of sharded arrays.
    """
    return Batches(*arrays, size=size, shuffle=shuffle, drop_last=drop_last, mask=mask, seed=seed, generator=generator)
