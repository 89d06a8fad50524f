"""Loop nests as text, for people: the computation of a kernel, without its schedule.

nest softmax(x: f32[640]) -> y: f32[640]
  for i < 64:
    total = 0.0
    for j < 10:
      a = x[10*i + j]
      e = exp(a)
      total = sum(total, e)
"""

from __future__ import annotations

from collections.abc import Iterable

from staged.ir.loops import (
    Accumulate,
    Address,
    Affine,
    ArrayRef,
    Axis,
    Begin,
    Bound,
    CallSupport,
    CheckIndex,
    Compute,
    Constant,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Merge,
    Nest,
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    StorePair,
    Take,
    Tile,
    identity,
)
from staged.ir.sizes import Extent, Polynomial, Size, at_bounds


def print_nest(nest: Nest) -> str:
    """The whole nest; names that occur twice are numbered."""
    return _Printer().nest(nest)


class _Printer:
    """The lines of one nest, and the names in it."""

    def __init__(self) -> None:
        self.names: dict[Axis | Local | ArrayRef, str] = {}
        self.used: dict[str, int] = {}
        self.lines: list[str] = []

    def name(self, thing: Axis | Local | ArrayRef) -> str:
        if thing not in self.names:
            count = self.used[thing.name] = self.used.get(thing.name, 0) + 1
            self.names[thing] = thing.name if count == 1 else f"{thing.name}_{count}"
        return self.names[thing]

    def nest(self, nest: Nest) -> str:
        inputs = ", ".join(map(self.parameter, nest.inputs))
        outputs = ", ".join(map(self.parameter, nest.outputs))
        scratch = f", scratch {', '.join(map(self.parameter, nest.scratch))}" if nest.scratch else ""
        self.lines.append(f"nest {nest.name}({inputs}) -> {outputs}{scratch}")
        self.body(nest.body, 1)
        return "\n".join(self.lines) + "\n"

    def parameter(self, parameter: ArrayRef | Local) -> str:
        size = f"[{parameter.size}]" if isinstance(parameter, ArrayRef) else ""
        return f"{self.name(parameter)}: {parameter.dtype}{size}"

    def body(self, statements: Iterable[Statement], depth: int) -> None:
        for statement in statements:
            self.statement(statement, depth)

    def statement(self, statement: Statement, depth: int) -> None:
        match statement:
            case Loop(axis, body, reductions):
                self.begin(reductions, depth)
                self.line(depth, f"for {self.axis(axis)}:")
                self.body(body, depth + 1)
            case Tile(axis, size, body, reductions):
                self.begin(reductions, depth)
                self.line(depth, f"for pieces of {size} of {self.axis(axis)}:")
                self.body(body, depth + 1)
            case Guarded(bounds, body):
                self.line(depth, f"where {self.bounds(bounds)}:")
                self.body(body, depth + 1)
            case Begin(fold):
                self.merge(fold.merge, depth)
                self.line(depth, self.simple(statement))
            case _:
                self.line(depth, self.simple(statement))

    def begin(self, reductions: Iterable[Reduction], depth: int) -> None:
        for reduction in reductions:
            first = identity(reduction.op, reduction.target.dtype)
            value = "nothing" if reduction.op.is_position else repr(first.value)
            self.line(depth, f"{self.name(reduction.target)} = {value}")

    def line(self, depth: int, text: str) -> None:
        self.lines.append("  " * depth + text)

    def simple(self, statement: Statement) -> str:
        """A statement without a body."""
        match statement:
            case Load(target, array, index, guards, fill):
                otherwise = f" if {self.bounds(guards)} else {self.operand(fill)}" if guards and fill else ""
                return f"{self.name(target)} = {self.element(array, index)}{otherwise}"
            case LoadPair(first, second, array, index):
                pair = f"{self.element(array, index)}, {self.element(array, index + 1)}"
                return f"{self.name(first)}, {self.name(second)} = {pair}"
            case Compute(target, op, operands, attrs):
                words = [*map(self.operand, operands), *(f"{key}={value}" for key, value in sorted(attrs.items()))]
                return f"{self.name(target)} = {op.name}({', '.join(words)})"
            case PositionOf(target, index):
                return f"{self.name(target)} = {self.affine(index)}"
            case CheckIndex(target, index, extent, _, meaning):
                return f"{self.name(target)} = check_{meaning}({self.operand(index)}, {extent})"
            case Store(array, index, value, atomic):
                sign = "+=" if atomic else "="
                return f"{self.element(array, index)} {sign} {self.operand(value)}"
            case StorePair(array, index, first, second):
                pair = f"{self.element(array, index)}, {self.element(array, index + 1)}"
                return f"{pair} = {self.operand(first)}, {self.operand(second)}"
            case Accumulate(reduction, value, position):
                at = "" if position is None else f" at {self.affine(position)}"
                total = self.name(reduction.target)
                return f"{total} = {reduction.op.name}({total}, {self.operand(value)}{at})"
            case Begin(fold):
                return f"{self.names_of(fold.state)} = {', '.join(repr(start.value) for start in fold.starts)}"
            case Take(fold, values):
                state = self.names_of(fold.state)
                return f"{state} = merge(({state}), ({', '.join(map(self.operand, values))}))"
            case Copy(target, source):
                return f"{self.name(target)} = {'zeros' if source is None else self.name(source)}"
            case CallSupport(function, _, arguments):
                return f"{function}({', '.join(map(self.argument, arguments))})"
        raise AssertionError(f"no way to print {statement!r}")

    def merge(self, merge: Merge, depth: int) -> None:
        """The rule of the folds that follow."""
        self.line(depth, f"merge(({self.names_of(merge.left)}), ({self.names_of(merge.right)})):")
        self.body(merge.body, depth + 1)
        self.line(depth + 1, f"return {', '.join(map(self.operand, merge.results))}")

    def names_of(self, locals: Iterable[Local]) -> str:
        return ", ".join(map(self.name, locals))

    def axis(self, axis: Axis) -> str:
        return f"{self.name(axis)} < {axis.size}"

    def argument(self, argument: ArrayRef | Address | Operand | Size | None) -> str:
        match argument:
            case None:
                return "none"
            case ArrayRef():
                return self.name(argument)
            case Address(array, index):
                return f"&{self.element(array, index)}"
            case Size():
                return str(argument)
        return self.operand(argument)

    def operand(self, operand: Operand) -> str:
        return repr(operand.value) if isinstance(operand, Constant) else self.name(operand)

    def element(self, array: ArrayRef, index: Affine) -> str:
        return f"{self.name(array)}[{self.affine(index)}]"

    def bounds(self, bounds: Iterable[Bound]) -> str:
        return " and ".join(f"0 <= {self.affine(bound.index)} < {bound.extent}" for bound in bounds)

    def affine(self, index: Affine) -> str:
        text = ""
        for thing, stride in index.terms:
            is_negative = at_bounds(stride) < 0
            sign = ("-" if is_negative else "") if not text else " - " if is_negative else " + "
            text += sign + _factor(-stride if is_negative else stride) + self.name(thing)
        if not text:
            return str(index.offset)
        is_negative = at_bounds(index.offset) < 0
        end = f" - {-index.offset}" if is_negative else f" + {index.offset}"
        return text + end if index.offset != 0 else text


def _factor(stride: Extent) -> str:
    """A stride before what it multiplies."""
    if isinstance(stride, int):
        return f"{stride}*" if stride != 1 else ""
    return f"({stride})*" if isinstance(stride, Polynomial) else f"{stride}*"
