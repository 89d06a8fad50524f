"""The generated C, beside the Python lines it came from."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

_ORIGIN = re.compile(r"//.*?\b(?P<file>[\w.-]+\.py):(?P<line>\d+)\b")


def side_by_side(source: str, python_file: str, width: int = 150) -> str:
    """Two columns: each line of C with, on the left, the Python line that its comment names."""
    lines = Path(python_file).read_text(encoding="utf-8").splitlines()
    name = Path(python_file).name
    left_width = max(30, width * 2 // 5)
    rows = []
    for line in source.splitlines():
        match = _ORIGIN.search(line)
        left = ""
        if match and match["file"] == name and 0 < int(match["line"]) <= len(lines):
            left = f"{match['line']:>4}  {lines[int(match['line']) - 1]}"
        rows.append(f"{left[:left_width]:<{left_width}} | {line}")
    return "\n".join(rows)


def python_file_of(function: Any) -> str:
    """The file that a staged function was written in."""
    return str(function.__wrapped__.__code__.co_filename)
