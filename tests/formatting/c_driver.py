"""A C driver around the support text of the formatter, compiled once."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from cffi import FFI

from staged.backends.host.messages import spec_text
from staged.code.support.format import SNIPPETS
from staged.code.support.library import render
from staged.code.support.printf import SNIPPETS as PRINTF
from staged.code.support.printf import printf_format
from staged.ir.types import COMPLEX_DTYPES, STORED_DTYPES, dtype_of
from staged.ops.formatting import FormatSpec, parse_spec

FLAGS = (
    "-std=c11",
    "-Wall",
    "-Wextra",
    "-Wconversion",
    "-Werror",
    "-O1",
    "-fsanitize=undefined",
    "-fno-sanitize-recover",
)

# What the tests call: the same functions as generated code, the text collected in memory.
DRIVER = """
static char collected[1 << 20];
static int64_t used;

static void collect(void *context, const char *text, int64_t length) {
    (void)context;
    memcpy(collected + used, text, (size_t)length);
    used += length;
}

int64_t driver_put(char kind, double f, double imag, int64_t i, const st_spec *spec, const void *data,
                   const char *dtype, int32_t rank, const int64_t *shape, char **out);
int64_t driver_put(char kind, double f, double imag, int64_t i, const st_spec *spec, const void *data,
                   const char *dtype, int32_t rank, const int64_t *shape, char **out) {
    static st_host host;
    host.write = collect;
    used = 0;
    char room[ST_FORMATTED];
    st_text text;
    st_text_begin(&text, &host);
    switch (kind) {
    case 'd': st_put_format(&text, "%s", st_f64_text(room, f, *spec)); break;
    case 'f': st_put_format(&text, "%s", st_f32_text(room, (float)f, *spec)); break;
    case 'c': st_put_format(&text, "%s", st_c64_text(room, (float)f, (float)imag, *spec)); break;
    case 'z': st_put_format(&text, "%s", st_c128_text(room, f, imag, *spec)); break;
    case 'i': st_put_format(&text, "%s", st_i64_text(room, i, *spec)); break;
    case 'u': st_put_format(&text, "%s", st_u64_text(room, (uint64_t)i, *spec)); break;
    case 'R': st_put_format(&text, dtype, f); break;
    case 'I': st_put_format(&text, dtype, (long long)i); break;
    case 'b': st_put_format(&text, "%s", st_bool_text(room, i != 0, *spec)); break;
    default: {
        st_format_element *element = NULL;
@ELEMENTS@
        st_put_array(&text, data, element, rank, shape, *spec);
    }
    }
    st_text_end(&text);
    st_flush(&host);
    *out = collected;
    return used;
}
"""

# What snprintf does in a locale whose decimal point takes two bytes.
FOREIGN_POINT = """
#include <stdarg.h>
static int foreign_snprintf(char *out, size_t size, const char *format, ...) {
    va_list values;
    va_start(values, format);
    int length = vsnprintf(out, size, format, values);
    va_end(values);
    char *point = strchr(out, '.');
    if (point != NULL) {
        memmove(point + 2, point + 1, strlen(point));
        memcpy(point, "\\xd9\\xab", 2);
        ++length;
    }
    return length;
}
#define snprintf foreign_snprintf
"""

CDEF = """
typedef struct { const char *fill; int32_t width; int32_t precision; char align; char sign; char group; char type;
    char conversion; bool alternate; bool coerce_zero; } st_spec;
int64_t driver_put(char kind, double f, double imag, int64_t i, const st_spec *spec, const void *data,
                   const char *dtype, int32_t rank, const int64_t *shape, char **out);
"""


class CFormatter:
    """Formats in C what `format_value` formats in Python."""

    def __init__(self, library: Path) -> None:
        self.ffi = FFI()
        self.ffi.cdef(CDEF)
        self.library = self.ffi.dlopen(str(library))
        self.out = self.ffi.new("char **")
        self.specs: dict[FormatSpec, Any] = {}
        self.keep: list[Any] = []

    def spec(self, spec: FormatSpec) -> Any:
        """The C struct, its fields as `spec_text` writes them."""
        if spec not in self.specs:
            fields = self.ffi.new("st_spec *", {"precision": -1})
            for assignment in spec_text(spec).removeprefix("(st_spec){").removesuffix("}").split(", .") * (
                spec_text(spec) != "st_plain"
            ):
                name, _, value = assignment.removeprefix(".").partition(" = ")
                if name == "fill":
                    self.keep.append(self.ffi.new("char[]", spec.fill.encode()))
                    fields.fill = self.keep[-1]
                elif value.startswith("'"):
                    setattr(fields, name, value[1:-1].encode())
                else:
                    setattr(fields, name, value == "true" if value in ("true", "false") else int(value))
            self.specs[spec] = fields
        return self.specs[spec]

    def __call__(self, value: Any, text: str = "", conversion: str = "") -> str:
        array = np.asarray(value)
        dtype = dtype_of(array.dtype)
        assert dtype is not None
        spec = parse_spec(text, dtype.kind, conversion)
        as_integer = dtype.is_bool and not spec.is_plain and not conversion
        if array.ndim:
            return self._put(b"a", array, spec, "bool_as_integer" if as_integer else dtype.name)
        kind = {"f64": "d", "f32": "f", "c64": "c", "c128": "z"}.get(dtype.name, "i")
        if dtype.is_bool and not as_integer:
            kind = "b"
        if dtype.name == "u64":
            kind, array = "u", array.view(np.int64)  # the same bits, as the driver takes them
        made = self._put(kind.encode(), array, spec, dtype.name)
        if short := printf_format(dtype, spec):
            assert self._put(b"I" if dtype.is_integer else b"R", array, spec, short) == made, (value, short)
        return made

    def _put(self, kind: bytes, array: np.ndarray[Any, Any], spec: FormatSpec, element: str) -> str:
        scalar = array.item() if array.ndim == 0 else 0
        data = np.ascontiguousarray(array)
        length = self.library.driver_put(
            kind,
            float(scalar.real) if kind in (b"d", b"f", b"c", b"z", b"R") else 0.0,
            float(scalar.imag) if kind in (b"c", b"z") else 0.0,
            int(scalar) if kind in (b"i", b"u", b"b", b"I") else 0,
            self.spec(spec),
            self.ffi.from_buffer(data) if data.size else self.ffi.NULL,
            self.ffi.new("char[]", element.encode()),
            array.ndim,
            self.ffi.new("int64_t[]", list(array.shape) or [0]),
            self.out,
        )
        return bytes(self.ffi.buffer(self.out[0], length)).decode()


def build(folder: Path, source: str, name: str, flags: Sequence[str] = ("-shared", "-fPIC")) -> Path:
    """Compile C text; a failure shows the compiler's words."""
    path = folder / f"{name}.c"
    path.write_text(source)
    made = folder / name
    compiler = os.environ.get("STAGED_CC", "cc")
    done = subprocess.run(
        [compiler, *FLAGS, *flags, str(path), "-o", str(made), "-lm"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return made


def driver(folder: Path, before: str = "") -> CFormatter:
    """The formatter compiled with the driver, and with `before` between the includes and the text."""
    top, text = render([snippet.name for snippet in (*SNIPPETS, *PRINTF)])
    elements = "\n".join(
        f'        if (strcmp(dtype, "{name}") == 0) {{ element = st_element_{name}; }}'
        for name in [*map(str, (*STORED_DTYPES, *COMPLEX_DTYPES)), "bool_as_integer"]
    )
    source = "\n".join(top) + "\n" + before + text + DRIVER.replace("@ELEMENTS@", elements)
    return CFormatter(build(folder, source, "formatter.so"))
