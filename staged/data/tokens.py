"""Texts as tokens in files that are mapped into memory: larger than memory, and there at once."""

from __future__ import annotations

import struct
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError

_MAGIC, _VERSION, _HEADER = 20240520, 1, 256
"""Of llm.c's files: 256 numbers of i32 (these two, then the number of tokens), then tokens of u16."""


def write_tokens(path: str | PathLike[str], tokens: Any, dtype: Any = np.uint16) -> None:
    """Write tokens one after another in `dtype`, as nanoGPT's `train.bin` has them. Raises: DataError if one does not
    fit.
    """
    values, wanted = np.asarray(tokens), np.dtype(dtype)
    limits = np.iinfo(wanted)
    if values.ndim != 1 or values.dtype.kind not in "iu":
        raise DataError(f"tokens are one row of integers, got {values.dtype} {values.shape}")
    if values.size and not limits.min <= values.min() <= values.max() <= limits.max:
        raise DataError(f"tokens from {values.min()} to {values.max()} do not fit {wanted}", hint="dtype=np.uint32")
    values.astype(wanted.newbyteorder("<")).tofile(path)


def read_tokens(path: str | PathLike[str], dtype: Any = np.uint16) -> NDArray[Any]:
    """The tokens of a file, mapped into memory and read-only: `st.function`s take them, and slices of them.

    On many ranks, `st.batches(st.shard(texts), ...)` and places of `st.shard` read the tokens of each rank only.
    A file of llm.c's is known by its header, whose tokens are u16; any other is tokens of `dtype` and nothing else.
    Raises: DataError if it cannot be read, or its size is not a number of tokens.
    """
    file, wanted = Path(path), np.dtype(dtype).newbyteorder("<")
    try:
        size = file.stat().st_size
        with file.open("rb") as stream:
            head = stream.read(12)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror}") from error
    offset = 0
    if size >= 4 * _HEADER and head[:8] == struct.pack("<ii", _MAGIC, _VERSION):
        offset, wanted = 4 * _HEADER, np.dtype("<u2")
        count = int.from_bytes(head[8:], "little")
        if size != offset + 2 * count:
            raise DataError(f"{file} has a header of {count} tokens, and {(size - offset) / 2:g} are there")
    if (size - offset) % wanted.itemsize:
        raise DataError(f"{file} has {size} bytes, which is no number of tokens of {wanted}", hint="another `dtype`?")
    if size == offset:
        return np.empty(0, wanted)
    return np.memmap(file, wanted, "r", offset)
