"""Nests on a CPU: vectors of the compiler's where a schedule asks for them, workspace and ranges of items.

Tested by running kernels (`tests/kernels`) and by the texts of `tests/backends/native`.
"""
