"""Python becomes IR: `trace_function.py` is the entry, and each construct of Python is a file in `constructs/`."""
