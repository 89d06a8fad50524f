"""Shortages of the machine (disk space, open files, memory), told apart from faults of a program."""

from __future__ import annotations

import errno
import re

_NUMBERS = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.EAGAIN, errno.EFBIG, errno.EIO}
)
# The words of the C library and of compilers, which speak English to us.
_WORDS = re.compile(
    r"No space left on device|Disk quota exceeded|Too many open files(?: in system)?|Cannot allocate memory"
    r"|Resource temporarily unavailable|File too large|Input/output error|virtual memory exhausted|out of memory"
    r"|memory exhausted|File size limit exceeded|Killed signal terminated program|terminated with signal 9 \[Killed\]"
    r"|Killed \(program cc1|final link failed: file truncated"
)


class ShortageError(Exception):
    """A tool stopped because of a shortage, which `words` describe."""

    def __init__(self, words: str) -> None:
        super().__init__(words)
        self.words = words


def shortage_of(error: OSError | ShortageError) -> str:
    """A description of the shortage; empty if the error has another cause."""
    if isinstance(error, ShortageError):
        return error.words
    return (error.strerror or "") if error.errno in _NUMBERS else ""


def shortage_in(words: str) -> str:
    """The part of a tool's output that names a shortage; empty without one."""
    found = _WORDS.search(words)
    return found[0] if found else ""
