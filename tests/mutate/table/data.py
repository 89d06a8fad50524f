"""Planted faults of the data readers."""

from tests.mutate.mutant import Mutant

MUTANTS = (
    Mutant(
        "a gzip file is unpacked whole",
        "data.idx:_array",
        "stream.read(size)",
        "stream.read()",
        ("tests/data/test_idx.py",),
    ),
    Mutant(
        "extents of an empty array are not multiplied",
        "data.idx:_array",
        "(max(size, 1) for size in shape)",
        "shape",
        ("tests/data/test_idx.py",),
    ),
    Mutant(
        "a label of a tree may be any digit of Unicode",
        "data.treebank:_LABEL",
        're.compile(r"[0-9]{1,19}")',
        're.compile(r"\\d{1,19}")',
        ("tests/data/test_treebank.py",),
    ),
)
