"""`staged support`: which functions run for which dtypes, under which transforms, on which back ends.

The record beside this file is what tests/support found by running each of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

RECORD = Path(__file__).with_name("support.json")
BACKENDS = ("eager", "C", "CUDA", "OpenCL")
TRANSFORMS = ("value", "vmap", "reverse", "forward", "second")
"""The function itself; mapped over an axis; its derivative in reverse and in forward mode, and one of the other."""

INTEGERS = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
FLOATS = ("f16", "bf16", "f32", "f64")
COMPLEX = ("c64", "c128")
INEXACT = (*FLOATS, *COMPLEX)
DTYPES = ("bool", *INTEGERS, *INEXACT)
TRIED: dict[str, dict[str, tuple[str, ...]]] = {
    "eager": {
        "value": DTYPES,
        "vmap": ("i32", "f32", "c64"),
        "reverse": INEXACT,
        "forward": INEXACT,
        "second": ("f32", "f64", "c128"),
    },
    "C": {
        "value": DTYPES,
        "vmap": ("f32",),
        "reverse": ("f16", "f32", "c128"),
        "forward": ("f64",),
        "second": ("f64",),
    },
    "CUDA": {
        "value": ("bool", "i32", "u8", "f16", "f32", "c64"),
        "vmap": ("f32",),
        "reverse": ("f32",),
        "forward": (),
        "second": (),
    },
    "OpenCL": {
        "value": ("bool", "i32", "u8", "f32", "c64"),
        "vmap": (),
        "reverse": ("f32",),
        "forward": (),
        "second": (),
    },
}
"""The dtypes with which each transform is tried on each back end, which sees derivatives as ops like others."""

_GROUPS = {
    "all": DTYPES,
    "numbers": (*INTEGERS, *INEXACT),
    "real": ("bool", *INTEGERS, *FLOATS),
    "real numbers": (*INTEGERS, *FLOATS),
    "floats and complex": INEXACT,
    "floats": FLOATS,
    "integers and bool": ("bool", *INTEGERS),
    "integers": INTEGERS,
    "complex": COMPLEX,
}


@dataclass
class Row:
    """The dtypes, transforms and back ends of one function."""

    name: str
    found: dict[str, dict[str, list[str]]]
    """Back end -> transform -> dtypes that run there, of those that are tried there, and give eager mode's answer."""
    why: dict[str, str]
    """Transform, alone or with a back end -> the first refusal."""

    def enter(self, backend: str, transform: str, dtype: str) -> None:
        """Note that a dtype runs there."""
        self.found.setdefault(backend, {}).setdefault(transform, []).append(dtype)

    def dtypes(self, backend: str, transform: str) -> list[str]:
        """The dtypes that run there."""
        return self.found.get(backend, {}).get(transform, [])

    def lacking(self) -> list[str]:
        """Texts of the dtypes that run in eager mode and not on a back end: `C: reverse f64`."""
        texts = []
        for backend in BACKENDS[1:]:
            lost = self.lost(backend)
            if lost:
                whole = all(not self.dtypes(backend, transform) for transform in TRANSFORMS)
                parts = [f"{transform} {words_of(dtypes)}" for transform, dtypes in lost.items()]
                texts.append(backend if whole else f"{backend}: {'; '.join(parts)}")
        return texts

    def lost(self, backend: str) -> dict[str, list[str]]:
        """Transform -> dtypes that were tried on a back end, and run in eager mode alone."""
        found = {transform: self._expected(backend, transform) for transform in TRANSFORMS}
        lost = {t: [d for d in expected if d not in self.dtypes(backend, t)] for t, expected in found.items()}
        return {transform: dtypes for transform, dtypes in lost.items() if dtypes}

    def _expected(self, backend: str, transform: str) -> list[str]:
        return [dtype for dtype in self.dtypes("eager", transform) if dtype in TRIED[backend][transform]]

    def as_json(self) -> dict[str, Any]:
        """The row as JSON values: what eager mode has, and what the other back ends lack of it."""
        eager = {transform: " ".join(dtypes) for transform, dtypes in self.found.get("eager", {}).items()}
        kept: dict[str, Any] = {"eager": eager}
        for backend in BACKENDS[1:]:
            lost = self.lost(backend)
            if lost:
                kept[backend] = {transform: " ".join(dtypes) for transform, dtypes in lost.items()}
        return kept | ({"why": self.why} if self.why else {})

    @staticmethod
    def of_json(name: str, kept: Mapping[str, Any]) -> Row:
        """The row of `as_json`."""
        row = Row(name, {"eager": {t: d.split() for t, d in kept["eager"].items()}}, dict(kept.get("why", {})))
        for backend in BACKENDS[1:]:
            lost = kept.get(backend, {})
            for transform in TRANSFORMS:
                for dtype in row._expected(backend, transform):
                    if dtype not in lost.get(transform, "").split():
                        row.enter(backend, transform, dtype)
        return row


def words_of(dtypes: Iterable[str]) -> str:
    """Dtypes by the name of their group, with those that are left out if they are few; '' for none."""
    have = set(dtypes)
    best = ""
    fewest = 3
    for name, group in _GROUPS.items():
        members = set(group)
        missing = members - have
        if have <= members and len(missing) < fewest and len(members) > 2 + 2 * len(missing):
            best = name + "".join(f", not {dtype}" for dtype in group if dtype in missing)
            fewest = len(missing)
    return best or " ".join(dtype for dtype in DTYPES if dtype in have)


@cache
def rows() -> dict[str, Row]:
    """All rows by the function's name."""
    kept = json.loads(RECORD.read_text())
    return {name: Row.of_json(name, row) for name, row in kept.items()}


def text_of(row: Row) -> str:
    """A row for a terminal."""
    lines = [row.name]
    for transform in TRANSFORMS:
        words = words_of(row.dtypes("eager", transform)) or "no"
        reason = row.why.get(transform, "")
        lines.append(f"  {transform:8} {words}{f': {reason}' if words == 'no' and reason else ''}")
    lacking = row.lacking()
    lines.append(f"  back ends: {', '.join(BACKENDS)}{', but for:' if lacking else ''}")
    lines += [f"    {text}" for text in lacking]
    lines += [f"      {where}: {why}" for where, why in row.why.items() if " " in where]
    return "\n".join(lines)
