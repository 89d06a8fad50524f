"""The report of a failing kernel to the host: the record, and the kinds of failures."""

from __future__ import annotations

from collections.abc import Iterable

from staged.backends.host.body import BodyEmitter
from staged.code.expr import call
from staged.code.writer import c_string
from staged.ir.messages import OUT_OF_RANGE
from staged.ir.nodes import End, Op
from staged.ir.numbers import with_limits
from staged.ir.transfers import Transfer
from staged.ir.types import CPU, INTEGER_DTYPES, Device, i64

RECORD = "failed"
"""The kernels' parameter, and the field of `Device`, with the record's address."""


def read_records(body: BodyEmitter, op: Op | End, devices: Iterable[Device]) -> None:
    """Let the program wait for its device and read the records of these devices."""
    read = (Transfer("failure record", device, CPU, RECORD_BYTES, "failure") for device in devices)
    body.own_copies[op] = (*body.own_copies.get(op, ()), *read)
    body.try_(call("wait_for_device", "gpu", "host", body.site_of(op.where)))


def failure_of(meaning: str) -> str:
    """The failure kind for an index of this meaning (of `OUT_OF_RANGE`) out of range."""
    return f"ST_DEVICE_{meaning.upper()}"


RECORD_BYTES = 24
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
enum {{ ST_DEVICE_ZERO_DIVISION = {len(OUT_OF_RANGE)}, ST_DEVICE_VALUE, ST_DEVICE_NOT_FINITE, ST_DEVICE_OVERFLOW }};
enum {{ ST_DEVICE_PLACE_BITS = 40 }};
"""
DECLARATIONS = RECORD_TYPE + KINDS
"""The declarations that kernels and the host share."""

_EXPLAIN = """\
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
FITTED = tuple(dtype for dtype in INTEGER_DTYPES if dtype is not i64)
"""The dtypes that a Python number may not fit; a report of one that does not has the place of its dtype as `limit`."""
_OVERFLOW = f"""\
    case ST_DEVICE_OVERFLOW: {{
        static const char *const dtypes[] = {{
            {", ".join(c_string(with_limits(dtype)) for dtype in FITTED[:3])},
            {", ".join(c_string(with_limits(dtype)) for dtype in FITTED[3:])},
        }};
        return st_fail(host, ST_OVERFLOW_ERROR, site, "%lld does not fit %s", (long long)failed.value,
                       dtypes[failed.limit]);
    }}
"""
OTHERWISE = """\
    default:
        return st_fail(host, ST_RUNTIME_ERROR, site, "a kernel has failed");
    }
}
"""


def explain(snippets: Iterable[str]) -> str:
    """The end of a function of the host that has copied the record into `failed`: it returns what the program stops
    with. `snippets`: those that the kernels use.
    """
    return _EXPLAIN + (_OVERFLOW if any(name.startswith("checked_fit_") for name in snippets) else "")
