"""`STAGED_CHECK_RANKS=100`: compare the bits of replicated Variables in every 100th call that writes them.

A program keeps them equal if its ranks compute alike. Other code may change a Variable on one rank, and a library or a
processor may compute other bits. Tested by `tests/ranks/test_failures.py`.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from staged.base.artifact import Artifact
from staged.errors import RankError, StagedError
from staged.runtime.mpi import gathered
from staged.runtime.native import NativeProgram

_BYTES = 8


def calls_between_checks() -> int:
    """The value of `$STAGED_CHECK_RANKS`; 0 without it.

    Raises: StagedError if it is not a number of calls.
    """
    asked = os.environ.get("STAGED_CHECK_RANKS", "").strip()
    if not asked:
        return 0
    if not asked.isascii() or not asked.isdigit():
        raise StagedError(
            f"STAGED_CHECK_RANKS must be a number of calls, got {asked!r}",
            hint="set it to a whole number such as 100, or unset it",
        )
    return int(asked)


class CheckedProgram(NativeProgram):
    """A program whose replicated Variables are compared after every so many calls."""

    may_be_short = False  # the short way has no place for the comparison

    def __init__(self, artifact: Artifact, path: Path, *, poison: bool = False) -> None:
        super().__init__(artifact, path, poison=poison)
        given = [parameter for parameter in artifact.parameters if parameter.role != "output"]
        self.compared = [
            (number, each.label)
            for number, each in enumerate(given)
            if each.role == "variable" and each.written and not each.is_local and each.device == "cpu"
        ]
        self.between = calls_between_checks()
        self.calls = 0

    def __call__(self, *values: Any) -> tuple[Any, ...]:
        returned = super().__call__(*values)
        self.calls += 1
        if self.compared and self.calls % self.between == 0:
            self.compare(values)
        return returned

    def compare(self, values: Sequence[Any]) -> None:
        """Raises: RankError if a Variable differs between ranks."""
        sums = b"".join(
            hashlib.blake2b(np.asarray(values[number]).tobytes(), digest_size=_BYTES).digest()
            for number, _ in self.compared
        )
        ranks = gathered(sums)
        for place, (_, label) in enumerate(self.compared):
            part = slice(place * _BYTES, (place + 1) * _BYTES)
            others = [str(rank) for rank, found in enumerate(ranks) if found[part] != ranks[0][part]]
            if others:
                which = f"rank {others[0]}" if len(others) == 1 else f"ranks {', '.join(others)}"
                raise RankError(
                    f"the replicated Variable `{label}` of {which} differs from that of rank 0, "
                    f"after {self.calls} calls of `{self.artifact.name}`",
                    hint="write equal values on all ranks, or declare `st.Variable(value, local=True)`",
                )
