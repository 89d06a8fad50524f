"""The statements of a program that draws its own progress (`staged/call/progress_bar.py` records the ops).

Tested by `tests/progress/test_c_progress.py`.
"""

from __future__ import annotations

from staged.backends.host.messages import Values, message_arguments, message_of
from staged.code.expr import Items, Literal, Prefix, Variable, call
from staged.code.tree import CodeBuilder, Declare
from staged.code.types import word
from staged.ir.nodes import Op
from staged.ir.structure import PROGRESS_END, PROGRESS_START


def emit_progress(code: CodeBuilder, op: Op, text: Values) -> tuple[str, ...]:
    """Write `progress_start`, `progress_update` or `progress_end`; returns the support snippets that it needs.

    The bar is a C local of the block that starts it: its loop and its end stand in the same block.
    """
    number = op.attrs["id"]
    bar = Variable(f"progress_bar_{number}" if number > 1 else "progress_bar", word("st_progress"))
    place = Prefix("&", bar)
    if op.declared is PROGRESS_END:
        code.do("st_progress_end", "host", place, "true" if op.attrs["leave"] else "false")
        return ("progress",)
    # The first operand counts; the others are for the text.
    count = text.operand(op.operands[0])
    made = message_of(op.attrs["parts"], op.operands[1:], text)
    if op.declared is PROGRESS_START:
        code.add(Declare(bar, Items((Literal("0"),)), is_const=False))
        with code.block():
            code.do("st_progress_start", "host", place, count, *message_arguments(code, made))
    else:
        with code.branch(call("st_progress_due", "host", place, count)):
            code.do("st_progress_update", "host", place, *message_arguments(code, made))
    return (*made.needs, "progress")
