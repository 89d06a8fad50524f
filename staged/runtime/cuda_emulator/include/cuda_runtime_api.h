// The CUDA runtime API on the emulated device: the part that generated programs use, for C and C++.
//
// Names and numbers are NVIDIA's, so that the text of a program compiles against these headers or the real ones.
#ifndef STAGED_EMULATED_CUDA_RUNTIME_API_H
#define STAGED_EMULATED_CUDA_RUNTIME_API_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum cudaError {
    cudaSuccess = 0,
    cudaErrorInvalidValue = 1,
    cudaErrorMemoryAllocation = 2,
    cudaErrorInvalidConfiguration = 9,
    cudaErrorInvalidMemcpyDirection = 21,
    cudaErrorInsufficientDriver = 35,
    cudaErrorNoDevice = 100,
    cudaErrorInvalidKernelImage = 200,
    cudaErrorInvalidResourceHandle = 400,
    cudaErrorSymbolNotFound = 500,
    cudaErrorIllegalAddress = 700
} cudaError_t;

enum cudaMemcpyKind {
    cudaMemcpyHostToHost = 0,
    cudaMemcpyHostToDevice = 1,
    cudaMemcpyDeviceToHost = 2,
    cudaMemcpyDeviceToDevice = 3,
    cudaMemcpyDefault = 4
};

enum cudaJitOption { cudaJitMaxRegisters = 0 };
enum cudaLibraryOption { cudaLibraryHostUniversalFunctionAndDataTable = 0 };

#define cudaStreamNonBlocking 0x01

typedef struct CUstream_st *cudaStream_t;
typedef struct CUlib_st *cudaLibrary_t;
typedef struct CUkern_st *cudaKernel_t;

typedef struct uint3 {
    unsigned int x, y, z;
} uint3;

#ifdef __cplusplus
struct dim3 {
    unsigned int x, y, z;
    dim3(unsigned int x_ = 1, unsigned int y_ = 1, unsigned int z_ = 1) : x(x_), y(y_), z(z_) {}
};
#else
typedef struct dim3 {
    unsigned int x, y, z;
} dim3;
#endif

cudaError_t cudaGetDeviceCount(int *count);
cudaError_t cudaSetDevice(int device);
cudaError_t cudaDeviceSynchronize(void);
cudaError_t cudaGetLastError(void);
cudaError_t cudaPeekAtLastError(void);
const char *cudaGetErrorString(cudaError_t error);
const char *cudaGetErrorName(cudaError_t error);

cudaError_t cudaMalloc(void **address, size_t size);
cudaError_t cudaFree(void *address);
cudaError_t cudaMemcpy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind);
cudaError_t cudaMemcpyAsync(
    void *target, const void *source, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream);
cudaError_t cudaMemset(void *target, int value, size_t size);
cudaError_t cudaMemsetAsync(void *target, int value, size_t size, cudaStream_t stream);

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *stream, unsigned int flags);
cudaError_t cudaStreamDestroy(cudaStream_t stream);
cudaError_t cudaStreamSynchronize(cudaStream_t stream);

cudaError_t cudaLaunchKernel(
    const void *kernel, dim3 grid, dim3 block, void **arguments, size_t shared_bytes, cudaStream_t stream);
cudaError_t cudaLibraryLoadData(
    cudaLibrary_t *library, const void *code, enum cudaJitOption *jit_options, void **jit_values, unsigned int jit_count,
    enum cudaLibraryOption *options, void **values, unsigned int count);
cudaError_t cudaLibraryUnload(cudaLibrary_t library);
cudaError_t cudaLibraryGetKernel(cudaKernel_t *kernel, cudaLibrary_t library, const char *name);

// ---- what only the emulated device has: for tests and for `staged.runtime.cuda` ----

typedef struct emulator_counts {
    int64_t copies_to_device;
    int64_t copies_to_host;
    int64_t copies_on_device;
    int64_t bytes_to_device;
    int64_t bytes_to_host;
    int64_t launches;
    int64_t allocations;       // ever made
    int64_t live_allocations;  // not yet freed
    int64_t live_bytes;
    int64_t live_streams;
    int64_t live_libraries;
    int64_t library_calls;
    int64_t live_handles;      // of cuBLAS, cublasLt and cuDNN
    int64_t live_descriptors;  // of cublasLt and cuDNN
    int64_t descriptors_created;
    int64_t violations;  // misuse that was reported to stderr and refused
} emulator_counts;

enum emulator_order { EMULATOR_FORWARD = 0, EMULATOR_REVERSE = 1, EMULATOR_SHUFFLED = 2 };

void emulator_read(emulator_counts *counts);
// The text of the last violation; empty where there was none.
const char *emulator_last_violation(void);
// Handles and descriptors by kind, in the order of their names: how many live and were ever made. 0 past the last.
int emulator_read_kind(int index, const char **kind, int64_t *live, int64_t *created);
// In which order the threads of a launch run, one after the other; a correct kernel does not care.
void emulator_set_order(int order, unsigned int seed);

#ifdef __cplusplus
}
#endif
#endif
