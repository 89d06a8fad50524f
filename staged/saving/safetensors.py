"""The safetensors format, as the host reads and writes it.

A file is the length of its header (u64, little-endian), the header (JSON: for each name the dtype, the shape and where
its bytes are in the rest; texts under `__metadata__`), and the elements of the arrays, one after another without gaps.
Source: https://github.com/huggingface/safetensors#format. Generated programs write the same bytes
(`code/support/save.py`): wider elements first, then by name, the header padded with spaces to 8 bytes, as
the library of that name does.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from staged.errors import DataError, ProgramFileError
from staged.ir.structure import SAVED_DTYPES
from staged.ir.types import DTYPES
from staged.source import here

METADATA = "__metadata__"
"""The key of the header that is no array."""
LONGEST_HEADER = 100_000_000
"""Bytes of a header that readers accept, from the format's description."""


def ordered(names: Iterable[tuple[str, str]]) -> list[int]:
    """The positions of the arrays (name, dtype) in the order in which a file has them."""
    found = list(names)
    return sorted(
        range(len(found)), key=lambda n: (-SAVED_DTYPES.index(found[n][1]), quoted(found[n][0])[1:-1].encode())
    )


def header(
    words: Sequence[tuple[str, str]], shapes: Sequence[tuple[int, ...]], sizes: Sequence[int], metadata: str
) -> bytes:
    """The length of the header, and the header. `words` are the name of each array and the format's word for its
    dtype, `sizes` are in bytes; `metadata` is JSON of an object of texts, or empty.
    """
    rows = [f'"{METADATA}":{metadata}'] if metadata else []
    begin = 0
    for (name, dtype), shape, size in zip(words, shapes, sizes, strict=True):
        extents = ",".join(map(str, shape))
        rows.append(f'{quoted(name)}:{{"dtype":"{dtype}","shape":[{extents}],"data_offsets":[{begin},{begin + size}]}}')
        begin += size
    text = f"{{{','.join(rows)}}}".encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def quoted(text: str) -> str:
    """A text as JSON has it."""
    return json.dumps(text, ensure_ascii=False)


def write(path: str, words: Sequence[tuple[str, str]], arrays: Sequence[np.ndarray[Any, Any]], metadata: str) -> None:
    """Write the file: whole, or not at all (a temporary file beside it takes its name once it is on the disk)."""
    check_place(path)
    try:
        temporary, file = beside(path)
        try:
            with file:
                shapes, sizes = [array.shape for array in arrays], [array.nbytes for array in arrays]
                file.write(header(words, shapes, sizes, metadata))
                for array in arrays:
                    file.write(np.ascontiguousarray(array).reshape(-1).view(np.uint8).data if array.size else b"")
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        raise ProgramFileError(f'cannot save "{path}": {error.strerror}', where=here()) from None


def check_place(path: str) -> None:
    """Raises: ProgramFileError if a device or pipe has the name."""
    if os.path.exists(path) and not os.path.isfile(path) and not os.path.isdir(path):
        # Renaming would put a file in its place: /dev/null would be gone.
        raise ProgramFileError(f'cannot save "{path}": a device or pipe has that name', where=here())


def beside(path: str) -> tuple[str, BinaryIO]:
    """Create a temporary file in the folder of `path` that no other thread, process or machine writes.

    Returns its name and the file.
    """
    for number in itertools.count():
        name = f"{path}.{os.getpid()}-{number}.tmp"
        with contextlib.suppress(FileExistsError):
            return name, open(name, "xb")
    raise AssertionError("unreachable: the count does not end")


def read(path: str | os.PathLike[str]) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    """The arrays of a file, which belong to the caller, and its texts."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise DataError(f'cannot read "{os.fspath(path)}": {error.strerror}', where=here()) from None
    except ValueError as error:  # a path with a zero character, or with half of a surrogate pair
        hint = "pass the path of a safetensors file, as `st.save` accepts it"
        raise DataError(f"cannot read {os.fspath(path)!r}: {error}", where=here(), hint=hint) from None
    try:
        return _arrays(data)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f'"{os.fspath(path)}" is not a safetensors file: {error}', where=here()) from None


def _arrays(data: bytes) -> tuple[dict[str, np.ndarray[Any, Any]], dict[str, str]]:
    length = int.from_bytes(data[:8], "little")
    if len(data) < 8 or length > min(LONGEST_HEADER, len(data) - 8):
        raise ValueError("it is cut off, or its first 8 bytes are not the length of a header")
    rows: Mapping[str, Any] = json.loads(data[8 : 8 + length])
    if not isinstance(rows, dict):
        raise ValueError("its header is not an object")
    elements, begin = memoryview(data)[8 + length :], 0
    arrays = {}
    for name, row in sorted(
        ((name, row) for name, row in rows.items() if name != METADATA), key=lambda item: item[1]["data_offsets"]
    ):
        shape, (start, stop) = tuple(row["shape"]), row["data_offsets"]
        dtype = _dtype(name, row["dtype"])
        if start != begin or stop - start != dtype.itemsize * math.prod(shape) or stop > len(elements):
            raise ValueError(f"`{name}` is not where its {row['dtype']} {shape} could be")
        arrays[name] = np.frombuffer(elements[start:stop], dtype).reshape(shape).copy()
        begin = stop
    if begin != len(elements):
        raise ValueError(f"{len(elements) - begin} bytes belong to no array")
    return arrays, dict(rows.get(METADATA) or {})


def _dtype(name: str, word: str) -> np.dtype[Any]:
    known = {dtype.name.upper(): dtype.numpy for dtype in DTYPES.values() if dtype.name.upper() in SAVED_DTYPES}
    if word not in known:
        raise ValueError(f"`{name}` has the dtype {word}; those that can be read are {', '.join(known)}")
    return known[word]
