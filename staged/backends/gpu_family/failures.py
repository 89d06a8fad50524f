"""The report of a failing kernel to the host: the record, and the kinds of failures."""

from __future__ import annotations

from staged.ir.loops import OUT_OF_RANGE

RECORD = "failed"
"""The kernels' parameter, and the field of `Device`, with the record's address."""


def failure_of(meaning: str) -> str:
    """The failure kind for an index of this meaning (of `OUT_OF_RANGE`) out of range."""
    return f"ST_DEVICE_{meaning.upper()}"


RECORD_TYPE = """\
// What a kernel says when it must not go on. The first to fail claims the record.
typedef struct {
    unsigned int claim;  // 0: nothing has failed; else what, and where: site * 16 + kind + 1
    unsigned long long value;
    long long limit;
} st_device_failure;
"""
KINDS = f"""\
enum {{ {", ".join(map(failure_of, OUT_OF_RANGE))} }};
enum {{ ST_DEVICE_ZERO_DIVISION = {len(OUT_OF_RANGE)}, ST_DEVICE_VALUE, ST_DEVICE_NOT_FINITE }};
enum {{ ST_DEVICE_PLACE_BITS = 40 }};
"""
DECLARATIONS = RECORD_TYPE + KINDS
"""The declarations that kernels and the host share."""

# The end of a function of the host that has copied the record into `failed`: it returns what the program stops with.
EXPLAIN = """\
    if (failed.claim == 0) {
        return ST_OK;
    }
    const int site = (int)((failed.claim - 1) / 16);
    switch ((failed.claim - 1) % 16) {
    case ST_DEVICE_ZERO_DIVISION:
        return st_fail(host, ST_ZERO_DIVISION_ERROR, site, "integer division or modulo by zero");
    case ST_DEVICE_VALUE:
        return st_fail(host, ST_VALUE_ERROR, site, "an integer to a negative integer power");
""" + "".join(
    f"""\
    case {failure_of(meaning)}:
        return st_fail(host, ST_INDEX_ERROR, site, "{message}",
                       (long long)failed.value, failed.limit);
"""
    for meaning, message in OUT_OF_RANGE.items()
)
OTHERWISE = """\
    default:
        return st_fail(host, ST_RUNTIME_ERROR, site, "a kernel has failed");
    }
}
"""
