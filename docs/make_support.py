"""Writes docs/support.md from staged/cli/support.json, which `python -m tests.support` finds out by running everything.

python -m docs.make_support
"""

from __future__ import annotations

from pathlib import Path

from staged.cli.support import TRIED, Row, rows, words_of

PAGE = Path(__file__).parent / "support.md"

HEAD = """\
# What is supported

<!-- Written by docs/make_support.py from what tests/support found by running every function: `python -m tests.support`. -->

Every function was called with the dtypes below, under each transform: in eager mode, whose results were compared with
NumPy's or with differences, and as a C program, in a region of CUDA on the emulated device and in one of OpenCL on PoCL,
whose results were compared with eager mode's. `staged support NAME` prints a row with the words of what is refused.

*integers* are i8, i16, i32, i64, u8, u16, u32 and u64, *floats* f16, bf16, f32 and f64, *complex* c64 and c128. *real
numbers* are integers and floats, *numbers* are all of these, *real* and *all* have bool too. **reverse** and
**forward** are derivatives in that mode, **second** forward mode over reverse. A dash is refused, or has no meaning.

"""
TAIL = """\

The last column says what of it runs in eager mode and not on a back end. Shapes, keywords and mixtures of transforms are
the fuzzer's matter ([testing](testing.md)).

"""
COLUMNS = ("value", "vmap", "reverse", "forward", "second")
PARTS = {
    "Functions": "",
    "`st.random`": "random.",
    "`st.linalg`": "linalg.",
    "`st.special`": "special.",
    "`st.fft`": "fft.",
    "`st.nn`": "nn.",
    "`st.nn.init`": "nn.init.",
    "`st.optim`": "optim.",
}


def line_of(row: Row) -> str:
    """A row of the table."""
    cells = []
    for transform in COLUMNS:
        dtypes = row.dtypes("eager", transform)
        whole = transform != "value" and set(dtypes) == set(TRIED["eager"][transform])
        cells.append("yes" if whole else words_of(dtypes) or "-")
    return f"| `{row.name}` | {' | '.join(cells)} | {'; '.join(row.lacking())} |"


def tried() -> str:
    """The table of what was tried."""
    lines = [f"| tried | {' | '.join(COLUMNS)} |", f"| --- | {'--- | ' * len(COLUMNS)}".rstrip()]
    for backend, transforms in TRIED.items():
        lines.append(f"| {backend} | {' | '.join(words_of(transforms[column]) or '-' for column in COLUMNS)} |")
    return "\n".join(lines) + "\n"


def part_of(name: str) -> str:
    """The part of the page in which a function stands."""
    return max((prefix for prefix in PARTS.values() if name.startswith(prefix)), key=len)


def page() -> str:
    """The page's text."""
    text = HEAD + tried() + TAIL
    for title, prefix in PARTS.items():
        lines = [line_of(row) for name, row in rows().items() if part_of(name) == prefix]
        if lines:
            text += f"## {title}\n\n| | {' | '.join(COLUMNS)} | not on |\n| --- | {'--- | ' * len(COLUMNS)}--- |\n"
            text += "\n".join(lines) + "\n\n"
    return text.rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page())
    print(f"wrote {PAGE.name}: {len(rows())} rows")
