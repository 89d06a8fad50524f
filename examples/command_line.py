"""The command line of an example: a flag for each number of it."""

from __future__ import annotations

import argparse
from typing import Any


def read_flags(doc: str | None, **defaults: Any) -> argparse.Namespace:
    """The flags `--name` for each default, of its type, and `--show`, which prints the generated C.

    A tuple is a choice, whose first element is the default; None is the default of a text.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            parser.add_argument(flag, choices=default, default=default[0])
        else:
            parser.add_argument(flag, type=type(default) if default is not None else str, default=default)
    parser.add_argument("--show", action="store_true", help="print the generated C and stop")
    return parser.parse_args()
