"""The description of a copy between devices."""

from __future__ import annotations

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
