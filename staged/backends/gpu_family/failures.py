"""What a kernel that must not go on writes for the host: the record, and the kinds of failures."""

from __future__ import annotations

from staged.ir.loops import OUT_OF_RANGE

RECORD = "failed"
"""The kernels' parameter, and the field of `Device`, with the record's address."""


def failure_of(meaning: str) -> str:
    """What a kernel says where an index of this meaning (of `OUT_OF_RANGE`) is out of range."""
    return f"ST_DEVICE_{meaning.upper()}"


# Between the kernels and the host: in every part of the file.
DECLARATIONS = f"""\
// What a kernel says when it must not go on. The first to fail claims the record.
typedef struct {{
    unsigned int claim;  // 0: nothing has failed; else what, and where: site * 16 + kind + 1
    unsigned long long value;
    long long limit;
}} st_device_failure;
enum {{ {", ".join(map(failure_of, OUT_OF_RANGE))} }};
enum {{ ST_DEVICE_ZERO_DIVISION = {len(OUT_OF_RANGE)}, ST_DEVICE_VALUE, ST_DEVICE_NOT_FINITE, ST_DEVICE_PLACE_BITS = 40 }};
"""
