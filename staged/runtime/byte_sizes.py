"""Sizes in bytes that the user sets: the stack of recursive programs, and the limit of the program cache.

Tested by `tests/runtime/test_cache.py`.
"""

from __future__ import annotations

import os
import re

from staged.errors import StagedError

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}


def stack_bytes() -> int:
    """The value of `$STAGED_STACK`; 0 if it is not set.

    Raises: StagedError if it is not a size.
    """
    given = _bytes_of("STAGED_STACK")
    if given == 0:
        raise _not_a_size("STAGED_STACK")
    return given or 0


def cache_bytes() -> int:
    """The limit of the program cache: `$STAGED_CACHE_SIZE`, or 5 GB; 0 if the cache does not have a limit.

    Raises: StagedError if it is not a size.
    """
    given = _bytes_of("STAGED_CACHE_SIZE")
    return 5 * 10**9 if given is None else given


def _bytes_of(variable: str) -> int | None:
    text = os.environ.get(variable, "").strip()
    if not text:
        return None
    found = re.fullmatch(rf"(\d+) ?({'|'.join(_UNITS)})", text)
    if found is None or int(found[1]) * _UNITS[found[2]] >= 1 << 46:
        raise _not_a_size(variable)
    return int(found[1]) * _UNITS[found[2]]


def _not_a_size(variable: str) -> StagedError:
    given = os.environ[variable].strip()
    return StagedError(f"{variable} is not a size: {given!r}", hint="write it like 512MiB or 4GB")
