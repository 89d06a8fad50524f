// Kernels of the emulated device: which there are, what a launch checks, and the blocks of a grid one after the other.
//
// Blocks never wait for one another here, as they must not on a GPU: a kernel that spins until another block has done
// something may not end. The order of blocks and threads is a setting, and a correct kernel does not care.

#include "blocks.h"
#include "emulator.h"
#include "races.h"
#include "shared_memory.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <numeric>

#include <dlfcn.h>

#include "include/cuda_runtime.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

using namespace emulator;

struct CUlib_st {
    int number;
    void *handle;
};

namespace {

constexpr unsigned MAX_BLOCK_Z = 64, MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535;
constexpr size_t SHARED_BYTES = 48 << 10;         // without asking
constexpr size_t SHARED_BYTES_MOST = 227 << 10;   // of a block on sm_90, after cudaFuncSetAttribute
constexpr unsigned char UNTOUCHED = 0xff;         // NaN for floats
constexpr size_t ARGUMENT_ALIGNMENT = 16;
constexpr size_t PARAMETER_BYTES = 32764;         // of all parameters, from sm_70 on

struct Kernel {
    std::string name;
    void (*call)(void **arguments);
    std::vector<EmulatedParameter> parameters;
    Range library_shared;
    size_t dynamic_limit;  // of dynamic shared memory, as cudaFuncSetAttribute has it; 0 until then
    bool has_shared;  // whether `shared` is known: the table of symbols is read at the first launch
    std::vector<Range> shared;
};

// Kernels register themselves while their library is loaded, which may be before this file's globals are made.
std::map<const void *, std::shared_ptr<Kernel>> &kernels() {
    static auto &by_function = *new std::map<const void *, std::shared_ptr<Kernel>>;
    return by_function;
}

bool is_kernel(const std::string &name) {
    const auto has_name = [&name](const auto &each) { return each.second->name == name; };
    return std::any_of(kernels().begin(), kernels().end(), has_name);
}

void find_shared(const void *function, Kernel &kernel) {
    if (!kernel.has_shared) {
        kernel.shared = shared_memory_of(function, kernel.name, kernel.library_shared, is_kernel);
        kernel.has_shared = true;
    }
}

Handles<CUlib_st> &libraries() {
    static auto &handles = *new Handles<CUlib_st>("library", &emulator_counts::live_libraries);
    return handles;
}

void list_libraries(std::vector<std::string> &lines) {
    for (const auto &library : libraries().all()) {
        lines.push_back("library " + std::to_string(library->number));
    }
}

const bool listed = (add_census(list_libraries), true);

// A launch with copies of its arguments: the caller's are gone when it runs.
struct Launch {
    std::shared_ptr<const Kernel> kernel;
    dim3 grid, block;
    std::vector<char> bytes;
    std::vector<void *> arguments;
    size_t shared_bytes;

    Launch(const std::shared_ptr<Kernel> &kernel_, dim3 grid_, dim3 block_, void **values, size_t shared_bytes_)
        : kernel(kernel_), grid(grid_), block(block_), shared_bytes(shared_bytes_) {
        size_t total = ARGUMENT_ALIGNMENT;
        for (const EmulatedParameter &parameter : kernel->parameters) {
            total += (parameter.size + ARGUMENT_ALIGNMENT - 1) / ARGUMENT_ALIGNMENT * ARGUMENT_ALIGNMENT;
        }
        bytes.resize(total);
        char *at = bytes.data() + ARGUMENT_ALIGNMENT - reinterpret_cast<uintptr_t>(bytes.data()) % ARGUMENT_ALIGNMENT;
        for (size_t number = 0; number < kernel->parameters.size(); ++number) {
            const size_t size = kernel->parameters[number].size;
            memcpy(at, values[number], size);
            arguments.push_back(at);
            at += (size + ARGUMENT_ALIGNMENT - 1) / ARGUMENT_ALIGNMENT * ARGUMENT_ALIGNMENT;
        }
    }
};

bool shared_fits(const Kernel &kernel, size_t dynamic) {
    const size_t own = total_size(kernel.shared);
    if (own > SHARED_BYTES) {
        violation(
            "kernel %s has %zu bytes in shared arrays: no GPU's compiler takes more than %zu", kernel.name.c_str(), own,
            SHARED_BYTES);
        return false;
    }
    return kernel.dynamic_limit ? dynamic <= kernel.dynamic_limit && own + dynamic <= SHARED_BYTES_MOST
                                : own + dynamic <= SHARED_BYTES;
}

// NVIDIA's compilers refuse a kernel with more.
bool parameters_fit(const Kernel &kernel) {
    size_t total = 0;
    for (const EmulatedParameter &parameter : kernel.parameters) {
        const size_t alignment = parameter.size % 8 == 0 ? 8 : parameter.size % 4 == 0 ? 4 : 1;
        total = (total + alignment - 1) / alignment * alignment + parameter.size;
    }
    if (total > PARAMETER_BYTES) {
        violation(
            "kernel %s has parameters of %zu bytes: no GPU's compiler takes more than %zu", kernel.name.c_str(), total,
            PARAMETER_BYTES);
    }
    return total <= PARAMETER_BYTES;
}

bool is_legal(const Kernel &kernel, dim3 grid, dim3 block, size_t shared_bytes) {
    const bool has_threads = grid.x && grid.y && grid.z && block.x && block.y && block.z;
    const bool grid_fits = grid.x <= MAX_GRID_X && grid.y <= MAX_GRID_YZ && grid.z <= MAX_GRID_YZ;
    const bool block_fits = block.x <= MAX_THREADS && block.y <= MAX_THREADS && block.z <= MAX_BLOCK_Z &&
                            size_t(block.x) * block.y * block.z <= MAX_THREADS;
    return has_threads && grid_fits && block_fits && shared_fits(kernel, shared_bytes);
}

// Pointers must be into live memory that the device can reach; so must the device's addresses inside of structs.
bool check_arguments(const Launch &launch, int device) {
    const auto &parameters = launch.kernel->parameters;
    for (size_t number = 0; number < parameters.size(); ++number) {
        for (size_t offset = 0; offset + sizeof(void *) <= parameters[number].size; offset += sizeof(void *)) {
            const void *pointer = nullptr;
            memcpy(&pointer, static_cast<const char *>(launch.arguments[number]) + offset, sizeof pointer);
            const bool is_meant = parameters[number].is_pointer || is_device_address(pointer);
            if (pointer == nullptr || !is_meant || is_usable(pointer, 0, device) || is_pinned(pointer)) {
                continue;
            }
            const std::string what = "argument " + std::to_string(number) + " of kernel " + launch.kernel->name;
            check_device_range(pointer, 0, what.c_str(), device);
            return false;
        }
    }
    return true;
}

uint3 block_index(size_t number, dim3 grid) {
    return {unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)};
}

// Shared memory as a block finds it: nobody has written to it.
void clear_shared(const Kernel &kernel, std::vector<char> &dynamic_shared) {
    for (const Range &range : kernel.shared) {
        races::forget_memory(range.start, range.end);
        memset(range.start, UNTOUCHED, size_t(range.end - range.start));
    }
    if (!dynamic_shared.empty()) {
        races::forget_memory(dynamic_shared.data(), dynamic_shared.data() + dynamic_shared.size());
        memset(dynamic_shared.data(), UNTOUCHED, dynamic_shared.size());
    }
}

void run_grid(Launch &launch) {
    const ThreadOrder order = settings().threads;
    const dim3 grid = launch.grid, block = launch.block;
    std::vector<unsigned> threads(block.x * block.y * block.z);
    std::iota(threads.begin(), threads.end(), 0u);
    if (order == ThreadOrder::reverse) {
        std::reverse(threads.begin(), threads.end());
    }
    std::vector<char> dynamic_shared(launch.shared_bytes ? launch.shared_bytes + ARGUMENT_ALIGNMENT : 0);
    const size_t blocks = size_t(grid.x) * grid.y * grid.z;
    const size_t first = order == ThreadOrder::shuffled ? random_number(blocks) : 0;
    for (size_t turn = 0; turn < blocks; ++turn) {
        const size_t number = order == ThreadOrder::reverse ? blocks - 1 - turn : (first + turn) % blocks;
        emulated_thread.block = block_index(number, grid);
        if (order == ThreadOrder::shuffled) {
            for (size_t left = threads.size(); left > 1; --left) {
                std::swap(threads[left - 1], threads[random_number(left)]);
            }
        }
        clear_shared(*launch.kernel, dynamic_shared);
        char *const shared = dynamic_shared.data();
        const size_t skew = reinterpret_cast<uintptr_t>(shared) % ARGUMENT_ALIGNMENT;
        const BlockCode code = {
            launch.kernel->call, launch.arguments.data(), shared ? shared + ARGUMENT_ALIGNMENT - skew : nullptr};
        if (!run_block(code, threads, order == ThreadOrder::shuffled)) {
            failed_later(cudaErrorLaunchFailure);
            break;
        }
    }
    races::end_kernel();
}

void run(Launch &launch, int device) {
    if (!check_arguments(launch, device)) {
        failed_later(cudaErrorIllegalAddress);
        return;
    }
    ++counts.launches;
    running_kernel = launch.kernel->name.c_str();
    emulated_thread.grid_size = launch.grid;
    emulated_thread.block_size = launch.block;
    run_grid(launch);
    running_kernel = nullptr;
}

}  // namespace

extern "C" {

void emulator_register_kernel(
    const void *function, const char *name, void (*call)(void **), const EmulatedParameter *parameters, int count,
    char *shared, char *shared_end) {
    Locked locked(device_lock);
    kernels()[function] = std::make_shared<Kernel>(Kernel{
        name, call, std::vector<EmulatedParameter>(parameters, parameters + count), {shared, shared_end},
        0, false, {}});
}

void emulator_forget_kernel(const void *function) {
    Locked locked(device_lock);
    kernels().erase(function);
}

cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    Locked locked(device_lock);
    const auto found = kernels().find(function);
    if (found == kernels().end()) {
        violation("cudaLaunchKernel: %p is not a kernel", function);
        return failed(cudaErrorInvalidResourceHandle);
    }
    Kernel &kernel = *found->second;
    find_shared(function, kernel);
    if (!is_stream(stream, kernel.name.c_str())) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    const int device = device_of(stream);
    if (device != current_device()) {
        violation(
            "%s: launched in a stream of device %d while device %d is set", kernel.name.c_str(), device,
            current_device());
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (!parameters_fit(kernel)) {
        return failed(cudaErrorInvalidValue);
    }
    if (!is_legal(kernel, grid, block, shared_bytes)) {
        return failed(cudaErrorInvalidConfiguration);
    }
    const auto launch = std::make_shared<Launch>(found->second, grid, block, arguments, shared_bytes);
    if (!check_arguments(*launch, device)) {
        return failed(cudaErrorIllegalAddress);
    }
    return enqueue(stream, kernel.name.c_str(), [launch, device] { run(*launch, device); });
}

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value) {
    Locked locked(device_lock);
    const auto found = kernels().find(function);
    if (found == kernels().end()) {
        violation("cudaFuncSetAttribute: %p is not a kernel", function);
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (attribute == cudaFuncAttributePreferredSharedMemoryCarveout) {
        return cudaSuccess;
    }
    if (attribute != cudaFuncAttributeMaxDynamicSharedMemorySize || value < 0 || size_t(value) > SHARED_BYTES_MOST) {
        return failed(cudaErrorInvalidValue);
    }
    found->second->dynamic_limit = size_t(value);
    return cudaSuccess;
}

// The image of a host program that was compiled apart from its kernels: "EMULATED:" and the path of their library.
cudaError_t cudaLibraryLoadData(
    cudaLibrary_t *library, const void *code, enum cudaJitOption *, void **, unsigned int, enum cudaLibraryOption *,
    void **, unsigned int) {
    static const char prefix[] = "EMULATED:";
    static int made;
    Locked locked(device_lock);
    const char *image = static_cast<const char *>(code);
    if (strncmp(image, prefix, sizeof prefix - 1) != 0) {
        return failed(cudaErrorInvalidKernelImage);
    }
    void *handle = dlopen(image + sizeof prefix - 1, RTLD_NOW | RTLD_LOCAL);
    if (handle == nullptr) {
        violation("cudaLibraryLoadData: %s", dlerror());
        return failed(cudaErrorInvalidKernelImage);
    }
    *library = libraries().add(new CUlib_st{++made, handle});
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    Locked locked(device_lock);
    if (!libraries().remove(library, "cudaLibraryUnload")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    for (int device = 0; device < settings().devices; ++device) {
        wait_for_device(device);
    }
    dlclose(library->handle);
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
    Locked locked(device_lock);
    if (!libraries().check(library, "cudaLibraryGetKernel")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    void *function = dlsym(library->handle, name);
    if (function == nullptr || !kernels().count(function)) {
        return failed(cudaErrorSymbolNotFound);
    }
    *kernel = static_cast<cudaKernel_t>(function);
    return cudaSuccess;
}

}  // extern "C"
