"""The IDX file format: a dense array behind a small big-endian header, plain or gzip."""

from __future__ import annotations

import gzip
import math
import zlib
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

    Gzip is told by the file's first bytes, not by its name. `ndim` is the number of dimensions the caller needs.
    Returns a fresh array of dtype u8, i8, i16, i32, f32 or f64, as the file says.
    Raises: DataError, naming the file and what was expected, if it cannot be read, is not IDX, is shorter or longer
    than its header says, or has another number of dimensions.
    Source: "The IDX file format", at the foot of Y. LeCun's page on the MNIST database.
    """
    file = Path(path)
    content = _contents(file)
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] not in DTYPES:
        raise DataError(
            f"{file} is not an IDX file: expected it to begin with 00 00 and an element type "
            f"({', '.join(f'{code:02x}' for code in DTYPES)}), got {content[:4].hex(' ') or 'nothing'}",
            hint="point at one of MNIST's files, such as t10k-images-idx3-ubyte or the same with .gz",
        )
    dtype, rank = DTYPES[content[2]], content[3]
    if ndim is not None and rank != ndim:
        raise DataError(
            f"{file} holds an array of {rank} dimensions, expected {ndim}",
            hint="images have 3 dimensions (idx3), labels 1 (idx1); were the two files swapped?",
        )
    start = 4 + 4 * rank
    if len(content) < start:
        raise DataError(f"{file} is truncated: expected a header of {start} bytes, got {len(content)}", hint=_AGAIN)
    shape = tuple(int(size) for size in np.frombuffer(content, ">u4", rank, 4))
    expected = start + math.prod(shape) * dtype.itemsize
    if len(content) != expected:
        fault = "is truncated" if len(content) < expected else "goes on after its array"
        raise DataError(
            f"{file} {fault}: expected {expected} bytes for {dtype.name} {shape}, got {len(content)}", hint=_AGAIN
        )
    return np.frombuffer(content, dtype, offset=start).reshape(shape).astype(dtype.newbyteorder("="))


_AGAIN = "the download or copy broke off; fetch the file again"


def _contents(file: Path) -> bytes:
    try:
        content = file.read_bytes()
    except OSError as error:
        raise DataError(
            f"{file} cannot be read: {error.strerror}", hint="check the path and its permissions"
        ) from error
    if not content.startswith(GZIP_MAGIC):
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise DataError(f"{file} is not whole: expected a complete gzip file ({error})", hint=_AGAIN) from error
