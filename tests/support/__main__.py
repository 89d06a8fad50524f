"""`python -m tests.support`: run every function on every back end and write down what runs.

Writes staged/cli/support.json, which `staged support` reads. Functions that are given by name, or with --missing those that
have no row, are run anew; the others' rows stay. Calls that give a wrong answer are printed, and are not in the rows.
"""

from __future__ import annotations

import argparse
import functools
import json
import multiprocessing
import os
import sys
import time

os.environ["STAGED_CUDA"] = "emulate"

from staged.cli.support import RECORD, Row
from tests.fuzz.cells.public import public_names
from tests.rows import ROWS
from tests.support.measure import measured

BATCH = 8
"""The number of functions whose calls are one program on each back end."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.support", description=__doc__)
    parser.add_argument("names", nargs="*", help="functions, such as exp or nn.Linear; all unless some are given")
    parser.add_argument("--missing", action="store_true", help="only functions that have no row")
    parser.add_argument("--backends", default="C", help="the back ends that are tried anew beside eager mode")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    options = parser.parse_args()
    kept = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    every = sorted({*public_names(), *ROWS})
    names = options.names or [name for name in every if not options.missing or name not in kept]
    kept = {name: row for name, row in kept.items() if name in every}
    wrong, start = 0, time.monotonic()
    batches = [names[place : place + BATCH] for place in range(0, len(names), BATCH)]
    measure = functools.partial(measured, backends=options.backends.split(","))
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        for number, found in enumerate(pool.imap_unordered(measure, batches), 1):
            wrong += len(found.faults)
            print("\n".join(found.faults), flush=True)
            for name, row in found.rows.items():
                before = Row.of_json(name, kept[name]) if name in kept else Row(name, {}, {})
                kept[name] = Row(name, before.found | row.found, row.why).as_json()
            write(kept)
            print(f"{number} of {len(batches)} programs after {time.monotonic() - start:.0f} s", file=sys.stderr)
    return wrong > 0


def write(kept: dict[str, object]) -> None:
    lines = [f"  {json.dumps(name)}: {json.dumps(kept[name])}" for name in sorted(kept)]
    RECORD.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    sys.exit(main())
