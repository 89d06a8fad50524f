"""Count: `python -m tests.torch_samples` in eager mode, `--programs 8` with so many samples of each record in a program."""

import argparse

from tests.torch_samples.check import COMPLEX, DTYPES
from tests.torch_samples.survey import survey

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=0, metavar="SAMPLES", help="compile so many samples of each record")
    parser.add_argument("--part", type=int, default=0)
    parser.add_argument("--parts", type=int, default=1, help="every so many-th record, from `part` on")
    parser.add_argument("--complex", action="store_true", help="samples of complex numbers instead of floats")
    options = parser.parse_args()
    dtypes = COMPLEX if options.complex else DTYPES
    found = survey(options.part, options.parts, options.programs, dtypes=dtypes)
    print("\n".join(found.failures + found.unneeded))
    print(f"{found.mapped} of {found.records} records are ours; {found.agree} samples agree, {found.excused} are excused")
