"""The planted faults: every module here has a tuple `MUTANTS`, one file per part of the project."""
