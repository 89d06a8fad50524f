"""The statements of a program that draws its own progress (`staged/progress.py` records the ops).

Tested by `tests/progress/test_c_progress.py`.
"""

from __future__ import annotations

from staged.backends.c_family.messages import Values, statements
from staged.backends.c_family.writer import Writer
from staged.ir.nodes import Op
from staged.ir.structure import PROGRESS_END, PROGRESS_START


def emit_progress(w: Writer, op: Op, text: Values) -> tuple[str, ...]:
    """Write `progress_start`, `progress_update` or `progress_end`; returns the support snippets that it needs.

    The bar is a C local of the block that starts it: its loop and its end stand in the same block.
    """
    bar = f"progress_{op.attrs['id']}"
    if op.declared is PROGRESS_END:
        w.line(f"st_progress_end(host, &{bar}, {'true' if op.attrs['leave'] else 'false'});")
        return ("progress",)
    # The first operand counts; the others are for the text.
    count = text.operand(op.operands[0])
    made = statements(op.attrs["parts"], op.operands[1:], text)
    if op.declared is PROGRESS_START:
        w.line(f"st_progress {bar} = {{0}};")
        header, name, call = "", "label", f"st_progress_start(host, &{bar}, {count}, &text);"
    else:
        header, name = f"if (st_progress_due(host, &{bar}, {count}))", "values"
        call = f"st_progress_update(host, &{bar}, &text);"
    with w.block(header):
        w.line(f"st_text text;  // the {name}")
        w.line("st_text_begin(&text, NULL);")
        for line in made.lines:
            w.line(line)
        w.line(call)
    return (*made.needs, "progress")
