"""Writes docs/structured_ops.md, the reference of the ops that are no primitives, from staged/ir/structure.py.

python -m docs.make_structured_ops
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from staged.ir.signature import STRUCTURED, Structured

PAGE = Path(__file__).parent / "structured_ops.md"

HEAD = """\
# Structured ops

<!-- Written by docs/make_structured_ops.py from the declarations in staged/ir/structure.py: edit those. -->

The ops of the IR that are no primitives (for these see [ops.md](ops.md), the functions over them). `*name` is any
number of values, `name: kind` one that must be of a kind, `name?` an attribute that may be missing, `...` any others.
Closed blocks use nothing but their parameters and what is made inside. The verifier checks every op against its
declaration. `staged/ir/views.py` names the parts of loops, branches, calls, derivatives and frames.
"""


def page() -> str:
    """The text of the page."""
    return "\n".join([HEAD, *map(_entry, STRUCTURED)])


def _entry(op: Structured) -> str:
    blocks = ", ".join(f"`{block.name}({block.params.text})`" for block in op.blocks)
    attributes = ", ".join(
        f"`{name}`" + (f": {_types(type)}" if name != "..." else "") for name, type in op.attributes.items()
    )
    rows = {
        "operands": op.operands.text and f"`{op.operands.text}`",
        "blocks": blocks + (", closed" if blocks and op.is_closed else ""),
        "results": op.results.text and f"`{op.results.text}`",
        "attributes": attributes,
        "effects": ", ".join(sorted(op.effects)),
    }
    lines = [f"- {key}: {text}" for key, text in rows.items() if text]
    return "\n".join([f"## {op.name}", "", op.doc, "", *lines, ""])


def _types(given: type | tuple[type, ...]) -> str:
    types: Iterable[type] = given if isinstance(given, tuple) else (given,)
    return " or ".join(type.__name__ for type in types)


if __name__ == "__main__":
    PAGE.write_text(page())
