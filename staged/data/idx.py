"""The IDX file format: a dense array behind a small big-endian header, plain or gzip."""

from __future__ import annotations

import gzip
import math
import os
import sys
import zlib
from io import BufferedReader
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError

# The third byte of the header. Elements of more than one byte are big-endian.
DTYPES: dict[int, np.dtype[Any]] = {
    0x08: np.dtype("u1"),
    0x09: np.dtype("i1"),
    0x0B: np.dtype(">i2"),
    0x0C: np.dtype(">i4"),
    0x0D: np.dtype(">f4"),
    0x0E: np.dtype(">f8"),
}
GZIP_MAGIC = b"\x1f\x8b"


def read_idx(path: str | PathLike[str], *, ndim: int | None = None) -> NDArray[Any]:
    """The array in an IDX file, in this machine's byte order.

    Gzip is recognised by the file's first bytes, not by its name. `ndim` is the number of dimensions the caller needs.
    Returns a fresh array of dtype u8, i8, i16, i32, f32 or f64, as the file says.
    Raises: DataError, naming the file and what was expected, if it cannot be read, is not IDX, is shorter or longer
    than its header says, or has another number of dimensions.
    Source: "The IDX file format", at the foot of Y. LeCun's page on the MNIST database.
    """
    file = Path(path)
    try:
        with _opened(file) as stream:
            return _array(file, stream, ndim)
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{file} is not whole: expected a complete gzip file ({error})", hint=_AGAIN) from error
    except (OSError, ValueError) as error:
        if isinstance(error, DataError):
            raise
        words = getattr(error, "strerror", None) or error
        raise DataError(f"{file} cannot be read: {words}", hint="check the path and its permissions") from error


_AGAIN = "the download or copy broke off; fetch the file again"
MOST_AXES = 32
"""Of an array of NumPy 1; a header has one byte for their number."""


def _array(file: Path, stream: gzip.GzipFile | BufferedReader, ndim: int | None) -> NDArray[Any]:
    """Read the array from the stream: at most as many bytes as its header says, and one to see that no more follow."""
    magic = stream.read(4)
    if len(magic) < 4 or magic[:2] != b"\0\0" or magic[2] not in DTYPES:
        raise DataError(
            f"{file} is not an IDX file: expected it to begin with 00 00 and an element type "
            f"({', '.join(f'{code:02x}' for code in DTYPES)}), got {magic.hex(' ') or 'nothing'}",
            hint="point at one of MNIST's files, such as t10k-images-idx3-ubyte or the same with .gz",
        )
    dtype, rank = DTYPES[magic[2]], magic[3]
    if rank > MOST_AXES:
        raise DataError(f"{file} holds an array of {rank} dimensions, expected at most {MOST_AXES}", hint=_AGAIN)
    if ndim is not None and rank != ndim:
        raise DataError(
            f"{file} holds an array of {rank} dimensions, expected {ndim}",
            hint="images have 3 dimensions (idx3), labels 1 (idx1); were the two files swapped?",
        )
    extents = stream.read(4 * rank)
    start = 4 + 4 * rank
    if len(extents) < 4 * rank:
        raise DataError(f"{file} is truncated: expected a header of {start} bytes, got {4 + len(extents)}", hint=_AGAIN)
    shape = tuple(int(size) for size in np.frombuffer(extents, ">u4", rank))
    if math.prod(max(size, 1) for size in shape) * dtype.itemsize > sys.maxsize:
        raise DataError(f"{file} is not an array: {dtype.name} {shape} has more bytes than can be counted", hint=_AGAIN)
    size = math.prod(shape) * dtype.itemsize
    if size > _memory():
        raise DataError(
            f"{file} holds {dtype.name} {shape}: {size} bytes, more than this machine's memory", hint=_AGAIN
        )
    content = stream.read(size)
    if len(content) < size or stream.read(1):
        fault = "is truncated" if len(content) < size else "goes on after its array"
        got = start + len(content) if len(content) < size else "more"
        raise DataError(
            f"{file} {fault}: expected {start + size} bytes for {dtype.name} {shape}, got {got}", hint=_AGAIN
        )
    return np.frombuffer(content, dtype).reshape(shape).astype(dtype.newbyteorder("="))


def _opened(file: Path) -> gzip.GzipFile | BufferedReader:
    """The file's bytes, unpacked if they are gzip's."""
    with file.open("rb") as stream:
        packed = stream.read(len(GZIP_MAGIC)) == GZIP_MAGIC
    return gzip.open(file, "rb") if packed else file.open("rb")


def _memory() -> int:
    """The size of this machine's memory in bytes."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
