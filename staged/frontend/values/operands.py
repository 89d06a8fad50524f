"""Python's operators and iteration on what is known while staging: an older array or object that they read is noted.

What is staged passes through; an expression of staged values costs one call more.
"""

from __future__ import annotations

import ast
import operator as py
import sys
from collections.abc import Callable, ItemsView, Iterator, KeysView, ValuesView
from typing import Any

import numpy as np

from staged.frontend.syntax.converter import Converter, expression, operator, text
from staged.frontend.trace.context import current_trace, note_made
from staged.frontend.values.size_questions import compare
from staged.ops.array import Array, StagedArray
from staged.ops.torch_words import StagedSize

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "Eq": py.eq,
    "NotEq": py.ne,
    "Lt": py.lt,
    "LtE": py.le,
    "Gt": py.gt,
    "GtE": py.ge,
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "Add": py.add,
    "Sub": py.sub,
    "Mult": py.mul,
    "MatMult": py.matmul,
    "Div": py.truediv,
    "FloorDiv": py.floordiv,
    "Mod": py.mod,
    "Pow": py.pow,
    "BitAnd": py.and_,
    "BitOr": py.or_,
    "BitXor": py.xor,
    "LShift": py.lshift,
    "RShift": py.rshift,
    **COMPARISONS,
}
_UNARY: dict[str, Callable[[Any], Any]] = {"UAdd": py.pos, "USub": py.neg, "Invert": py.invert}
_HELD_HERE = 2
"""References to what a call has just made: its name, and while they are counted."""
_ITERATORS = (Iterator, KeysView, ValuesView, ItemsView)
_OF_NUMBERS = (Array, np.generic)
_VALUES = frozenset(
    (StagedArray, bool, int, float, complex, str, bytes, type(None), list, tuple, dict, set, frozenset, range)
)
"""Classes whose values are staged, or noted as they are read."""
_SIZED = frozenset((StagedArray, StagedSize, tuple))
"""Classes of sizes and shapes."""


def note_operand(value: Any) -> None:
    """Plain Python looks into `value`: note what it reads there."""
    if type(value) in _VALUES or isinstance(value, _OF_NUMBERS):
        return
    trace = current_trace()
    if trace is not None:
        trace.reads.consumed(value)


def note_view(array: Any) -> None:
    """A view of an array is taken."""
    trace = current_trace()
    if trace is not None:
        trace.reads.array_type(array)


def note_printed(value: Any) -> None:
    """`value` becomes text."""
    trace = current_trace()
    if trace is not None:
        trace.reads.printed(value)


@operator
def binary(name: str, left: Any, right: Any) -> Any:
    """`left op right`, arithmetic or comparison."""
    if type(left) not in _VALUES and not isinstance(right, Array):
        note_operand(left)
    if type(right) not in _VALUES and not isinstance(left, Array):
        note_operand(right)
    if name == "Mod" and type(left) is str:
        note_printed(right)
    if name in COMPARISONS and (type(left) in _SIZED or type(right) in _SIZED):
        return compare(name, left, right, BINARY[name])
    made = BINARY[name](left, right)
    if type(made) not in _VALUES and sys.getrefcount(made) <= _HELD_HERE and not isinstance(made, _OF_NUMBERS):
        note_made(made)  # no other name holds what an operator of a class has made
    return made


@operator
def unary(name: str, value: Any) -> Any:
    """`-value`, `+value`, `~value`."""
    if type(value) not in _VALUES:
        note_operand(value)
    return _UNARY[name](value)


@operator
def iterated(value: Any) -> Any:
    """The iterable of a comprehension or `*`."""
    if type(value) not in _VALUES:
        note_operand(value)
    return value


@operator
def new_iterator(value: Any) -> Any:
    """A generator expression: what it goes through is noted there."""
    note_new_iterator(value)
    return value


def note_new_iterator(value: Any, *given: Any) -> None:
    """Note that a call has made an iterator, which is not one of those that it was given."""
    if isinstance(value, _ITERATORS) and not any(value is each for each in given):
        trace = current_trace()
        if trace is not None:
            trace.reads.new.add(id(value))


@expression(ast.Starred)
def convert_starred(converter: Converter, node: ast.Starred) -> ast.expr:
    return ast.Starred(converter.call("iterated", converter.expr(node.value)), ast.Load())


def binary_call(converter: Converter, name: str, left: ast.expr, right: ast.expr) -> ast.expr:
    """The call for `left op right`, both converted."""
    return converter.call("binary", text(name), left, right)


@expression(ast.BinOp)
def convert_binary(converter: Converter, node: ast.BinOp) -> ast.expr:
    if isinstance(node.op, ast.Mod):
        return converter.call("modulo", converter.expr(node.left), converter.expr(node.right))
    # A display of a list is a new list, and so is its sum with another one.
    makes_list = any(isinstance(side, ast.List | ast.ListComp) for side in (node.left, node.right))
    computed = binary_call(converter, type(node.op).__name__, converter.expr(node.left), converter.expr(node.right))
    return converter.call("made", computed) if makes_list else computed
