"""Printed numbers whose spec is one of C: `{loss:.4f}`, `{step}`. Other specs need `format.py`.

Tested by `tests/formatting/test_c_formatter.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.types import DType, u64
from staged.ops.formatting import FormatSpec

_REAL = """\
// A number in a format of C: 309 digits, a point and 100 decimals at most.
static void st_put_real(st_text *text, const char *format, double x) {
    char out[512];
    (void)snprintf(out, sizeof out, format, isnan(x) ? fabs(x) : x);
    // The first other character is the decimal point of the locale.
    char *const point = out + strspn(out, " +-0123456789einfa");
    const char *const decimals = point + strcspn(point, "0123456789");
    if (decimals > point) {
        *point = '.';
        memmove(point + 1, decimals, strlen(decimals) + 1);
    }
    st_put(text, out, (int64_t)strlen(out));
}
"""
_INTEGER = """\
static void st_put_integer(st_text *text, const char *format, int64_t x) {
    char out[512];
    (void)snprintf(out, sizeof out, format, (long long)x);
    st_put(text, out, (int64_t)strlen(out));
}
"""


def printf_format(dtype: DType, spec: FormatSpec) -> str:
    """The format of C that prints numbers as a spec of Python does, or an empty string."""
    is_integer = dtype.is_integer and dtype is not u64
    types = ("", "d") if is_integer else ("f", "e") if dtype.is_float and not dtype.is_half else ()
    if spec.type not in types or spec.conversion or spec.grouping or spec.alternate or spec.coerce_zero:
        return ""
    has_zeros = is_integer and (spec.fill, spec.align) == ("0", "=")
    if not has_zeros and (spec.fill != " " or spec.align not in ("", "<", ">")):
        return ""
    flags = ("" if spec.sign == "-" else spec.sign) + ("0" if has_zeros else "-" if spec.align == "<" else "")
    precision = "" if spec.precision is None else f".{spec.precision}"
    return f"%{flags}{spec.width or ''}{precision}{'lld' if is_integer else spec.type}"


SNIPPETS = (
    Snippet("put_real", _REAL, needs=("text",), includes=headers("math", "stdio", "string")),
    Snippet("put_integer", _INTEGER, needs=("text",), includes=headers("stdio", "string")),
)
