"""The names for kernels written with `st.gpu_func`: `st.cuda.thread_index.x`, `st.cuda.shared(...)`.

The meaning of each is CUDA's: `docs/kernels.md` has a table with the names that CUDA and numba use.
"""

from staged.frontend.gpu_func.names import (
    WARP_SIZE,
    atomic_add,
    atomic_max,
    atomic_min,
    block_index,
    block_size,
    global_index,
    global_size,
    grid_size,
    lane_index,
    local,
    shared,
    shuffle,
    shuffle_down,
    shuffle_up,
    shuffle_xor,
    syncthreads,
    thread_index,
)

__all__ = [
    "WARP_SIZE",
    "atomic_add",
    "atomic_max",
    "atomic_min",
    "block_index",
    "block_size",
    "global_index",
    "global_size",
    "grid_size",
    "lane_index",
    "local",
    "shared",
    "shuffle",
    "shuffle_down",
    "shuffle_up",
    "shuffle_xor",
    "syncthreads",
    "thread_index",
]
