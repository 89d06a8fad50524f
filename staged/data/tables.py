"""Tables and arrays in files: CSV, and NumPy's `.npy` and `.npz`."""

from __future__ import annotations

import csv
import tempfile
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from itertools import chain, islice
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError


def read_csv(
    path: str | PathLike[str], *, delimiter: str = ",", header: bool = True, missing: str = "", mapped: bool = False
) -> dict[str, NDArray[Any]]:
    """The columns of a CSV file by name, in its order; without a `header` they are called "0", "1", ...

    A column of integers is i64, one of numbers f64 (a field that is `missing` is NaN, which makes integers f64), any
    other an array of texts. Quoted fields may have delimiters and ends of line in them. UTF-8, with or without a mark.
    `mapped` writes the columns to temporary files. A program reads what it uses. On many ranks,
    `st.batches(st.shard(x), ...)` of a mapped column reads the rows of each rank only.
    Raises: DataError, with the line, for a row of another length, for two columns of one name, for a file without rows
    or that cannot be read.
    Source: RFC 4180.
    """
    file = Path(path)
    names, rows = _opened(file, delimiter, header)
    if not mapped:
        return dict(zip(names, (_column(texts, missing) for texts in zip(*rows, strict=True)), strict=True))
    kinds, widths = ["i"] * len(names), [1] * len(names)
    for chunk in _chunks(rows):
        found = [_column(texts, missing).dtype.kind for texts in chunk]
        kinds = [max(pair, key="ifU".index) for pair in zip(kinds, found, strict=True)]
        widths = [max(width, *map(len, texts)) for width, texts in zip(widths, chunk, strict=True)]
    dtypes = [_NUMBERS.get(kind, np.dtype(f"U{width}")) for kind, width in zip(kinds, widths, strict=True)]
    with ExitStack() as stack:
        try:
            streams = [stack.enter_context(tempfile.TemporaryFile()) for _ in names]
            for chunk in _chunks(_opened(file, delimiter, header)[1]):
                for stream, texts, dtype in zip(streams, chunk, dtypes, strict=True):
                    stream.write(_converted(texts, dtype, missing).tobytes())
            return {
                name: np.memmap(stream, dtype, "r") for name, stream, dtype in zip(names, streams, dtypes, strict=True)
            }
        except OSError as error:
            raise DataError(
                f"the columns of {file} cannot be written to temporary files: {error.strerror}",
                hint="set `TMPDIR` to a folder with enough room",
            ) from error


def _opened(file: Path, delimiter: str, header: bool) -> tuple[list[str], Iterator[list[str]]]:
    """The names of the columns, and the rows."""
    rows = _rows(file, delimiter)
    first = next(rows, None)
    second = next(rows, None) if header else first
    if first is None or second is None:
        raise DataError(f"{file} has no rows")
    names = first if header else [str(number) for number in range(len(first))]
    if len(set(names)) != len(names):
        raise DataError(f"{file} has two columns of one name: {names}", hint="`header=False` numbers them")
    return names, chain([second], rows)


def _rows(file: Path, delimiter: str) -> Iterator[list[str]]:
    expected = 0
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            for row in filter(None, reader):
                expected = expected or len(row)
                if len(row) != expected:
                    raise DataError(f"{file}, line {reader.line_num}: {len(row)} fields, expected {expected}")
                yield row
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV: {getattr(error, 'strerror', None) or error}") from error


_CHUNK = 4096
"""The rows of a mapped table that are in memory at a time."""
_NUMBERS = {"i": np.dtype(np.int64), "f": np.dtype(np.float64)}


def _chunks(rows: Iterator[list[str]]) -> Iterator[list[tuple[str, ...]]]:
    """The columns of `_CHUNK` rows at a time."""
    while chunk := list(islice(rows, _CHUNK)):
        yield list(zip(*chunk, strict=True))


def _column(texts: Sequence[str], missing: str) -> NDArray[Any]:
    for dtype in _NUMBERS.values():
        try:
            return _converted(texts, dtype, missing)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)


def _converted(texts: Sequence[str], dtype: np.dtype[Any], missing: str) -> NDArray[Any]:
    if dtype.kind == "f":
        return np.array([np.nan if text.strip() == missing else float(text) for text in texts], dtype)
    return np.array([int(text) for text in texts] if dtype.kind == "i" else texts, dtype)


def read_npy(path: str | PathLike[str], *, mapped: bool = False) -> NDArray[Any]:
    """The array of a `.npy` file; `mapped` leaves it on the disk, read as it is used, and read-only.

    On many ranks, `st.batches(st.shard(x), ...)` of a mapped array reads the rows of each rank only.
    Raises: DataError if it cannot be read, is none, or holds Python objects, which would run code.
    """
    found = _loaded(Path(path), mapped)
    if not isinstance(found, np.ndarray):
        raise DataError(f"{path} holds several arrays by name", hint="read it with `read_npz`")
    return found


def read_npz(path: str | PathLike[str]) -> dict[str, NDArray[Any]]:
    """The arrays of a `.npz` file by name. Raises: DataError as `read_npy` does."""
    archive = _loaded(Path(path), False)
    if not isinstance(archive, np.lib.npyio.NpzFile):
        raise DataError(f"{path} holds one array, not several by name", hint="read it with `read_npy`")
    with archive:
        try:
            return {name: archive[name] for name in archive.files}
        except (ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise DataError(f"{path} cannot be read: {error}") from error


def _loaded(file: Path, mapped: bool) -> Any:
    try:
        return np.load(file, mmap_mode="r" if mapped else None, allow_pickle=False)
    except OSError as error:
        raise DataError(f"{file} cannot be read: {error.strerror or error}") from error
    except (ValueError, EOFError, zipfile.BadZipFile) as error:
        raise DataError(f"{file} is not a file of NumPy's arrays: {error}") from error
