// The memory of the emulated devices: an arena of addresses that host code cannot touch.
//
// Every page of the arena is closed (PROT_NONE). While a device works (a copy, a kernel) the first access to a live
// allocation faults, and the handler opens that allocation until the work is done; any other access is a mistake that
// ends the process with a message, as it would be an invalid address on a GPU.
//
// An allocation ends at a closed page and its addresses are never used again, so that what is read after a free faults
// too. The bytes between its size and the page's end are a canary that cudaFree checks. Fresh memory holds 0xff bytes:
// NaN for floats.

#include "emulator.h"
#include "blocks.h"
#include "races.h"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>

#include <execinfo.h>
#include <sys/mman.h>
#include <unistd.h>

#include "include/cuda_runtime.h"
#undef threadIdx
#undef blockIdx

namespace emulator {

namespace {

constexpr size_t ALIGNMENT = 256;  // of every allocation, as on a GPU
constexpr int FAULT_EXIT = 86;
constexpr unsigned char UNTOUCHED = 0xff;
// The thread sanitizer has its own idea of where memory may be, and takes handlers of faults for suspicious.
constexpr uintptr_t WANTED_ADDRESS = races::ENABLED ? 0 : 0x300000000000;  // easy to recognise in a debugger
constexpr bool CLOSED = !races::ENABLED;
constexpr int ARENA_POWER = races::ENABLED ? 36 : 43;

const size_t PAGE = size_t(sysconf(_SC_PAGESIZE));
char *arena, *arena_end, *next_free;
std::vector<Allocation *> opened;
std::vector<int64_t> used_bytes;  // by device
struct sigaction segv_before, ill_before, trap_before;
thread_local int device_depth, working_device;

// The stack on which a thread handles signals; given back when the thread ends.
struct SignalStack {
    bool known = false;
    void *ours = nullptr;

    ~SignalStack() {
        if (ours != nullptr) {
            stack_t none;
            memset(&none, 0, sizeof none);
            none.ss_flags = SS_DISABLE;
            sigaltstack(&none, nullptr);
            free(ours);
        }
    }
};
thread_local SignalStack signal_stack;

std::map<char *, Allocation> &allocations() {
    static auto &by_pages = *new std::map<char *, Allocation>;
    return by_pages;
}

void open_pages(Allocation &allocation) {
    mprotect(allocation.pages, allocation.span, PROT_READ | PROT_WRITE);
    allocation.open = true;
    opened.push_back(&allocation);
}

// ---- faults ----

[[noreturn]] void end_process() {
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

[[noreturn]] void report_fault(const char *address) {
    const char *const worker = running_kernel ? "a kernel" : running_work ? running_work : "a call";
    const char *const who = device_depth > 0 ? worker : "host code";
    fprintf(stderr, "emulated device: %s touched the device address %p", who, static_cast<const void *>(address));
    if (const Allocation *near = find_allocation(address)) {
        fprintf(
            stderr, ", %+td bytes from the start of allocation %d (%zu bytes, %s)", address - near->address,
            near->number, near->size, near->live ? "live" : "freed");
        if (device_depth > 0 && !can_reach(working_device, near->device)) {
            fprintf(stderr, " of device %d, which device %d cannot reach", near->device, working_device);
        }
    }
    end_process();
}

// As it would have been without us.
void pass_on(const struct sigaction &before, int number, siginfo_t *info, void *context) {
    if ((before.sa_flags & SA_SIGINFO) && before.sa_sigaction) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
        before.sa_handler(number);
    } else {
        sigaction(number, &before, nullptr);  // returning repeats the access, which then ends the process
    }
}

void on_fault(int number, siginfo_t *info, void *context) {
    char *address = static_cast<char *>(info->si_addr);
    if (is_device_address(address)) {
        Allocation *allocation = find_allocation(address);
        const bool inside =
            allocation && address >= allocation->pages && address < allocation->pages + allocation->span;
        if (device_depth > 0 && inside && allocation->live && !allocation->open &&
            can_reach(working_device, allocation->device)) {
            open_pages(*allocation);
            return;
        }
        report_fault(address);
    }
    if (running_kernel != nullptr && device_depth > 0) {
        if (is_below_a_stack(address)) {
            fputs("emulated device: a kernel needs more local memory than a thread's stack has here", stderr);
            end_process();
        }
        if (address == nullptr || address < reinterpret_cast<char *>(PAGE)) {
            fputs("emulated device: a kernel touched a null pointer or a misaligned vector", stderr);
            end_process();
        }
    }
    pass_on(segv_before, number, info, context);
}

// What -fsanitize=bounds,alignment puts before an access that must not be.
void on_trap(int number, siginfo_t *info, void *context) {
    if (running_kernel != nullptr && device_depth > 0) {
        fputs("emulated device: a kernel indexed outside of an array, or touched a misaligned vector", stderr);
        end_process();
    }
    pass_on(number == SIGILL ? ill_before : trap_before, number, info, context);
}

void handle(int number, void (*handler)(int, siginfo_t *, void *), struct sigaction &before) {
    struct sigaction action;
    memset(&action, 0, sizeof action);
    action.sa_sigaction = handler;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(number, &action, &before);
}

// Handlers run on a stack of their own: that of a kernel's thread may be what has run out.
void give_signal_stack() {
    stack_t now;
    signal_stack.known = true;
    if (sigaltstack(nullptr, &now) == 0 && (now.ss_flags & SS_DISABLE)) {
        stack_t wanted;
        memset(&wanted, 0, sizeof wanted);
        wanted.ss_size = 64 << 10;
        wanted.ss_sp = signal_stack.ours = malloc(wanted.ss_size);
        sigaltstack(&wanted, nullptr);
    }
}

void handle_faults() {
    handle(SIGSEGV, on_fault, segv_before);
    handle(SIGILL, on_trap, ill_before);
    handle(SIGTRAP, on_trap, trap_before);
}

// Python's faulthandler, which tests switch on before the first allocation and off at their end, then leaves the signal
// as it was before itself, without us.
void handle_faults_again() {
    struct sigaction now;
    if (arena != nullptr && sigaction(SIGSEGV, nullptr, &now) == 0 && now.sa_handler == SIG_DFL) {
        handle_faults();
    }
}

bool start() {
    if (arena != nullptr) {
        return true;
    }
    // As much as there are addresses for: they are not used twice. Pages cost nothing until they are open.
    for (int power = ARENA_POWER; power >= 34 && arena == nullptr; --power) {
        const size_t size = size_t(1) << power;
        const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
        void *mapped = mmap(reinterpret_cast<void *>(WANTED_ADDRESS), size, PROT_NONE, flags, -1, 0);
        if (mapped != MAP_FAILED) {
            arena = static_cast<char *>(mapped);
            arena_end = arena + size;
        }
    }
    if (arena == nullptr) {
        return false;
    }
    next_free = arena + PAGE;
    void *frames[2];
    backtrace(frames, 2);  // loads what it needs now: a signal handler must not
    handle_faults();
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
            violation(
                "allocation %d was written %td bytes before its start", allocation.number, allocation.address - at);
            break;
        }
    }
}

void list_allocations(std::vector<std::string> &lines) {
    for (const auto &[pages, allocation] : allocations()) {
        if (allocation.live) {
            lines.push_back(
                "allocation " + std::to_string(allocation.number) + ": " + std::to_string(allocation.size) +
                " bytes on device " + std::to_string(allocation.device));
        }
    }
}

const bool listed = (add_census(list_allocations), true);

int64_t &used_on(int device) {
    if (used_bytes.size() <= size_t(device)) {
        used_bytes.resize(size_t(device) + 1);
    }
    return used_bytes[size_t(device)];
}

}  // namespace

bool is_device_address(const void *address) {
    const char *at = static_cast<const char *>(address);
    return arena != nullptr && at >= arena && at < arena_end;
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

bool is_usable(const void *address, size_t size, int device) {
    const char *at = static_cast<const char *>(address);
    const Allocation *allocation = is_device_address(address) ? find_allocation(address) : nullptr;
    // What runs now was enqueued before a cudaFreeAsync that has yet to be done.
    return allocation && allocation->live && (!allocation->ending || running_work != nullptr) &&
           at >= allocation->address && at + size <= allocation->address + allocation->size &&
           can_reach(device, allocation->device);
}

bool check_device_range(const void *address, size_t size, const char *what, int device) {
    if (is_usable(address, size, device)) {
        return true;
    }
    const Allocation *allocation = is_device_address(address) ? find_allocation(address) : nullptr;
    if (allocation && is_usable(address, size, allocation->device)) {
        violation("%s: %p is on device %d, which device %d cannot reach", what, address, allocation->device, device);
    } else {
        violation("%s: %p (%zu bytes) is not inside a live device allocation", what, address, size);
    }
    return false;
}

bool check_host_range(const void *address, size_t size, const char *what) {
    if (is_device_address(address)) {
        violation("%s: %p (%zu bytes) is on the device, where the host's memory is needed", what, address, size);
        return false;
    }
    return true;
}

void release(Allocation &allocation) {
    DeviceWork work(allocation.device);
    check_canary(allocation);  // opens the pages
    allocation.live = false;
    allocation.open = false;
    madvise(allocation.pages, allocation.span, MADV_DONTNEED);
    mprotect(allocation.pages, allocation.span, PROT_NONE);
    --counts.live_allocations;
    counts.live_bytes -= int64_t(allocation.size);
    used_on(allocation.device) -= int64_t(allocation.size);
}

DeviceWork::DeviceWork(int device) : locked(device_lock), device_before(working_device) {
    if (!signal_stack.known) {
        give_signal_stack();
    }
    if (device_depth == 0) {
        handle_faults_again();
    }
    ++device_depth;
    working_device = device;
}

DeviceWork::~DeviceWork() {
    working_device = device_before;
    if (--device_depth == 0) {
        for (Allocation *allocation : opened) {
            if (allocation->open && CLOSED) {
                mprotect(allocation->pages, allocation->span, PROT_NONE);
                allocation->open = false;
            }
        }
        opened.clear();
    }
}

}  // namespace emulator

using namespace emulator;

static cudaError_t allocate(void **address, size_t size) {
    const int device = current_device();
    if (settings().devices == 0) {
        return failed(cudaErrorNoDevice);
    }
    if (check_lost() != cudaSuccess) {
        return check_lost();
    }
    if (size == 0) {
        *address = nullptr;  // as CUDA does
        return cudaSuccess;
    }
    if (!start() || size > settings().memory || size_t(used_on(device)) > settings().memory - size) {
        return failed(cudaErrorMemoryAllocation);
    }
    const size_t padded = (size + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    const size_t span = (padded + PAGE - 1) / PAGE * PAGE;
    char *pages = next_free;
    if (size_t(arena_end - next_free) < span + PAGE || mprotect(pages, span, PROT_READ | PROT_WRITE) != 0) {
        return failed(cudaErrorMemoryAllocation);
    }
    next_free += span + PAGE;
    memset(pages, UNTOUCHED, span);
    if (CLOSED) {
        mprotect(pages, span, PROT_NONE);
    }
    const int number = int(++counts.allocations);
    allocations()[pages] =
        Allocation{pages + span - padded, size, pages, span, number, device, true, !CLOSED, false};
    ++counts.live_allocations;
    counts.live_bytes += int64_t(size);
    used_on(device) += int64_t(size);
    *address = pages + span - padded;
    return cudaSuccess;
}

// The live allocation that begins at `address`; NULL, with a violation, if there is none.
static Allocation *allocation_to_free(void *address, const char *what) {
    Allocation *allocation = is_device_address(address) ? find_allocation(address) : nullptr;
    if (allocation == nullptr || allocation->address != address) {
        violation("%s: %p is not the start of an allocation", what, address);
        return nullptr;
    }
    if (!allocation->live || allocation->ending) {
        violation("%s: allocation %d was freed before", what, allocation->number);
        return nullptr;
    }
    return allocation;
}

extern "C" {

cudaError_t cudaMalloc(void **address, size_t size) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaMalloc");
    return error != cudaSuccess ? error : allocate(address, size);
}

cudaError_t cudaFree(void *address) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaFree");
    if (error != cudaSuccess || address == nullptr) {
        return error;
    }
    Allocation *allocation = allocation_to_free(address, "cudaFree");
    if (allocation == nullptr) {
        return failed(cudaErrorInvalidValue);
    }
    wait_for_device(allocation->device);
    release(*allocation);
    return take_late_error();
}

// The addresses are known at once; a GPU gives the memory in the stream's turn, which other streams must wait for.
cudaError_t cudaMallocAsync(void **address, size_t size, cudaStream_t stream) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaMallocAsync");
    if (error != cudaSuccess || !is_stream(stream, "cudaMallocAsync")) {
        return failed(error != cudaSuccess ? error : cudaErrorInvalidResourceHandle);
    }
    return allocate(address, size);
}

cudaError_t cudaFreeAsync(void *address, cudaStream_t stream) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaFreeAsync");
    if (error != cudaSuccess) {
        return error;
    }
    Allocation *allocation = allocation_to_free(address, "cudaFreeAsync");
    if (allocation == nullptr) {
        return failed(cudaErrorInvalidValue);
    }
    allocation->ending = true;
    return enqueue(stream, "cudaFreeAsync", [allocation] { release(*allocation); });
}

cudaError_t cudaMemGetInfo(size_t *free, size_t *total) {
    Locked locked(device_lock);
    *total = settings().memory;
    *free = *total - size_t(used_on(current_device()));
    return cudaSuccess;
}

}  // extern "C"
