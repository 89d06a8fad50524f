"""`text % values` with staged values, as an f-string: `"%.3f" % x` is `f"{x:.3f}"`."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from staged.errors import ArgumentError, StagingError
from staged.frontend.calls.call import call
from staged.frontend.values.operands import note_operand, note_printed
from staged.ops.array import StagedArray
from staged.ops.promote import read
from staged.source import here

_FIELD = re.compile(
    r"%(?:\((?P<key>[^)]*)\))?(?P<flags>[-+ #0]*)(?P<width>\*|[0-9]*)(?:\.(?P<precision>\*|[0-9]*))?[hlL]?(?P<type>.)",
    re.DOTALL,
)
_TYPES = {"i": "d", "u": "d", "s": "", "r": "", "a": ""}
"""The type of a format spec, if it is another letter."""
_COUNT = 'write a value for each field: `"%d of %d" % (i, n)`'


def percent_parts(template: str, values: Any) -> list[Any]:
    """Text, and (value, conversion, spec) for each field of `template % values`.

    Raises: StagingError for a field that a staged value cannot fill, ArgumentError if the number of values is wrong.
    """
    given = iter(values if isinstance(values, tuple) else (values,))
    parts: list[Any] = []
    begin = 0
    for field in _FIELD.finditer(template):
        parts.append(template[begin : field.start()])
        begin = field.end()
        if field["type"] == "%":
            parts.append("%")
            continue
        width, precision = (_number(field[name], given) for name in ("width", "precision"))
        key = field["key"]
        value = _next(given) if key is None else values[key]
        parts.append(_part(template, field, value, width, precision))
    parts.append(template[begin:])
    if not isinstance(values, Mapping) and next(given, given) is not given:
        raise ArgumentError("`%` formatting has more values than fields", where=here(), hint=_COUNT)
    return parts


def _next(given: Iterator[Any]) -> Any:
    for value in given:
        return value
    raise ArgumentError("`%` formatting has fewer values than fields", where=here(), hint=_COUNT)


def _number(text: str | None, given: Iterator[Any]) -> str | None:
    """The digits of a width or precision, of which `*` is the next value."""
    return str(int(_next(given))) if text == "*" else text


def _part(template: str, field: re.Match[str], value: Any, width: str | None, precision: str | None) -> Any:
    flags, letter = field["flags"], field["type"]
    value = read(value)
    is_text = letter in "sra"
    if not is_text and not isinstance(value, StagedArray):
        note_operand(value)
        note_printed(value)
        return f"%{flags}{width or ''}{'' if precision is None else '.' + precision}{letter}" % (value,)
    if not is_text and (value.shape or letter not in "diueEfFgGxXo" or (letter in "diuxXo" and precision)):
        raise StagingError(
            f"`{field[0]}` of {template!r} cannot format a staged value of type {value.type}",
            where=here(),
            hint='write an f-string: f"{x:.3f}"',
        )
    if letter in "diu" and value.dtype.is_float:
        value = call(int, value)
    align = "<" if "-" in flags else ">" if width and (is_text or "0" not in flags) else ""
    sign = "" if is_text else "+" if "+" in flags else " " if " " in flags else ""
    spec = sign + "#" * ("#" in flags and not is_text) + "0" * ("0" in flags and not align) + (width or "")
    spec = f"{align}{spec}" if precision is None else f"{align}{spec}.{precision or 0}"
    conversion = letter if is_text and (spec or letter != "s") else ""
    return value, conversion, spec + _TYPES.get(letter, letter)
