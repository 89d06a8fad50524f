"""Arrays in pieces: each rank has an equal part of the elements, in the order of memory.

The array is flattened and padded with zeros, so that the number of ranks divides its size. `Piece` is the piece of this
rank outside of programs.

Tested by `tests/ranks/test_sharded_optimizers.py`.
"""

from __future__ import annotations

import errno
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from staged.base.launcher import this_job
from staged.errors import ProgramFileError, RankError, StagingError
from staged.frontend.trace.context import current_trace
from staged.ir.types import DType, dtype_of
from staged.ops.array import Array
from staged.ops.exchange import all_gather, shard
from staged.ops.joining import concat
from staged.ops.promote import as_array
from staged.ops.ranks import static_ranks
from staged.ops.shape import reshape, slice_axis
from staged.ops.source import zeros
from staged.runtime.agreement import largest, text_of_first
from staged.saving import safetensors
from staged.source import here

Shape = tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Piece:
    """The elements of this rank of an array: `st.save` writes the pieces of all ranks as one array."""

    array: np.ndarray[Any, Any]
    """One axis, padded with zeros."""
    shape: Shape
    """Of the whole array."""
    rank: int
    ranks: int

    @property
    def dtype(self) -> DType:
        """The dtype of the elements."""
        dtype = dtype_of(self.array.dtype)
        assert dtype is not None, "it was the dtype of a Variable"
        return dtype

    @property
    def nbytes(self) -> int:
        """The bytes of the whole array."""
        return math.prod(self.shape) * self.array.itemsize

    @property
    def begin(self) -> int:
        """The place of the first element in the flat array."""
        return min(self.rank * len(self.array), math.prod(self.shape))

    @property
    def elements(self) -> np.ndarray[Any, Any]:
        """The elements without the padding."""
        return self.array[: math.prod(self.shape) - self.begin]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        raise StagingError(
            f"an array of shape {self.shape} is in pieces on {self.ranks} ranks, and this rank has one of them",
            where=here(),
            hint="save it with `st.save`, which writes all pieces: `st.load` returns the array",
        )


@dataclass(frozen=True)
class Split:
    """The division of arrays among ranks."""

    ranks: int

    def check(self, what: str) -> None:
        """Raises: RankError outside of staged code, or in a program for another number of ranks."""
        if current_trace() is None:
            raise RankError(
                f"{what} exchanges arrays between {self.ranks} ranks, and runs outside of a staged function",
                where=here(),
                hint="call it in a function with `@st.function`",
            )
        if static_ranks() != self.ranks:
            raise RankError(
                f"{what} has pieces for {self.ranks} ranks, and the program is for {static_ranks()}",
                where=here(),
                hint=f"declare the function with `@st.function(ranks={self.ranks})`",
            )

    def size(self, shape: Sequence[Any]) -> int:
        """The number of elements of a piece."""
        size: int = -(-math.prod(shape) // self.ranks)
        return size

    def rows(self, x: Array) -> Array:
        """The array as a matrix with a row for each rank."""
        count, size = math.prod(x.shape), self.size(x.shape)
        assert isinstance(count, int), "Variables have static sizes"
        flat = reshape(x, (count,))
        if missing := self.ranks * size - count:
            flat = concat([flat, zeros((missing,), dtype=x.dtype)])
        return reshape(flat, (self.ranks, size))

    def piece(self, x: Any) -> Any:
        """The piece of this rank of a replicated array: in plain Python a NumPy array."""
        if current_trace() is not None:
            return self.pieces([as_array(x)])[0]
        array = np.asarray(x)
        size = self.size(array.shape)
        flat = np.zeros(self.ranks * size, array.dtype)
        flat[: array.size] = array.reshape(-1)
        return flat[this_job().rank * size :][:size].copy()

    def pieces(self, arrays: Sequence[Array]) -> list[Array]:
        """The pieces of this rank of replicated arrays, by way of one matrix."""
        rows = [self.rows(x) for x in arrays]
        row = reshape(shard(concat(rows, axis=1) if len(rows) > 1 else rows[0]), (-1,))
        return _parts(row, 0, [self.size(x.shape) for x in arrays])

    def whole(self, pieces: Sequence[Array], shapes: Sequence[Shape]) -> list[Array]:
        """The arrays of these pieces on all ranks, by one message."""
        sizes = list(map(self.size, shapes))
        gathered = all_gather(concat(pieces) if len(pieces) > 1 else pieces[0])
        columns = _parts(reshape(gathered, (self.ranks, sum(sizes))), 1, sizes)
        found = []
        for column, shape in zip(columns, shapes, strict=True):
            count, flat = math.prod(shape), reshape(column, (-1,))
            found.append(reshape(flat if flat.shape[0] == count else slice_axis(flat, 0, 0, count), shape))
        return found

    def saved(self, variable: Any, shape: Shape) -> Any:
        """The value of a Variable in pieces for a `state_dict`: in staged code the array, in plain Python a `Piece`."""
        if current_trace() is not None:
            return self.whole([variable.value], [shape])[0]
        return Piece(variable.numpy(), shape, this_job().rank, self.ranks)


def _parts(x: Array, axis: int, sizes: Sequence[int]) -> list[Array]:
    if len(sizes) == 1:
        return [x]
    ends = [sum(sizes[: number + 1]) for number in range(len(sizes))]
    return [slice_axis(x, axis, end - size, end) for size, end in zip(sizes, ends, strict=True)]


def split_of_job() -> Split | None:
    """The division among the ranks of this program or job; None for one rank."""
    ranks = static_ranks()
    return None if ranks == 1 else Split(ranks)


# ---- files --------------------------------------------------------------------------------------


def write_pieces(
    path: str, words: Sequence[tuple[str, str]], arrays: Sequence[np.ndarray[Any, Any] | Piece], metadata: str
) -> None:
    """Write a safetensors file together with the other ranks, which call it too: whole, or not at all.

    Rank 0 creates a file beside the path and writes the header and whole arrays. Each rank writes its pieces. Rank 0
    renames the file when all are on the disk. If a rank ends before that, an older file stays.

    Raises: ProgramFileError on all ranks if one of them cannot write.
    """
    safetensors.check_place(path)
    is_first = this_job().rank == 0
    name, reason = "", 0
    if is_first:
        try:
            name, created = safetensors.beside(path)
            created.close()
        except OSError as error:
            reason = error.errno or errno.EIO
    name = text_of_first(name)
    if name:
        head = safetensors.header(words, [x.shape for x in arrays], [x.nbytes for x in arrays], metadata)
        try:
            _write_own(name, head if is_first else b"", len(head), arrays)
        except OSError as error:
            reason = error.errno or errno.EIO
    reason = largest(reason)
    if is_first and name:
        try:
            if reason:
                os.unlink(name)
            else:
                os.replace(name, path)
        except OSError as error:
            reason = reason or error.errno or errno.EIO
    reason = largest(reason)
    if reason:
        hint = 'pass a path in a folder that all ranks share: `st.save("/shared/checkpoint.safetensors", tree)`'
        raise ProgramFileError(f'cannot save "{path}": {os.strerror(reason)}', where=here(), hint=hint)


def _write_own(name: str, head: bytes, place: int, arrays: Sequence[np.ndarray[Any, Any] | Piece]) -> None:
    """Write the header and whole arrays if there is a header (rank 0), and the pieces of this rank."""
    file = os.open(name, os.O_WRONLY)
    try:
        _write_at(file, memoryview(head), 0)
        for array in arrays:
            if isinstance(array, Piece):
                begin = place + array.begin * array.array.itemsize
                _write_at(file, _bytes_of(array.elements), begin)
            elif head:
                _write_at(file, _bytes_of(array), place)
            place += array.nbytes
        os.fsync(file)
    finally:
        os.close(file)


def _bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _write_at(file: int, data: memoryview, place: int) -> None:
    while len(data):
        done = os.pwrite(file, data, place)
        data, place = data[done:], place + done
