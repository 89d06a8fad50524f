"""Samples that depend on names alone, so that neither their order nor their number changes the choice."""

from __future__ import annotations

import hashlib


def number_of(name: str) -> int:
    """Return a large number that is the digest of a name."""
    return int(hashlib.sha256(name.encode()).hexdigest(), 16)


def is_sampled(name: str, one_in: int) -> bool:
    """Return whether a name is in the sample of one name in `one_in`."""
    return number_of(name) % one_in == 0
