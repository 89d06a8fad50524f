"""Compiles a generated kernel into a shared object and runs it on NumPy arrays."""

from __future__ import annotations

import ctypes
import hashlib
import mmap
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import numpy as np

from staged.backends.cpu.contraction.spec import ContractionKernel
from staged.backends.cpu.contraction_call import LOCALS, PARTS, TILE_LOCALS
from staged.code.expr import Name
from staged.code.support.library import render
from staged.code.support.vectors import width_snippet
from staged.code.writer import c_identifier
from staged.ir.machine import PORTABLE, X86_64_V3, X86_64_V4, Machine
from staged.ir.sizes import Dim, Size, dims_in, value_of
from staged.ir.types import DType

WARNINGS = ["-Wall", "-Wextra", "-Wconversion", "-Werror"]
FOLDER = tempfile.TemporaryDirectory()


def machines() -> list[Machine]:
    """The targets that this processor can run."""
    flags = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = [PORTABLE]
    if "avx2" in flags and "fma" in flags:
        found.append(X86_64_V3)
    if "avx512f" in flags and "avx512bw" in flags and "avx512vl" in flags and "avx512dq" in flags:
        found.append(X86_64_V4)
    return found


class Kernel:
    """A compiled kernel: `run` executes it over all work items."""

    def __init__(
        self,
        text: ContractionKernel,
        dtype: DType,
        machine: Machine,
        before: str = "",
        flags: tuple[str, ...] = (),
        stored: DType | None = None,
    ) -> None:
        self.text, self.dtype = text, dtype
        assert not unreserved(text), "a value of the user may have one of these names"
        scalar, operand = dtype.c_name, (stored or dtype).c_name
        filled, given = "", {}
        if made := text.filled:
            places = {dim: Dim(str("BMNK".index(dim.name))) for size in (*made.sizes, *made.more) for dim in dims_in(size)}
            arguments, made = [*map(Name, "BMNK")], made.substituted(places)
            filled = f"    const {made.type} sizes = {made.value(arguments)};\n"
            given = dict(zip(("sizes", "matrices"), map(str, made.passed(Name("sizes"), arguments)), strict=False))
        entry = (
            f"void entry(const {operand} *a, const {operand} *b, {scalar} *c, {scalar} *scratch,"
            f" int64_t B, int64_t M, int64_t N, int64_t K, int64_t begin, int64_t end, {scalar} *out, int64_t *writes) {{\n"
            f"    (void)a; (void)b; (void)c; (void)scratch; (void)B; (void)M; (void)N; (void)K; (void)out; (void)writes;\n"
            f"{filled}    {text.call(given)};\n}}\n"
        )
        lines, support = render({*text.snippets, width_snippet(machine.vector_bytes)})
        headers = [f"#include <{name}.h>" for name in ("stdbool", "stdint", "string")]
        shared = [snippet.text for snippet in (*text.support, *text.tables)]
        self.source = "\n".join([*lines, *headers, support, *shared, before, text.text, entry])
        march = [f"-march={machine.march}"] if machine.march else []
        command = ["gcc", "-std=c11", "-O2", "-ffp-contract=off", *WARNINGS, *march, *flags, "-shared", "-fPIC"]
        key = hashlib.sha256((self.source + " ".join(command)).encode()).hexdigest()[:24]
        self.path = Path(FOLDER.name) / f"{key}.so"
        if not self.path.exists():
            file = self.path.with_suffix(".c")
            file.write_text(self.source)
            done = subprocess.run(
                [*command, str(file), "-o", str(self.path)], capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr[:3000] + "\n" + self.source
        library = ctypes.CDLL(str(self.path))
        self.entry = library.entry

    def run(
        self,
        a: np.ndarray,
        b: np.ndarray,
        c: np.ndarray | None = None,
        out: np.ndarray | None = None,
        count: np.ndarray | None = None,
        pieces: int = 1,
        reverse: bool = False,
        sizes: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        """All items in `pieces` ranges, each with its own scratch memory filled with NaN; guards around it must survive.

        `sizes` are the dimensions B, M, N and K, where the product has some.
        """
        text = self.text
        dims = {dim: sizes[dim.name] for dim in dims_in(text.items_size)}
        items = value_of(text.items_size, dims) if isinstance(text.items_size, Size) else text.work_items
        bounds = [items * i // pieces for i in range(pieces + 1)]
        ranges = list(zip(bounds[:-1], bounds[1:], strict=True))
        for begin, end in reversed(ranges) if reverse else ranges:
            scratch = Guarded(text.scratch_bytes // self.dtype.size, self.dtype)
            self.entry(
                *(_address(x) for x in (a, b, c, scratch.items)),
                *(ctypes.c_int64(sizes.get(name, 0)) for name in "BMNK"),
                ctypes.c_int64(begin),
                ctypes.c_int64(end),
                _address(out),
                _address(count),
            )
            scratch.check()


def unreserved(kernel: ContractionKernel) -> set[str]:
    """The names in functions with names of the user that a value of the user may have, too."""
    given = {name for _, name in kernel.parameters} | {kernel.function, "put"}
    given |= {f"{kernel.function}_{part}" for part in PARTS} | {table.name for table in kernel.tables}
    found: set[str] = set()
    for function in re.sub(r"//.*|#.*|__attribute__\S*", "", kernel.text).split("\n}\n"):
        names = {*re.findall(r"(?<![\w.])(?<!->)[A-Za-z_]\w*", function)}
        names = {name for name in names if c_identifier(name) == name and not re.match(r"(?:st|ST)_|.*v(_u)?$", name)}
        is_main = f"static void {kernel.function}(" in function
        if is_main or {"out", "writes"} & names:
            found |= names - given - LOCALS - (set() if is_main else TILE_LOCALS)
    return {name for name in found if not re.match(rf"{kernel.function}_(tile|dot|\d)", name)}


class Guarded:
    """64-byte aligned memory between two guard zones, full of NaN (integers: a pattern)."""

    def __init__(self, items: int, dtype: DType) -> None:
        kind = dtype.numpy
        guard = 64
        memory = np.empty(items + 3 * guard, kind)
        shift = (-memory.ctypes.data % 64) // memory.itemsize
        self.pattern = np.array(np.nan if dtype.is_float else 0x5A5A5A5A).astype(kind)
        memory[:] = self.pattern
        self.before = memory[shift : shift + guard]
        self.items = memory[shift + guard : shift + guard + items]
        self.after = memory[shift + guard + items : shift + 2 * guard + items]

    def check(self) -> None:
        for zone in (self.before, self.after):
            assert zone.tobytes() == np.full_like(zone, self.pattern).tobytes(), "wrote outside its workspace"


def _address(array: np.ndarray | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if array is None else array.ctypes.data)


def put_function(dtype: DType, n: int, matrix: int) -> str:
    """An epilogue that stores twice the value and counts the writes of each element."""
    scalar = dtype.c_name
    return f"""
static inline __attribute__((always_inline)) void put(int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols,
        const {scalar} *tile, int64_t ld, {scalar} *out, int64_t *writes) {{
    for (int64_t r = 0; r < rows; ++r) {{
        for (int64_t s = 0; s < cols; ++s) {{
            const int64_t at = batch * {matrix} + (row + r) * {n} + col + s;
            out[at] = 2 * tile[r * ld + s];
            writes[at] += 1;
        }}
    }}
}}
"""


def at_end_of_page(values: np.ndarray) -> np.ndarray:
    """A copy that ends where an unreadable page begins (kept alive by the array)."""
    page = mmap.PAGESIZE
    size = -(-max(1, values.nbytes) // page) * page
    memory = mmap.mmap(-1, size + page)
    start = np.frombuffer(memory, np.uint8).ctypes.data
    libc = ctypes.CDLL(None)
    assert libc.mprotect(ctypes.c_void_p(start + size), ctypes.c_size_t(page), 0) == 0
    copy = np.frombuffer(memory, values.dtype, values.size, size - values.nbytes).reshape(values.shape)
    copy[...] = values
    return copy
