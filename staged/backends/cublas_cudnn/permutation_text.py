"""The support function that makes a random permutation by the threads of a block: see `backends/gpu/permutations.py`.

Tested by `tests/backends/cublas_cudnn/test_random.py`.
"""

from __future__ import annotations

from staged.backends.gpu.permutations import SNIPPET
from staged.code.support.library import SupportFunction, made_of

_CHOSEN = SupportFunction(
    "int",
    "st_chosen",
    """\
(int i, int64_t seed, int64_t stream, int64_t counter) {
    return (int)((uint64_t)st_random_bits(seed, stream, counter, i) * ((uint64_t)i + 1) >> 32);
}
""",
    calls=("st_random_bits",),
    comment="// Whom element i is exchanged with, in a step that goes from the end to the beginning.\n",
)
_PERMUTATION = SupportFunction(
    "void",
    f"st_{SNIPPET}",
    """\
(int64_t *order, int *heads, int *links, int n, int64_t seed,
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
""",
    calls=("st_chosen",),
    comment="""\
// 0 .. n - 1 in random order, by all threads of a block: Fisher-Yates from the end, each element followed back to where
// it began. `heads` and `links` list the steps that choose a place, in any order.
""",
)
BLOCK_PERMUTATION = made_of(SNIPPET, _CHOSEN, _PERMUTATION, needs=("st_random_bits",))
