"""The truth of a value: what conditions, `not` and `assert` ask for."""

from __future__ import annotations

from typing import Any

from staged.errors import StagedValueError
from staged.frontend.values.operands import note_operand
from staged.ir.types import bool_
from staged.ops.array import StagedArray
from staged.ops.comparisons import not_equal
from staged.ops.promote import read
from staged.source import here


def truth(value: Any) -> Any:
    """`value` as a condition: a Python bool, or a staged bool scalar."""
    value = read(value)
    if not isinstance(value, StagedArray):
        note_operand(value)
        counted = getattr(type(value), "__staged_len__", None)
        return bool(value) if counted is None else truth(counted(value) > 0)
    if value.shape:
        name = f"`{value.value.hint}`" if value.value.hint else "a value"
        raise StagedValueError(
            f"a condition needs one truth value, {name} has shape {value.shape}",
            where=here(),
            hint="use `st.any(...)`, `st.all(...)`, or `st.where` to choose per element (and `&`, `|`, `~` for arrays)",
        )
    if value.dtype is bool_:
        return value
    return not_equal(value, 0)
