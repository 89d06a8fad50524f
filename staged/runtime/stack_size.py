"""The stack size of recursive programs: `$STAGED_STACK`, else the number in the program's text."""

from __future__ import annotations

import os
import re

from staged.errors import StagedError

_UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def stack_bytes() -> int:
    """The value of `$STAGED_STACK` in bytes (`500000000`, `512MiB`, `4GiB`); 0 if it is not set.

    Raises: StagedError if it is not a size.
    """
    text = os.environ.get("STAGED_STACK", "").strip()
    if not text:
        return 0
    found = re.fullmatch(r"(\d+) ?(KiB|MiB|GiB|)", text)
    if found is None or not 0 < int(found[1]) * _UNITS[found[2]] < 1 << 46:
        raise StagedError(f"STAGED_STACK is not a size: {text!r}", hint="write it like 512MiB or 4GiB")
    return int(found[1]) * _UNITS[found[2]]
