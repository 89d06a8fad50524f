"""`and`, `or`, `not`, comparisons (chained, `in`), and the truth of a value."""

from __future__ import annotations

import ast
import operator as py
from collections import deque
from collections.abc import Callable, KeysView, ValuesView
from typing import Any, Literal

import numpy as np

from staged.errors import StagedValueError
from staged.frontend.calls.call import BUILTINS
from staged.frontend.constructs.if_ import choose
from staged.frontend.exits.targets import tracked
from staged.frontend.syntax.converter import Converter, expression, operator, text
from staged.frontend.trace.bodies import OpenBody
from staged.frontend.trace.context import current_trace
from staged.frontend.trace.locals import Locals
from staged.frontend.trace.signals import Again, BlockEndedError
from staged.frontend.values.join import is_staged
from staged.frontend.values.operands import COMPARISONS, binary_call, note_operand
from staged.frontend.values.truth import truth
from staged.frontend.values.variable import Variable
from staged.ir.types import bool_
from staged.ops.array import Array, StagedArray
from staged.ops.choice import where
from staged.ops.comparisons import equal, logical_and, logical_not, logical_or
from staged.ops.reduction import any_
from staged.source import here


@expression(ast.BoolOp)
def convert_bool_op(converter: Converter, node: ast.BoolOp) -> ast.expr:
    name = "and_" if isinstance(node.op, ast.And) else "or_"
    result = converter.expr(node.values[0])
    for value in node.values[1:]:
        result = converter.call(name, converter.locals(), result, converter.lambda_(value))
        ast.copy_location(result, node)
    return result


@expression(ast.UnaryOp)
def convert_unary(converter: Converter, node: ast.UnaryOp) -> ast.expr:
    if isinstance(node.op, ast.Not):
        return converter.call("not_", converter.expr(node.operand))
    return converter.call("unary", text(type(node.op).__name__), converter.expr(node.operand))


@expression(ast.Compare)
def convert_compare(converter: Converter, node: ast.Compare) -> ast.expr:
    if len(node.ops) == 1:
        if isinstance(node.ops[0], ast.In | ast.NotIn):
            found = converter.call("contains", converter.expr(node.left), converter.expr(node.comparators[0]))
            return found if isinstance(node.ops[0], ast.In) else converter.call("not_", found)
        if isinstance(node.ops[0], ast.Is | ast.IsNot):
            if any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, node.comparators[0])):
                unchanged: ast.expr = converter.children(node)
                return unchanged
            found = converter.call("is_", converter.expr(node.left), converter.expr(node.comparators[0]))
            return found if isinstance(node.ops[0], ast.Is) else converter.call("not_", found)
        left, right = converter.expr(node.left), converter.expr(node.comparators[0])
        return binary_call(converter, type(node.ops[0]).__name__, left, right)
    # a < b < c: each operand once, the later ones only where the earlier comparisons hold
    left = converter.expr(node.left)
    links = []
    for op, right in zip(node.ops, node.comparators, strict=True):
        links.append(ast.Tuple([text(type(op).__name__), converter.lambda_(right)], ast.Load()))
    return converter.call("chain", converter.locals(), left, *links)


# ---- what the calls do --------------------------------------------------------------------------


@operator
def and_(scope: Locals, left: Any, right: Callable[[], Any]) -> Any:
    """`left and right()`."""
    condition = truth(left)
    if not is_staged(condition):
        return right() if condition else left
    return _connect(scope, condition, left, right, "logical_and")


@operator
def or_(scope: Locals, left: Any, right: Callable[[], Any]) -> Any:
    """`left or right()`."""
    condition = truth(left)
    if not is_staged(condition):
        return left if condition else right()
    return _connect(scope, condition, left, right, "logical_or")


def _connect(
    scope: Locals,
    condition: StagedArray,
    left: Any,
    right: Callable[[], Any],
    name: Literal["logical_and", "logical_or"],
) -> Any:
    """One op where the right side may as well be computed always; else a branch, since it must not run."""
    trace = current_trace()
    assert trace is not None
    with trace.attempt(tracked(trace, scope)) as attempt:
        # The program decides whether it runs.
        trace.conditional += (
            OpenBody(f"the right side of `{name.removeprefix('logical_')}`", len(trace.log), is_loop=False),
        )
        try:
            value = right()
        except BlockEndedError:
            raise Again(attempt) from None
        recorded = trace.block.ops[attempt.ops :]
        if len(recorded) > 8 or any(op.effects or op.blocks for op in recorded) or len(trace.log) > attempt.log:
            raise Again(attempt)
        if attempt.has_bound():
            raise Again(attempt)  # `a and (y := b)` binds `y` only where `a` holds
    if attempt.is_taken_back:
        if name == "logical_and":
            return choose(trace, scope, condition, right, lambda: False if _is_bool(left) else left)
        return choose(trace, scope, condition, lambda: True if _is_bool(left) else left, right)
    other = truth(value)
    if not is_staged(other):
        # `staged and True` is the left side, `staged and False` is False.
        decided = (not other) if name == "logical_and" else other
        if not isinstance(value, bool):
            return where(condition, *((value, left) if name == "logical_and" else (left, value)))
        return value if decided else left
    if other.type.dtype is bool_ and getattr(value, "dtype", None) is bool_ and _is_bool(left):
        return (logical_and if name == "logical_and" else logical_or)(condition, other)
    if name == "logical_and":
        return where(condition, value, left)
    return where(condition, left, value)


def _is_bool(value: Any) -> bool:
    return isinstance(value, bool) or (isinstance(value, Array) and value.dtype is bool_)


@operator
def not_(value: Any) -> Any:
    """`not value`."""
    condition = truth(value)
    return logical_not(condition) if is_staged(condition) else not condition


@operator
def is_(left: Any, right: Any) -> Any:
    """`left is right`. A value of the program `is True` if it is a bool with this value: it does not have an identity.

    Raises: StagedValueError for the identity of other values of the program.
    """
    if left is right or not (_is_value(left) or _is_value(right)):
        return left is right
    array, other = (left, right) if _is_value(left) else (right, left)
    if isinstance(other, bool):
        return equal(array, other) if array.dtype is bool_ and not array.shape else False
    if not _is_value(other) and not isinstance(other, int | float | complex | np.generic):
        return False
    raise StagedValueError(
        "`is` compares the identity of objects, which a value of the running program does not have",
        where=here(),
        hint="compare the values with `==`",
    )


def _is_value(value: Any) -> bool:
    """Return whether a value is an array of the program or of eager mode. A Variable is an object of Python."""
    return isinstance(value, Array) and not isinstance(value, Variable)


BUILTINS[py.is_] = is_
BUILTINS[py.is_not] = lambda left, right: not_(is_(left, right))
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    **COMPARISONS,
    "Is": is_,
    "IsNot": lambda a, b: not_(is_(a, b)),
    "In": lambda a, b: contains(a, b),
    "NotIn": lambda a, b: not_(contains(a, b)),
}


@operator
def chain(scope: Locals, left: Any, *links: tuple[str, Callable[[], Any]]) -> Any:
    """`a < b() < c()`."""
    (name, right), *rest = links
    middle = right()
    if not name.startswith("Is") and not (isinstance(left, Array) or isinstance(middle, Array)):
        note_operand(left)
        note_operand(middle)
    first = _COMPARISONS[name](left, middle)
    if not rest:
        return first
    return and_(scope, first, lambda: chain(scope, middle, *rest))


def _equal(a: Any, b: Any) -> Any:
    """`a == b`; an array equals no text, no list and no object."""
    if not isinstance(a, Array) and not isinstance(b, Array):
        return a == b
    return equal(a, b) if isinstance(a, _NUMBERS) and isinstance(b, _NUMBERS) else False


_SEARCHED = (list, tuple, set, frozenset, dict, range, deque, KeysView, ValuesView)
_NUMBERS = (Array, bool, int, float, complex, np.generic, np.ndarray)


@operator
def contains(item: Any, container: Any) -> Any:
    """`item in container`: with an array on either side, whether any element is equal. Keys are the elements of a
    dict.
    """
    if not isinstance(container, StagedArray):
        note_operand(container)
        note_operand(item)
    if isinstance(container, StagedArray):
        return any_(equal(container, item))
    if not isinstance(container, _SEARCHED):
        return item in container
    if not isinstance(item, Array) and not any(isinstance(element, Array) for element in container):
        return item in container
    found: Any = False
    for element in container:
        matches = element is item or _equal(item, element)
        found = logical_or(found, matches) if is_staged(found) else (found or matches)
    return found
