"""The results of the parts, and the page about them."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

State = Literal["passed", "failed", "refused"]


@dataclass(frozen=True)
class Result:
    """The outcome of a part. `refused`: a tool of the machine would not do it, which says nothing about our programs."""

    state: State
    summary: str
    details: list[str] = field(default_factory=list)
    table: list[list[str]] = field(default_factory=list)
    """Rows of a table, the heads first."""
    seconds: float = 0.0
    """The duration of the part."""
    unfinished: bool = False
    """Whether the time ended before the work: another run of the part continues."""

    @property
    def is_open(self) -> bool:
        """Whether the part failed, or is not finished: it should run again."""
        return self.unfinished or self.state == "failed"

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)


def device_name(device: str) -> str:
    """The GPU's name for a file: `NVIDIA H200 (compute capability 9.0, 151 GB)` gives `nvidia-h200`."""
    return re.sub(r"[^a-z0-9]+", "-", device.partition("(")[0].lower()).strip("-")


PRINTED, WIDEST = 10, 130
"""Lines that are printed about a part, and characters of a line: seven parts have at most 9,170 characters."""


def printed(name: str, result: Result) -> list[str]:
    """The lines about a part in the printed summary."""
    lines = [f"{name}: {state_of(result)} after {result.seconds:.0f} s: {_cell(result.summary)}"]
    lines += [f"  {_cell(line)}" for line in result.details]
    if len(lines) > PRINTED:
        lines[PRINTED - 1 :] = [f"  and {len(lines) - PRINTED + 1} more lines"]
    return [line[:WIDEST] for line in lines]


def page(results: Mapping[str, Result], parts: Mapping[str, str]) -> str:
    """The page: a section per part; a part without a result is named as not run."""
    lines = ["# Results of a run on a GPU", "", "`python -m tests.gpu_check --keep` writes this page.", ""]
    lines += ["| part | state | result | duration |", "|---|---|---|---|"]
    for name in parts:
        result = results.get(name)
        state, summary, took = (
            (state_of(result), result.summary, f"{result.seconds:.0f} s") if result else ("not run", "", "")
        )
        lines.append(f"| {name} | {state} | {_cell(summary)} | {took} |")
    for name, what in parts.items():
        result = results.get(name)
        if result is None or not (result.table or result.details):
            continue
        lines += ["", f"## {name}: {what}", ""]
        if result.table:
            heads, *rows = result.table
            lines += [f"| {' | '.join(map(_cell, heads))} |", "|---" * len(heads) + "|"]
            lines += [f"| {' | '.join(map(_cell, row))} |" for row in rows]
        if result.details:
            lines += ["", "```", *result.details, "```"]
    return "\n".join(lines) + "\n"


def state_of(result: Result) -> str:
    """A result's state in words."""
    return f"{result.state}, unfinished" if result.unfinished else result.state


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def entries_of(journal: Path) -> list[dict[str, Any]]:
    """The contents of a journal; its last line may be cut short."""
    found = []
    for line in journal.read_text(errors="replace").splitlines() if journal.is_file() else ():
        try:
            found.append(json.loads(line))
        except ValueError:
            continue
    return found
