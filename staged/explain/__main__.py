"""`python -m staged.explain FILE:FUNCTION ARGUMENTS` is `staged explain FILE:FUNCTION ARGUMENTS`."""

import sys

from staged.cli import main

if __name__ == "__main__":
    sys.argv[1:1] = ["explain"]
    main()
