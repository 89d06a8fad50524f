// Kernels whose threads meet, right and wrong: for test_threads.py.

#include "cuda_driver.h"

extern "C" __global__ void block_sum(const float *x, float *total) {
    __shared__ float parts[128];
    const unsigned i = threadIdx.x;
    parts[i] = x[blockIdx.x * blockDim.x + i];
    __syncthreads();
    for (unsigned half = blockDim.x / 2; half > 0; half /= 2) {
        if (i < half) {
            parts[i] += parts[i + half];
        }
        __syncthreads();
    }
    if (i == 0) {
        total[blockIdx.x] = parts[0];
    }
}

// The same with shuffles, and one barrier between the warps.
extern "C" __global__ void warp_sum(const float *x, float *total) {
    __shared__ float parts[4];
    float sum = x[blockIdx.x * blockDim.x + threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_down_sync(0xffffffffu, sum, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        total[blockIdx.x] = parts[0] + parts[1] + parts[2] + parts[3];
    }
}

extern "C" __global__ void lanes(int *y) {
    const int lane = (int)threadIdx.x % 32;
    int *row = y + threadIdx.x * 8;
    row[0] = __shfl_sync(0xffffffffu, lane, 5);
    row[1] = __shfl_up_sync(0xffffffffu, lane, 3);
    row[2] = __shfl_down_sync(0xffffffffu, lane, 3, 8);
    row[3] = __shfl_xor_sync(0xffffffffu, lane, 1);
    row[4] = (int)__ballot_sync(0xffffffffu, lane % 4 == 0);
    row[5] = __any_sync(~0u, lane == 9) + 2 * __all_sync(~0u, lane < 32) + 4 * __all_sync(~0u, lane < 31);
    row[6] = __syncthreads_count(lane == 1);
    row[7] = __syncthreads_or(threadIdx.x == 40) + 2 * __syncthreads_and(lane < 32);
}

// Half of a warp, with a mask of its own, while the other half does something else.
extern "C" __global__ void half_warps(int *y) {
    const int lane = (int)threadIdx.x;
    int value = lane;
    if (lane < 16) {
        value = __shfl_xor_sync(0x0000ffffu, value, 1);
    } else {
        value = __shfl_xor_sync(0xffff0000u, value, 2);
        __syncwarp(0xffff0000u);
    }
    __syncwarp();
    y[lane] = value;
}

extern "C" __global__ void dynamic_reverse(float *y) {
    STAGED_DYNAMIC_SHARED(float, row);
    row[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

// The block that finishes last adds up what the others have left.
extern "C" __global__ void last_block(float *parts, unsigned *tickets, float *total) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = (float)(blockIdx.x + 1);
        __threadfence();
        is_last = atomicInc(tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        float sum = 0.0f;
        for (unsigned i = 0; i < gridDim.x; ++i) {
            sum += parts[i];
        }
        *total = sum;
    }
}

extern "C" __global__ void atomics(int *y, float *sum, unsigned long long *first) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    atomicAdd(&y[0], i);
    atomicMax(&y[1], i);
    atomicMin(&y[2], -i);
    atomicOr((unsigned *)&y[3], 1u << (i % 8));
    atomicAdd(sum, 0.5f);
    atomicCAS(first, 0ull, 7ull);
}

// ---- wrong ----

extern "C" __global__ void no_barrier(float *y) {
    __shared__ float row[64];
    row[threadIdx.x] = (float)threadIdx.x;
    y[threadIdx.x] = row[63 - threadIdx.x];
}

extern "C" __global__ void write_after_read(float *y) {
    __shared__ float row[64];
    const unsigned i = threadIdx.x;
    row[i] = (float)i;
    __syncthreads();
    const float next = row[(i + 1) % 64];
    row[i] = -next;  // others may not have read yet
    __syncthreads();
    y[i] = row[i];
}

extern "C" __global__ void some_return(float *y) {
    if (threadIdx.x >= 16) {
        return;
    }
    __syncthreads();
    y[threadIdx.x] = 1.0f;
}

extern "C" __global__ void two_barriers(float *y) {
    if (threadIdx.x < 16) {
        __syncthreads();
        y[threadIdx.x] = 1.0f;
    } else {
        __syncthreads();
        y[threadIdx.x] = 2.0f;
    }
}

extern "C" __global__ void absent_lane(float *y) {
    y[threadIdx.x] = __shfl_down_sync(0xffffffffu, (float)threadIdx.x, 1);
}

extern "C" __global__ void mask_without_caller(float *y) {
    y[threadIdx.x] = __shfl_sync(0x0000ffffu, 1.0f, 0);
}

extern "C" __global__ void warp_deadlock(float *y) {
    if (threadIdx.x < 16) {
        y[threadIdx.x] = __shfl_down_sync(0xffffffffu, 1.0f, 1);
    } else {
        __syncthreads();
    }
}

extern "C" __global__ void shared_past_end(float *y, int n) {
    __shared__ float row[32];
    row[(int)threadIdx.x + n] = 1.0f;
    __syncthreads();
    y[threadIdx.x] = row[threadIdx.x];
}

extern "C" __global__ void much_static_shared(float *y) {
    __shared__ float large[13000];
    large[threadIdx.x] = y[threadIdx.x];
    __syncthreads();
    y[threadIdx.x] = large[63 - threadIdx.x];
}

extern "C" __global__ void much_local_memory(float *y) {
    volatile char scratch[400 << 10];
    scratch[0] = 1;
    y[threadIdx.x] = scratch[0];
}

extern "C" __global__ void misaligned(const float *x, float *y) {
    const float4 four = *(const float4 *)(x + 1);
    *(float4 *)y = four;
}

extern "C" __global__ void trapped(float *y) {
    if (threadIdx.x == 3) {
        __trap();
    }
    y[threadIdx.x] = 1.0f;
}

#define KERNELS(X)                                                                                                     \
    X(block_sum) X(warp_sum) X(lanes) X(half_warps) X(dynamic_reverse) X(last_block) X(atomics) X(no_barrier)          \
    X(write_after_read) X(some_return) X(two_barriers) X(absent_lane) X(mask_without_caller) X(warp_deadlock)          \
    X(shared_past_end) X(much_static_shared) X(much_local_memory) X(misaligned) X(trapped)
KERNELS(STAGED_EMULATED_KERNEL)

static std::vector<float> counted(int n) {
    std::vector<float> values((size_t)n);
    for (int i = 0; i < n; ++i) {
        values[(size_t)i] = (float)i;
    }
    return values;
}

template <class Kernel> static cudaError_t sums(Kernel *kernel) {
    float *x = on_device(counted(384)), *total = on_device(std::vector<float>(3, 0.0f));
    launch(kernel, dim3(3), dim3(128), 0, nullptr, x, total);
    print(on_host(total, 3));
    return cudaDeviceSynchronize();
}

// A kernel on 64 floats, which are printed.
template <class Kernel> static cudaError_t on_floats(Kernel *kernel, unsigned threads, size_t shared = 0) {
    float *y = on_device(counted(64));
    const cudaError_t error = launch(kernel, dim3(1), dim3(threads), shared, nullptr, y);
    const cudaError_t later = cudaDeviceSynchronize();
    print(on_host(y, 64));
    return error != cudaSuccess ? error : later;
}

static const Case cases[] = {
    {"block_sum", [] { return sums(block_sum); }},
    {"warp_sum", [] { return sums(warp_sum); }},
    {"lanes", [] {
        int *y = on_device(std::vector<int>(64 * 8, -1));
        launch(lanes, dim3(1), dim3(64), 0, nullptr, y);
        const std::vector<int> all = on_host(y, 64 * 8);
        print(std::vector<int>(all.begin() + 34 * 8, all.begin() + 35 * 8));  // thread 34: lane 2 of the second warp
        print(std::vector<int>(all.begin() + 38 * 8, all.begin() + 39 * 8));
        return cudaDeviceSynchronize();
    }},
    {"half_warps", [] {
        int *y = on_device(std::vector<int>(32, -1));
        launch(half_warps, dim3(1), dim3(32), 0, nullptr, y);
        print(on_host(y, 32));
        return cudaDeviceSynchronize();
    }},
    {"dynamic", [] { return on_floats(dynamic_reverse, 64, 64 * sizeof(float)); }},
    {"last_block", [] {
        float *parts = on_device(std::vector<float>(10)), *total = on_device(std::vector<float>(1));
        unsigned *tickets = on_device(std::vector<unsigned>(1, 0u));
        for (int turn = 0; turn < 2; ++turn) {
            launch(last_block, dim3(10), dim3(32), 0, nullptr, parts, tickets, total);
            print(on_host(total, 1));
        }
        return cudaDeviceSynchronize();
    }},
    {"atomics", [] {
        int *y = on_device(std::vector<int>(4, 0));
        float *sum = on_device(std::vector<float>(1, 0.0f));
        unsigned long long *first = on_device(std::vector<unsigned long long>(1, 0ull));
        launch(atomics, dim3(4), dim3(64), 0, nullptr, y, sum, first);
        print(on_host(y, 4));
        print(on_host(sum, 1));
        print(on_host(first, 1));
        return cudaDeviceSynchronize();
    }},
    {"no_barrier", [] { return on_floats(no_barrier, 64); }},
    {"write_after_read", [] { return on_floats(write_after_read, 64); }},
    {"some_return", [] { return on_floats(some_return, 32); }},
    {"two_barriers", [] { return on_floats(two_barriers, 32); }},
    {"absent_lane", [] { return on_floats(absent_lane, 20); }},
    {"mask_without_caller", [] { return on_floats(mask_without_caller, 32); }},
    {"warp_deadlock", [] { return on_floats(warp_deadlock, 32); }},
    {"after_a_deadlock", [] {
        on_floats(warp_deadlock, 32);
        void *memory = nullptr;
        cudaStream_t stream = nullptr;
        const cudaError_t answers[] = {
            cudaMalloc(&memory, 4), cudaStreamCreate(&stream), cudaDeviceSynchronize(),
            cudaGetLastError(),     cudaGetLastError(),
        };
        for (const cudaError_t answer : answers) {
            printf("%s ", cudaGetErrorName(answer));
        }
        emulator_configure("");
        return sums(block_sum);
    }},
    {"trapped", [] { return on_floats(trapped, 32); }},
    {"shared_past_end", [] {
        float *y = on_device(counted(32));
        return launch(shared_past_end, dim3(1), dim3(32), 0, nullptr, y, 1);
    }},
    {"much_local_memory", [] { return on_floats(much_local_memory, 32); }},
    {"misaligned", [] {
        float *x = on_device(counted(64)), *y = on_device(counted(64));
        return launch(misaligned, dim3(1), dim3(1), 0, nullptr, x, y);
    }},
    {"much_static_shared", [] { return on_floats(much_static_shared, 64); }},
    {"much_shared_memory", [] { return on_floats(dynamic_reverse, 64, 49 << 10); }},
    {"much_shared_memory_allowed", [] {
        cudaFuncSetAttribute((const void *)dynamic_reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, 100 << 10);
        return on_floats(dynamic_reverse, 64, 99 << 10);
    }},
};

int main(int, char **arguments) {
    return run_case(cases, arguments[1]);
}
