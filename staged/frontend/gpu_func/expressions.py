"""Expressions of a kernel: what is known while staging is computed now, the rest becomes typed expressions."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Sequence
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np

from staged.errors import DTypeError, StaticIndexError, UnboundNameError, article
from staged.frontend.constructs import math_
from staged.frontend.gpu_func import names
from staged.frontend.gpu_func.arithmetic import apply, as_expression, is_expression, is_number
from staged.frontend.gpu_func.ranges import Facts
from staged.frontend.gpu_func.source import Source
from staged.ir.thread_kernel import (
    AXES,
    INDEX,
    WARP,
    Atomic,
    Builtin,
    Const,
    Element,
    Expression,
    Extent,
    Local,
    Memory,
    Parameter,
    Shuffle,
    ShuffleKind,
    walk,
)
from staged.ir.thread_kernel import Argument as ArgumentNode
from staged.ir.types import DType, TensorType, bool_, dtype_of, f64, i64
from staged.ops.array import METHODS, functions
from staged.ops.promote import cast

_BINARY: dict[type[ast.operator], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Add: ("add", operator.add), ast.Sub: ("subtract", operator.sub), ast.Mult: ("multiply", operator.mul),
    ast.Div: ("divide", operator.truediv), ast.FloorDiv: ("floor_divide", operator.floordiv),
    ast.Mod: ("remainder", operator.mod), ast.Pow: ("pow", operator.pow),
    ast.BitAnd: ("bitwise_and", operator.and_), ast.BitOr: ("bitwise_or", operator.or_),
    ast.BitXor: ("bitwise_xor", operator.xor), ast.LShift: ("bitwise_left_shift", operator.lshift),
    ast.RShift: ("bitwise_right_shift", operator.rshift),
}  # fmt: skip
"""Python's operators: the op of each, and what Python does with numbers that are known."""
_COMPARISONS: dict[type[ast.cmpop], tuple[str, Callable[[Any, Any], Any]]] = {
    ast.Eq: ("equal", operator.eq), ast.NotEq: ("not_equal", operator.ne), ast.Lt: ("less", operator.lt),
    ast.LtE: ("less_equal", operator.le), ast.Gt: ("greater", operator.gt), ast.GtE: ("greater_equal", operator.ge),
}  # fmt: skip
"""The same of Python's comparisons."""
_UNARY: dict[type[ast.unaryop], tuple[str, Callable[[Any], Any]]] = {
    ast.USub: ("negative", operator.neg), ast.Invert: ("bitwise_invert", operator.invert),
}  # fmt: skip
_SHUFFLES: dict[Any, ShuffleKind] = {
    names.shuffle: "idx", names.shuffle_up: "up", names.shuffle_down: "down", names.shuffle_xor: "xor"}  # fmt: skip
_ATOMICS = {names.atomic_add: "add", names.atomic_min: "min", names.atomic_max: "max"}
_ATOMIC_DTYPES = {"add": "i32 i64 u32 f32 f64".split(), "min": "i32 i64 u32".split(), "max": "i32 i64 u32".split()}
_NUMBERS = "a kernel works with numbers, and with elements of arrays"


class Expressions:
    """Translates expressions at a point of the kernel, where `assigned` is bound and `facts` hold."""

    def __init__(
        self, source: Source, parameters: Sequence[Parameter], block: tuple[int, int, int], checked: bool
    ) -> None:
        self.source = source
        self.checked = checked
        self.block = block
        self.parameters = {parameter.name: parameter for parameter in parameters}
        self.types: dict[str, TensorType] = {}
        """The types of the variables, as far as they are known."""
        self.static: dict[str, Any] = {}
        """Variables that only ever are one thing that is known while staging, or an array of the kernel."""
        self.assigned: set[str] | None = set()
        """The variables that are bound here; None where nothing can be."""
        self.facts = Facts(block, {})
        self.memories: dict[str, Memory] = {}
        self.written: set[str] = set()

    # ---- values ----

    def evaluate(self, node: ast.expr) -> Any:
        """A number, dtype, tuple, function or module that is known now; an array of the kernel; or an expression."""
        match node:
            case ast.Constant(value=bool() | int() | float() as value):
                return value
            case ast.Name():
                return self.name(node)
            case ast.Tuple(elts=items):
                return tuple(map(self.evaluate, items))
            case ast.Attribute():
                return self.attribute(node)
            case ast.Subscript():
                return self.subscript(node)
            case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
                method, static = _BINARY[type(op)]
                return self.operate(node, method, static, self.evaluate(left), self.evaluate(right))
            case ast.UnaryOp(op=ast.UAdd(), operand=operand):
                return self.number(operand)
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                return self.opposite(node, self.condition(operand))
            case ast.UnaryOp(op=op, operand=operand) if type(op) in _UNARY:
                method, negate = _UNARY[type(op)]
                return self.operate(node, method, negate, self.evaluate(operand))
            case ast.BoolOp():
                return self.boolean(node)
            case ast.Compare():
                return self.comparison(node)
            case ast.IfExp(test=test, body=body, orelse=other):
                condition = self.condition(test)
                if isinstance(condition, bool):
                    return self.evaluate(body if condition else other)
                return self.operate(
                    node,
                    "where",
                    None,
                    condition,
                    self.under(condition, True, body),
                    self.under(condition, False, other),
                )
            case ast.Call():
                return self.call(node)
        what = "a text" if isinstance(node, ast.Constant | ast.JoinedStr) else f"`{ast.unparse(node)}`"
        self.source.refuse(node, f"{what} in a kernel", _NUMBERS)

    def number(self, node: ast.expr) -> Any:
        """A number that is known, or an expression."""
        value = self.evaluate(node)
        self.check_number(node, value)
        return value

    def check_number(self, node: ast.AST, value: Any) -> None:
        if is_expression(value) or is_number(value):
            return
        if isinstance(value, Parameter | Memory):
            self.source.refuse(
                node, f"`{value.name}` is an array, and a number is needed here", f"read an element: `{value.name}[i]`"
            )
        kind = type(value).__name__
        hint = (
            "pass it as an argument"
            if hasattr(type(value), "__array__") or hasattr(type(value), "__staged_read__")
            else _NUMBERS
        )
        self.source.refuse(node, f"`{_text(node)}` is {article(kind)} from outside of the kernel", hint)

    def integer(self, node: ast.expr) -> Expression:
        """An integer expression, for an index, a bound of a range, a lane."""
        value = as_expression(self.number(node))
        if not value.type.dtype.is_integer:
            self.source.refuse(
                node,
                f"`{_text(node)}` is {value.type.dtype}, and an integer is needed here",
                "`int(...)` drops the fraction",
            )
        if value.type == INDEX:
            return value
        where = self.source.where(node)
        return apply(lambda x: cast(x, i64, True), [value], self.facts, where)

    def condition(self, node: ast.expr) -> Any:
        """A bool that is known, or an expression of one."""
        value = self.number(node)
        if not is_expression(value):
            return bool(value)
        if value.type.dtype.is_bool:
            return value
        return self.operate(node, "not_equal", None, value, 0)

    def operate(self, node: ast.AST, method: str, static: Callable[..., Any] | None, *values: Any) -> Any:
        """An op on numbers: now, if all are known."""
        if static is not None and not any(map(is_expression, values)):
            for value in values:
                if not isinstance(value, tuple):
                    self.check_number(node, value)
            try:
                return static(*values)
            except (ArithmeticError, TypeError, ValueError) as error:
                self.source.refuse(node, f"`{_text(node)}`: {error}")
        for value in values:
            self.check_number(node, value)
        return apply(METHODS[method], list(values), self.facts, self.source.where(node))

    def opposite(self, node: ast.AST, value: Any) -> Any:
        return not value if isinstance(value, bool) else self.operate(node, "logical_not", None, value)

    def under(self, condition: Expression, holds: bool, node: ast.expr) -> Any:
        """An expression that is only computed where a condition holds, or does not."""
        mark = self.facts.mark()
        self.facts.learn(condition, holds)
        value = self.number(node)
        self.facts.back(mark)
        return value

    def boolean(self, node: ast.BoolOp) -> Any:
        is_and = isinstance(node.op, ast.And)
        mark = self.facts.mark()
        found: Any = None
        for part in node.values:
            value = self.condition(part)
            if isinstance(value, bool):
                if value != is_and:
                    # Decided; what stood before has no effects but reads.
                    found = value
                    break
                continue
            self.facts.learn(value, is_and)
            method = "logical_and" if is_and else "logical_or"
            found = value if found is None else self.operate(node, method, None, found, value)
        self.facts.back(mark)
        return is_and if found is None else found

    def comparison(self, node: ast.Compare) -> Any:
        found: Any = None
        mark = self.facts.mark()
        values = [self.evaluate(each) for each in (node.left, *node.comparators)]
        for middle in values[1:-1]:
            if is_expression(middle) and any(isinstance(part, Atomic) for part in walk(middle)):
                self.source.refuse(
                    node, "an atomic operation in a chain of comparisons", "give its result a name first"
                )
        for op, left, right in zip(node.ops, values, values[1:], strict=False):
            if type(op) not in _COMPARISONS:
                self.source.refuse(node, f"`{_text(node)}` in a kernel", "`==`, `<` and the like compare numbers")
            method, static = _COMPARISONS[type(op)]
            value = self.operate(node, method, static, left, right)
            if found is None or found is True:
                found = value
            elif value is not True:
                found = False if value is False else self.operate(node, "logical_and", None, found, value)
        self.facts.back(mark)
        return found

    # ---- names ----

    def name(self, node: ast.Name) -> Any:
        name = node.id
        if name in self.parameters:
            parameter = self.parameters[name]
            if parameter.is_array:
                return parameter
            return ArgumentNode(name, TensorType(parameter.dtype, (), parameter.weak))
        if not self.source.assigned[name]:
            return self.source.outside(node)
        if self.assigned is not None and name not in self.assigned:
            raise UnboundNameError(
                f"`{name}` may not be bound here",
                where=self.source.where(node),
                hint=f"give `{name}` a value on every path that leads here",
            )
        return self.static[name] if name in self.static else Local(name, self.types[name])

    def attribute(self, node: ast.Attribute) -> Any:
        base, name = self.evaluate(node.value), node.attr
        if isinstance(base, names.Place):
            if name not in tuple(AXES):
                self.source.refuse(node, f"`{_text(node)}`: a place in the grid has `x`, `y` and `z`")
            return self.place(node, base.name, AXES.index(name))
        if isinstance(base, Parameter | Memory):
            extents = self.extents_of(base)
            found = {"shape": tuple(extents), "ndim": len(extents), "dtype": base.dtype}
            if name == "size":
                size = extents[0]
                for extent in extents[1:]:
                    size = self.operate(node, "multiply", operator.mul, size, extent)
                return size
            if name in found:
                return found[name]
            self.source.refuse(
                node, f"`{_text(node)}` in a kernel", "an array has `shape`, `size`, `ndim`, `dtype` and its elements"
            )
        if isinstance(base, ModuleType) or not is_expression(base):
            try:
                return getattr(base, name)
            except AttributeError as error:
                self.source.refuse(node, str(error))
        if base.type.dtype is not None and name == "dtype":
            return base.type.dtype
        if name == "astype":
            return _Method(functions.astype, base)
        self.source.refuse(node, f"`{_text(node)}` in a kernel", _NUMBERS)

    def place(self, node: ast.AST, name: str, axis: int) -> Expression:
        """The thread's position along an axis."""
        if name == "block_size":
            return Builtin(name, axis)
        if name in ("thread_index", "block_index", "grid_size"):
            return Builtin(name, axis)
        first, size = {"global_index": ("block_index", "block_size"), "global_size": ("grid_size", "block_size")}[name]
        whole: Expression = self.operate(node, "multiply", None, Builtin(first, axis), Builtin(size, axis))
        if name == "global_index":
            whole = self.operate(node, "add", None, whole, Builtin("thread_index", axis))
        return whole

    def lane(self, node: ast.AST) -> Expression:
        """The thread's number in its warp."""
        number: Any = Builtin("thread_index", 2)
        for axis in (1, 0):
            if self.block[axis + 1 :] == (1,) * (2 - axis):
                number = Builtin("thread_index", axis)
                continue
            number = self.operate(node, "multiply", None, number, Builtin("block_size", axis))
            number = self.operate(node, "add", None, number, Builtin("thread_index", axis))
        if self.block[0] * self.block[1] * self.block[2] > WARP:
            number = self.operate(node, "remainder", None, number, WARP)
        lane: Expression = number
        return lane

    def extents_of(self, array: Parameter | Memory) -> list[Any]:
        """The sizes of an array's axes."""
        return list(array.shape) if isinstance(array, Memory) else [Extent(number) for number in array.extents]

    # ---- elements ----

    def subscript(self, node: ast.Subscript) -> Any:
        base = self.evaluate(node.value)
        if isinstance(base, tuple):
            index = self.evaluate(node.slice)
            if not isinstance(index, int) or not -len(base) <= index < len(base):
                self.source.refuse(node, f"`{_text(node)}`: the index of a tuple is known while staging, and in range")
            return base[index]
        if not isinstance(base, Parameter | Memory):
            self.check_number(node.value, base)
            self.source.refuse(node, f"`{_text(node.value)}` is a number, it has no elements")
        return self.element(node, base)

    def element(self, node: ast.Subscript, array: Parameter | Memory) -> Element:
        """An element of an array, whose indices are checked unless they are certainly in range."""
        return self.element_at(
            node, array, list(node.slice.elts) if isinstance(node.slice, ast.Tuple) else [node.slice]
        )

    def element_at(self, node: ast.AST, array: Parameter | Memory, parts: Sequence[ast.expr]) -> Element:
        extents = self.extents_of(array)
        if any(isinstance(part, ast.Slice | ast.Starred) for part in parts):
            self.source.refuse(node, "a slice in a kernel", f"{_NUMBERS}: write a loop")
        if len(parts) != len(extents):
            self.source.refuse(
                node,
                f"`{array.name}` has {len(extents)} {'axis' if len(extents) == 1 else 'axes'}, got {len(parts)} "
                f"{'index' if len(parts) == 1 else 'indices'}",
                f"one index for each axis: `{array.name}[{', '.join('ijkl'[: len(extents)])}]`",
            )
        indices = tuple(map(self.integer, parts))
        for part, index, extent in zip(parts, indices, extents, strict=True):
            if isinstance(index, Const) and (index.value < 0 or isinstance(extent, int) and index.value >= extent):
                where = self.source.where(part)
                if index.value < 0:
                    raise StaticIndexError(
                        "a negative index: indices of a kernel count from 0",
                        where=where,
                        hint=f"`{array.name}[len({array.name}) - 1]` is the last element",
                    )
                raise StaticIndexError(
                    f"index {index.value} is out of range for an axis of {extent} elements", where=where
                )
        checked = tuple(
            self.checked and not self.facts.is_index(index, extent)
            for index, extent in zip(indices, extents, strict=True)
        )
        return Element(array.name, indices, TensorType(array.dtype), checked, self.source.where(node))

    # ---- calls ----

    def call(self, node: ast.Call) -> Any:
        function = self.evaluate(node.func)
        if function is names.lane_index:
            return self.lane(node)
        if function in (names.shared, names.local):
            self.source.refuse(
                node, f"`{_text(node.func)}` makes an array, which needs a name", "`tile = cuda.shared(...)`"
            )
        if function is names.syncthreads:
            self.source.refuse(node, "a barrier is a statement of its own")
        if any(isinstance(argument, ast.Starred) for argument in node.args):
            self.source.refuse(node, "`*` in a call in a kernel", "write the arguments one by one")
        if isinstance(function, FunctionType) and function in _SHUFFLES:
            return self.shuffle(node, _SHUFFLES[function])
        if isinstance(function, FunctionType) and function in _ATOMICS:
            return self.atomic(node, _ATOMICS[function])
        arguments = [self.evaluate(argument) for argument in node.args]
        named = {keyword.arg: self.evaluate(keyword.value) for keyword in node.keywords if keyword.arg is not None}
        return self.call_known(node, function, arguments, named)

    def call_known(self, node: ast.Call, function: Any, arguments: list[Any], named: dict[str, Any]) -> Any:
        """A call of a function from outside: of Python's, of `math`, NumPy or `staged`, on numbers."""
        where = self.source.where(node)
        if function is len and len(arguments) == 1 and isinstance(arguments[0], Parameter | Memory | tuple):
            given = arguments[0]
            return len(given) if isinstance(given, tuple) else self.extents_of(given)[0]
        if isinstance(function, _Method):
            arguments, function = [function.operand, *arguments], function.function
        for argument, value in zip(node.args, arguments[-len(node.args) :], strict=False):
            if not isinstance(value, DType):
                self.check_number(argument, value)
        if not any(map(is_expression, [*arguments, *named.values()])):
            if function in _PYTHON or getattr(function, "__module__", "") == "math":
                return function(*arguments, **named)
        if function in _PYTHON:
            return _PYTHON[function](self, node, arguments)
        if isinstance(function, BuiltinFunctionType) and function.__module__ == "math":
            if function.__name__ not in math_.STAGED:
                self.source.refuse(
                    node, f"`{_text(node.func)}` in a kernel", "the functions of `st` on numbers are there"
                )
            return apply(math_.STAGED[function.__name__], arguments, self.facts, where, **named)
        module = str(getattr(function, "__module__", None) or "").split(".")[0]
        if isinstance(function, np.ufunc) or module in ("staged", "numpy") and not isinstance(function, type):
            return apply(function, arguments, self.facts, where, **named)
        self.source.refuse(
            node,
            f"`{_text(node.func)}` cannot be called in a kernel",
            "a kernel calls functions of `math`, NumPy and `st` on numbers; write what else it does in its body",
        )

    def shuffle(self, node: ast.Call, kind: ShuffleKind) -> Shuffle:
        if self.block[0] * self.block[1] * self.block[2] % WARP:
            self.source.refuse(
                node, f"a shuffle in blocks of {'x'.join(map(str, self.block))} threads",
                f"all lanes of a warp take part: launch blocks of a multiple of {WARP} threads",
            )  # fmt: skip
        value, lane = self.arguments(node, 2)
        given = as_expression(self.number(value))
        if given.type.dtype.size < 4:
            self.source.refuse(value, f"a shuffle of {given.type.dtype}", "shuffles take i32, u32, i64, f32 and f64")
        return Shuffle(kind, given, self.integer(lane), given.type, self.source.where(node))

    def atomic(self, node: ast.Call, op: str) -> Atomic:
        target, index, value = self.arguments(node, 3)
        array = self.evaluate(target)
        if not isinstance(array, Parameter | Memory):
            self.source.refuse(
                target, f"`{_text(target)}` is no array", f"`cuda.atomic_{op}(x, i, value)` changes `x[i]`"
            )
        if array.dtype.name not in _ATOMIC_DTYPES[op]:
            self.source.refuse(
                node, f"no atomic_{op} on arrays of {array.dtype}", f"it takes {', '.join(_ATOMIC_DTYPES[op])}"
            )
        element = self.element_at(node, array, list(index.elts) if isinstance(index, ast.Tuple) else [index])
        self.write(node, array)
        given = self.fitted(value, self.number(value), array.dtype, f"`{array.name}`")
        return Atomic(op, element, given, TensorType(array.dtype), self.source.where(node))

    def arguments(self, node: ast.Call, count: int) -> list[ast.expr]:
        if len(node.args) != count or node.keywords:
            self.source.refuse(node, f"`{_text(node.func)}` takes {count} arguments")
        return node.args

    def write(self, node: ast.AST, array: Parameter | Memory) -> None:
        """An array is changed."""
        if isinstance(array, Parameter):
            self.written.add(array.name)

    def fitted(self, node: ast.AST, value: Any, dtype: DType, what: str) -> Expression:
        """A number as an element of a dtype: as in arrays, but a fraction is never lost in silence."""
        given = as_expression(value)
        own = given.type.dtype
        if own.is_float and not dtype.is_float or dtype.is_bool and not own.is_bool:
            raise DTypeError(
                f"{what} holds {dtype}, and this is {own}",
                where=self.source.where(node),
                hint="compare it with something" if dtype.is_bool else "`int(...)` drops the fraction",
            )
        if given.type == TensorType(dtype):
            return given
        return apply(lambda x: cast(x, dtype), [given], self.facts, self.source.where(node))

    def convert(self, node: ast.AST, value: Any, dtype: DType, weak: bool) -> Expression:
        return apply(lambda x: cast(x, dtype, weak), [as_expression(value)], self.facts, self.source.where(node))

    def reduced(self, node: ast.Call, arguments: list[Any], function: Callable[..., Any]) -> Any:
        """`min` and `max` of some numbers."""
        if len(arguments) < 2:
            self.source.refuse(node, f"`{_text(node)}`: of two numbers or more", _NUMBERS)
        found = arguments[0]
        for value in arguments[1:]:
            found = apply(function, [found, value], self.facts, self.source.where(node))
        return found


class _Method:
    """A method of a number, and the number."""

    def __init__(self, function: Callable[..., Any], operand: Expression) -> None:
        self.function = function
        self.operand = operand


_PYTHON: dict[Any, Callable[[Expressions, ast.Call, list[Any]], Any]] = {
    abs: lambda e, node, given: apply(functions.abs, given, e.facts, e.source.where(node)),
    min: lambda e, node, given: e.reduced(node, given, functions.minimum),
    max: lambda e, node, given: e.reduced(node, given, functions.maximum),
    int: lambda e, node, given: e.convert(node, given[0], i64, True),
    float: lambda e, node, given: e.convert(node, given[0], f64, True),
    bool: lambda e, node, given: e.convert(node, given[0], bool_, True),
    pow: lambda e, node, given: apply(functions.pow, given, e.facts, e.source.where(node)),
}


def _text(node: ast.AST) -> str:
    text = ast.unparse(node)
    return text if len(text) <= 60 else f"{text[:57]}..."


def static_dtype(value: Any) -> DType | None:
    """The dtype that a value names."""
    return dtype_of(value) if isinstance(value, DType | str | type | np.dtype) else None
