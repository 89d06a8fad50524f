// Which shared memory a kernel has: see shared_memory.cpp.
#ifndef STAGED_EMULATOR_SHARED_MEMORY_H
#define STAGED_EMULATOR_SHARED_MEMORY_H

#include <cstddef>
#include <string>
#include <vector>

namespace emulator {

struct Range {
    char *start, *end;
};

// The shared memory of one kernel among that of its library, which is `all`. `is_kernel` says whether a name is one of
// its kernels.
std::vector<Range> shared_memory_of(
    const void *function, const std::string &name, Range all, bool (*is_kernel)(const std::string &name));

size_t total_size(const std::vector<Range> &ranges);

}  // namespace emulator

#endif
