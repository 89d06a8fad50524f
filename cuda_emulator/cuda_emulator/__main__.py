"""Print the flags of a C++ compiler, as pkg-config does. The libraries are built if they are missing."""

from __future__ import annotations

import argparse
import shlex

from cuda_emulator.building import LIBRARIES, compile_flags, link_flags


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m cuda_emulator", description=__doc__)
    parser.add_argument("what", choices=["flags", "libs"], help="flags of the program, or of the linker after it")
    parser.add_argument("libraries", nargs="*", metavar="LIBRARY", help=f"for libs: {', '.join(LIBRARIES)}")
    parser.add_argument("--races", action="store_true", help="let the thread sanitizer find races")
    words = parser.parse_args()
    for name in words.libraries:
        if name not in LIBRARIES:
            parser.error(f"unknown library {name!r}: one of {', '.join(LIBRARIES)}")
    flags = compile_flags(words.races) if words.what == "flags" else link_flags(words.libraries, words.races)
    print(shlex.join(flags))


if __name__ == "__main__":
    main()
