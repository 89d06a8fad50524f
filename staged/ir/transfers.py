"""The description of a copy between devices, and the table of a program's copies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from staged.ir.types import Device
from staged.source import Position


@dataclass(frozen=True, slots=True)
class Transfer:
    """One copy between devices.

    `why` is 'input', 'constant' or 'value' towards a device, and 'result', 'print', 'save', 'callback', 'decision',
    'message' (of an error that stops the program), 'variable', 'to' (an `st.to`), 'value' (a computation on the host)
    or 'failure' (the record of failed checks, which the host reads when it waits) from it. A 'resident' one is a
    Variable of Python's on the device: it is copied there once, stays for later calls and other programs, and is copied
    back when the host reads it. A 'constant' without a position is copied by the first call alone. An 'alignment' is a
    copy on one device, to a multiple of 16 bytes, where a library reads an operand.
    """

    what: str
    source: Device
    target: Device
    nbytes: int
    """The size; the largest one if a size varies."""
    why: str
    where: Position | None = None
    in_loop: bool = False
    """True if it takes place in every iteration of a loop of its function."""

    def __str__(self) -> str:
        place = f"  {self.where.short}  {self.where.text}" if self.where else ""
        often = ", in a loop" if self.in_loop else ""
        return f"{self.what}: {self.source} -> {self.target}, {self.nbytes:,} bytes, {self.why}{often}{place}"


class Transfers(tuple[Transfer, ...]):
    """The copies of a program: a tuple whose text is a table."""

    __slots__ = ()

    def __repr__(self) -> str:
        if not self:
            return "no copies"
        rows = [("value", "from", "to", "bytes", "why", "line")]
        for copy in self:
            why = f"{copy.why}, in a loop" if copy.in_loop else copy.why
            line = f"{copy.where.short}  {_begin(copy.where.text)}" if copy.where else ""
            rows.append((copy.what, str(copy.source), str(copy.target), f"{copy.nbytes:,}", why, line))
        return "\n".join(in_columns(rows, "<<<><<"))


def _begin(text: str, most: int = 60) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def in_columns(rows: Sequence[Sequence[str]], sides: str) -> list[str]:
    """Return the rows as lines with columns of equal width; each column has its side, `<` or `>`."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths, strict=True)).rstrip()
        for row in rows
    ]
