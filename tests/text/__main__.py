"""Check the text of the project: python -m tests.text [--update] [--carry FROM TO]. CONTRIBUTING.md explains the rules."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.text.ceilings import SUM, TABLE, carried, failures, parse, recorded, text_of, updated
from tests.text.rules import KINDS, check


def main() -> None:
    """Check, after the changes of the table that were asked for."""
    parser = argparse.ArgumentParser(description="Check the text of the project against its ceilings.")
    parser.add_argument("--update", action="store_true", help="lower the ceilings; those of moved text go to new files")
    parser.add_argument("--carry", nargs=2, metavar=("FROM", "TO"), help="text moved to a file that has ceilings")
    parser.add_argument("--list", metavar="FILE", help="print all findings in a file")
    options = parser.parse_args()
    root = Path(__file__).parent.parent.parent
    found = check(root)
    if options.list:
        print("\n".join(map(str, found.findings[options.list])))
        return
    ceilings = parse(TABLE.read_text()) if TABLE.exists() else recorded(found)
    if options.carry:
        ceilings = carried(found, ceilings, *options.carry)
    if options.update:
        ceilings = updated(found, ceilings)
    if options.update or options.carry:
        TABLE.write_text(text_of(ceilings))
    for kind, number in ceilings[SUM].items():
        print(f"{KINDS[kind]}: at most {number}")
    messages = failures(found, ceilings, root)
    sys.exit("\n\n".join(messages) or 0)


if __name__ == "__main__":
    main()
