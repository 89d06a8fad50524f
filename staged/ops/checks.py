"""Checks while the program runs: it stops with a message in the user's line.

Tested by `tests/dynamic_sizes/test_cases.py` and `tests/ops/test_linalg.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

from staged.errors import ProgramValueError, ShapeError, StagedError
from staged.ir.nodes import FAIL, Op
from staged.ir.size_functions import of_user, text_of_user
from staged.ir.size_questions import Question
from staged.ir.sizes import Extent, dims_in
from staged.ir.structure import ASSERT
from staged.ir.types import dims_of
from staged.ops.array import Array, functions
from staged.ops.assumptions import assumed
from staged.ops.context import current_context
from staged.ops.dimension import answer, as_extent, size_number
from staged.ops.promote import check_argument, check_known, describe
from staged.ops.record import RecordContext
from staged.source import here


def stop_unless(condition: Any, message: str, in_rules: bool = False, shown: Sequence[tuple[str, Any]] = ()) -> None:
    """Stop the program with a ValueError in the user's line unless all of `condition` hold.

    The message ends with the numbers that are `shown`: a string before each, and integers. Rules of derivatives set
    `in_rules` if their primal does not have this check.
    """
    held = functions.all(condition)
    context = current_context()
    if isinstance(context, RecordContext):
        if context.checks or in_rules:
            parts: list[Any] = [message]
            for number, (text, _) in enumerate(shown):
                parts += [text, (number, "", "")]
            context.emit(
                Op(
                    ASSERT,
                    [context.value_of(held), *(context.value_of(value) for _, value in shown)],
                    [],
                    attrs={"parts": tuple(parts), "kind": "value"},
                    effects=FAIL,
                    device=context.builder.device,
                    where=context.locate(),
                )
            )
    elif not held:
        raise ProgramValueError(message, where=here())


def known_extent(name: str, what: str, value: Any) -> Extent:
    """An argument that is an int or a size. Raises: StagedValueError for another number of the program."""
    extent = as_extent(value)
    if extent is None:
        check_known(name, what, value)
        check_argument(hasattr(type(value), "__index__"), f"{name}: `{what}` is an integer, got {value!r}")
        extent = index(value)
    return extent


def check_sizes(
    answered: bool | Question,
    message: str,
    *arrays: Array,
    hint: str | None = None,
    error: type[StagedError] = ShapeError,
) -> None:
    """Check a relation of sizes: now if it is decided, otherwise when the program runs.

    Raises: `error` if it does not hold.
    """
    if isinstance(answered, Question):
        known = assumed(answered)
        answered = answered if known is None else known
    if isinstance(answered, Question):
        dims = dict.fromkeys((*dims_in(answered.left), *dims_in(answered.right)))
        shown = [
            (f"{', and ' if number else '; '}{of_user(dim)} is ", size_number(dim)) for number, dim in enumerate(dims)
        ]
        known_dims = (*dims, *(dim for array in arrays for dim in dims_of(array.type)))
        stop_unless(answer(answered), text_of_user(message, known_dims), shown=shown)
    elif not answered:
        raise error(message, where=here(), details=describe(*arrays), hint=hint)
