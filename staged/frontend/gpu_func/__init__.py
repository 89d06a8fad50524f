"""Kernels that the user writes for one thread: their syntax becomes a `ThreadKernel`,
apart from the tracing of arrays."""
