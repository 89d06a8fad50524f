// Registration of kernels: a kernel's parameter list is taken from its type, so that launches can check their
// arguments.
#ifndef STAGED_EMULATED_KERNELS_H
#define STAGED_EMULATED_KERNELS_H

#include "emulated_threads.h"

#include <type_traits>
#include <utility>

struct EmulatedParameter {
    size_t size;
    bool is_pointer;
};

extern "C" {
// `shared` to `shared_end`: the shared memory of the kernel's library.
void emulator_register_kernel(
    const void *function, const char *name, void (*call)(void **arguments), const EmulatedParameter *parameters,
    int count, char *shared, char *shared_end);
void emulator_forget_kernel(const void *function);
}

// Without a name: programs loaded side by side may have kernels of one name and different parameters, and the statics
// of a named template would be shared between them.
namespace {

template <auto Function> struct EmulatedKernel;

template <class... Parameters, void (*Function)(Parameters...)> struct EmulatedKernel<Function> {
    template <size_t... Index> static void call_with(void **arguments, std::index_sequence<Index...>) {
        (void)arguments;
        Function(*static_cast<std::remove_reference_t<Parameters> *>(arguments[Index])...);
    }
    static void call(void **arguments) {
        call_with(arguments, std::index_sequence_for<Parameters...>{});
    }
    explicit EmulatedKernel(const char *name) {
        static const EmulatedParameter parameters[] = {
            {sizeof(Parameters), std::is_pointer<Parameters>::value}..., {0, false}};
        emulator_register_kernel(
            address(), name, call, parameters, int(sizeof...(Parameters)), __start_staged_shared, __stop_staged_shared);
    }
    ~EmulatedKernel() {
        emulator_forget_kernel(address());
    }
    EmulatedKernel(const EmulatedKernel &) = delete;
    EmulatedKernel &operator=(const EmulatedKernel &) = delete;
    static const void *address() {
        return reinterpret_cast<const void *>(Function);
    }
};

}  // namespace

#define STAGED_EMULATED_KERNEL(name) static const EmulatedKernel<name> emulated_##name(#name);

// As in CUDA: the memory of typed pointers, and a kernel without a cast.
template <class T> inline cudaError_t cudaMalloc(T **address, size_t size) {
    return cudaMalloc(reinterpret_cast<void **>(address), size);
}
template <class T> inline cudaError_t cudaMallocHost(T **address, size_t size) {
    return cudaMallocHost(reinterpret_cast<void **>(address), size);
}
template <class... Parameters>
inline cudaError_t cudaLaunchKernel(
    void (*kernel)(Parameters...), dim3 grid, dim3 block, void **arguments, size_t shared_bytes = 0,
    cudaStream_t stream = nullptr) {
    return cudaLaunchKernel(reinterpret_cast<const void *>(kernel), grid, block, arguments, shared_bytes, stream);
}

#endif
