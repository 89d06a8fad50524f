"""Tables and arrays in files: CSV, and NumPy's `.npy` and `.npz`."""

from __future__ import annotations

import csv
import zipfile
import zlib
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from staged.errors import DataError


def read_csv(
    path: str | PathLike[str], *, delimiter: str = ",", header: bool = True, missing: str = ""
) -> dict[str, NDArray[Any]]:
    """The columns of a CSV file by name, in its order; without a `header` they are called "0", "1", ...

    A column of integers is i64, one of numbers f64 (a field that is `missing` is NaN, which makes integers f64), any
    other an array of texts. Quoted fields may have delimiters and ends of line in them. UTF-8, with or without a mark.
    Raises: DataError, with the line, for a row of another length, for two columns of one name, for a file without rows
    or that cannot be read.
    Source: RFC 4180.
    """
    file = Path(path)
    try:
        with file.open(encoding="utf-8-sig", newline="") as stream:
            reader = csv.reader(stream, delimiter=delimiter, strict=True)
            rows = [(reader.line_num, row) for row in reader if row]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"{file} cannot be read as CSV: {getattr(error, 'strerror', None) or error}") from error
    if len(rows) <= header:
        raise DataError(f"{file} has no rows")
    names = rows[0][1] if header else [str(number) for number in range(len(rows[0][1]))]
    if len(set(names)) != len(names):
        raise DataError(f"{file} has two columns of one name: {names}", hint="`header=False` numbers them")
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"{file}, line {line}: {len(row)} fields, expected {len(names)}")
    fields = [row for _, row in rows[header:]]
    return {name: _column([row[number] for row in fields], missing) for number, name in enumerate(names)}


def _column(texts: list[str], missing: str) -> NDArray[Any]:
    for convert, dtype in ((int, np.int64), (float, np.float64)):
        try:
            values = [convert(text) if text.strip() != missing or dtype is np.int64 else np.nan for text in texts]
            return np.array(values, dtype)
        except (ValueError, OverflowError):
            continue
    return np.array(texts)


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
