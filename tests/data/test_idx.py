"""The IDX reader against files written here, byte by byte, and against broken ones."""

from __future__ import annotations

import gzip
import struct
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from staged.data import read_idx
from staged.errors import DataError


def idx_bytes(array: np.ndarray, code: int) -> bytes:
    header = struct.pack(f">HBB{array.ndim}I", 0, code, array.ndim, *array.shape)
    return header + array.astype(array.dtype.newbyteorder(">")).tobytes()


CASES = [(0x08, "u1"), (0x09, "i1"), (0x0B, "i2"), (0x0C, "i4"), (0x0D, "f4"), (0x0E, "f8")]


@pytest.mark.parametrize(("code", "dtype"), CASES)
@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("shape", [(3,), (2, 3, 4), (0, 5), ()])
def test_array_comes_back_as_written(
    tmp_path: Path, code: int, dtype: str, packed: bool, shape: tuple[int, ...]
) -> None:
    array = np.asarray(np.arange(np.prod(shape, dtype=int)).reshape(shape) * 7 - 3).astype(dtype)
    content = idx_bytes(array, code)
    path = tmp_path / "some-idx"  # gzip is told by content, so the name says nothing
    path.write_bytes(gzip.compress(content) if packed else content)
    read = read_idx(path)
    assert read.dtype == np.dtype(dtype)
    assert read.dtype.isnative
    np.testing.assert_array_equal(read, array)
    if read.size:
        read[...] = 0  # a fresh array, not a view of the file's bytes


GOOD = idx_bytes(np.arange(6, dtype="u1").reshape(1, 2, 3), 0x08)
BROKEN = {
    "empty": (b"", "is not an IDX file.*got nothing"),
    "text": (b"<html>no such file</html>", "is not an IDX file: expected it to begin with 00 00.*got 3c 68 74 6d"),
    "unknown element type": (b"\0\0\x07\x01" + GOOD[4:], "is not an IDX file"),
    "header cut": (GOOD[:9], "is truncated: expected a header of 16 bytes, got 9"),
    "array cut": (GOOD[:-1], r"is truncated: expected 22 bytes for uint8 \(1, 2, 3\), got 21"),
    "too long": (GOOD + b"\0", "goes on after its array: expected 22 bytes"),
    "gzip cut": (gzip.compress(GOOD)[:-9], "is not whole: expected a complete gzip file"),
    "gzip damaged": (gzip.compress(GOOD)[:-8] + bytes(8), "is not whole: expected a complete gzip file"),
    "more axes than an array has": (b"\0\0\x08\x41" + bytes(4 * 65), "65 dimensions, expected at most 32"),
    "axes that no array has": (b"\0\0\x08\x03" + bytes(4) + b"\xff" * 8, r"is not an array: uint8 \(0, 4294967295"),
    "an array larger than memory": (
        gzip.compress(b"\0\0\x0e\x03" + b"\xff\xff\xff\xff\0\x10\0\0\0\0\0\1"),
        "bytes, more than this machine's memory",
    ),
    "two dimensions": (idx_bytes(np.zeros((2, 2), "u1"), 0x08), "holds an array of 2 dimensions, expected 3"),
}


@pytest.mark.parametrize(("content", "message"), BROKEN.values(), ids=BROKEN)
def test_broken_file_is_refused_with_its_name_and_what_was_expected(
    tmp_path: Path, content: bytes, message: str
) -> None:
    path = tmp_path / "images"
    path.write_bytes(content)
    with pytest.raises(DataError, match=message) as caught:
        read_idx(path, ndim=3)
    assert str(path) in str(caught.value)
    assert "To fix:" in str(caught.value)


def test_header_that_claims_more_than_an_address_reaches_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "huge"
    path.write_bytes(struct.pack(">HBB3I", 0, 0x0E, 3, *[2**32 - 1] * 3))
    with pytest.raises(DataError, match="is not an array: float64 .* more bytes than can be counted"):
        read_idx(path)


def test_a_gzip_bomb_is_unpacked_no_further_than_its_header_says(tmp_path: Path) -> None:
    bomb = tmp_path / "bomb.gz"
    with gzip.open(bomb, "wb", compresslevel=9) as file:
        file.write(GOOD)
        for _ in range(64):
            file.write(bytes(1 << 20))
    tracemalloc.start()
    with pytest.raises(DataError, match="goes on after its array: expected 22 bytes"):
        read_idx(bomb)
    assert tracemalloc.get_traced_memory()[1] < 1 << 20
    tracemalloc.stop()


def test_a_path_that_is_none_is_refused() -> None:
    with pytest.raises(DataError, match="cannot be read: embedded null byte"):
        read_idx("a\0b")


def test_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="nowhere cannot be read: No such file"):
        read_idx(tmp_path / "nowhere")
    with pytest.raises(DataError, match="cannot be read: Is a directory"):
        read_idx(tmp_path)
