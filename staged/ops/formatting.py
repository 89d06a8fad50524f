"""The one formatter: Python's format language for staged values, the same characters in eager mode and in C.

What a value prints as:

- an integer: its digits; a bool: `True` or `False`;
- an f64: Python's `repr`, the shortest text that reads back as the same f64;
- an f32: the shortest text that reads back as the same f32, in the layout of Python's `repr` (`0.1`, `1e-05`, `3.0`);
- an f16 and a bf16: likewise;
- a complex number: Python's `repr`, `(1-2j)` or, where the real part is 0, `2j`; a c64 with the shortest parts of f32;
- an integer with the type `c`: the character of that code; what is no code gives U+FFFD, the replacement character;
- an array: nested brackets, elements separated by one space and padded on the left to one width, each row on a line of
  its own, a blank line between matrices; nothing is left out and no line is wrapped. A format spec on an array applies
  to every element. An array without elements prints `[]`. In lists and tuples arrays print the same.

Specs are Python's `[[fill]align][sign][z][#][0][width][,_][.precision][type]`. They are parsed while staging, where
what has no meaning, or another one in another locale, is refused. C text: `code/support/format.py`.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from staged.errors import StagingError
from staged.ir.numbers import as_held
from staged.ir.types import DType, DTypeKind, c64, dtype_of, f32
from staged.source import here

MAX_WIDTH = 255
MAX_PRECISION = 100
"""The limit of C's fixed buffers; staging refuses more."""

_SPEC = re.compile(
    r"(?:(?P<fill>.)?(?P<align>[<>=^]))?(?P<sign>[-+ ])?(?P<z>z)?(?P<alternate>#)?(?P<zero>0)?(?P<width>[0-9]+)?"
    r"(?P<grouping>[,_])?(?:\.(?P<precision>[0-9]+))?(?P<type>[a-zA-Z%])?\Z",
    re.DOTALL,
)

_SAMPLES: dict[str, Any] = {"f": 1.0, "i": 1, "u": 1, "b": True, "c": 1j, "s": "x"}
_KIND_NAMES = {
    "f": "a float",
    "i": "an integer",
    "u": "an integer",
    "b": "a bool",
    "c": "a complex number",
    "s": "text",
}


FormatKind = DTypeKind | Literal["s", ""]


@dataclass(frozen=True, slots=True)
class FormatSpec:
    """A parsed spec. `conversion` is '', 's' or 'r': with one, the value becomes text first and the spec formats text.

    `kind` is that of the values that it was parsed for. `align` is '' where the spec leaves it to the kind: numbers to
    the right, text to the left. `text` is the spec as written, which Python's own formatter takes.
    """

    text: str = ""
    kind: FormatKind = ""
    conversion: str = ""
    fill: str = " "
    align: str = ""
    sign: str = "-"
    coerce_zero: bool = False
    alternate: bool = False
    width: int = 0
    grouping: str = ""
    precision: int | None = None
    type: str = ""

    def __repr__(self) -> str:
        return f"spec({self.text!r}, {self.kind!r})"

    @property
    def is_plain(self) -> bool:
        """Return whether the value prints as it does without any spec."""
        return self.text in ("", "s") if self.conversion else self.text == ""


PLAIN = FormatSpec()


def _refused(message: str, hint: str | None) -> StagingError:
    return StagingError(message, where=here(), hint=hint)


def parse_spec(text: str, kind: FormatKind, conversion: str = "") -> FormatSpec:
    """The parsed form of a format spec for values of one kind: that of a dtype, or 's' for text.

    Raises: StagingError for a spec that Python refuses for this kind, and for what C cannot do the same way: the type
    'n' (depends on the locale), a width above 255, a precision above 100.
    """
    if conversion not in ("", "r", "s", "a"):
        raise _refused(f"unknown conversion `!{conversion}` in a format", "use `!r`, `!s` or none")
    if conversion == "a":
        conversion = "r"  # numbers and arrays print in ASCII anyway
    formatted_kind = "s" if conversion else kind
    match = _SPEC.match(text)
    if match is None:
        raise _refused(
            f"`{text}` is not a format spec", "write [[fill]align][sign][z][#][0][width][,_][.precision][type]"
        )
    try:
        format(_SAMPLES[formatted_kind], text)
    except ValueError as error:
        raise _refused(f"the format spec `{text}` does not fit {_KIND_NAMES[formatted_kind]}: {error}", None) from None
    fill, align, type_ = match["fill"], match["align"] or "", match["type"] or ""
    width_text = (match["zero"] or "") + (match["width"] or "")
    if fill is None and match["zero"]:
        fill = "0"
        if not align and formatted_kind != "s":
            align = "="
    width = int(width_text or 0)
    precision = None if match["precision"] is None else int(match["precision"])
    if type_ == "n":
        raise _refused("the format type 'n' depends on the locale", "group digits with `,` or `_` instead")
    if fill is not None and not fill.isprintable():
        raise _refused(f"the fill character {fill!r} of a format spec is not printable", "use another one")
    if width > MAX_WIDTH or (precision is not None and precision > MAX_PRECISION):
        raise _refused(
            f"the format spec `{text}` asks for more than a staged value gets",
            f"use a width of at most {MAX_WIDTH} and a precision of at most {MAX_PRECISION}",
        )
    return FormatSpec(
        text=text,
        kind=kind,
        conversion=conversion,
        fill=" " if fill is None else fill,
        align=align,
        sign=match["sign"] or "-",
        coerce_zero=match["z"] is not None,
        alternate=match["alternate"] is not None,
        width=width,
        grouping=match["grouping"] or "",
        precision=precision,
        type=type_,
    )


# ---- values -------------------------------------------------------------------------------------


def format_value(value: Any, spec: str | FormatSpec = "", conversion: str = "") -> str:
    """`value` formatted: a Python number or string, a NumPy scalar, or an array (then the spec is for its elements).

    Raises StagingError for a spec that does not fit, as `parse_spec`.
    """
    if isinstance(value, str):
        parsed = spec if isinstance(spec, FormatSpec) else parse_spec(spec, "s", conversion)
        return format(repr(value) if parsed.conversion == "r" else value, parsed.text)
    if type(value) in (bool, int, float, complex):
        dtype, scalar = None, value
        kinds: dict[type, FormatKind] = {bool: "b", int: "i", float: "f", complex: "c"}
        kind = kinds[type(value)]
    else:
        array = np.asarray(value)
        dtype = dtype_of(array.dtype)
        if dtype is None:
            raise _refused(f"cannot print values of dtype {array.dtype}", None)
        kind = dtype.kind
        if array.ndim:
            parsed = spec if isinstance(spec, FormatSpec) else parse_spec(spec, kind, conversion)
            return _format_array(array, dtype, parsed)
        scalar = array.item()
    parsed = spec if isinstance(spec, FormatSpec) else parse_spec(spec, kind, conversion)
    return _format_scalar(scalar, dtype, parsed)


def _format_scalar(value: Any, dtype: DType | None, spec: FormatSpec) -> str:
    """`value` is exact; with `dtype` f32 the shortest text is that of an f32."""
    if dtype is f32 and (spec.conversion or (not spec.type and spec.precision is None)):
        # The f64 nearest to the shortest f32 text has that same text as its own shortest one.
        value = float(str(np.float32(value)))
    if dtype is not None and dtype.is_half and (spec.conversion or (not spec.type and spec.precision is None)):
        value = _shortest(float(value), dtype)
    if dtype is c64 and (spec.conversion or (not spec.type and spec.precision is None)):
        value = complex(*(float(str(np.float32(part))) for part in (value.real, value.imag)))
    if spec.type == "c" and not (0 <= value <= 0x10FFFF and not 0xD800 <= value < 0xE000):
        value = 0xFFFD  # where Python's formatter raises, or gives what no file can hold
    return format(repr(value) if spec.conversion else value, spec.text)


def _shortest(value: float, dtype: DType) -> float:
    """The f64 with the shortest text that reads back as the same f16 or bf16."""
    for count in range(5 if math.isfinite(value) else 0):
        near = float(f"{value:.{count}e}")
        if as_held(near, dtype) == value:
            return near
    return value


def _format_array(array: np.ndarray[Any, Any], dtype: DType, spec: FormatSpec) -> str:
    if array.size == 0:
        return "[]"
    texts = [_format_scalar(element, dtype, spec) for element in array.reshape(-1).tolist()]
    width = max(map(len, texts))
    cells = iter(text.rjust(width) for text in texts)

    def layout(depth: int) -> str:
        extent = array.shape[depth]
        if depth == array.ndim - 1:
            return "[" + " ".join(next(cells) for _ in range(extent)) + "]"
        gap = "\n" * (array.ndim - 1 - depth) + " " * (depth + 1)
        return "[" + gap.join(layout(depth + 1) for _ in range(extent)) + "]"

    return layout(0)
