"""OpenCL C as a language of kernels, and its devices as schedules see them.

Tested by `tests/backends/opencl/test_all_ops.py`.
"""

from __future__ import annotations

from dataclasses import replace

from staged.backends.gpu.dialect import DEVICE_MATHS, DEVICE_PREFIX, GpuDialect
from staged.backends.gpu.sorting import block_sort
from staged.backends.opencl.failures import FAIL
from staged.code.expr import Call, Literal, Words
from staged.code.support.library import Snippet, SupportFunction, made_of, snippets
from staged.code.types import Space
from staged.ir.machine import Gpu
from staged.ir.types import ALL_DTYPES, f32, f64

OPENCL_GPU = Gpu(
    "opencl",
    warp=32,
    block=64,
    largest_block=256,
    blocks=2**31 - 1,
    access_bytes=1,
    shared_bytes=16 << 10,
    largest_shared_bytes=32 << 10,
    thread_bytes=4 << 10,
    workspace_bytes=64 << 20,
    busy_threads=1 << 16,
    busy_warps=128,
    busy_items=1 << 12,
    has_warps=False,
)
"""The limits that every device of OpenCL 1.2 meets. `warp` only divides block sizes: threads do not run in lockstep."""

_PLACES = {"thread_index": "local_id", "block_index": "group_id", "block_size": "local_size", "grid_size": "num_groups"}
_BARRIER = "barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE)"

_SPACES = {Space.GLOBAL: "__global ", Space.SHARED: "__local "}


OPENCL = GpuDialect(
    back_end="opencl",
    words=Words(DEVICE_PREFIX, _SPACES),
    unroll="__attribute__((opencl_unroll_hint({})))",
    kernel_head="__kernel __attribute__((reqd_work_group_size({1}, {2}, {3}))) void",
    storage={Space.SHARED: "__local "},
    block_barrier=_BARRIER,
    warp_barrier=_BARRIER,
    overloaded="__attribute__((overloadable)) ",
    array_spaces=("__global ", "__local ", ""),
    places={
        (name, axis): Call(f"get_{function}", (Literal(str(number)),))
        for name, function in _PLACES.items()
        for number, axis in enumerate("xyz")
    },
    maths={(op, dtype): name for op, name in DEVICE_MATHS.items() for dtype in (f32, f64)},  # one name for all dtypes
    reserved=frozenset("kernel global local private constant uchar ushort uint ulong half event_t sampler_t".split()),
)


_ATOMIC = """\
({space}{t} *array, int64_t place, {t} value) {{
    union {{
        {bits} bits;
        {t} value;
    }} was = {{0}}, now;
    if (place >= 0) {{
        volatile {space}{bits} *const at = (volatile {space}{bits} *)(array + place);
        for ({bits} seen = *at, before = ~seen; seen != before; seen = {prefix}_cmpxchg(at, before, now.bits)) {{
            before = was.bits = seen;
            now.value = {new};
        }}
    }}
    return was.value;
}}
"""
_ATOMIC_COMMENT = "// Gives what was there before; 0 where there is no such place.\n"
_ATOMICS = {f"thread_atomic_{op}_{dtype}": (op, dtype) for op in ("add", "min", "max") for dtype in ALL_DTYPES}


def find_snippet(name: str) -> Snippet | None:
    """The snippet that the device has alone, or otherwise than the host, under this name; None if it has none."""
    if name == "fail":
        return made_of(name, FAIL)
    if name == "st_permutation":  # the host's, but for where the array is
        found = snippets()[name]
        (function,) = found.functions
        definition = function.definition.replace("(int64_t *order", "(__global int64_t *order")
        return made_of(name, replace(function, definition=definition), needs=found.needs)
    if name in _ATOMICS:
        op, dtype = _ATOMICS[name]
        bits, prefix = ("uint", "atomic") if dtype.itemsize == 4 else ("ulong", "atom")
        selected = "was.value {} value ? was.value : value"
        new = {"add": "was.value + value", "min": selected.format("<"), "max": selected.format(">")}[op]
        t = dtype.c_name
        texts = [_ATOMIC.format(t=t, bits=bits, prefix=prefix, new=new, space=s) for s in OPENCL.array_spaces[:2]]
        functions = [
            SupportFunction(t, f"st_{name}", text, comment=_ATOMIC_COMMENT, is_overloaded=True) for text in texts
        ]
        return made_of(name, *functions)
    array, *_ = OPENCL.array_spaces
    return block_sort(name, "get_local_id(0)", "get_local_size(0)", _BARRIER, array, OPENCL.array_spaces[:2])


_INTEGERS = "".join(
    f"typedef {name} int{bits}_t;\ntypedef u{name} uint{bits}_t;\n"
    f"#define INT{bits}_MIN {limit}_MIN\n#define INT{bits}_MAX {limit}_MAX\n#define UINT{bits}_MAX U{limit}_MAX\n"
    for bits, name, limit in ((8, "char", "CHAR"), (16, "short", "SHRT"), (32, "int", "INT"), (64, "long", "LONG"))
)
PRELUDE = f"""\
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#pragma OPENCL EXTENSION cl_khr_int64_base_atomics : enable
{_INTEGERS}\
#define bool uchar  // OpenCL C has no arrays of bool that a host knows
#define INT64_C(value) value##L
#define UINT64_C(value) value##UL
static inline void st_copy_bytes(void *to, const void *from, ulong size) {{
    for (ulong i = 0; i < size; ++i) {{
        ((uchar *)to)[i] = ((const uchar *)from)[i];
    }}
}}
#define memcpy st_copy_bytes
""" + "".join(
    f"#define {name}f {name}\n"
    for name in "ceil copysign exp fabs floor fmax fmin fmod log pow rint sqrt trunc".split()
)
"""The types of C's headers, and C's functions of float: OpenCL C has one name for all dtypes."""
