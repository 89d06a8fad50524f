// Kernels with and without races, for test_races.py: built with -fsanitize=thread.

#include "cuda_driver.h"

extern "C" __global__ void transpose(const float *x, float *y) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 16 + threadIdx.x];
    __syncthreads();
    y[(blockIdx.x * 16 + threadIdx.y) * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

extern "C" __global__ void tree_sum(const float *x, float *total) {
    __shared__ float parts[256];
    const unsigned i = threadIdx.x;
    parts[i] = x[i];
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (i < half) {
            parts[i] += parts[i + half];
        }
        __syncthreads();
    }
    if (i == 0) {
        total[blockIdx.x] = parts[0];
    }
}

extern "C" __global__ void warp_sum(const float *x, float *total) {
    __shared__ float parts[8];
    float sum = x[threadIdx.x];
    for (int lanes = 16; lanes > 0; lanes /= 2) {
        sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
    }
    if (threadIdx.x % 32 == 0) {
        parts[threadIdx.x / 32] = sum;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int warp = 1; warp < 8; ++warp) {
            sum += parts[warp];
        }
        total[blockIdx.x] = sum;
    }
}

// A warp's lanes tell one another by shared memory.
extern "C" __global__ void warp_shared(const float *x, float *y) {
    __shared__ float row[32];
    row[threadIdx.x] = x[threadIdx.x];
    __syncwarp();
    y[blockIdx.x * 32 + threadIdx.x] = row[31 - threadIdx.x];
}

extern "C" __global__ void atomic_sum(const float *x, float *total) {
    atomicAdd(total, x[blockIdx.x * blockDim.x + threadIdx.x]);
}

extern "C" __global__ void last_block(float *parts, unsigned *tickets, float *total) {
    __shared__ bool is_last;
    if (threadIdx.x == 0) {
        parts[blockIdx.x] = 1.0f;
        __threadfence();
        is_last = atomicInc(tickets, gridDim.x - 1) == gridDim.x - 1;
    }
    __syncthreads();
    if (is_last && threadIdx.x == 0) {
        for (unsigned i = 0; i < gridDim.x; ++i) {
            *total += parts[i];
        }
    }
}

extern "C" __global__ void dynamic_reverse(const float *x, float *y) {
    STAGED_DYNAMIC_SHARED(float, row);
    row[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    y[blockIdx.x * blockDim.x + threadIdx.x] = row[blockDim.x - 1 - threadIdx.x];
}

// ---- with races ----

extern "C" __global__ void no_barrier(const float *x, float *y) {
    __shared__ float tile[16][17];
    tile[threadIdx.y][threadIdx.x] = x[threadIdx.y * 16 + threadIdx.x];
    y[threadIdx.y * 16 + threadIdx.x] = tile[threadIdx.x][threadIdx.y];
}

// As it was written when warps ran in step: no barrier among the last 32.
extern "C" __global__ void no_last_barrier(const float *x, float *total) {
    __shared__ float parts[256];
    const unsigned i = threadIdx.x;
    parts[i] = x[i];
    __syncthreads();
    for (unsigned half = 128; half > 0; half /= 2) {
        if (i < half) {
            parts[i] += parts[i + half];
        }
        if (half > 32) {
            __syncthreads();
        }
    }
    if (i == 0) {
        total[blockIdx.x] = parts[0];
    }
}

// All write the same, which no order of the threads can show.
extern "C" __global__ void same_value(const float *x, float *y) {
    __shared__ float factor;
    factor = x[0];
    __syncthreads();
    y[threadIdx.x] = factor;
}

// Two halves of a warp, each with a barrier of its own.
extern "C" __global__ void halves(const float *x, float *y) {
    __shared__ float row[32];
    row[threadIdx.x] = x[threadIdx.x];
    __syncwarp(threadIdx.x < 16 ? 0x0000ffffu : 0xffff0000u);
    y[threadIdx.x] = row[31 - threadIdx.x];
}

// Each block writes one element too many: its neighbour's first.
extern "C" __global__ void between_blocks(const float *x, float *y) {
    if (threadIdx.x <= 16) {
        y[blockIdx.x * 16 + threadIdx.x] = x[threadIdx.x];
    }
}

extern "C" __global__ void plain_sum(const float *x, float *total) {
    *total += x[blockIdx.x * blockDim.x + threadIdx.x];
}

#define KERNELS(X)                                                                                                     \
    X(transpose) X(tree_sum) X(warp_sum) X(warp_shared) X(atomic_sum) X(last_block) X(dynamic_reverse) X(no_barrier)   \
    X(no_last_barrier) X(same_value) X(halves) X(between_blocks) X(plain_sum)
KERNELS(STAGED_EMULATED_KERNEL)

template <class Kernel> static cudaError_t run(Kernel *kernel, unsigned blocks, dim3 threads, size_t shared = 0) {
    float *x = on_device(std::vector<float>(1024, 1.0f)), *y = on_device(std::vector<float>(2048, 0.0f));
    for (int turn = 0; turn < 2; ++turn) {
        launch(kernel, dim3(blocks), threads, shared, nullptr, (const float *)x, y);
    }
    return cudaDeviceSynchronize();
}

static const Case cases[] = {
    {"transpose", [] { return run(transpose, 4, dim3(16, 16)); }},
    {"tree_sum", [] { return run(tree_sum, 3, dim3(256)); }},
    {"warp_sum", [] { return run(warp_sum, 3, dim3(256)); }},
    {"warp_shared", [] { return run(warp_shared, 3, dim3(32)); }},
    {"atomic_sum", [] { return run(atomic_sum, 4, dim3(64)); }},
    {"last_block", [] {
        float *parts = on_device(std::vector<float>(8, 0.0f)), *total = on_device(std::vector<float>(1, 0.0f));
        unsigned *tickets = on_device(std::vector<unsigned>(1, 0u));
        launch(last_block, dim3(8), dim3(32), 0, nullptr, parts, tickets, total);
        return cudaDeviceSynchronize();
    }},
    {"dynamic_reverse", [] { return run(dynamic_reverse, 3, dim3(64), 64 * sizeof(float)); }},
    {"no_barrier", [] { return run(no_barrier, 1, dim3(16, 16)); }},
    {"no_last_barrier", [] { return run(no_last_barrier, 1, dim3(256)); }},
    {"same_value", [] { return run(same_value, 1, dim3(64)); }},
    {"halves", [] { return run(halves, 1, dim3(32)); }},
    {"between_blocks", [] { return run(between_blocks, 3, dim3(32)); }},
    {"plain_sum", [] { return run(plain_sum, 4, dim3(1)); }},
};

int main(int, char **arguments) {
    return run_case(cases, arguments[1]);
}
