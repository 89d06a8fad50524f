"""Sizes in the user's code: integers of the program. Comparisons are decided while staging if the bounds suffice.

Tested by `tests/dynamic_sizes/test_cases.py` and `tests/dynamic_sizes/test_relations.py`.
"""

from __future__ import annotations

import operator as py
from collections import deque
from collections.abc import Callable
from typing import Any

from staged.frontend.trace.context import current_trace
from staged.ir.size_questions import Question
from staged.ir.sizes import Size, bounds_of
from staged.ops.array import StagedArray
from staged.ops.comparisons import logical_and, logical_not
from staged.ops.dimension import as_extent, size_number

asked: deque[Question] = deque(maxlen=12)
"""The last comparisons of sizes in the user's code that the program answers."""


def as_numbers(value: Any) -> Any:
    """A size as an integer of the program, also in a tuple; anything else unchanged."""
    if isinstance(value, tuple) and not {int}.issuperset(map(type, value)):
        return tuple(map(size_number, value))
    return size_number(value) if isinstance(value, Size) else value


def compare(name: str, left: Any, right: Any, otherwise: Callable[[Any, Any], Any]) -> Any:
    """A comparison. One of sizes is decided by their normal form and bounds, or else by the program."""
    if type(left) is tuple and type(right) is tuple:
        return _compare_tuples(name, left, right, otherwise)
    one, other = as_extent(left), as_extent(right)
    trace = current_trace()
    if one is None or other is None or trace is None or not trace.dims:
        return otherwise(left, right)
    if name in ("Eq", "NotEq"):
        low, high = bounds_of(one - other)
        if low > 0 or high < 0 or low == high == 0:
            return (low == high == 0) == (name == "Eq")
        asked.append(Question(one, "==", other))
    else:
        answer = _ORDERS[name](one, other)
        if not isinstance(answer, Question):
            return answer
        asked.append(answer)
    return otherwise(size_number(one), size_number(other))


_ORDERS: dict[str, Callable[[Any, Any], Any]] = {"Lt": py.lt, "LtE": py.le, "Gt": py.gt, "GtE": py.ge}


def _compare_tuples(
    name: str, left: tuple[Any, ...], right: tuple[Any, ...], otherwise: Callable[[Any, Any], Any]
) -> Any:
    """`==` and `!=` of shapes."""
    if name not in ("Eq", "NotEq") or not any(type(part) is StagedArray for part in (*left, *right)):
        return otherwise(left, right)
    if len(left) != len(right):
        return name == "NotEq"
    equal: Any = True
    for one, other in zip(left, right, strict=True):
        same = compare("Eq", one, other, py.eq)
        if same is False:
            return name == "NotEq"
        if same is not True:
            equal = same if equal is True else logical_and(equal, same)
    if equal is True:
        return name == "Eq"
    return equal if name == "Eq" else logical_not(equal)
