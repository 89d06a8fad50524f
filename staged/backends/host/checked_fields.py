"""The table of the arrays that the caller of an exported program must pass; Python's arrays are never NULL.

Tested by `tests/backends/native/test_layer_fields.py` and `tests/test_exported_state.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from staged.backends.host.interface import struct_entries
from staged.base.artifact import Parameter
from staged.code.writer import WIDTH, Writer, broken


def rows_of_fields(parameters: Sequence[Parameter]) -> list[str]:
    """The rows of the table: one for each array, or for an array of all layers."""
    checked = [each for each in parameters if not each.scalar and 0 not in each.shape]
    found = []
    for entry in struct_entries(checked):
        for layers in entry.fields:
            inside = f".{layers[0].field}" if layers[0].array else ""
            is_alone = layers[0].index is None
            each = f"ST_EACH({entry.name}, {inside}, {len(layers)})"
            found.append(f"ST_ONE({entry.name}{inside})" if is_alone else each)
    return found


def write_checked_fields(w: Writer, name: str, rows: Sequence[str]) -> None:
    """Write the table of the program `name`."""
    if not rows:
        return
    args = f"{name}_args"
    w.comment("The arrays that the caller must pass.")
    if any("ONE" in row for row in rows):
        w.line(f"#define ST_ONE(field) {{#field, offsetof({args}, field), 0, 1}}")
    if any("EACH" in row for row in rows):
        w.line("#define ST_EACH(layers, field, count) \\")
        w.line(f'    {{#layers "[]" #field, offsetof({args}, layers[0] field), sizeof(({args} *)0)->layers[0], count}}')
    with w.block("static const st_field st_fields[] =", ";"):
        w.text("\n".join(broken("", rows, ",", WIDTH)))
    w.line()
