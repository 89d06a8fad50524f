// Which shared memory a kernel has.
//
// The shared arrays of all kernels of a library are statics in one section. Whose they are is in the library's table of
// symbols: an array `tile` of the kernel `transpose` is `_ZZ9transposeE4tile` there. With it a block clears its own
// kernel's arrays alone, and a kernel that has more than a GPU would give is found. Arrays of functions that are no
// kernels belong to all, and so does everything where there is no table (a stripped library).

#include "shared_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <dlfcn.h>
#include <fcntl.h>
#include <link.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace emulator {

namespace {

// A file in memory, as long as this lives.
class File {
  public:
    explicit File(const char *path) {
        const int descriptor = open(path, O_RDONLY | O_CLOEXEC);
        struct stat about;
        if (descriptor >= 0 && fstat(descriptor, &about) == 0 && about.st_size > 0) {
            void *mapped = mmap(nullptr, size_t(about.st_size), PROT_READ, MAP_PRIVATE, descriptor, 0);
            if (mapped != MAP_FAILED) {
                bytes = static_cast<const char *>(mapped);
                size = size_t(about.st_size);
            }
        }
        if (descriptor >= 0) {
            close(descriptor);
        }
    }
    ~File() {
        if (bytes != nullptr) {
            munmap(const_cast<char *>(bytes), size);
        }
    }
    File(const File &) = delete;
    File &operator=(const File &) = delete;

    const char *bytes = nullptr;
    size_t size = 0;
};

// `transpose` of `_ZZ9transposeE4tile`; empty for anything else.
std::string function_of(const char *symbol) {
    if (strncmp(symbol, "_ZZ", 3) != 0) {
        return "";
    }
    char *rest = nullptr;
    const unsigned long length = strtoul(symbol + 3, &rest, 10);
    return rest != symbol + 3 && strlen(rest) > length && rest[length] == 'E' ? std::string(rest, length) : "";
}

// What a symbol is called, and where it lies.
struct Symbol {
    const char *name;
    Range range;
};

std::vector<Symbol> symbols_within(const File &file, uintptr_t base, Range all) {
    std::vector<Symbol> found;
    const auto *const header = reinterpret_cast<const ElfW(Ehdr) *>(file.bytes);
    if (file.size < sizeof *header || memcmp(header->e_ident, ELFMAG, SELFMAG) != 0 ||
        header->e_shoff + size_t(header->e_shnum) * sizeof(ElfW(Shdr)) > file.size) {
        return found;
    }
    const uintptr_t shift = header->e_type == ET_DYN ? base : 0;
    const auto *const sections = reinterpret_cast<const ElfW(Shdr) *>(file.bytes + header->e_shoff);
    for (size_t number = 0; number < header->e_shnum; ++number) {
        if (sections[number].sh_type != SHT_SYMTAB) {
            continue;
        }
        const char *const names = file.bytes + sections[sections[number].sh_link].sh_offset;
        const auto *const symbols = reinterpret_cast<const ElfW(Sym) *>(file.bytes + sections[number].sh_offset);
        for (size_t each = 0; each < sections[number].sh_size / sizeof *symbols; ++each) {
            const ElfW(Sym) &symbol = symbols[each];
            char *const start = reinterpret_cast<char *>(shift + symbol.st_value);
            if ((symbol.st_info & 0xf) == STT_OBJECT && start >= all.start && start + symbol.st_size <= all.end) {
                found.push_back({names + symbol.st_name, {start, start + symbol.st_size}});
            }
        }
    }
    return found;
}

}  // namespace

std::vector<Range> shared_memory_of(
    const void *function, const std::string &name, Range all, bool (*is_kernel)(const std::string &name)) {
    Dl_info about;
    if (all.start == all.end) {
        return {};
    }
    if (dladdr(function, &about) == 0 || about.dli_fname == nullptr) {
        return {all};
    }
    const File file(about.dli_fname);
    const auto symbols = symbols_within(file, reinterpret_cast<uintptr_t>(about.dli_fbase), all);
    if (symbols.empty()) {
        return {all};
    }
    std::vector<Range> own;
    for (const Symbol &symbol : symbols) {
        const std::string owner = function_of(symbol.name);
        if (owner == name || !is_kernel(owner)) {
            own.push_back(symbol.range);
        }
    }
    return own;
}

size_t total_size(const std::vector<Range> &ranges) {
    size_t total = 0;
    for (const Range &range : ranges) {
        total += size_t(range.end - range.start);
    }
    return total;
}

}  // namespace emulator
