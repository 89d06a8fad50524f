"""The names of `st.cuda`, which have a meaning only in the kernels of `st.gpu_func`."""

from __future__ import annotations

from typing import Any

from staged.errors import StagingError
from staged.ir.thread_kernel import AXES, WARP
from staged.source import here

WARP_SIZE = WARP
"""The threads of a warp: 32."""


def _outside(name: str) -> StagingError:
    return StagingError(
        f"`cuda.{name}` belongs into a kernel",
        where=here(),
        hint="decorate the function with `@st.gpu_func`, and launch it: `f[grid, block](...)`",
    )


class Place:
    """The position of a thread, or the number of threads or blocks, along `x`, `y` and `z`: integers in a kernel."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __getattr__(self, axis: str) -> Any:
        if axis in tuple(AXES):
            raise _outside(f"{self.name}.{axis}")
        raise AttributeError(f"`cuda.{self.name}` has `x`, `y` and `z`, not `{axis}`")

    def __repr__(self) -> str:
        return f"cuda.{self.name}"


thread_index = Place("thread_index")
"""The thread's number in its block."""
block_index = Place("block_index")
"""The block's number in the grid."""
block_size = Place("block_size")
"""The threads of a block; known while staging."""
grid_size = Place("grid_size")
"""The blocks of the grid."""
global_index = Place("global_index")
"""The thread's number in the whole grid: `block_index * block_size + thread_index`."""
global_size = Place("global_size")
"""The threads of the whole grid: `grid_size * block_size`, the step of a loop that takes every element once."""


def lane_index() -> Any:
    """The thread's number in its warp, 0 to 31."""
    raise _outside("lane_index")


def shared(shape: Any, dtype: Any) -> Any:
    """An array that the threads of a block share, of a shape and dtype that are known while staging; its elements are
    undefined at first.
    """
    raise _outside("shared")


def local(shape: Any, dtype: Any) -> Any:
    """An array that each thread has for itself, of a shape and dtype that are known while staging; its elements are
    undefined at first.
    """
    raise _outside("local")


def syncthreads() -> None:
    """Wait for all threads of the block; their earlier writes are visible afterwards. Every thread must reach this
    call.
    """
    raise _outside("syncthreads")


def atomic_add(array: Any, index: Any, value: Any) -> Any:
    """`array[index] += value` as one indivisible step; returns the old value.

    i32, i64, u32, f32, f64. Sums of floats depend on the order of the threads, so their last bits differ from run to
    run.
    """
    raise _outside("atomic_add")


def atomic_min(array: Any, index: Any, value: Any) -> Any:
    """`array[index] = min(array[index], value)` as one indivisible step, for i32, i64 and u32; returns the old
    value.
    """
    raise _outside("atomic_min")


def atomic_max(array: Any, index: Any, value: Any) -> Any:
    """`array[index] = max(array[index], value)` as one indivisible step, for i32, i64 and u32; returns the old
    value.
    """
    raise _outside("atomic_max")


def shuffle(value: Any, lane: Any) -> Any:
    """`value` as it is in another lane of the warp, by its number. All 32 lanes must call this, as any shuffle."""
    raise _outside("shuffle")


def shuffle_up(value: Any, delta: Any) -> Any:
    """The value of `value` `delta` lanes below; the thread's own in the first `delta` lanes."""
    raise _outside("shuffle_up")


def shuffle_down(value: Any, delta: Any) -> Any:
    """The value of `value` `delta` lanes above; the thread's own in the last `delta` lanes."""
    raise _outside("shuffle_down")


def shuffle_xor(value: Any, mask: Any) -> Any:
    """The value of `value` in the lane whose number differs by the bits of `mask`."""
    raise _outside("shuffle_xor")
