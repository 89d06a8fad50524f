"""Loop nests become kernels of a device: what a thread, or a team of threads, does for an item.

Tested on the emulated device, by the programs of `tests/backends/cublas_cudnn`.
"""
