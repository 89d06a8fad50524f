"""Removal of unused locals: the C compiler would warn, and a reader would wonder.

A value may lose its reader while the text is made (the index of a dimension of one element moves nothing), so this
looks at the finished lines of a function.

Tested by `tests/backends/native/test_golden.py`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

_DECLARATION = re.compile(
    r"(?P<indent> *)(?P<const>const )?(?:[A-Za-z]\w* )+(?:\*const |\*)?(?P<name>[A-Za-z_]\w*)(?: = (?P<value>.*))?;"
)
_ASSIGNMENT = re.compile(r" *(?P<name>[A-Za-z_]\w*) = (?P<value>.*);")
_NOT_CODE = re.compile(r'"(?:\\.|[^"\\])*"|\'(?:\\.|[^\'\\])\'|//.*')
_WORD = re.compile(r"(?<!->)(?<!\.)\b[A-Za-z_]\w*")  # not a member
_NOT_TYPES = frozenset(("return", "goto", "else", "case"))


def drop_unused_locals(lines: Sequence[str]) -> list[str]:
    """The lines of a function without constants that nothing reads: a check stays, without the name of its result.

    A variable that is only ever assigned to is marked as unread.
    """
    out = list(lines)
    while True:
        reads = _reads(out)
        changed, kept = False, []
        for line in out:
            found = _declaration(line)
            if found is None or reads[found["name"]] or f"(void){found['name']};" in line:
                kept.append(line)
            elif found["const"] and found["value"] is not None:
                changed = True
                if found["value"].startswith("st_check"):
                    kept.append(f"{found['indent']}{found['value']};")
            else:
                changed = True
                kept += [line, f"{found['indent']}(void){found['name']};"]
        if not changed:
            return kept
        out = kept


def mentions(lines: Sequence[str], name: str) -> bool:
    """Return whether a name is used anywhere in the code of these lines."""
    return any(name in _WORD.findall(_NOT_CODE.sub("", line)) for line in lines)


def _declaration(line: str) -> re.Match[str] | None:
    found = _DECLARATION.fullmatch(line)
    return None if found is None or line.split()[0] in _NOT_TYPES else found


def _reads(lines: Sequence[str]) -> Counter[str]:
    """The number of reads of each name."""
    reads: Counter[str] = Counter()
    for line in lines:
        code = _NOT_CODE.sub("", line).rstrip()
        words = Counter(_WORD.findall(code))
        written = _declaration(code) or _ASSIGNMENT.fullmatch(code)
        if written is not None:
            words[written["name"]] -= 1
        reads.update(words)
    return reads
