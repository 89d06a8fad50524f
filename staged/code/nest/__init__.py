"""Loop nests become trees of code: the state of one (`lowering`), and small objects that lower its statements.

Tested by running kernels (`tests/kernels`), by the texts of `tests/backends/native` and by programs of a device.
"""
