"""The command line: `staged run`, `show`, `explain`, `export`, `doctor`, `support`, `cache`."""

from __future__ import annotations

import sys


def main() -> None:
    """Entry point of the `staged` command."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.exit('staged: the command line needs click; pip install ".[cli]" in the clone')
    from staged.cli.commands import run_command_line

    run_command_line()
