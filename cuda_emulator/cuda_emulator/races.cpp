// Memory that the thread sanitizer is to know nothing of: see races.h.

#include "races.h"

#ifdef STAGED_EMULATOR_RACES

#include <cstdint>
#include <cstring>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

extern "C" {
void AnnotateIgnoreReadsBegin(const char *file, int line);
void AnnotateIgnoreReadsEnd(const char *file, int line);
void AnnotateIgnoreWritesBegin(const char *file, int line);
void AnnotateIgnoreWritesEnd(const char *file, int line);
}

namespace emulator {
namespace races {

namespace {

class Ignoring {
  public:
    Ignoring() {
        AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
        AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
    }
    ~Ignoring() {
        AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
        AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
    }
};

}  // namespace

// The sanitizer forgets what it knows of pages that are mapped anew while accesses are ignored.
void renew_pages(char *start, size_t size) {
    Ignoring ignoring;
    mmap(start, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0);
}

void forget_memory(char *start, char *end) {
    Ignoring ignoring;
    const uintptr_t page = uintptr_t(sysconf(_SC_PAGESIZE));
    char *const first = start - reinterpret_cast<uintptr_t>(start) % page;
    const size_t span = (size_t(end - first) + page - 1) / page * page;
    const std::vector<char> kept(first, first + span);
    renew_pages(first, span);
    memcpy(first, kept.data(), span);
}

}  // namespace races
}  // namespace emulator

#endif
