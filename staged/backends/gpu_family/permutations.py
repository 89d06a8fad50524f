"""Random permutations by the threads of a block: the exchanges of Fisher and Yates, followed back element by element.

    for i in n - 1 .. 1: swap(order[i], order[chosen(i)])       chosen(i) <= i is drawn

What ends at i was at chosen(i) just before step i. It had come to that place p in the latest step before, which is the
lowest step above i that chose p, from that step's own place; and so on, until no step before had chosen the place: then the
element is p, where it began. So every thread follows elements of its own back, about as many steps as a binary tree is
high, and the numbers are those of the exchanges one after the other.
"""

from __future__ import annotations

from staged.backends.gpu_family.mapping import Part
from staged.ir.loops import ArrayRef, CallSupport, Constant
from staged.ir.machine import Gpu
from staged.ir.schedule import Bind, Level, Memory, Place, Schedule, Share
from staged.ir.types import i32

SNIPPET = "block_permutation"
NEEDS = ("st_random_bits",)
MOST = 1 << 30
"""Elements up to which their numbers are `int`."""

TEXT = """\
// Whom element i is exchanged with, in a step that goes from the end to the beginning.
static __device__ inline int st_chosen(int i, int64_t seed, int64_t stream, int64_t counter) {
    return (int)((uint64_t)st_random_bits(seed, stream, counter, i) * ((uint64_t)i + 1) >> 32);
}

// 0 .. n - 1 in random order, by all threads of a block: Fisher-Yates from the end, each element followed back to where it
// began. `heads` and `links` list the steps that choose a place, in any order.
static __device__ inline void st_block_permutation(int64_t *order, int *heads, int *links, int n, int64_t seed,
                                                   int64_t stream, int64_t counter) {
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        heads[i] = -1;
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        links[i] = atomicExch(&heads[st_chosen(i, seed, stream, counter)], i);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += blockDim.x) {
        int place = st_chosen(i, seed, stream, counter), step = i;
        for (;;) {
            int before = n;  // the lowest step above that chose the place
            for (int other = heads[place]; other >= 0; other = links[other]) {
                before = other > step && other < before ? other : before;
            }
            if (before == n) {
                break;
            }
            place = step = before;
        }
        order[i] = place;
    }
}
"""


def permutation_by_block(part: Part, gpu: Gpu) -> tuple[Part, Schedule] | None:
    """A part that makes a permutation, with the workspace that a block of threads needs for it; None for others.

    Exact: the permutation of the host's exchanges, element for element, for any number of threads.
    """
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
