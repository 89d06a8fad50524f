"""Planted faults of the data readers."""

from tests.mutate.mutant import Mutant

MUTANTS = (
    Mutant(
        "a gzip file is unpacked whole",
        "staged/data/idx.py",
        "content = stream.read(size)",
        "content = stream.read()",
        ("tests/data/test_idx.py",),
    ),
    Mutant(
        "extents of an empty array are not multiplied",
        "staged/data/idx.py",
        "math.prod(max(size, 1) for size in shape)",
        "math.prod(shape)",
        ("tests/data/test_idx.py",),
    ),
    Mutant(
        "a label of a tree may be any digit of Unicode",
        "staged/data/treebank.py",
        'r"[0-9]{1,19}"',
        'r"\\d{1,19}"',
        ("tests/data/test_treebank.py",),
    ),
)
