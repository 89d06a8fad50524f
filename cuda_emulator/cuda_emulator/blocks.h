// One block of threads on the emulated device: see blocks.cpp.
#ifndef STAGED_EMULATOR_BLOCKS_H
#define STAGED_EMULATOR_BLOCKS_H

#include "include/cuda_runtime_api.h"

#include <vector>

namespace emulator {

constexpr unsigned MAX_THREADS = 1024, WARP = 32;

// What the threads of a block run.
struct BlockCode {
    void (*call)(void **arguments);
    void **arguments;
    void *dynamic_shared;
};

// Runs the threads of a block, whose number is in `emulated_thread`, beginning them in `order`. False where they cannot
// go on (a deadlock, a divergent barrier, a trap), which has been said.
bool run_block(const BlockCode &code, const std::vector<unsigned> &order, bool shuffled);

// Whether an address is just below the stack of a thread: its local memory was too large.
bool is_below_a_stack(const void *address);

}  // namespace emulator

#endif
