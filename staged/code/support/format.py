"""The C side of the one formatter (`staged/ops/formatting.py`).

Text goes through an `st_text`: a small buffer on the stack that hands itself to the host when it is full, or keeps the
first bytes of an error's message. Nothing allocates, and nothing depends on the locale: `snprintf` and `strtod` serve
for their correct rounding, and their decimal point is never copied.

Tested by `tests/formatting/test_c_formatter.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers
from staged.ir.types import COMPLEX_DTYPES, HALF_DTYPES, INTEGER_DTYPES, f32, u64

_TEXT = """\
// ---- printed text ----------------------------------------------------------------------------
// Text on its way to the host; with host NULL, a message that keeps what fits.
typedef struct st_text {
    st_host *host;
    FILE *file;  // where it goes instead, if not NULL
    int32_t length;
    char data[1024];
} st_text;

__attribute__((unused)) static void st_text_begin(st_text *text, st_host *host) {
    text->host = host;
    text->file = NULL;
    text->length = 0;
}

// Hand over what has been put.
__attribute__((unused)) static void st_text_end(st_text *text) {
    if (text->file != NULL) {
        (void)fwrite(text->data, 1, (size_t)text->length, text->file);  // its error flag is looked at afterwards
        text->length = 0;
    } else if (text->host != NULL) {
        st_write(text->host, text->data, text->length);
        text->length = 0;
    }
}

// What has been put into a text without a host, as a C string.
__attribute__((unused)) static const char *st_text_message(st_text *text) {
    text->data[text->length] = '\\0';
    return text->data;
}

__attribute__((unused)) static void st_put(st_text *text, const char *bytes, int64_t length) {
    for (int64_t i = 0; i < length; ++i) {
        if (text->length == (int32_t)sizeof text->data - 1) {
            if (text->host == NULL) {
                return;
            }
            st_text_end(text);
        }
        text->data[text->length++] = bytes[i];
    }
}
"""

_SPEC = """\
// A format spec of Python: [[fill]align][sign][z][#][0][width][,_][.precision][type]. What is 0 was not given.
typedef struct st_spec {
    const char *fill;  // one character in UTF-8; NULL: a space
    int32_t width;
    int32_t precision;  // -1: not given
    char align;         // '<', '>', '=' or '^'
    char sign;          // '+' or ' '
    char group;         // ',' or '_'
    char type;
    char conversion;   // 'r' or 's': the value becomes text first
    bool alternate;    // '#'
    bool coerce_zero;  // 'z'
} st_spec;

__attribute__((unused)) static const st_spec st_plain = {.precision = -1};

// Room for one formatted value: 409 characters of an f64 and their 103 separators, or 255 fill characters of 4 bytes.
// ST_BODY: 309 digits, the point, 100 decimals and an end.
enum { ST_FORMATTED = 1536, ST_BODY = 512 };

static int32_t st_fill(char *out, const char *fill, int32_t count) {
    int32_t length = 0;
    for (int32_t i = 0; i < count; ++i) {
        for (const char *byte = fill; *byte != '\\0'; ++byte) {
            out[length++] = *byte;
        }
    }
    return length;
}

// ASCII text, cut to the precision and padded to the width.
__attribute__((unused)) static int32_t st_format_text(char *out, const char *bytes, int32_t length, st_spec spec) {
    if (spec.precision >= 0 && spec.precision < length) {
        length = spec.precision;
    }
    if (length < 0) {
        length = 0;  // never so, but compilers that do not see it warn of the copy below
    }
    const char *fill = spec.fill == NULL ? " " : spec.fill;
    const int32_t padding = spec.width > length ? spec.width - length : 0;
    const int32_t before = spec.align == '>' ? padding : spec.align == '^' ? padding / 2 : 0;
    int32_t used = st_fill(out, fill, before);
    memcpy(out + used, bytes, (size_t)length);
    used += length;
    return used + st_fill(out + used, fill, padding - before);
}

// Formatted text as a C string.
__attribute__((unused)) static const char *st_ended(char *out, int32_t length) {
    out[length] = '\\0';
    return out;
}
"""

_NUMBER = """\
// A number from its parts: sign and prefix, then `digits` characters of `body` that take group separators (every
// `group` of them), then the rest of `body`.
static int32_t st_format_parts(char *out, const char *head, const char *body, int32_t digits, int32_t group,
                               st_spec spec) {
    const int32_t head_length = (int32_t)strlen(head);
    const int32_t rest_length = (int32_t)strlen(body) - digits;
    const char *fill = spec.fill == NULL ? " " : spec.fill;
    const char align = spec.align == 0 ? '>' : spec.align;
    if (spec.group == 0) {
        group = INT32_MAX;
    }
    // Zeros in front are digits, so that they are grouped too.
    int32_t zeros = 0;
    if (align == '=' && strcmp(fill, "0") == 0 && digits > 0) {
        const int32_t wanted = spec.width - head_length - rest_length;
        while (digits + zeros + (digits + zeros - 1) / group < wanted) {
            ++zeros;
        }
    }
    const int32_t separators = digits > 0 ? (digits + zeros - 1) / group : 0;
    const int32_t length = head_length + zeros + digits + separators + rest_length;
    const int32_t padding = spec.width > length ? spec.width - length : 0;
    const int32_t before = align == '>' ? padding : align == '^' ? padding / 2 : 0;
    int32_t used = st_fill(out, fill, before);
    memcpy(out + used, head, (size_t)head_length);
    used += head_length;
    if (align == '=') {
        used += st_fill(out + used, fill, padding);
    }
    for (int32_t left = digits + zeros; left > 0; --left) {
        out[used++] = left > digits ? '0' : body[digits - left];
        if (left > 1 && (left - 1) % group == 0) {
            out[used++] = spec.group;
        }
    }
    memcpy(out + used, body + digits, (size_t)rest_length);
    used += rest_length;
    return align == '=' ? used : used + st_fill(out + used, fill, padding - before);
}
"""

_FLOAT = """\
// Decimal digits of a number: 0.d1d2d3... times 10 to the power `point`.
typedef struct st_digits {
    char digits[128];
    int32_t count;
    int32_t point;
} st_digits;

// `x`, not negative and finite, rounded to `count` digits.
static st_digits st_round_to_digits(double x, int32_t count) {
    char text[160];
    st_digits made = {.count = 0};
    (void)snprintf(text, sizeof text, "%.*e", (int)(count - 1), x);
    const char *at = text;
    for (; *at != 'e'; ++at) {
        if (*at >= '0' && *at <= '9') {  // whatever else is there is the decimal point of some locale
            made.digits[made.count++] = *at;
        }
    }
    made.point = (int32_t)strtol(at + 1, NULL, 10) + 1;
    return made;
}

static bool st_reads_back(const st_digits *made, double x, bool is_single) {
    char text[160];
    (void)snprintf(text, sizeof text, "%.*se%d", (int)made->count, made->digits, (int)(made->point - made->count));
    return is_single ? strtof(text, NULL) == (float)x : strtod(text, NULL) == x;
}

// The fewest digits that read back as `x`, not negative and finite.
static st_digits st_shortest_digits(double x, bool is_single) {
    const int32_t most = is_single ? 9 : 17;
    int exponent = 0;
    // Below a power of two the next number is nearer than above it, so the next longer decimal may be the one to find.
    const bool is_uneven = frexp(x, &exponent) == 0.5;
    for (int32_t count = 1; count < most; ++count) {
        st_digits made = st_round_to_digits(x, count);
        if (st_reads_back(&made, x, is_single)) {
            return made;
        }
        if (is_uneven) {
            int32_t last = count - 1;
            while (last > 0 && made.digits[last] == '9') {
                made.digits[last--] = '0';
            }
            if (made.digits[last] != '9') {
                ++made.digits[last];
                if (st_reads_back(&made, x, is_single)) {
                    return made;
                }
            }
        }
    }
    return st_round_to_digits(x, most);
}

// Lay digits out as Python does: with an exponent or without, at least one digit on both sides of a point that is
// there.
static void st_lay_out(char *out, const st_digits *made, bool has_exponent, bool keeps_point, bool keeps_fraction) {
    const int32_t point = has_exponent ? 1 : made->point;
    const int32_t begin = point <= 0 ? point - 1 : 0;
    const int32_t needed = !has_exponent && keeps_fraction ? point + 1 : point;
    const int32_t end = made->count > needed ? made->count : needed;
    for (int32_t i = begin; i < end; ++i) {
        if (i == point) {
            *out++ = '.';
        }
        *out++ = i >= 0 && i < made->count ? made->digits[i] : '0';
    }
    if (end == point && keeps_point) {
        *out++ = '.';
    }
    *out = '\\0';
    if (has_exponent) {
        (void)sprintf(out, "e%+03d", (int)(made->point - 1));
    }
}

// The characters of a finite number that is not negative, for the types e, f, g, %, none and, of a part of a complex
// number, r: none without a point that is not needed.
static void st_format_magnitude(char *out, double x, bool is_single, char type, st_spec spec) {
    const int32_t precision = spec.precision < 0 ? 6 : spec.precision;
    st_digits made;
    if (type == 'f') {
        const int length = snprintf(out, ST_BODY, "%.*f", (int)precision, x);
        int32_t whole = 0;
        while (out[whole] >= '0' && out[whole] <= '9') {
            ++whole;
        }
        if (precision > 0) {
            // The decimals end the text, so what is between is the decimal point of some locale.
            out[whole] = '.';
            memmove(out + whole + 1, out + length - precision, (size_t)precision + 1);
        } else if (spec.alternate) {
            out[whole] = '.';
            out[whole + 1] = '\\0';
        }
        return;
    }
    if (type == 'e') {
        made = st_round_to_digits(x, precision + 1);
        st_lay_out(out, &made, true, spec.alternate, false);
        return;
    }
    if ((type == 0 || type == 'r') && spec.precision < 0) {
        made = st_shortest_digits(x, is_single);
        while (made.count > 1 && made.digits[made.count - 1] == '0') {
            --made.count;
        }
        st_lay_out(out, &made, made.point <= -4 || made.point > 16, spec.alternate, type == 0);
        return;
    }
    const int32_t most = precision == 0 ? 1 : precision;
    made = st_round_to_digits(x, most);
    while (!spec.alternate && made.count > 1 && made.digits[made.count - 1] == '0') {
        --made.count;
    }
    const bool has_exponent = made.point <= -4 || made.point > (type == 0 ? most - 1 : most);
    st_lay_out(out, &made, has_exponent, spec.alternate, type == 0);
}

static int32_t st_format_real(char *out, double x, bool is_single, st_spec spec) {
    char body[ST_BODY];
    if (spec.conversion != 0) {
        char repr[64];
        const int32_t length = st_format_real(repr, x, is_single, st_plain);
        return st_format_text(out, repr, length, spec);
    }
    const bool is_percent = spec.type == '%';
    const bool is_upper = spec.type == 'E' || spec.type == 'F' || spec.type == 'G';
    const char type = is_percent ? 'f' : is_upper ? (char)(spec.type - 'A' + 'a') : spec.type;
    const double value = is_percent ? x * 100.0 : x;
    bool is_negative = signbit(value) != 0;
    if (!isfinite(value)) {
        is_negative = is_negative && !isnan(value);
        (void)strcpy(body, isnan(value) ? "nan" : "inf");
    } else {
        st_format_magnitude(body, fabs(value), is_single, type, spec);
        const char first = body[strcspn(body, "123456789e")];  // not a zero: a digit, or what ends the digits
        if (spec.coerce_zero && (first == '\\0' || first == 'e')) {
            is_negative = false;
        }
    }
    for (char *at = body; is_upper && *at != '\\0'; ++at) {
        *at = *at >= 'a' && *at <= 'z' ? (char)(*at - 'a' + 'A') : *at;
    }
    if (is_percent) {
        (void)strcat(body, "%");
    }
    const char head[2] = {is_negative ? '-' : spec.sign, '\\0'};
    return st_format_parts(out, head, body, (int32_t)strspn(body, "0123456789"), 3, spec);
}

__attribute__((unused)) static const char *st_f64_text(char *out, double x, st_spec spec) {
    return st_ended(out, st_format_real(out, x, false, spec));
}

__attribute__((unused)) static const char *st_f32_text(char *out, float x, st_spec spec) {
    return st_ended(out, st_format_real(out, (double)x, true, spec));
}
"""

_COMPLEX = """\
// Python's text of a complex number: in parentheses, or without its real part where that is 0.
static int32_t st_format_complex(char *out, double re, double im, bool is_single, st_spec spec) {
    char body[ST_FORMATTED];
    if (spec.conversion != 0) {
        return st_format_text(out, body, st_format_complex(body, re, im, is_single, st_plain), spec);
    }
    st_spec part = spec;
    part.fill = NULL;
    part.width = 0;
    const bool is_plain = spec.type == 0;
    if (is_plain) {
        part.type = spec.precision < 0 ? 'r' : 'g';
    }
    const bool has_re = !is_plain || re != 0.0 || signbit(re) != 0;
    int32_t length = 0;
    if (has_re) {
        if (is_plain) {
            body[length++] = '(';
        }
        length += st_format_real(body + length, re, is_single, part);
        part.sign = '+';
    }
    length += st_format_real(body + length, im, is_single, part);
    body[length++] = 'j';
    if (has_re && is_plain) {
        body[length++] = ')';
    }
    spec.precision = -1;
    spec.align = spec.align == 0 ? '>' : spec.align;
    return st_format_text(out, body, length, spec);
}

__attribute__((unused)) static const char *st_c128_text(char *out, double re, double im, st_spec spec) {
    return st_ended(out, st_format_complex(out, re, im, false, spec));
}

__attribute__((unused)) static const char *st_c64_text(char *out, float re, float im, st_spec spec) {
    return st_ended(out, st_format_complex(out, (double)re, (double)im, true, spec));
}
"""

_HALF = """\
// The f64 with the shortest text that reads back as the same @.
static double st_shortest_@(uint16_t x) {
    const double exact = st_f32_from_@(x);
    char text[32];
    for (int count = 0; count < 5 && isfinite(exact); ++count) {
        (void)snprintf(text, sizeof text, "%.*e", count, exact);
        const double near = strtod(text, NULL);
        if (st_@_from_f64(near) == x) {
            return near;
        }
    }
    return exact;
}

static int32_t st_format_@(char *out, uint16_t x, st_spec spec) {
    const bool is_short = spec.conversion != 0 || (spec.type == 0 && spec.precision < 0);
    return st_format_real(out, is_short ? st_shortest_@(x) : (double)st_f32_from_@(x), false, spec);
}

__attribute__((unused)) static const char *st_@_text(char *out, uint16_t x, st_spec spec) {
    return st_ended(out, st_format_@(out, x, spec));
}
"""

_INTEGER = """\
// The UTF-8 of a code point, ended by 0; what is no code point gives U+FFFD. Returns the number of bytes.
static int32_t st_encode(char *out, int64_t code) {
    if (code < 0 || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
        code = 0xFFFD;
    }
    const int32_t more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
    const int32_t first = more == 0 ? 0 : more == 1 ? 0xC0 : more == 2 ? 0xE0 : 0xF0;
    out[0] = (char)(uint8_t)(first | (int32_t)(code >> (6 * more)));
    for (int32_t i = 1; i <= more; ++i) {
        out[i] = (char)(uint8_t)(0x80 | (int32_t)(code >> (6 * (more - i)) & 0x3F));
    }
    out[more + 1] = '\\0';
    return more + 1;
}

static int32_t st_format_whole(char *out, uint64_t x, bool is_negative, st_spec spec) {
    char head[4];
    char body[72];
    const bool is_text = spec.conversion != 0;
    const char type = is_text || spec.type == 0 ? 'd' : spec.type;
    if (strchr("eEfFgG%", type) != NULL) {
        return st_format_real(out, is_negative ? -(double)x : (double)x, false, spec);
    }
    if (type == 'c') {
        const int32_t length = st_encode(body, is_negative || x > INT32_MAX ? -1 : (int64_t)x);
        const char *fill = spec.fill == NULL ? " " : spec.fill;
        const int32_t padding = spec.width > 1 ? spec.width - 1 : 0;
        const int32_t before = spec.align == '<' ? 0 : spec.align == '^' ? padding / 2 : padding;
        int32_t at = st_fill(out, fill, before);
        memcpy(out + at, body, (size_t)length);
        at += length;
        return at + st_fill(out + at, fill, padding - before);
    }
    const uint64_t base = type == 'd' ? 10u : type == 'b' ? 2u : type == 'o' ? 8u : 16u;
    const char *symbols = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    int32_t at = (int32_t)sizeof body - 1;
    body[at] = '\\0';
    do {
        body[--at] = symbols[x % base];
        x /= base;
    } while (x > 0);
    int32_t used = 0;
    if (is_negative) {
        head[used++] = '-';
    } else if (spec.sign != 0) {
        head[used++] = spec.sign;
    }
    if (spec.alternate && type != 'd') {
        head[used++] = '0';
        head[used++] = type;
    }
    head[used] = '\\0';
    const int32_t digits = (int32_t)sizeof body - 1 - at;
    if (is_text) {
        char repr[80];
        return st_format_text(out, repr, st_format_parts(repr, head, body + at, digits, 3, st_plain), spec);
    }
    return st_format_parts(out, head, body + at, digits, type == 'd' ? 3 : 4, spec);
}

static int32_t st_format_integer(char *out, int64_t x, st_spec spec) {
    return st_format_whole(out, x < 0 ? 0u - (uint64_t)x : (uint64_t)x, x < 0, spec);
}

__attribute__((unused)) static const char *st_i64_text(char *out, int64_t x, st_spec spec) {
    return st_ended(out, st_format_integer(out, x, spec));
}

__attribute__((unused)) static const char *st_u64_text(char *out, uint64_t x, st_spec spec) {
    return st_ended(out, st_format_whole(out, x, false, spec));
}
"""

_BOOL = """\
// `True` or `False`; with a conversion the spec formats these words.
static int32_t st_format_bool(char *out, bool x, st_spec spec) {
    return st_format_text(out, x ? "True" : "False", x ? 4 : 5, spec.conversion != 0 ? spec : st_plain);
}

__attribute__((unused)) static const char *st_bool_text(char *out, bool x, st_spec spec) {
    return st_ended(out, st_format_bool(out, x, spec));
}
"""

_ARRAY = """\
typedef int32_t st_format_element(char *out, const void *data, int64_t index, st_spec spec);

// An array in nested brackets, its elements padded on the left to one width.
__attribute__((unused)) static void st_put_array(st_text *text, const void *data, st_format_element *format,
        int32_t rank, const int64_t *shape, st_spec spec) {
    char out[ST_FORMATTED];
    int64_t size = 1;
    for (int32_t axis = 0; axis < rank; ++axis) {
        size *= shape[axis];
    }
    if (size == 0) {
        st_put(text, "[]", 2);
        return;
    }
    int32_t width = 0;
    for (int64_t i = 0; i < size; ++i) {
        const int32_t length = st_characters(out, format(out, data, i, spec));
        width = length > width ? length : width;
    }
    for (int64_t i = 0; i < size; ++i) {
        // How many of the innermost axes begin, and end, with this element.
        int32_t begins = 0, ends = 0;
        for (int64_t step = 1; begins < rank && i % (step * shape[rank - 1 - begins]) == 0; ++begins) {
            step *= shape[rank - 1 - begins];
        }
        for (int64_t step = 1; ends < rank && (i + 1) % (step * shape[rank - 1 - ends]) == 0; ++ends) {
            step *= shape[rank - 1 - ends];
        }
        if (i > 0 && begins == 0) {
            st_put(text, " ", 1);
        } else if (i > 0) {
            for (int32_t line = 0; line < begins; ++line) {
                st_put(text, "\\n", 1);
            }
            for (int32_t column = 0; column < rank - begins; ++column) {
                st_put(text, " ", 1);
            }
        }
        for (int32_t depth = 0; depth < begins; ++depth) {
            st_put(text, "[", 1);
        }
        const int32_t length = format(out, data, i, spec);
        for (int32_t column = st_characters(out, length); column < width; ++column) {
            st_put(text, " ", 1);
        }
        st_put(text, out, length);
        for (int32_t depth = 0; depth < ends; ++depth) {
            st_put(text, "]", 1);
        }
    }
}
"""

_CHARACTERS = """\
// How many characters some UTF-8 has.
static int32_t st_characters(const char *bytes, int32_t length) {
    int32_t count = 0;
    for (int32_t i = 0; i < length; ++i) {
        count += (bytes[i] & 0xC0) != 0x80;
    }
    return count;
}

"""


def _element(dtype: str, c_type: str, call: str) -> str:
    return f"""\
static int32_t st_element_{dtype}(char *out, const void *data, int64_t index, st_spec spec) {{
    const {c_type} x = ((const {c_type} *)data)[index];
    return {call};
}}
"""


_PAIR = """\
static int32_t st_element_@(char *out, const void *data, int64_t index, st_spec spec) {
    const # *z = (const # *)data + 2 * index;
    return st_format_complex(out, z[0], z[1], %, spec);
}
"""


_FORMATTERS = {"f32": "float", "f64": "float", "bool": "bool", **{half.name: half.name for half in HALF_DTYPES}}
_ELEMENTS = {
    "f32": ("float", "st_format_real(out, (double)x, true, spec)"),
    "f64": ("double", "st_format_real(out, x, false, spec)"),
    **{dtype.name: (dtype.c_name, "st_format_integer(out, x, spec)") for dtype in INTEGER_DTYPES if dtype is not u64},
    **{half.name: (half.c_name, f"st_format_{half}(out, x, spec)") for half in HALF_DTYPES},
    "u64": ("uint64_t", "st_format_whole(out, x, false, spec)"),
    "bool": ("bool", "st_format_bool(out, x, spec)"),
    # A bool under a spec of its own is formatted as the integers 0 and 1, as in Python.
    "bool_as_integer": ("bool", "st_format_integer(out, x ? 1 : 0, spec)"),
}

_STRINGS = headers("stdbool", "stdint", "string")
SNIPPETS = (
    Snippet("text", _TEXT, needs=("write",), includes=_STRINGS),
    Snippet("format", _SPEC, needs=("text",), includes=_STRINGS),
    Snippet("format_number", _NUMBER, needs=("format",), includes=_STRINGS),
    Snippet("format_float", _FLOAT, needs=("format_number",), includes=headers("math", "stdio", "stdlib")),
    *(
        Snippet(
            f"format_{half}",
            _HALF.replace("@", half.name),
            needs=("format_float", f"f32_from_{half}", f"{half}_from_f64"),
            includes=headers("math", "stdio", "stdlib"),
        )
        for half in HALF_DTYPES
    ),
    Snippet("format_complex", _COMPLEX, needs=("format_float",), includes=headers("math")),
    Snippet("format_integer", _INTEGER, needs=("format_number", "format_float"), includes=_STRINGS),
    Snippet("format_bool", _BOOL, needs=("format",), includes=_STRINGS),
    Snippet("format_array", _CHARACTERS + _ARRAY, needs=("format",), includes=_STRINGS),
    *(
        Snippet(
            f"format_elements_{dtype}",
            _element(dtype, c_type, call),
            needs=("format_array", f"format_{_FORMATTERS.get(dtype, 'integer')}"),
        )
        for dtype, (c_type, call) in _ELEMENTS.items()
    ),
    *(
        Snippet(
            f"format_elements_{dtype}",
            _PAIR.replace("@", dtype.name)
            .replace("#", dtype.part.c_name)
            .replace("%", "true" if dtype.part is f32 else "false"),
            needs=("format_array", "format_complex"),
        )
        for dtype in COMPLEX_DTYPES
    ),
)
