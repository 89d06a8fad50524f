"""`python -m staged` is the command `staged`."""

from staged.cli import main

if __name__ == "__main__":
    main()
