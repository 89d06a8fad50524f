"""Arithmetic that C does not have: Python's integer division, wrapping, conversions without undefined results.

Tested by `tests/runtime/test_support.py` and `tests/kernels/test_declarations.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.code.writer import c_string
from staged.ir.messages import OUT_OF_RANGE
from staged.ir.numbers import does_not_fit
from staged.ir.types import FLOAT_DTYPES, INTEGER_DTYPES, DType, f32

_MATH = headers("math")


def _inline(comment: str, result: str, name: str, parameters: str, *body: str) -> SupportFunction:
    lines = "\n".join(f"    {line}" for line in body)
    definition = f"({parameters}) {{\n{lines}\n}}\n"
    head = "__attribute__((unused)) static inline "
    return SupportFunction(result, name, definition, comment=f"// {comment}\n", head=head)


def _two(dtype: DType) -> str:
    return f"{dtype.c_name} a, {dtype.c_name} b"


def _suffix(dtype: DType) -> str:
    return "f" if dtype is f32 else ""


def _float_snippets(dtype: DType) -> list[Snippet]:
    t, f = dtype.c_name, _suffix(dtype)
    zero = f"0.0{f}"

    def snippet(name: str, comment: str, parameters: str, *body: str) -> Snippet:
        function = _inline(comment, t, f"st_{name}_{dtype}", parameters, *body)
        return made_of(f"{name}_{dtype}", function, includes=_MATH)

    return [
        snippet(
            "sign", "-1, 0 or 1; NaN stays NaN.", f"{t} x", f"return isnan(x) ? x : ({t})((x > {zero}) - (x < {zero}));"
        ),
        snippet("square", "x times itself.", f"{t} x", "return x * x;"),
        snippet(
            "remainder",
            "Python's remainder: the sign of the divisor.",
            _two(dtype),
            f"const {t} r = fmod{f}(a, b);",
            f"if (r == {zero}) {{",
            f"    return copysign{f}({zero}, b);",
            "}",
            f"return (r < {zero}) != (b < {zero}) ? r + b : r;",
        ),
        snippet(
            "floor_divide",
            "Python's floor division, from the exact remainder.",
            _two(dtype),
            f"const {t} r = fmod{f}(a, b);",
            f"if (b == {zero} || isnan(r)) {{",
            f"    return b == {zero} ? a / b : r;",
            "}",
            f"const {t} q = (a - r) / b - ({t})(r != {zero} && (r < {zero}) != (b < {zero}));",
            f"return q == {zero} ? copysign{f}({zero}, a / b) : floor{f}(q + 0.5{f});",
        ),
    ]


def beyond(dtype: DType, x: str) -> str:
    """The condition in C under which an int64_t is no number of an integer dtype."""
    stem = dtype.c_name.removesuffix("_t").upper()
    ends = [f"{x} < {stem}_MIN" if dtype.kind == "i" else f"{x} < 0"]
    return " || ".join([*ends, f"{x} > {stem}_MAX"] if dtype.size < 8 else ends)


def _integer_snippets(dtype: DType) -> list[Snippet]:
    t, signed = dtype.c_name, dtype.kind == "i"
    u = f"u{t}" if signed else t
    word = "uint32_t" if dtype.size < 4 else u
    bits = dtype.size * 8
    found: list[Snippet] = []

    def snippet(name: str, comment: str, parameters: str, *body: str) -> None:
        function = _inline(comment, t, f"st_{name}_{dtype}", parameters, *body)
        found.append(made_of(f"{name}_{dtype}", function, includes=headers("stdint")))

    snippet("maximum", "The larger of two numbers.", _two(dtype), "return a > b ? a : b;")
    snippet("minimum", "The smaller of two numbers.", _two(dtype), "return a < b ? a : b;")
    snippet("square", "x times itself, wrapping.", f"{t} x", f"return ({t})((uint64_t)x * (uint64_t)x);")
    if signed:
        snippet(
            "abs", "The absolute value; the smallest number stays.", f"{t} x", f"return x < 0 ? ({t})(0 - ({u})x) : x;"
        )
        difference = f"({t})((x > 0) - (x < 0))" if dtype.size < 4 else "(x > 0) - (x < 0)"
        snippet("sign", "-1, 0 or 1.", f"{t} x", f"return {difference};")
        snippet(
            "floor_divide",
            # Of magnitudes: gcc 12 takes `-a / b` for `-(a / b)`, which it is not of the smallest number.
            "Python's floor division; b is not 0. The smallest number by -1 wraps.",
            _two(dtype),
            f"const {word} n = a < 0 ? 0u - ({word})a : ({word})a, d = b < 0 ? 0u - ({word})b : ({word})b, q = n / d;",
            f"return ({t})((a < 0) == (b < 0) ? q : 0u - q - (n % d != 0));",
        )
        snippet(
            "remainder",
            "Python's remainder: the sign of the divisor; b is not 0.",
            _two(dtype),
            "if (b == -1) {\n        return 0;\n    }",
            f"const {t} r = a % b;",
            "return r != 0 && (r < 0) != (b < 0) ? r + b : r;",
        )
        minus = "a < 0 ? -1 : 0"
    else:
        cast = f"({t})" if dtype.size < 4 else ""
        snippet("floor_divide", "Division; b is not 0.", _two(dtype), f"return {cast}(a / b);")
        snippet("remainder", "Remainder; b is not 0.", _two(dtype), f"return {cast}(a % b);")
        minus = "0"
    if dtype.size < 4:
        snippet("invert", "The other bits.", f"{t} a", f"return ({t})~a;")
    snippet(
        "left_shift",
        "a << b; all bits are gone when b is as large as the type.",
        _two(dtype),
        f"return (uint64_t)b < {bits} ? ({t})(({word})a << b) : 0;",
    )
    snippet(
        "right_shift",
        "a >> b; copies of the sign when b is as large as the type.",
        _two(dtype),
        f"return (uint64_t)b < {bits} ? ({t})(a >> b) : {minus};",
    )
    snippet(
        "pow",
        "a to the power b by squaring, wrapping; b is not negative.",
        _two(dtype),
        "uint64_t result = 1, base = (uint64_t)a;",
        f"for ({t} left = b; left > 0; left = ({t})(left / 2)) {{",
        "    if (left % 2 != 0) {",
        "        result *= base;",
        "    }",
        "    base *= base;",
        "}",
        f"return ({t})result;",
    )
    checks = [
        (name, "b == 0", "ZERO_DIVISION", "integer division or modulo by zero")
        for name in ("floor_divide", "remainder")
    ]
    if signed:
        checks.append(("pow", "b < 0", "VALUE", "an integer to a negative integer power"))
    for name, wrong, kind, message in checks:
        text = (
            f"// The same, but `{wrong}` stops the program.\n"
            f"__attribute__((unused)) static inline {t} "
            f"st_checked_{name}_{dtype}(st_host *host, int site, {_two(dtype)}) {{\n"
            f"    if ({wrong}) {{\n"
            f'        st_fail(host, ST_{kind}_ERROR, site, "{message}");\n'
            "        return 0;\n"
            "    }\n"
            f"    return st_{name}_{dtype}(a, b);\n"
            "}\n"
        )
        found.append(Snippet(f"checked_{name}_{dtype}", text, ("fail", f"{name}_{dtype}")))
    found.append(
        Snippet(
            f"checked_fit_{dtype}",
            f"// A number as {dtype}, where it fits; else the program stops.\n"
            f"__attribute__((unused)) static inline {t} "
            f"st_checked_fit_{dtype}(st_host *host, int site, int64_t x) {{\n"
            f"    if ({beyond(dtype, 'x')}) {{\n"
            f'        st_fail(host, ST_OVERFLOW_ERROR, site, "{does_not_fit("%lld", dtype)}", (long long)x);\n'
            "        return 0;\n"
            "    }\n"
            f"    return ({t})x;\n"
            "}\n",
            ("fail",),
        )
    )
    for source in FLOAT_DTYPES:
        f = _suffix(source)
        low = f"-{2 ** (bits - 1)}.0{f}" if signed else f"0.0{f}"
        high = f"{2 ** (bits - (1 if signed else 0))}.0{f}"
        stem = t.removesuffix("_t").upper()
        if signed:
            comment = (
                "Towards zero; the smallest number for what lies outside of the range and for NaN, as vectors and\n"
                "// NumPy do."
            )
            body = [f"return x >= {low} && x < {high} ? ({t})x : {stem}_MIN;"]
        else:
            comment = "Towards zero; the ends of the range for what lies outside, 0 for NaN."
            body = [
                f"if (!(x >= {low})) {{\n        return 0;\n    }}",
                f"return x >= {high} ? {stem}_MAX : ({t})x;",
            ]
        function = _inline(comment, t, f"st_{dtype}_from_{source}", f"{source.c_name} x", *body)
        found.append(made_of(f"{dtype}_from_{source}", function, includes=(*_MATH, *headers("stdint"))))
    return found


_ADVANCE = """\
// The next index of a loop, or the end of its type where that is beyond: no loop goes on from there.
__attribute__((unused)) static inline int64_t st_advance(int64_t index, int64_t step) {
    int64_t next;
    return !__builtin_add_overflow(index, step, &next) ? next : step > 0 ? INT64_MAX : INT64_MIN;
}
"""


def _check(meaning: str, message: str) -> Snippet:
    """The check of an index of this meaning, a key of `OUT_OF_RANGE`."""
    wraps = meaning == "index"
    place = "wrapped" if wraps else "index"
    wrap = "    const int64_t wrapped = index < 0 ? index + extent : index;\n" * wraps
    about = "An index from [-extent, extent), wrapped to" if wraps else f"A {meaning} from"
    head = f"__attribute__((unused)) static inline int64_t st_check_{meaning}"
    text = f"""\
// {about} [0, extent); anything else stops the program, and gives -1.
{head}(st_host *host, int site, int64_t index, int64_t extent) {{
{wrap}    if ({place} < 0 || {place} >= extent) {{
        st_fail(host, ST_INDEX_ERROR, site,
                {c_string(message)},
                (long long)index, (long long)extent);
        return -1;
    }}
    return {place};
}}
"""
    return Snippet(f"check_{meaning}", text, ("fail",))


_CHECK_WINDOW = """\
// The start of a slice `x[i:i + width]`, counted from the front, where all of it fits; else the program stops.
__attribute__((unused)) static inline int64_t st_check_window(
    st_host *host, int site, int64_t index, int64_t width, int64_t extent
) {
    const int64_t last = index < 0 ? -width - 1 : extent - width;  // a slice of Python's from -1 ends at 0: it is empty
    if (index < -extent || index > last) {
        st_fail(host, ST_INDEX_ERROR, site, "a slice of %lld elements from %lld on is out of range for an axis of %lld",
                (long long)width, (long long)index, (long long)extent);
        return 0;
    }
    return index < 0 ? index + extent : index;
}
"""

_CHECK_ELEMENTS = """\
// 0, where an axis has a first element; else the program stops with a message.
__attribute__((unused)) static inline int64_t st_check_elements(st_host *host, int site, int64_t extent,
                                                                const char *message) {
    if (extent == 0) {
        st_fail(host, ST_VALUE_ERROR, site, "%s", message);
    }
    return 0;
}
"""

SNIPPETS = (
    Snippet("math", "", (), _MATH),
    Snippet("advance", _ADVANCE, (), headers("stdint")),
    *(snippet for dtype in FLOAT_DTYPES for snippet in _float_snippets(dtype)),
    *(snippet for dtype in INTEGER_DTYPES for snippet in _integer_snippets(dtype)),
    *(_check(meaning, message) for meaning, message in OUT_OF_RANGE.items()),
    Snippet("check_window", _CHECK_WINDOW, ("fail",)),
    Snippet("check_elements", _CHECK_ELEMENTS, ("fail",)),
)
