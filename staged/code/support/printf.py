"""Printed text whose specs are conversions of C: `{loss:.4f}`, `{step}`. Values with other specs need `format.py`.

Tested by `tests/formatting/test_c_formatter.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.types import DType, u64
from staged.ops.formatting import FormatSpec

_NEXT_PIECE = """\
// A number in a format of C, as in Python: NaN without a sign, a point in any locale. 309 digits and 100 decimals fit.
static void st_format_in_c(char out[512], const char *format, double x) {
    (void)snprintf(out, 512, format, isnan(x) ? fabs(x) : x);
    // The first other character is the decimal point of the locale.
    char *const point = out + strspn(out, " +-0123456789einfa");
    const char *const decimals = point + strcspn(point, "0123456789");
    if (decimals > point) {
        *point = '.';
        memmove(point + 1, decimals, strlen(decimals) + 1);
    }
}

// The next piece of a formatted message, and its length; NULL at the end. Numbers are written into `out`. The
// conversions are `%s`, `%lld`, `%llu`, `%f` and `%e`, with flags, widths and precisions.
static const char *st_next_piece(const char **format, va_list *values, char out[512], int64_t *length) {
    const char *shown = *format;
    size_t used = strcspn(shown, "%");
    *length = (int64_t)used;
    if (used == 0 && *shown == '%') {
        char one[16];
        used = 2 + strcspn(shown + 1, "%sdufe");
        memcpy(one, shown, used);
        one[used] = '\\0';
        shown = out;
        switch (one[used - 1]) {
        case '%': shown = "%"; break;
        case 's': shown = va_arg(*values, const char *); break;
        case 'd': (void)snprintf(out, 512, one, va_arg(*values, long long)); break;
        case 'u': (void)snprintf(out, 512, one, va_arg(*values, unsigned long long)); break;
        default: st_format_in_c(out, one, va_arg(*values, double));
        }
        *length = (int64_t)strlen(shown);
    }
    *format += used;
    return used > 0 ? shown : NULL;
}
"""
_PRINT = """\
__attribute__((unused, format(printf, 2, 3))) static void st_print(st_host *host, const char *format, ...) {
    char out[512];
    int64_t length;
    va_list values;
    va_start(values, format);
    for (const char *piece; (piece = st_next_piece(&format, &values, out, &length)) != NULL;) {
        st_write(host, piece, length);
    }
    va_end(values);
}
"""
_PUT_FORMAT = """\
static void st_put_values(st_text *text, const char *format, va_list *values) {
    char out[512];
    int64_t length;
    for (const char *piece; (piece = st_next_piece(&format, values, out, &length)) != NULL;) {
        st_put(text, piece, length);
    }
}

__attribute__((unused, format(printf, 2, 3))) static void st_put_format(st_text *text, const char *format, ...) {
    va_list values;
    va_start(values, format);
    st_put_values(text, format, &values);
    va_end(values);
}
"""


def printf_format(dtype: DType, spec: FormatSpec) -> str:
    """The format of C that prints numbers as a spec of Python does, or an empty string."""
    types = ("", "d") if dtype.is_integer else ("f", "e") if dtype.is_float and not dtype.is_half else ()
    if spec.type not in types or spec.conversion or spec.grouping or spec.alternate or spec.coerce_zero:
        return ""
    has_zeros = dtype.is_integer and (spec.fill, spec.align) == ("0", "=")
    if not has_zeros and (spec.fill != " " or spec.align not in ("", "<", ">")):
        return ""
    if dtype is u64 and spec.sign != "-":
        return ""  # C has signs of signed numbers alone
    flags = ("" if spec.sign == "-" else spec.sign) + ("0" if has_zeros else "-" if spec.align == "<" else "")
    precision = "" if spec.precision is None else f".{spec.precision}"
    type = "llu" if dtype is u64 else "lld" if dtype.is_integer else spec.type
    return f"%{flags}{spec.width or ''}{precision}{type}"


SNIPPETS = (
    Snippet(
        "next_piece",
        _NEXT_PIECE,
        includes=headers("math", "stdarg", "stddef", "stdint", "stdio", "string"),
    ),
    Snippet("print", _PRINT, needs=("write", "next_piece")),
    Snippet("put_format", _PUT_FORMAT, needs=("text", "next_piece")),
)
