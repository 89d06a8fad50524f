// Captured streams and replayed graphs, right and wrong: for test_graphs.py.

#include "cuda_driver.h"

extern "C" __global__ void add(float *y, float value) {
    y[threadIdx.x] += value;
}

extern "C" __global__ void scale(float *y, const float *factor) {
    y[threadIdx.x] *= *factor;
}

STAGED_EMULATED_KERNEL(add)
STAGED_EMULATED_KERNEL(scale)

constexpr int N = 32;

static cudaStream_t stream, other;
static cudaEvent_t forked, joined;
static float *y, *z;

static cudaError_t add_to(float *target, float value, cudaStream_t where) {
    return launch(add, dim3(1), dim3(N), 0, where, target, value);
}

static void begin() {
    cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
    cudaStreamCreateWithFlags(&other, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&forked, cudaEventDisableTiming);
    cudaEventCreateWithFlags(&joined, cudaEventDisableTiming);
    y = on_device(std::vector<float>(N, 1.0f));
    z = on_device(std::vector<float>(N, 1.0f));
    cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
}

static cudaGraphExec_t end() {
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    cudaStreamEndCapture(stream, &graph);
    size_t nodes = 0;
    cudaGraphGetNodes(graph, nullptr, &nodes);
    printf("%d nodes\n", (int)nodes);
    cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    return executable;
}

static cudaError_t replay(cudaGraphExec_t executable, int times) {
    for (int turn = 0; turn < times; ++turn) {
        cudaGraphLaunch(executable, stream);
    }
    return cudaStreamSynchronize(stream);
}

static void release(cudaGraphExec_t executable) {
    cudaGraphExecDestroy(executable);
    cudaStreamDestroy(stream);
    cudaStreamDestroy(other);
    cudaEventDestroy(forked);
    cudaEventDestroy(joined);
    cudaFree(y);
    cudaFree(z);
}

// `work` in a second stream, between a fork and, if asked for, a join.
static void fork_and(bool join) {
    cudaEventRecord(forked, stream);
    cudaStreamWaitEvent(other, forked, 0);
    add_to(z, 1.0f, other);
    if (join) {
        cudaEventRecord(joined, other);
        cudaStreamWaitEvent(stream, joined, 0);
    }
}

// What a call during a capture answers, and what the capture then comes to.
static cudaError_t forbidden(cudaError_t (*call)()) {
    begin();
    add_to(y, 1.0f, stream);
    const cudaError_t error = call();
    cudaGraph_t graph = nullptr;
    printf("%s\n", cudaGetErrorName(cudaStreamEndCapture(stream, &graph)));
    return error;
}

static const Case cases[] = {
    {"replay", [] {
        begin();
        add_to(y, 1.0f, stream);
        launch(scale, dim3(1), dim3(N), 0, stream, y, z);
        cudaMemcpyAsync(z, y, N * sizeof(float), cudaMemcpyDeviceToDevice, stream);
        cudaGraphExec_t executable = end();
        print(std::vector<float>{on_host(y, 1)[0], on_host(z, 1)[0]});  // nothing was done yet
        const cudaError_t error = replay(executable, 3);
        print(std::vector<float>{on_host(y, 1)[0], on_host(z, 1)[0]});
        emulator_counts counts;
        emulator_read(&counts);
        printf("%d graphs %d launches\n", (int)counts.graph_launches, (int)counts.launches);
        release(executable);
        return error;
    }},
    {"frozen_argument", [] {
        begin();
        float step = 1.0f;
        add_to(y, step, stream);
        cudaGraphExec_t executable = end();
        for (step = 2.0f; step < 5.0f; step += 1.0f) {
            replay(executable, 1);
        }
        print(on_host(y, 1));
        release(executable);
        return cudaSuccess;
    }},
    {"fork_and_join", [] {
        begin();
        fork_and(true);
        launch(scale, dim3(1), dim3(N), 0, stream, y, z);
        cudaGraphExec_t executable = end();
        const cudaError_t error = replay(executable, 3);
        print(on_host(y, 1));
        release(executable);
        return error;
    }},
    {"no_wait_inside", [] {
        begin();
        fork_and(false);
        add_to(y, 1.0f, stream);
        launch(scale, dim3(1), dim3(N), 0, stream, y, z);  // should have waited for the other stream
        cudaEventRecord(joined, other);
        cudaStreamWaitEvent(stream, joined, 0);
        cudaGraphExec_t executable = end();
        int right = 0;
        float expected = 1.0f;
        for (int turn = 0; turn < 10; ++turn) {
            expected = (expected + 1.0f) * float(turn + 2);
            replay(executable, 1);
            right += on_host(y, 1)[0] == expected;
        }
        printf("%d of 10\n", right);
        release(executable);
        return cudaSuccess;
    }},
    {"unjoined", [] {
        begin();
        fork_and(false);
        cudaGraph_t graph = nullptr;
        return cudaStreamEndCapture(stream, &graph);
    }},
    {"capture_malloc", [] { return forbidden([] { void *memory; return cudaMalloc(&memory, 4); }); }},
    {"capture_copy", [] { return forbidden([] { return cudaMemcpy(y, z, 4, cudaMemcpyDeviceToDevice); }); }},
    {"capture_synchronize", [] { return forbidden([] { return cudaStreamSynchronize(stream); }); }},
    {"capture_device_synchronize", [] { return forbidden([] { return cudaDeviceSynchronize(); }); }},
    {"capture_event_query", [] {
        return forbidden([] {
            cudaEventRecord(forked, stream);
            return cudaEventQuery(forked);
        });
    }},
    {"capture_outside_event", [] {
        return forbidden([] {
            cudaEventRecord(forked, other);
            return cudaStreamWaitEvent(stream, forked, 0);
        });
    }},
    {"capture_graph", [] { return forbidden([] { return cudaStreamDestroy(stream); }); }},
    {"other_stream_goes_on", [] {
        return forbidden([] {
            add_to(z, 1.0f, other);
            return cudaStreamSynchronize(other);
        });
    }},
    {"null_stream_beside_blocking", [] {
        cudaStreamCreate(&stream);
        y = on_device(std::vector<float>(N, 1.0f));
        cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal);
        return add_to(y, 1.0f, nullptr);
    }},
    {"end_without_begin", [] {
        cudaGraph_t graph = nullptr;
        cudaStreamCreate(&stream);
        return cudaStreamEndCapture(stream, &graph);
    }},
    {"null_stream", [] { return cudaStreamBeginCapture(nullptr, cudaStreamCaptureModeGlobal); }},
    {"destroyed_twice", [] {
        begin();
        cudaGraphExec_t executable = end();
        cudaGraphExecDestroy(executable);
        return cudaGraphExecDestroy(executable);
    }},
    {"freed_before_replay", [] {
        begin();
        add_to(y, 1.0f, stream);
        cudaGraphExec_t executable = end();
        cudaFree(y);
        return replay(executable, 1);
    }},
    {"leak", [] {
        begin();
        cudaGraph_t graph = nullptr;
        cudaStreamEndCapture(stream, &graph);
        release(nullptr);
        return cudaSuccess;
    }},
};

int main(int, char **arguments) {
    return run_case(cases, arguments[1]);
}
