"""Nests on a CPU: the compiler's vectors as schedules require them, workspace, and ranges of items.

Tested by running kernels (`tests/kernels`) and by the texts of `tests/backends/native`.
"""
