// What kernels see when a C++ compiler builds them for the emulated device: CUDA's words, as macros and functions.
#ifndef STAGED_EMULATED_CUDA_RUNTIME_H
#define STAGED_EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"
#ifdef __cplusplus
#include "emulated_atomics.h"
#endif

#ifdef __cplusplus

#include <cmath>
#include <cstring>
#include <type_traits>
#include <utility>

#define STAGED_CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)

// The thread that runs now. One kernel runs at a time, its threads one after the other.
struct EmulatedThread {
    uint3 thread, block;
    dim3 block_size, grid_size;
};

extern "C" {
extern EmulatedThread emulated_thread;
void emulator_register_kernel(
    const void *function, const char *name, void (*call)(void **arguments), const bool *is_pointer,
    const size_t *sizes, int count);
}

#define threadIdx (emulated_thread.thread)
#define blockIdx (emulated_thread.block)
#define blockDim (emulated_thread.block_size)
#define gridDim (emulated_thread.grid_size)
#define warpSize 32

using std::isfinite;
using std::isinf;
using std::isnan;
using std::signbit;

static inline float rsqrtf(float x) {
    return 1.0f / sqrtf(x);
}

static inline double rsqrt(double x) {
    return 1.0 / sqrt(x);
}

// ---- registration: a kernel's parameter list is taken from its type, so that launches can check their arguments ----

// Without a name: programs loaded side by side may have kernels of one name and different parameters, and the statics of
// a named template would be shared between them.
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
        static const bool is_pointer[] = {std::is_pointer<Parameters>::value..., false};
        static const size_t sizes[] = {sizeof(Parameters)..., 0};
        emulator_register_kernel(
            reinterpret_cast<const void *>(Function), name, call, is_pointer, sizes, int(sizeof...(Parameters)));
    }
};

}  // namespace

#define STAGED_EMULATED_KERNEL(name) static const EmulatedKernel<name> emulated_##name(#name);

#endif
#endif
