"""The results of the parts, and the page about them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
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
    """Whether the time was over before all was done: run again, the part does what is left."""

    def as_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return asdict(self)


def device_name(results: Mapping[str, Result]) -> str:
    """The GPU's name for a file: `NVIDIA H200` gives `nvidia-h200`."""
    rows = dict(row for row in results["machine"].table if len(row) == 2) if "machine" in results else {}
    name = re.sub(r"\(.*", "", rows.get("GPU", "unknown"))
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


REHEARSAL = "A rehearsal on the emulated device, with small sizes: no figure on this page says anything about a GPU."


def page(results: Mapping[str, Result], parts: Mapping[str, str], rehearsed: bool = False) -> str:
    """The page: one section per part, those without a result named as such."""
    lines = ["# What was run on a GPU", "", "Written by `make gpu-check`; nothing here was typed in by hand.", ""]
    lines += [REHEARSAL, ""] if rehearsed else []
    lines += ["| part | state | what it came to | took |", "|---|---|---|---|"]
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
