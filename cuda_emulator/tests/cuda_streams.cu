// Streams, events, pinned memory and several devices, used right and wrong: for test_streams.py.

#include "cuda_driver.h"

extern "C" __global__ void add(float *y, float value, int n) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        y[i] += value;
    }
}

struct Row {
    const float *values;
    int length;
};

extern "C" __global__ void read_row(Row row, float *y) {
    y[0] = row.values[row.length - 1];
}

STAGED_EMULATED_KERNEL(add)
STAGED_EMULATED_KERNEL(read_row)

constexpr int N = 64, TURNS = 20;
constexpr size_t SIZE = N * sizeof(float);

static cudaStream_t new_stream(unsigned flags = cudaStreamNonBlocking) {
    cudaStream_t stream = nullptr;
    cudaStreamCreateWithFlags(&stream, flags);
    return stream;
}

static float *pinned() {
    void *memory = nullptr;
    cudaMallocHost(&memory, SIZE);
    return (float *)memory;
}

static cudaError_t add_one(float *y, cudaStream_t stream) {
    return launch(add, dim3(1), dim3(N), 0, stream, y, 1.0f, N);
}

// How often out of TURNS a second stream that copies after a first one has added sees what that did.
static int right_turns(float *y, cudaStream_t first, cudaStream_t second, bool with_event) {
    cudaEvent_t done = nullptr;
    cudaEventCreateWithFlags(&done, cudaEventDisableTiming);
    float *result = pinned();
    int right = 0;
    for (int turn = 0; turn < TURNS; ++turn) {
        cudaMemsetAsync(y, 0, SIZE, first);
        add_one(y, first);
        if (with_event) {
            cudaEventRecord(done, first);
            cudaStreamWaitEvent(second, done, 0);
        }
        cudaMemcpyAsync(result, y, SIZE, cudaMemcpyDeviceToHost, second);
        cudaDeviceSynchronize();
        right += result[0] == 1.0f;
    }
    cudaEventDestroy(done);
    cudaFreeHost(result);
    return right;
}

static cudaError_t two_streams(bool with_event) {
    cudaStream_t first = new_stream(), second = new_stream();
    float *y = on_device(std::vector<float>(N, 0.0f));
    printf("%d of %d\n", right_turns(y, first, second, with_event), TURNS);
    cudaStreamDestroy(first);
    cudaStreamDestroy(second);
    return cudaFree(y);
}

// Reads pinned memory before or after the stream that copies into it was waited for.
static cudaError_t read_result(bool after_waiting) {
    cudaStream_t stream = new_stream();
    float *y = on_device(std::vector<float>(N, 1.0f)), *result = pinned();
    result[0] = -1.0f;
    add_one(y, stream);
    cudaMemcpyAsync(result, y, SIZE, cudaMemcpyDeviceToHost, stream);
    const cudaError_t error = after_waiting ? cudaStreamSynchronize(stream) : cudaSuccess;
    printf("%g\n", (double)result[0]);
    return error;
}

// Overwrites what is being copied to the device, as a loop does that fills its staging buffer too early.
static cudaError_t overwritten_source(bool after_waiting) {
    cudaStream_t stream = new_stream();
    float *y = on_device(std::vector<float>(N, 0.0f)), *staging = pinned();
    int right = 0;
    for (int turn = 0; turn < TURNS; ++turn) {
        staging[0] = (float)turn;
        cudaMemcpyAsync(y, staging, SIZE, cudaMemcpyHostToDevice, stream);
        if (after_waiting) {
            cudaStreamSynchronize(stream);
        }
        staging[0] = -1.0f;
        right += on_host(y, 1)[0] == (float)turn && cudaDeviceSynchronize() == cudaSuccess;
        cudaStreamSynchronize(stream);
    }
    printf("%d of %d\n", right, TURNS);
    return cudaSuccess;
}

// Work in the null stream after that in another: ordered unless the other is non-blocking.
static cudaError_t null_stream(unsigned flags) {
    cudaStream_t other = new_stream(flags);
    float *y = on_device(std::vector<float>(N, 0.0f));
    printf("%d of %d\n", right_turns(y, other, nullptr, false), TURNS);
    return cudaSuccess;
}

static int host_calls[4], host_count;

static void CUDART_CB note(void *number) {
    host_calls[host_count++] = (int)(intptr_t)number;
}

static void CUDART_CB call_the_device(void *) {
    cudaDeviceSynchronize();
}

static void CUDART_CB touch_the_device(void *memory) {
    *(float *)memory = 1.0f;
}

static const Case cases[] = {
    {"with_event", [] { return two_streams(true); }},
    {"without_event", [] { return two_streams(false); }},
    {"waited_result", [] { return read_result(true); }},
    {"early_result", [] { return read_result(false); }},
    {"waited_source", [] { return overwritten_source(true); }},
    {"early_source", [] { return overwritten_source(false); }},
    {"null_stream_waits", [] { return null_stream(cudaStreamDefault); }},
    {"null_stream_does_not_wait", [] { return null_stream(cudaStreamNonBlocking); }},
    {"host_functions", [] {
        cudaStream_t stream = new_stream();
        for (intptr_t number = 1; number <= 3; ++number) {
            cudaLaunchHostFunc(stream, note, (void *)number);
        }
        printf("%d ", host_count);
        cudaStreamSynchronize(stream);
        printf("%d %d%d%d\n", host_count, host_calls[0], host_calls[1], host_calls[2]);
        return cudaStreamDestroy(stream);
    }},
    {"host_function_calls", [] {
        cudaLaunchHostFunc(nullptr, call_the_device, nullptr);
        return cudaStreamSynchronize(nullptr);
    }},
    {"host_function_touches", [] {
        cudaLaunchHostFunc(nullptr, touch_the_device, on_device(std::vector<float>(N, 0.0f)));
        return cudaStreamSynchronize(nullptr);
    }},
    {"events", [] {
        cudaStream_t stream = new_stream();
        cudaEvent_t start = nullptr, end = nullptr;
        cudaEventCreate(&start);
        cudaEventCreate(&end);
        float *y = on_device(std::vector<float>(N, 0.0f)), milliseconds = -1.0f;
        cudaEventRecord(start, stream);
        add_one(y, stream);
        cudaEventRecord(end, stream);
        const cudaError_t before = cudaEventElapsedTime(&milliseconds, start, end);
        int asked = 0;
        while (cudaEventQuery(end) == cudaErrorNotReady) {
            ++asked;
        }
        const cudaError_t after = cudaEventElapsedTime(&milliseconds, start, end);
        printf("%s %d %s %d %s\n", cudaGetErrorName(before), asked > 0, cudaGetErrorName(after), milliseconds >= 0.0f,
               cudaGetErrorName(cudaStreamQuery(stream)));
        return cudaSuccess;
    }},
    {"dead_event", [] {
        cudaEvent_t event = nullptr;
        cudaEventCreate(&event);
        cudaEventDestroy(event);
        return cudaEventRecord(event, nullptr);
    }},
    {"event_without_time", [] {
        cudaEvent_t event = nullptr;
        float milliseconds;
        cudaEventCreateWithFlags(&event, cudaEventDisableTiming);
        cudaEventRecord(event, nullptr);
        return cudaEventElapsedTime(&milliseconds, event, event);
    }},
    {"destroyed_with_work", [] {
        cudaStream_t stream = new_stream();
        float *y = on_device(std::vector<float>(N, 0.0f));
        add_one(y, stream);
        cudaStreamDestroy(stream);
        cudaDeviceSynchronize();
        print(on_host(y, 1));
        return cudaSuccess;
    }},
    {"pinned_twice", [] {
        float *memory = pinned();
        cudaFreeHost(memory);
        return cudaFreeHost(memory);
    }},
    {"pinned_argument", [] {
        float *memory = pinned();
        memory[0] = 2.0f;
        add_one(memory, nullptr);
        const cudaError_t error = cudaDeviceSynchronize();
        printf("%g %d\n", (double)memory[0], memory[1] != memory[1]);
        return error;
    }},
    {"ordered_free", [] {
        cudaStream_t stream = new_stream();
        void *memory = nullptr;
        cudaMallocAsync(&memory, SIZE, stream);
        cudaMemsetAsync(memory, 0, SIZE, stream);
        add_one((float *)memory, stream);
        cudaFreeAsync(memory, stream);
        cudaStreamSynchronize(stream);
        return cudaStreamDestroy(stream);
    }},
    {"use_after_ordered_free", [] {
        cudaStream_t stream = new_stream();
        float *y = on_device(std::vector<float>(N, 0.0f));
        cudaFreeAsync(y, stream);
        return add_one(y, stream);
    }},
    {"freed_before_it_ran", [] {
        cudaStream_t stream = new_stream();
        float *y = on_device(std::vector<float>(N, 0.0f)), *z = on_device(std::vector<float>(N, 0.0f));
        cudaFreeAsync(y, stream);
        const Row row = {y, N};
        return launch(read_row, dim3(1), dim3(1), 0, stream, row, z);
    }},
    {"devices", [] {
        int count = -1, current = -1;
        cudaGetDeviceCount(&count);
        const cudaError_t missing = cudaSetDevice(count);
        cudaSetDevice(count - 1);
        cudaGetDevice(&current);
        printf("%d %d %s\n", count, current, cudaGetErrorName(missing));
        return cudaSuccess;
    }},
    {"peer_copy", [] {
        float *here = on_device(std::vector<float>(N, 3.0f));
        cudaSetDevice(1);
        float *there = on_device(std::vector<float>(N, 0.0f));
        cudaMemcpyPeerAsync(there, 1, here, 0, SIZE, nullptr);
        add_one(there, nullptr);
        print(on_host(there, 1));
        emulator_counts counts;
        emulator_read(&counts);
        printf("%d\n", (int)counts.copies_between_devices);
        return cudaMemcpyPeerAsync(there, 0, here, 0, SIZE, nullptr);
    }},
    {"memory_of_another_device", [] {
        float *here = on_device(std::vector<float>(N, 3.0f));
        cudaSetDevice(1);
        return add_one(here, nullptr);
    }},
    {"peer_access", [] {
        float *here = on_device(std::vector<float>(N, 3.0f));
        cudaSetDevice(1);
        cudaDeviceEnablePeerAccess(0, 0);
        const cudaError_t error = add_one(here, nullptr);
        cudaDeviceSynchronize();
        print(on_host(here, 1));
        return error;
    }},
    {"stream_of_another_device", [] {
        cudaStream_t stream = new_stream();
        cudaSetDevice(1);
        return add_one(on_device(std::vector<float>(N, 3.0f)), stream);
    }},
    {"memset_of_another_device", [] {
        cudaStream_t stream = new_stream();
        float *here = on_device(std::vector<float>(N, 3.0f));
        cudaSetDevice(1);
        return cudaMemsetAsync(here, 0, SIZE, stream);
    }},
    {"event_of_another_device", [] {
        cudaEvent_t event = nullptr;
        cudaEventCreate(&event);
        cudaSetDevice(1);
        return cudaEventRecord(event, nullptr);
    }},
    {"memory_limit", [] {
        size_t free = 0, total = 0;
        void *first = nullptr, *second = nullptr;
        cudaMalloc(&first, 600 << 10);
        cudaMemGetInfo(&free, &total);
        printf("%zu %zu\n", free >> 10, total >> 10);
        const cudaError_t error = cudaMalloc(&second, 500 << 10);
        cudaFree(first);
        return cudaMalloc(&second, 500 << 10) == cudaSuccess ? error : cudaErrorNotReady;
    }},
    {"leaks", [] {
        void *memory = nullptr;
        cudaEvent_t event = nullptr;
        cudaMalloc(&memory, 100);
        cudaEventCreate(&event);
        new_stream();
        pinned();
        return cudaSuccess;
    }},
    {"nothing", [] { return cudaSetDevice(0); }},
};

int main(int, char **arguments) {
    return run_case(cases, arguments[1]);
}
