// The memory of the emulated device: an arena of addresses that host code cannot touch.
//
// Every page of the arena is closed (PROT_NONE). While the device works (a copy, a kernel) the first access to a live
// allocation faults, and the handler opens that allocation until the work is done; any other access is a mistake that
// ends the process with a message, as it would be an invalid address on a GPU.
//
// An allocation ends at a closed page and is never reused, so that what is read after a free faults too. The bytes between
// its size and the page's end are a canary that cudaFree checks. Fresh memory holds 0xff bytes: NaN for floats.

#include "emulator.h"

#include <csignal>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <vector>

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include "include/cuda_runtime.h"

namespace emulator {

namespace {

constexpr size_t PAGE = 4096;
constexpr size_t ALIGNMENT = 256;  // of every allocation, as on a GPU
constexpr size_t ARENA = size_t(1) << 36;
constexpr int FAULT_EXIT = 86;
constexpr unsigned char UNTOUCHED = 0xff;
char *const WANTED_ADDRESS = reinterpret_cast<char *>(0x300000000000);  // easy to recognise in a debugger

char *arena, *next_free;
std::map<char *, Allocation> &allocations() {
    static std::map<char *, Allocation> by_pages;
    return by_pages;
}
std::vector<Allocation *> opened;
struct sigaction handler_before;
thread_local int device_depth;

void open_pages(Allocation &allocation) {
    mprotect(allocation.pages, allocation.span, PROT_READ | PROT_WRITE);
    allocation.open = true;
    opened.push_back(&allocation);
}

[[noreturn]] void report_fault(const char *address) {
    const char *who = device_depth > 0 ? (running_kernel ? "a kernel" : "a copy") : "host code";
    fprintf(stderr, "emulated device: %s touched the device address %p", who, static_cast<const void *>(address));
    if (const Allocation *near = find_allocation(address)) {
        fprintf(
            stderr, ", %+td bytes from the start of allocation %d (%zu bytes, %s)", address - near->address,
            near->number, near->size, near->live ? "live" : "freed");
    }
    if (running_kernel != nullptr) {
        const EmulatedThread &at = emulated_thread;
        fprintf(
            stderr, ", in kernel %s, block (%u,%u,%u), thread (%u,%u,%u)", running_kernel, at.block.x, at.block.y,
            at.block.z, at.thread.x, at.thread.y, at.thread.z);
    }
    fputc('\n', stderr);
    void *frames[24];
    backtrace_symbols_fd(frames, backtrace(frames, 24), STDERR_FILENO);
    _exit(FAULT_EXIT);
}

void on_fault(int number, siginfo_t *info, void *context) {
    char *address = static_cast<char *>(info->si_addr);
    if (is_device_address(address)) {
        Allocation *allocation = find_allocation(address);
        const bool inside =
            allocation && address >= allocation->pages && address < allocation->pages + allocation->span;
        if (device_depth > 0 && inside && allocation->live && !allocation->open) {
            open_pages(*allocation);
            return;
        }
        report_fault(address);
    }
    // Not ours: as it would have been without us.
    if ((handler_before.sa_flags & SA_SIGINFO) && handler_before.sa_sigaction) {
        handler_before.sa_sigaction(number, info, context);
    } else if (handler_before.sa_handler != SIG_DFL && handler_before.sa_handler != SIG_IGN) {
        handler_before.sa_handler(number);
    } else {
        sigaction(SIGSEGV, &handler_before, nullptr);  // returning repeats the access, which then ends the process
    }
}

bool start() {
    if (arena != nullptr) {
        return true;
    }
    void *mapped =
        mmap(WANTED_ADDRESS, ARENA, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped == MAP_FAILED) {
        return false;
    }
    arena = static_cast<char *>(mapped);
    next_free = arena + PAGE;
    void *frames[2];
    backtrace(frames, 2);  // loads what it needs now: a signal handler must not
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = on_fault;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &handler_before);
    return true;
}

void check_canary(const Allocation &allocation) {
    const char *end = allocation.address + allocation.size;
    for (const char *at = allocation.pages + allocation.span; at-- > end;) {
        if (static_cast<unsigned char>(*at) != UNTOUCHED) {
            violation(
                "allocation %d (%zu bytes) was written %td bytes past its end", allocation.number, allocation.size,
                at - end + 1);
            break;
        }
    }
    for (const char *at = allocation.pages; at < allocation.address; ++at) {
        if (static_cast<unsigned char>(*at) != UNTOUCHED) {
            violation("allocation %d was written %td bytes before its start", allocation.number, allocation.address - at);
            break;
        }
    }
}

char last_violation[512];
cudaError_t last_error = cudaSuccess;

}  // namespace

std::recursive_mutex device_lock;
emulator_counts counts;

void violation(const char *format, ...) {
    va_list values;
    va_start(values, format);
    vsnprintf(last_violation, sizeof last_violation, format, values);
    va_end(values);
    fprintf(stderr, "emulated device: %s\n", last_violation);
    ++counts.violations;
}

cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}

bool is_device_address(const void *address) {
    const char *at = static_cast<const char *>(address);
    return arena != nullptr && at >= arena && at < arena + ARENA;
}

Allocation *find_allocation(const void *address) {
    char *at = static_cast<char *>(const_cast<void *>(address));
    auto after = allocations().upper_bound(at);
    if (after == allocations().begin()) {
        return nullptr;
    }
    Allocation &allocation = std::prev(after)->second;
    return at < allocation.pages + allocation.span + PAGE ? &allocation : nullptr;
}

bool check_device_range(const void *address, size_t size, const char *what) {
    const char *at = static_cast<const char *>(address);
    const Allocation *allocation = is_device_address(address) ? find_allocation(address) : nullptr;
    if (allocation && allocation->live && at >= allocation->address &&
        at + size <= allocation->address + allocation->size) {
        return true;
    }
    violation("%s: %p (%zu bytes) is not inside a live device allocation", what, address, size);
    return false;
}

DeviceWork::DeviceWork() : locked(device_lock) {
    ++device_depth;
}

DeviceWork::~DeviceWork() {
    if (--device_depth == 0) {
        for (Allocation *allocation : opened) {
            if (allocation->open) {
                mprotect(allocation->pages, allocation->span, PROT_NONE);
                allocation->open = false;
            }
        }
        opened.clear();
    }
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaMalloc(void **address, size_t size) {
    Locked locked(device_lock);
    if (!start()) {
        return failed(cudaErrorMemoryAllocation);
    }
    const size_t padded = size == 0 ? ALIGNMENT : (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t span = (padded + PAGE - 1) / PAGE * PAGE;
    if (size > ARENA || size_t(arena + ARENA - next_free) < span + PAGE) {
        return failed(cudaErrorMemoryAllocation);
    }
    char *pages = next_free;
    if (mprotect(pages, span, PROT_READ | PROT_WRITE) != 0) {
        return failed(cudaErrorMemoryAllocation);
    }
    next_free += span + PAGE;
    memset(pages, UNTOUCHED, span);
    mprotect(pages, span, PROT_NONE);
    const int number = int(++counts.allocations);
    allocations()[pages] = Allocation{pages + span - padded, size, pages, span, number, true, false};
    ++counts.live_allocations;
    counts.live_bytes += int64_t(size);
    *address = pages + span - padded;
    return cudaSuccess;
}

cudaError_t cudaFree(void *address) {
    if (address == nullptr) {
        return cudaSuccess;
    }
    DeviceWork work;
    Allocation *allocation = is_device_address(address) ? find_allocation(address) : nullptr;
    if (allocation == nullptr || allocation->address != address) {
        violation("cudaFree: %p is not the start of an allocation", address);
        return failed(cudaErrorInvalidValue);
    }
    if (!allocation->live) {
        violation("cudaFree: allocation %d was freed before", allocation->number);
        return failed(cudaErrorInvalidValue);
    }
    check_canary(*allocation);  // opens the pages
    allocation->live = false;
    allocation->open = false;
    madvise(allocation->pages, allocation->span, MADV_DONTNEED);
    mprotect(allocation->pages, allocation->span, PROT_NONE);
    --counts.live_allocations;
    counts.live_bytes -= int64_t(allocation->size);
    return cudaSuccess;
}

static cudaError_t check_copy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
    static const char *const names[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
    const bool to_device = is_device_address(target), from_device = is_device_address(source);
    if (kind == cudaMemcpyDefault) {
        kind = cudaMemcpyKind((from_device ? 2 : 0) | (to_device ? 1 : 0));
    }
    if (kind < cudaMemcpyHostToHost || kind > cudaMemcpyDefault || to_device != (kind & 1) || from_device != (kind >> 1)) {
        violation(
            "cudaMemcpy%s, but the target is on the %s and the source on the %s", names[kind & 3],
            to_device ? "device" : "host", from_device ? "device" : "host");
        return failed(cudaErrorInvalidMemcpyDirection);
    }
    if ((to_device && !check_device_range(target, size, "target of a copy")) ||
        (from_device && !check_device_range(source, size, "source of a copy"))) {
        return failed(cudaErrorInvalidValue);
    }
    counts.copies_to_device += kind == cudaMemcpyHostToDevice;
    counts.copies_to_host += kind == cudaMemcpyDeviceToHost;
    counts.copies_on_device += kind == cudaMemcpyDeviceToDevice;
    counts.bytes_to_device += kind == cudaMemcpyHostToDevice ? int64_t(size) : 0;
    counts.bytes_to_host += kind == cudaMemcpyDeviceToHost ? int64_t(size) : 0;
    return cudaSuccess;
}

cudaError_t cudaMemcpy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
    DeviceWork work;
    const cudaError_t error = check_copy(target, source, size, kind);
    if (error == cudaSuccess) {
        memcpy(target, source, size);
    }
    return error;
}

cudaError_t cudaMemset(void *target, int value, size_t size) {
    DeviceWork work;
    if (!check_device_range(target, size, "cudaMemset")) {
        return failed(cudaErrorInvalidValue);
    }
    memset(target, value, size);
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void) {
    Locked locked(device_lock);
    const cudaError_t error = last_error;
    last_error = cudaSuccess;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    Locked locked(device_lock);
    return last_error;
}

void emulator_read(emulator_counts *result) {
    Locked locked(device_lock);
    *result = counts;
}

const char *emulator_last_violation(void) {
    return last_violation;
}

}  // extern "C"
