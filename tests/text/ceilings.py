"""The ceilings of files: how many findings of each kind a file may have, and their sum.

`ceilings.txt` has a line for each file with findings, and one for the sum over all files. Both may only fall. Text that
moves to another file carries its ceilings, so that no history is needed.
"""

from __future__ import annotations

import re
import subprocess
from collections import Counter, defaultdict
from pathlib import Path

from tests.text.rules import KINDS, RATE, Finding, Found

TABLE = Path(__file__).parent / "ceilings.txt"
HEAD = "# Written by `python -m tests.text --update`. Numbers may only fall.\n"
SUM = "sum"
SHOWN = 30
"""Findings of one file that a message shows."""

Ceilings = dict[str, Counter[str]]
"""The ceilings by file and kind; the row `SUM` has those of all files together."""


def parse(table: str) -> Ceilings:
    """The ceilings of a table."""
    rows = (line.split() for line in table.splitlines() if not line.startswith("#"))
    return {path: Counter({kind: int(number) for kind, number in (cell.split("=") for cell in cells)}) for path, *cells in rows}


def text_of(ceilings: Ceilings) -> str:
    """The table of ceilings, sorted by file."""
    rows = {path: row for path, row in sorted(ceilings.items(), key=lambda item: (item[0] != SUM, item[0])) if row.total()}
    return HEAD + "".join(
        " ".join([path, *(f"{kind}={row[kind]}" for kind in KINDS if row[kind])]) + "\n" for path, row in rows.items()
    )


def _total(ceilings: Ceilings) -> Counter[str]:
    total: Counter[str] = Counter()
    for path, row in ceilings.items():
        if path != SUM:
            total += row
    return total


def allowed(found: Found, ceilings: Ceilings, path: str, kind: str) -> int:
    """The number of findings that a file may have: its ceiling, or the limit of new text."""
    ceiling = ceilings.get(path, Counter())[kind]
    return ceiling or (RATE * found.words[path] // 1000 if kind == "words" else 0)


def failures(found: Found, ceilings: Ceilings, root: Path) -> list[str]:
    """A message for each file that is above a ceiling, for ceilings without a file, and for a sum that rose."""
    messages = []
    for path, counts in found.counts().items():
        for kind, count in counts.items():
            most = allowed(found, ceilings, path, kind)
            if count > most:
                of_kind = [finding for finding in found.findings[path] if finding.kind == kind]
                messages.append(_message(path, kind, count, most, of_kind, root))
    gone = [path for path in ceilings if path != SUM and path not in found.words]
    if gone:
        messages.append(f"ceilings of files that do not exist: {', '.join(gone)}")
    recorded = ceilings.get(SUM, Counter())
    for kind, number in _total(ceilings).items():
        if number > recorded[kind]:
            messages.append(f"the ceilings of {KINDS[kind]} add to {number}, and may have a sum of at most {recorded[kind]}")
    return messages


def _message(path: str, kind: str, count: int, most: int, findings: list[Finding], root: Path) -> str:
    changed = _changed_lines(root, path)
    new = [finding for finding in findings if finding.line in changed]
    lines = [f"{path}: {count} {KINDS[kind]}, at most {most} allowed"]
    lines += [f"  {finding}" for finding in (new or findings)[:SHOWN]]
    if new and len(new) < len(findings):
        lines.append(f"  and {len(findings) - len(new)} in lines that are older than the table of ceilings")
    elif len(findings) > SHOWN:
        lines.append(f"  and {len(findings) - SHOWN} more")
    return "\n".join(lines)


def _changed_lines(root: Path, path: str) -> set[int]:
    """The lines of a file that changed since the table last did; empty without git."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=False).stdout

    try:
        commit = git("log", "-1", "--format=%H", "--", str(TABLE)).strip()
        changes = git("diff", "-U0", commit, "--", path) if commit else ""
    except OSError:
        return set()
    hunks = re.findall(r"^@@ -\S+ \+(\d+)(?:,(\d+))? @@", changes, re.MULTILINE)
    return {line for first, count in hunks for line in range(int(first), int(first) + int(count or 1))}


def updated(found: Found, ceilings: Ceilings) -> Ceilings:
    """The ceilings lowered to the findings.

    Files that shrank or disappeared release their ceilings to files that have none of that kind: text may move, be split
    and merged into new files. A file without a ceiling gets one if it has more findings than new text may have, and if
    enough was released. Otherwise it stays without one, and `failures` reports it.
    """
    counts = found.counts()
    lowered: Ceilings = defaultdict(Counter)
    released: Counter[str] = Counter()
    for path, row in ceilings.items():
        if path != SUM:
            lowered[path] = Counter(row & counts.get(path, Counter()))
            released += row - lowered[path]
    for path, row in counts.items():
        for kind, count in row.items():
            if not ceilings.get(path, Counter())[kind] and allowed(found, ceilings, path, kind) < count <= released[kind]:
                lowered[path][kind] = count
                released[kind] -= count
    rows = {path: row for path, row in lowered.items() if path in counts}
    return {**rows, SUM: ceilings.get(SUM, Counter()) & _total(rows)}


def carried(found: Found, ceilings: Ceilings, source: str, target: str) -> Ceilings:
    """The ceilings after text moved between two files: those that `source` does not need any more rise in `target`."""
    counts = found.counts()
    rows = {path: Counter(row) for path, row in ceilings.items()}
    spare = rows.get(source, Counter()) - counts.get(source, Counter())
    missing = counts[target] - rows.get(target, Counter())
    moved = spare & missing
    rows[source] = rows.get(source, Counter()) - moved
    rows[target] = rows.get(target, Counter()) + moved
    return rows


def recorded(found: Found) -> Ceilings:
    """The findings of today as ceilings: the first table."""
    counts = found.counts()
    return {**counts, SUM: _total(counts)}
