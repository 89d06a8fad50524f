"""`python -m tests.gpu_check.probes MODULE:FUNCTION FOLDER [--small] [--prepare] [--past N]`: one probe, in this process."""

from __future__ import annotations

import argparse
import importlib
import sys
from pathlib import Path

from tests.gpu_check.probes.book import Book, Skipped


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.gpu_check.probes", description=__doc__)
    parser.add_argument("probe", metavar="MODULE:FUNCTION")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--small", action="store_true", help="sizes of a rehearsal")
    parser.add_argument("--prepare", action="store_true", help="note the programs, run nothing")
    parser.add_argument("--past", type=int, default=-1, metavar="N", help="the last check that has a result")
    options = parser.parse_args()
    book = Book(options.folder, options.small, options.prepare, options.past)
    module, _, function = options.probe.partition(":")
    try:
        getattr(importlib.import_module(module), function)(book)
    except Skipped as reason:
        book.note(skipped=str(reason))
    book.note(ends=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
