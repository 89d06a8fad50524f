"""CUDA's devices as schedules see them.

Tested by `tests/backends/gpu/test_schedule.py`.
"""

from __future__ import annotations

from staged.ir.machine import Gpu

# What all devices of compute capability 8.0 and above can do (CUDA C++ Programming Guide, "Compute Capabilities").
CUDA_GPU = Gpu(
    "cuda",
    warp=32,
    block=256,
    largest_block=1024,
    blocks=2**31 - 1,
    access_bytes=16,
    shared_bytes=32 << 10,
    largest_shared_bytes=48 << 10,
    thread_bytes=16 << 10,
    workspace_bytes=64 << 20,
    busy_threads=1 << 16,
    busy_warps=128,
    busy_items=1 << 12,
)
