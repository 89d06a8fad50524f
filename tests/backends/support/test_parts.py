"""Loads and stores of the first items of a vector touch no others."""

from __future__ import annotations

import ctypes

import pytest

from staged.code.support.lanes import lanes_snippet, part_snippet
from staged.code.support.vectors import vector_snippet
from staged.ir.machine import Machine
from tests.backends.support.harness import compiled, machines, program

DRIVER = """
#include <sys/mman.h>
// 0, or the number of items with which {type} fails; memory beyond the items cannot be read.
int check_{type}(void) {{
    enum {{ PAGE = 4096, LANES = sizeof({type}) / sizeof({item}) }};
    char *const page = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED || mprotect(page + PAGE, PAGE, PROT_NONE) != 0) {{
        return -1;
    }}
    for (int n = 1; n <= LANES + 2; ++n) {{
        const int some = n < LANES ? n : LANES;
        {item} *const last = ({item} *)(page + PAGE) - some;
        {item} lanes[LANES], kept[LANES + 2];
        for (int i = 0; i < some; ++i) {{
            last[i] = ({item})(i + 1);
        }}
        for (int i = 0; i < LANES + 2; ++i) {{
            kept[i] = 99;
        }}
        const {type} x = st_load_{type}(last, n);
        *({type}_u *)lanes = x;
        st_store_{type}(kept, n, x);
        st_store_{type}(last, n, x);
        st_add_to_{type}(last, n, x);
        for (int i = 0; i < LANES; ++i) {{
            const {item} wanted = ({item})(i < some ? i + 1 : 0);
            if (lanes[i] != wanted || kept[i] != (i < some ? wanted : 99) || (i < some && last[i] != 2 * wanted)) {{
                return n;
            }}
        }}
    }}
    return munmap(page, 2 * PAGE);
}}
"""
TYPES = {
    "f32v": "float", "f64v": "double", "i32v": "int32_t", "i64v": "int64_t", "u8v": "uint8_t", "u16x16": "uint16_t",
    "f32x4": "float", "f32x8": "float", "f64x16": "double", "u8x16": "uint8_t", "i64x2": "int64_t",
}  # fmt: skip


@pytest.mark.parametrize("machine", machines(), ids=lambda machine: machine.name)
def test_a_part_of_a_vector_is_as_long_as_its_count(machine: Machine):
    own = [vector_snippet(t[:-1]) if t[-1] == "v" else lanes_snippet(*(t.partition("x")[::2])) for t in TYPES]
    drivers = "".join(DRIVER.format(type=type, item=item) for type, item in TYPES.items())
    text = "#define _DEFAULT_SOURCE\n" + program([*own, *map(part_snippet, TYPES)], drivers, machine)
    library: ctypes.CDLL = compiled(text, machine.march)
    assert {type: getattr(library, f"check_{type}")() for type in TYPES} == dict.fromkeys(TYPES, 0)
