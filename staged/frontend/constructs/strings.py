"""f-strings with staged parts: text whose numbers are filled in when the program runs."""

from __future__ import annotations

import ast
import dataclasses
import string
from collections.abc import Callable
from types import FunctionType
from typing import Any

from staged.errors import ArgumentError, StagingError, article
from staged.frontend.calls.call import call, method_of
from staged.frontend.constructs.percent import percent_parts
from staged.frontend.syntax.converter import Converter, expression, operator, text
from staged.frontend.syntax.sources import is_convertible
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.values.operands import note_operand, note_printed
from staged.ir.nodes import Value
from staged.ir.sizes import Size
from staged.ops.array import Array, StagedArray
from staged.ops.formatting import parse_spec
from staged.ops.promote import as_array
from staged.source import here

Part = str | tuple[StagedArray, str, str]
"""Text, or a staged value with its format spec and conversion ('', 'r' or 's')."""


@expression(ast.JoinedStr)
def convert_fstring(converter: Converter, node: ast.JoinedStr) -> ast.expr:
    parts: list[ast.expr] = []
    for value in node.values:
        if isinstance(value, ast.FormattedValue):
            spec = text("") if value.format_spec is None else converter.expr(value.format_spec)
            conversion = "" if value.conversion == -1 else chr(value.conversion)
            parts.append(
                ast.copy_location(ast.Tuple([converter.expr(value.value), text(conversion), spec], ast.Load()), value)
            )
        else:
            parts.append(value)
    return converter.call("fstring", *parts)


class StagedString:
    """A string with staged parts: usable in `print`, `assert`, `raise`, and joined with `+`."""

    __staged_of_trace__ = True

    def __init__(self, parts: list[Part]) -> None:
        self.parts: list[Part] = []
        for part in parts:
            if isinstance(part, str) and self.parts and isinstance(self.parts[-1], str):
                self.parts[-1] += part
            elif part != "":
                self.parts.append(part)

    def __add__(self, other: Any) -> StagedString:
        return StagedString([*self.parts, *parts_of(other)])

    def __radd__(self, other: Any) -> StagedString:
        return StagedString([*parts_of(other), *self.parts])

    def __str__(self) -> str:
        raise StagingError(
            "this text has staged parts, it exists only when the program runs",
            where=here(),
            hint="use it in `print(...)`, `assert` or `raise`",
        )

    def __format__(self, spec: str) -> str:
        return str(self)

    def __bool__(self) -> bool:
        return True  # each staged part has at least one character

    def __getattr__(self, name: str) -> Any:
        if hasattr(str, name) and not name.startswith("__"):
            raise _unknown(f"`{name}`")
        raise AttributeError(f"a string with staged parts does not have {name!r}")


def _unknown(use: str) -> StagingError:
    return StagingError(
        f"{use} needs the characters of a string with staged parts, which are known only when the program runs",
        where=here(),
        hint="use the values: `len(x)`, `x == 1`; or return them, and format them in plain Python",
    )


_USES = {
    "`len`": ("__len__",),
    "`in`": ("__contains__",),
    "an index": ("__getitem__",),
    "iteration": ("__iter__",),
    "a comparison": ("__eq__", "__ne__", "__lt__", "__le__", "__gt__", "__ge__"),
    "`*`": ("__mul__", "__rmul__"),
    "`int`": ("__int__", "__index__"),
    "`float`": ("__float__",),
    "a key of a dict": ("__hash__",),
}


def _reject_uses() -> None:
    for use, names in _USES.items():

        def rejected(self: StagedString, *_: Any, use: str = use) -> Any:
            raise _unknown(use)

        for name in names:
            setattr(StagedString, name, rejected)


_reject_uses()


@operator
def fstring(*parts: Any) -> Any:
    """An f-string: a Python string, or a StagedString where some part is staged."""
    out: list[Part] = []
    for part in parts:
        if isinstance(part, str):
            out.append(part)
            continue
        value, conversion, spec = part
        out += format_parts(value, conversion, spec)
    if all(isinstance(part, str) for part in out):
        return "".join(part for part in out if isinstance(part, str))
    return StagedString(out)


def format_parts(value: Any, conversion: str, spec: Any) -> list[Part]:
    """The parts of one formatted value."""
    if not isinstance(spec, str):
        raise StagingError("a format specification must be static text", where=here())
    trace = current_trace()
    if trace is not None:
        value = trace.read(value) if isinstance(value, Array) else value
        value = as_array(value) if isinstance(value, Size) else value
    if isinstance(value, StagedArray):
        check_spec(value, spec, conversion)
        return [(value, spec, "" if conversion == "" else conversion)]
    if isinstance(value, StagedString):
        if spec or conversion:
            raise StagingError("a text with staged parts takes no format specification", where=here())
        return value.parts
    note_operand(value)
    note_printed(value)
    written = _written_by(value, conversion) if trace is not None else None
    if written is not None:
        if written.__name__ == "__format__":
            return parts_of(call(written, value, spec))
        return format_parts(call(written, value), "", spec)
    if _holds_staged(value):
        if spec:
            raise StagingError(f"{article(type(value).__name__)} takes no format specification", where=here())
        return nested_parts(value)
    converters: dict[str, Callable[[Any], Any]] = {"r": repr, "s": str, "a": ascii}
    converted = converters[conversion](value) if conversion else value
    return [format(converted, spec)]


def _written_by(value: Any, conversion: str) -> FunctionType | None:
    """The method of the user's class that makes its text, which may have staged parts; None where Python's own does."""
    names = {"r": ("__repr__",), "a": (), "s": ("__str__", "__repr__")}.get(
        conversion, ("__format__", "__str__", "__repr__")
    )
    for name in names:
        method = getattr(type(value), name, None)
        if isinstance(method, FunctionType):
            is_converted = getattr(method, "__staged_converted__", False)
            if is_converted or is_convertible(method):
                return method
        if name != "__format__" and method is not getattr(object, name):
            return None
    return None


def check_spec(value: StagedArray, spec: str, conversion: str) -> None:
    """Refuse now what the program's formatter does not write (a spec on an array is for its elements)."""
    parse_spec(spec, value.dtype.kind, conversion)


def parts_of(value: Any) -> list[Part]:
    """`value` as `str(value)` would print it."""
    return format_parts(value, "s" if _written_by(value, "s") is not None else "", "")


def nested_parts(value: Any) -> list[Part]:
    """A list, tuple or dict with staged elements, as Python prints it."""
    out: list[Part] = []
    if isinstance(value, dict):
        for index, (key, item) in enumerate(value.items()):
            out += [", " if index else "{", repr(key), ": ", *_element(item)]
        return [*out, "}"] if value else ["{}"]
    fields = _fields(value)
    if fields is not None:
        out.append(f"{type(value).__qualname__}(")
        for index, name in enumerate(fields):
            out += [", " if index else "", f"{name}=", *_element(getattr(value, name))]
        return [*out, ")"]
    opening, closing = ("[", "]") if isinstance(value, list) else ("(", ")")
    out.append(opening)
    for index, item in enumerate(value):
        out += [", " if index else "", *_element(item)]
    return [*out, "," if isinstance(value, tuple) and len(value) == 1 else "", closing]


def _element(item: Any) -> list[Part]:
    if isinstance(item, list | tuple | dict) or (_holds_staged(item) and _fields(item) is not None):
        return nested_parts(item)
    return format_parts(item, "r", "")


def _fields(value: Any) -> tuple[str, ...] | None:
    """The fields that the `repr` made by `dataclass` or `NamedTuple` shows; None for anything else."""
    if isinstance(value, tuple):
        return getattr(type(value), "_fields", None)
    if not dataclasses.is_dataclass(value) or isinstance(value, type) or _written_by(value, "r") is not None:
        return None
    return tuple(field.name for field in dataclasses.fields(value) if field.repr)


def _holds_staged(value: Any) -> bool:
    if (fields := _fields(value)) is not None and not isinstance(value, tuple):
        return any(_holds_staged(getattr(value, name)) for name in fields)
    if isinstance(value, dict):
        return any(_holds_staged(item) for item in value.values())
    if isinstance(value, list | tuple):
        return any(_holds_staged(item) for item in value)
    return isinstance(value, StagedArray | StagedString) or (
        current_trace() is not None and (hasattr(type(value), "__staged_read__") or _written_by(value, "r") is not None)
    )


@method_of(str, "format")
def format_string(template: str, *arguments: Any, **named: Any) -> Any:
    """`template.format(...)`."""
    if not _holds_staged([*arguments, *named.values()]):
        return NotImplemented
    out: list[Any] = []
    automatic = 0
    for literal, field, spec, conversion in string.Formatter().parse(template):
        out.append(literal)
        if field is None:
            continue
        if field == "":
            field, automatic = str(automatic), automatic + 1
        value, _ = string.Formatter().get_field(field, arguments, named)
        out.append((value, conversion or "", fstring_of_spec(spec or "", arguments, named)))
    return fstring(*out)


@method_of(str, "join")
def join_strings(separator: str, items: Any) -> Any:
    """`separator.join(items)`."""
    if not _holds_staged([items]):
        return NotImplemented
    made = StagedString([])
    for index, item in enumerate(items):
        made = made + (separator if index else "") + item
    return made


def fstring_of_spec(spec: str, arguments: tuple[Any, ...], named: dict[str, Any]) -> str:
    """A format specification with its own fields filled in."""
    return spec.format(*arguments, **named) if "{" in spec else spec


@operator
def modulo(left: Any, right: Any) -> Any:
    """`left % right`: a remainder, or a template with its values."""
    return fstring(*percent_parts(left, right)) if isinstance(left, str) and _holds_staged(right) else left % right


def encode(trace: TraceContext, parts: list[Part]) -> tuple[list[Value], tuple[Any, ...]]:
    """Parts as operands and the attribute that places them: text, or (operand, spec, conversion)."""
    operands: list[Value] = []
    attr: list[Any] = []
    for part in parts:
        if isinstance(part, str):
            check_unicode(part)
            if attr and isinstance(attr[-1], str):
                attr[-1] += part
            elif part:
                attr.append(part)
        else:
            value, spec, conversion = part
            attr.append((len(operands), spec, conversion))
            operands.append(trace.value_of(value))
    return operands, tuple(attr)


def check_unicode(text: str) -> None:
    """Check that UTF-8 can represent a string of the program."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ArgumentError(
            f"text must be valid Unicode, got {text!r} with half of a surrogate pair at index {error.start}",
            where=here(),
            hint='replace the character: `text.encode(errors="replace").decode()`',
        ) from None


def message_parts(message: Any) -> list[Part]:
    """The parts of an assertion's or exception's message."""
    if message is None:
        return []
    if isinstance(message, str):
        return [message]
    if isinstance(message, Array):
        return parts_of(message)
    made = fstring((message, "", ""))
    return [made] if isinstance(made, str) else list(made.parts)
