// Kernels, streams and the rest of the runtime API on the emulated device.
//
// Streams are eager: work is done when it is enqueued. A launch runs the grid's threads one after the other, in an order
// that tests may choose, so a kernel must not wait for other threads (there is no __syncthreads here: a kernel that
// needs one does not compile).

#include "emulator.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <dlfcn.h>

#include "include/cuda_runtime.h"
#undef threadIdx
#undef blockIdx
#undef blockDim
#undef gridDim

using namespace emulator;

struct CUstream_st {
    int number;
};

struct CUlib_st {
    void *handle;
};

extern "C" EmulatedThread emulated_thread;
EmulatedThread emulated_thread;

namespace emulator {
const char *running_kernel;
}

namespace {

constexpr unsigned MAX_THREADS = 1024, MAX_BLOCK_Z = 64, MAX_GRID_X = 0x7fffffff, MAX_GRID_YZ = 65535;

struct Kernel {
    std::string name;
    void (*call)(void **arguments);
    std::vector<bool> is_pointer;
    std::vector<size_t> sizes;
};

// Kernels register themselves while their library is loaded, which may be before this file's globals are made.
std::map<const void *, Kernel> &kernels() {
    static std::map<const void *, Kernel> by_function;
    return by_function;
}

std::set<cudaStream_t> &streams() {
    static std::set<cudaStream_t> live;
    return live;
}

int order = EMULATOR_FORWARD;
std::mt19937 shuffler;

bool is_legal(dim3 grid, dim3 block, size_t shared_bytes) {
    const bool has_threads = grid.x && grid.y && grid.z && block.x && block.y && block.z;
    const bool grid_fits = grid.x <= MAX_GRID_X && grid.y <= MAX_GRID_YZ && grid.z <= MAX_GRID_YZ;
    const bool block_fits = block.z <= MAX_BLOCK_Z && size_t(block.x) * block.y * block.z <= MAX_THREADS;
    return has_threads && grid_fits && block_fits && shared_bytes <= (48 << 10);
}

void run_block(const Kernel &kernel, const std::vector<unsigned> &threads, void **arguments) {
    const dim3 size = emulated_thread.block_size;
    for (const unsigned thread : threads) {
        emulated_thread.thread = {thread % size.x, thread / size.x % size.y, thread / size.x / size.y};
        kernel.call(arguments);
    }
}

void run(const Kernel &kernel, dim3 grid, dim3 block, void **arguments) {
    DeviceWork work;
    running_kernel = kernel.name.c_str();
    emulated_thread.grid_size = grid;
    emulated_thread.block_size = block;
    std::vector<unsigned> threads(block.x * block.y * block.z);
    std::iota(threads.begin(), threads.end(), 0u);
    if (order == EMULATOR_REVERSE) {
        std::reverse(threads.begin(), threads.end());
    }
    const size_t blocks = size_t(grid.x) * grid.y * grid.z;
    for (size_t turn = 0; turn < blocks; ++turn) {
        const size_t number = order == EMULATOR_REVERSE ? blocks - 1 - turn : turn;
        emulated_thread.block = {
            unsigned(number % grid.x), unsigned(number / grid.x % grid.y), unsigned(number / grid.x / grid.y)};
        if (order == EMULATOR_SHUFFLED) {
            std::shuffle(threads.begin(), threads.end(), shuffler);
        }
        run_block(kernel, threads, arguments);
    }
    running_kernel = nullptr;
}

bool is_stream(cudaStream_t stream, const char *what) {
    if (stream == nullptr || streams().count(stream)) {
        return true;
    }
    violation("%s: %p is not a live stream", what, static_cast<void *>(stream));
    return false;
}

}  // namespace

// Streams are eager, so the work is done here and now.
cudaError_t emulator::enqueue(cudaStream_t stream, const char *what, std::function<void()> work) {
    DeviceWork device;
    if (!is_stream(stream, what)) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    emulated_thread = EmulatedThread();
    running_kernel = what;
    work();
    running_kernel = nullptr;
    return cudaSuccess;
}

namespace {

const struct {
    cudaError_t error;
    const char *name, *text;
} ERRORS[] = {
    {cudaSuccess, "cudaSuccess", "no error"},
    {cudaErrorInvalidValue, "cudaErrorInvalidValue", "invalid argument"},
    {cudaErrorMemoryAllocation, "cudaErrorMemoryAllocation", "out of memory"},
    {cudaErrorInvalidConfiguration, "cudaErrorInvalidConfiguration", "invalid configuration argument"},
    {cudaErrorInvalidMemcpyDirection, "cudaErrorInvalidMemcpyDirection", "invalid copy direction for memcpy"},
    {cudaErrorInsufficientDriver, "cudaErrorInsufficientDriver", "CUDA driver version is insufficient"},
    {cudaErrorNoDevice, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {cudaErrorInvalidKernelImage, "cudaErrorInvalidKernelImage", "device kernel image is invalid"},
    {cudaErrorInvalidResourceHandle, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {cudaErrorSymbolNotFound, "cudaErrorSymbolNotFound", "named symbol not found"},
    {cudaErrorIllegalAddress, "cudaErrorIllegalAddress", "an illegal memory access was encountered"},
};

}  // namespace

extern "C" {

void emulator_register_kernel(
    const void *function, const char *name, void (*call)(void **), const bool *is_pointer, const size_t *sizes,
    int count) {
    Locked locked(device_lock);
    kernels()[function] = Kernel{
        name, call, std::vector<bool>(is_pointer, is_pointer + count), std::vector<size_t>(sizes, sizes + count)};
}

void emulator_set_order(int new_order, unsigned int seed) {
    Locked locked(device_lock);
    order = new_order;
    shuffler.seed(seed);
}

cudaError_t cudaLaunchKernel(
    const void *function, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream) {
    Locked locked(device_lock);
    const auto found = kernels().find(function);
    if (found == kernels().end()) {
        violation("cudaLaunchKernel: %p is not a kernel", function);
        return failed(cudaErrorInvalidResourceHandle);
    }
    const Kernel &kernel = found->second;
    if (!is_stream(stream, kernel.name.c_str())) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    if (!is_legal(grid, block, shared_bytes)) {
        return failed(cudaErrorInvalidConfiguration);
    }
    for (size_t number = 0; number < kernel.sizes.size(); ++number) {
        const void *pointer = nullptr;
        if (kernel.is_pointer[number]) {
            memcpy(&pointer, arguments[number], sizeof pointer);
        }
        if (pointer != nullptr) {
            const std::string what = "argument " + std::to_string(number) + " of kernel " + kernel.name;
            if (!check_device_range(pointer, 0, what.c_str())) {
                return failed(cudaErrorIllegalAddress);
            }
        }
    }
    ++counts.launches;
    run(kernel, grid, block, arguments);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(
    void *target, const void *source, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    DeviceWork work;
    return is_stream(stream, "cudaMemcpyAsync") ? cudaMemcpy(target, source, size, kind)
                                                : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t size, cudaStream_t stream) {
    DeviceWork work;
    return is_stream(stream, "cudaMemsetAsync") ? cudaMemset(target, value, size)
                                                : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags) {
    Locked locked(device_lock);
    (void)flags;
    *stream = new CUstream_st{int(streams().size())};
    streams().insert(*stream);
    ++counts.live_streams;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream) {
    Locked locked(device_lock);
    if (stream == nullptr || !is_stream(stream, "cudaStreamDestroy")) {
        return failed(cudaErrorInvalidResourceHandle);
    }
    streams().erase(stream);
    delete stream;
    --counts.live_streams;
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
    Locked locked(device_lock);
    return is_stream(stream, "cudaStreamSynchronize") ? cudaSuccess : failed(cudaErrorInvalidResourceHandle);
}

cudaError_t cudaDeviceSynchronize(void) {
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count) {
    *count = 1;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
    return device == 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

const char *cudaGetErrorName(cudaError_t error) {
    for (const auto &known : ERRORS) {
        if (known.error == error) {
            return known.name;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (const auto &known : ERRORS) {
        if (known.error == error) {
            return known.text;
        }
    }
    return "unrecognized error code";
}

// The image of a host program that was compiled apart from its kernels: "EMULATED:" and the path of their library.
cudaError_t cudaLibraryLoadData(
    cudaLibrary_t *library, const void *code, enum cudaJitOption *, void **, unsigned int, enum cudaLibraryOption *,
    void **, unsigned int) {
    static const char prefix[] = "EMULATED:";
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
    *library = new CUlib_st{handle};
    ++counts.live_libraries;
    return cudaSuccess;
}

cudaError_t cudaLibraryUnload(cudaLibrary_t library) {
    Locked locked(device_lock);
    dlclose(library->handle);
    delete library;
    --counts.live_libraries;
    return cudaSuccess;
}

cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name) {
    Locked locked(device_lock);
    void *function = dlsym(library->handle, name);
    if (function == nullptr || !kernels().count(function)) {
        return failed(cudaErrorSymbolNotFound);
    }
    *kernel = static_cast<cudaKernel_t>(function);
    return cudaSuccess;
}

}  // extern "C"
