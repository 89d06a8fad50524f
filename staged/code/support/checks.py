"""Checks that a program makes when asked to: NaN and infinity in what a kernel has computed.

Tested by `tests/programs/test_promises.py` and `tests/backends/cublas_cudnn/test_failures.py`.
"""

from __future__ import annotations

from staged.code.support.library import Snippet, headers


def _check(dtype: str, c_type: str, wrong: str = "!(x[i] - x[i] == 0)", nan: str = "x[i] != x[i]") -> Snippet:
    text = f"""\
// Stop the program if `x` holds a NaN or an infinity: the difference of such a number with itself is not zero.
static bool st_check_finite_{dtype}(st_host *host, int site, const char *name, const {c_type} *x, int64_t count) {{
    for (int64_t i = 0; i < count; ++i) {{
        if ({wrong}) {{
            st_fail(host, ST_NAN_ERROR, site, "`%s` has %s at position %lld", name,
                    {nan} ? "NaN" : "an infinity",
                    (long long)i);
            return false;
        }}
    }}
    return true;
}}
"""
    return Snippet(f"check_finite_{dtype}", text, needs=("fail",), includes=headers("stdbool", "stdint"))


def _check_bits(dtype: str, exponent: str) -> Snippet:
    """The check of bits: an exponent of ones alone."""
    return _check(dtype, "uint16_t", f"(x[i] & {exponent}) == {exponent}", f"(x[i] & 0x7fffu) != {exponent}")


SNIPPETS = (
    _check("f32", "float"),
    _check("f64", "double"),
    _check_bits("f16", "0x7c00u"),
    _check_bits("bf16", "0x7f80u"),
)
