"""Random permutations by the threads of a block: the exchanges of Fisher and Yates, followed back element by element.

    for i in n - 1 .. 1: swap(order[i], order[chosen(i)])       chosen(i) <= i is drawn

What ends at i was at chosen(i) just before step i. It had come to that place p in the latest step before, which is the
lowest step above i that chose p, from that step's own place; and so on, until no step before had chosen the place: then
the element is p, where it began. So every thread follows elements of its own back, about as many steps as a binary tree
is high, and the numbers are those of the exchanges one after the other.

Tested by `tests/backends/cublas_cudnn/test_random.py`.
"""

from __future__ import annotations

from staged.backends.gpu.mapping import Part
from staged.ir.loops import ArrayRef, CallSupport, Constant
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Memory, Place, Schedule, Share
from staged.ir.types import i32

SNIPPET = "block_permutation"
"""The support function of a device that makes one."""
MOST = 1 << 30
"""Elements up to which their numbers are `int`."""


def permutation_by_block(part: Part, gpu: Gpu) -> tuple[Part, Schedule] | None:
    """A part that makes a permutation, with the workspace that a block of threads needs for it; None for others.

    Exact: the permutation of the host's exchanges, element for element, for any number of threads.
    """
    if not gpu.has_warps:
        return None
    match part.body:
        case (CallSupport("st_permutation", _, (ArrayRef() as order, Constant(n), *key)),) if gpu.warp <= n <= MOST:
            heads, links = (ArrayRef(name, i32, int(n), "scratch") for name in ("heads", "links"))
            call = CallSupport(f"st_{SNIPPET}", SNIPPET, (order, heads, links, Constant(n, i32), *key))
            made = Part(part.axes, (call,), (heads, links))
            threads = min(gpu.largest_block, 1 << (int(n) - 1).bit_length())
            memory = Memory.SHARED if made.workspace_bytes <= gpu.shared_bytes else Memory.DEVICE
            return made, Schedule((
                Bind(part.axes, Level.BLOCKS, 1),
                Share(None, (), Level.THREADS, threads),
                Place(heads, memory),
                Place(links, memory),
            ))  # fmt: skip
    return None
