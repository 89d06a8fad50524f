"""Files of arrays: the table of what a program saves, with equal rows in loops, and the tree in short.

Tested by `tests/backends/host/test_saved.py`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from staged.backends.host.messages import Values, path_text
from staged.code.expr import Expr, Index, Infix, Items, Literal, Member, Name, Prefix, Variable, call
from staged.code.rebuild import rebuilt
from staged.code.tree import Assign, CodeBuilder, DeclareTable, Jump
from staged.code.types import INDEX, CType, scalar, word
from staged.code.writer import c_string
from staged.ir.nodes import Op, Value
from staged.ir.storage import is_tensor
from staged.passes.rolling.repeats import repeats

_NUMBER = re.compile(r"(?<![0-9])(?:0|[1-9][0-9]{0,8})(?![0-9])")
_FEWEST = 3
"""So many rows become a loop."""
_COLUMNS = 96
"""Of a line of the tree."""


def emit_save(code: CodeBuilder, op: Op, text: Values, site: int, fresh: Callable[[str], str]) -> tuple[str, ...]:
    """Write the arrays of a `save` to a file; returns the support snippets that it needs.

    `fresh` creates names of locals.
    """
    first = len(op.operands) - len(op.attrs["arrays"])
    values, arrays = op.operands[:first], op.operands[first:]
    shapes = dict(op.attrs.get("pieces", ()))
    """Of the arrays in pieces, by number."""
    with code.block():
        numbers = _Numbers(text, fresh)
        rows = [
            _Row(name, dtype, numbers.address(value), tuple(map(text.extent, shapes.get(number, value.tensor.shape))))
            for number, ((name, dtype), value) in enumerate(zip(op.attrs["arrays"], arrays, strict=True))
        ]
        numbers.declare(code)
        whole = [row for number, row in enumerate(rows) if number not in shapes]
        saved = _table(code, whole, fresh)
        tree: Expr = Name("NULL")
        parts = _parts(json.loads(op.attrs["tree"])) if op.attrs["tree"] else []
        if parts:
            tree = Variable(fresh("tree"), word("st_saved_part"))
            code.add(DeclareTable(tree, tuple(map(_part_row, parts))))
        path, needs = path_text(code, op.attrs["parts"], values, text)
        failed = call("st_save", "host", site, path, tree, len(parts), saved, len(rows))
        if shapes:
            pieces = _table(code, [rows[number] for number in shapes], fresh)
            given = (saved, len(whole), pieces, len(shapes))
            failed = call("st_save_pieces", "host", site, path, tree, len(parts), *given)
        with code.branch(Infix("!=", failed, Name("ST_OK"))):
            code.add(Jump("return", value=Member(Name("host"), "error_kind")))
    return (*needs, "save_pieces" if shapes else "save")


class _Numbers:
    """The addresses of numbers: values without an address become elements of an array of their dtype."""

    def __init__(self, text: Values, fresh: Callable[[str], str]) -> None:
        self.text = text
        self.fresh = fresh
        self.arrays: dict[CType, tuple[Variable, list[Expr]]] = {}

    def address(self, value: Value) -> Expr:
        """The address of a value."""
        found = self.text.operand(value)
        if is_tensor(value):
            return found
        type = scalar(value.tensor.dtype)
        if isinstance(found, Variable) and found.type == type:
            return Prefix("&", found)
        if type not in self.arrays:
            self.arrays[type] = Variable(self.fresh(f"numbers_{value.tensor.dtype}"), type), []
        array, elements = self.arrays[type]
        if found not in elements:
            elements.append(found)
        return Prefix("&", Index(array, Literal(str(elements.index(found)))))

    def declare(self, code: CodeBuilder) -> None:
        for array, elements in self.arrays.values():
            code.add(DeclareTable(array, tuple(elements), is_flat=True))


# ---- the table ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Row:
    """A saved array: a row of the table."""

    name: str
    dtype: str
    place: Expr
    shape: tuple[Expr, ...]


@dataclass(frozen=True)
class _Line:
    """Rows that differ in numbers alone: in row k each number is `first + k * step`."""

    row: _Row
    count: int
    numbers: tuple[tuple[int, int], ...]
    """For each number of the row, (first, step): the numbers of the name come before those of `place`."""


def _table(code: CodeBuilder, arrays: Sequence[_Row], fresh: Callable[[str], str]) -> Expr:
    """Write the table: rows one by one, then loops that write equal ones."""
    if not arrays:
        return Name("NULL")
    lines = _lines(arrays)
    single = [line for line in lines if line.count == 1]
    saved = Variable(fresh("saved"), word("st_saved"))
    zero = Literal("0")
    code.add(DeclareTable(saved, tuple(_items(line, zero) for line in single) or (Items((zero,)),), size=len(arrays)))
    place = len(single)
    for count in dict.fromkeys(line.count for line in lines if line.count > 1):
        index = Variable(fresh("k"), INDEX)
        rows = [_items(line, index) for line in lines if line.count == count]
        with code.loop(index, zero, Literal(str(count))):
            target = Index(saved, _affine(place, len(rows), index))
            if len(rows) == 1:
                code.add(Assign(target, replace(rows[0], type="st_saved")))
            else:
                equal = Variable(fresh("rows"), word("st_saved"))
                code.add(DeclareTable(equal, tuple(rows)))
                code.do("memcpy", Prefix("&", target), equal, Prefix("sizeof ", equal))
        place += count * len(rows)
    return saved


def _lines(rows: Sequence[_Row]) -> list[_Line]:
    """The rows, equal ones in one line."""
    groups: dict[Hashable, list[tuple[tuple[int, ...], _Row]]] = {}
    for row in rows:
        shape, numbers = _shape(row.place)
        key = _NUMBER.sub("0", row.name), row.dtype, shape, row.shape
        in_name = tuple(map(int, _NUMBER.findall(row.name)))
        groups.setdefault(key, []).append(((*in_name, *numbers), row))
    lines: list[_Line] = []
    for group in groups.values():
        group.sort(key=lambda each: each[0])
        first = 0
        while first < len(group):
            found = _run([numbers for numbers, _ in group[first:]])
            row = group[first][1]
            steps = [step for _, step in found[1][: len(_NUMBER.findall(row.name))] if step]
            is_one = len(steps) == 1  # a name has one number that differs
            count = found[0] if found[0] >= _FEWEST and is_one else 1
            lines.append(_Line(row, count, found[1] if count > 1 else tuple((n, 0) for n in group[first][0])))
            first += count
    return lines


def _run(numbers: Sequence[tuple[int, ...]]) -> tuple[int, tuple[tuple[int, int], ...]]:
    """The count of first rows whose numbers are one, two, three ... steps apart, and the first one with the step."""
    if len(numbers) < 2:
        return 1, ()
    steps = [later - number for number, later in zip(numbers[0], numbers[1], strict=True)]
    count = 1
    while count < len(numbers) and numbers[count] == tuple(
        number + count * step for number, step in zip(numbers[0], steps, strict=True)
    ):
        count += 1
    return count, tuple(zip(numbers[0], steps, strict=True))


def _items(line: _Line, index: Expr) -> Items:
    """The row of the table, or that of a loop over `index`."""
    row, numbers = line.row, iter(line.numbers)
    pieces, ends = _NUMBER.findall(row.name), _NUMBER.split(row.name)
    name, number = _escaped(_quoted(ends[0])), index
    for text, after in zip(pieces, ends[1:], strict=True):
        first, step = next(numbers)
        name += ("%d" if step else text) + _escaped(_quoted(after))
        number = _affine(first, step, index) if step else number
    place = _rebuilt(row.place, lambda: _affine(*next(numbers), index))
    shape = Items(row.shape or (Literal("0"),))
    rank = Literal(str(len(row.shape)))
    return Items((Literal(c_string(name)), number, Literal(c_string(row.dtype)), place, rank, shape))


def _affine(first: int, step: int, index: Expr) -> Expr:
    """`first + step * index`."""
    if not step:
        return Literal(str(first))
    scaled = index if step == 1 else Infix("*", Literal(str(step)), index)
    return Infix("+", Literal(str(first)), scaled) if first else scaled


def _is_number(expr: Expr) -> bool:
    return isinstance(expr, Literal) and _NUMBER.fullmatch(expr.text) is not None


def _shape(expr: Any) -> tuple[Hashable, list[int]]:
    """An expression without its numbers, and these."""
    if isinstance(expr, Variable) or not isinstance(expr, Expr | tuple):
        return expr, []
    if isinstance(expr, Literal) and _is_number(expr):
        return Literal, [int(expr.text)]
    node: Any = expr
    parts = node if isinstance(node, tuple) else tuple([getattr(node, each.name) for each in fields(node)])
    shapes, numbers = zip(*map(_shape, parts), strict=True) if parts else ((), ())
    return (type(expr), shapes), [number for each in numbers for number in each]


def _rebuilt(expr: Any, number: Callable[[], Expr]) -> Any:
    """An expression with other numbers."""
    if isinstance(expr, Variable):
        return expr
    return number() if _is_number(expr) else rebuilt(expr, lambda part: _rebuilt(part, number))


# ---- the tree -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """A piece of the tree: `count` times, with the numbers from `first` on for "%d"."""

    text: str
    first: int = 0
    count: int = 1


def _parts(node: Any) -> list[_Part]:
    """The text of a tree, in parts."""
    writer = _TreeWriter()
    writer.node(node, "")
    return writer.parts


class _TreeWriter:
    """Writes a tree as `st_saved_put` reads it."""

    def __init__(self, path: str = "", has_loops: bool = True) -> None:
        self.parts: list[_Part] = []
        self.path = path
        """The path that was set last."""
        self.has_loops = has_loops

    def add(self, text: str) -> None:
        """Add to the last part; another part begins without a path."""
        if self.parts and self.parts[-1].count == 1:
            self.parts[-1] = _Part(self.parts[-1].text + text)
        else:
            self.path = self.path if not self.parts else ""
            self.parts.append(_Part(text))

    def node(self, node: Any, path: str) -> None:
        """A node whose leaves have names that begin with `path`."""
        kind = next((key for key in ("dict", "list", "tuple") if isinstance(node, dict) and key in node), None)
        if kind is None:
            self.add(_escaped(_text(node)))
            return
        self.add(f"{{'{kind}':[")
        rows = node[kind] if kind == "dict" else [(None, item) for item in node[kind]]
        repeated = self.repeats(rows, path)
        place = 0
        while place < len(rows):
            if place in repeated:
                count, part = repeated[place]
                self.parts.append(part)
                place += count
            else:
                self.row(rows, place, path)
                place += 1
        self.add("]}")

    def row(self, rows: Sequence[Any], place: int, path: str) -> None:
        """A row of a dict, or an item of a list."""
        key, node = rows[place]
        self.add("," if place else "")
        if key is None:
            self.node(node, f"{path}{place}.")
        elif _mark(key, node, path):
            if self.path != path:
                self.add(f"~{_escaped(_text(path)[1:-1])};")
                self.path = path
            self.add(f"{_mark(key, node, path)}{_escaped(_text(key)[1:-1])};")
        else:
            self.add(f"[{_escaped(_text(key))},")
            self.node(node, f"{path}{key}.")
            self.add("]")

    def repeats(self, rows: Sequence[Any], path: str) -> dict[int, tuple[int, _Part]]:
        """By place of its first row, a part for equal rows, and the number of these."""
        found: dict[int, tuple[int, _Part]] = {}
        if not self.has_loops or len(rows) < _FEWEST:
            return found
        shapes: dict[str, int] = {}
        texts = [self.together(rows, [place], path) for place in range(len(rows))]
        keys = [shapes.setdefault(_NUMBER.sub("0", text), len(shapes)) for text in texts]
        for repeat in repeats(keys, list(map(len, texts))):
            # The first row of all has no comma before it.
            first = repeat.start + (repeat.period if repeat.start == 0 else 0)
            places = range(first, repeat.start + repeat.count * repeat.period)
            units = [places[begin : begin + repeat.period] for begin in range(0, len(places), repeat.period)]
            part = _repeated([self.together(rows, unit, path) for unit in units])
            if part is not None:
                found[first] = len(places), part
        return found

    def together(self, rows: Sequence[Any], places: Sequence[int], path: str) -> str:
        """The text of some rows alone."""
        writer = _TreeWriter(has_loops=False)
        for place in places:
            writer.row(rows, place, path)
        return "".join(part.text for part in writer.parts)


def _mark(key: Any, node: Any, path: str) -> str:
    """The mark of a row whose leaf is called after the path and the key; empty if it is another row."""
    if not isinstance(key, str) or not isinstance(node, dict) or ";" in path + key:
        return ""
    return "@" if node == {"array": path + key} else "#" if node == {"number": path + key} else ""


def _repeated(units: Sequence[str]) -> _Part | None:
    """A part for strings that differ in one number, which counts upwards; None if they do not."""
    if len(units) < _FEWEST:
        return None
    rows = [list(map(int, _NUMBER.findall(unit))) for unit in units]
    varies = [len(set(column)) > 1 for column in zip(*rows, strict=True)]
    columns = {column for column, does in zip(zip(*rows, strict=True), varies, strict=True) if does}
    if len(columns) != 1:
        return None
    numbers = columns.pop()
    if numbers != tuple(range(numbers[0], numbers[0] + len(units))):
        return None
    pieces, ends = _NUMBER.findall(units[0]), _NUMBER.split(units[0])
    words = ["%d" if does else piece for piece, does in zip(pieces, varies, strict=True)]
    return _Part(
        ends[0] + "".join(word + after for word, after in zip(words, ends[1:], strict=True)), numbers[0], len(units)
    )


def _part_row(part: _Part) -> Expr:
    """A row of the table of parts, broken into lines."""
    lines, line = [], ""
    for piece in re.split(r"(?<=[,;])(?!,)", part.text):
        if line and len(line) + len(piece) > _COLUMNS:
            lines.append(line)
            line = ""
        line += piece
    text = "\n    ".join(map(c_string, [*lines, line]))
    return Items((Literal(text), Literal(str(part.first)), Literal(str(part.count))))


def _text(node: Any) -> str:
    return json.dumps(node, separators=(",", ":"))


def _quoted(text: str) -> str:
    """A name as JSON has it, without quotes."""
    return json.dumps(text, ensure_ascii=False)[1:-1]


def _escaped(text: str) -> str:
    """A text as `st_saved_put` reads it."""
    return re.sub(r"[%'@#~]", r"%\g<0>", text).replace('"', "'")
