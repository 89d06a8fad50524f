"""Fused multiply-adds: `st_fma_<f32|f64|f32v|f64v>`(x, y, z) is x * y + z, rounded once if the processor can do so.

Programs are compiled without contraction, so each product and sum of the user is rounded, as in NumPy. Matmuls,
convolutions, reductions and mathematical functions call this function.

Tested by `tests/backends/support/test_fma.py`.
"""

from __future__ import annotations

from staged.code.support.lanes import lanes_snippet
from staged.code.support.library import Snippet, SupportFunction, headers, made_of
from staged.code.support.variety import VARIETIES, Variety
from staged.code.support.vectors import vector_snippet

_BUILTINS = {64: "__builtin_ia32_vfmadd{0}512_mask", 32: "__builtin_ia32_vfmadd{0}256", 16: "__builtin_ia32_vfmadd{0}"}
"""gcc's functions by bytes of a vector. The one for 64 bytes also has a mask of lanes and a rounding mode."""
_FEATURES = {64: "__AVX512F__", 32: "__FMA__", 16: "__FMA__"}


def _number(v: Variety) -> Snippet:
    suffix = v.format.function_suffix
    fused = f"FP_FAST_FMA{suffix.upper()}"
    T = v.T
    definition = f"""\
({T} x, {T} y, {T} z) {{
#if defined({fused}) || defined(__FMA__)  // clang does not define the first on x86-64
    return fma{suffix}(x, y, z);
#else
    return x * y + z;
#endif
}}
"""
    comment = "// x * y + z, rounded once if the processor has such an instruction.\n"
    name = v.fma_function
    return made_of(name, SupportFunction(T, name, definition, comment=comment), includes=headers("math"))


def _vectors(v: Variety) -> Snippet:
    assert v.lanes is not None
    name, T = v.fma_function, v.T
    size = v.lanes * v.format.bits // 8
    x, y, z = (f"({each}) - ({T}){{0}}" for each in "xyz")
    lines = ["// Lane by lane x * y + z, rounded once if the processor has such an instruction. Numbers are splat."]
    lines += ["#if defined(__clang__)"]
    lines += [f"#define {name}(x, y, z) \\"]
    lines += ['    (__extension__({ _Pragma("clang fp contract(fast)") (x) * (y) + (z); }))']
    for width, builtin in _BUILTINS.items():
        if size and size != width:
            continue
        condition = f"defined({_FEATURES[width]})" + ("" if size else f" && ST_VECTOR_BYTES == {width}")
        function = builtin.format("ps" if v.format.bits == 32 else "pd")
        more = f", {'-1' if v.format.bits == 32 else '0xff'}, 4" if width == 64 else ""
        lines += [f"#elif {condition}", f"#define {name}(x, y, z) \\", f"    {function}({x}, {y}, {z}{more})"]
    if size in (0, 16):
        lines += [
            "#elif defined(__ARM_NEON) && defined(__aarch64__)" + ("" if size else " && ST_VECTOR_BYTES == 16"),
            "#include <arm_neon.h>",
            f"#define {name}(x, y, z) ({T})vfmaq_{v.format.dtype}({z}, {x}, {y})",
        ]
    lines += ["#else", f"#define {name}(x, y, z) ((x) * (y) + (z))", "#endif", ""]
    dtype = v.format.dtype
    return Snippet(name, "\n".join(lines), (lanes_snippet(dtype, v.lanes) if v.lanes else vector_snippet(dtype),))


SNIPPETS = tuple(_vectors(v) if v.is_vector else _number(v) for v in VARIETIES)
