"""Loop nests become kernels of a device: what a thread, or a team of threads, does for an item."""
