// One mistake per command-line word, for test_misuse.py: each must be found by the emulated
// device.

#include <cstdio>
#include <cstdlib>
#include <cstring>

extern "C" __global__ void fill(float *y, int n, float value) {
    const int i = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    if (i < n) {
        y[i] = value;
    }
}

extern "C" __global__ void order(int *y, int *turn) {
    y[threadIdx.x] = (*turn)++;
}

struct Much {
    char bytes[32761];
};

extern "C" __global__ void takes_much(float *y, Much much) {
    y[0] = much.bytes[0];
}

STAGED_EMULATED_KERNEL(takes_much)
STAGED_EMULATED_KERNEL(fill)
STAGED_EMULATED_KERNEL(order)

static cudaError_t launch_fill(float *y, int n, unsigned int threads) {
    float value = 1.0f;
    void *values[] = {&y, &n, &value};
    return cudaLaunchKernel((const void *)fill, dim3(1), dim3(threads), values, 0, nullptr);
}

int main(int, char **arguments) {
    const char *what = arguments[1];
    const auto is = [what](const char *word) { return strcmp(what, word) == 0; };
    float host[64] = {0};
    void *memory = nullptr;
    cudaMalloc(&memory, sizeof host);
    float *device = (float *)memory;
    cudaError_t error = cudaSuccess;

    if (is("nothing")) {
        error = launch_fill(device, 64, 64);
        cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
        printf("%g %g\n", host[0], host[63]);
    } else if (is("fresh")) {
        cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost);
        printf("%d\n", host[5] != host[5]);
    } else if (is("host_read")) {
        printf("%g\n", device[3]);
    } else if (is("read_after_launch")) {
        launch_fill(device, 64, 64);
        printf("%g\n", device[3]);
    } else if (is("direction")) {
        error = cudaMemcpy(device, host, sizeof host, cudaMemcpyDeviceToHost);
    } else if (is("copy_past_end")) {
        error = cudaMemcpy(device, host, sizeof host + 4, cudaMemcpyHostToDevice);
    } else if (is("double_free")) {
        cudaFree(memory);
        error = cudaFree(memory);
    } else if (is("free_middle")) {
        error = cudaFree(device + 4);
    } else if (is("kernel_past_page")) {
        error = launch_fill(device, 65, 96);
    } else if (is("kernel_into_slack")) {
        cudaFree(memory);
        cudaMalloc(&memory, 60 * sizeof(float));
        launch_fill((float *)memory, 61, 64);
        error = cudaFree(memory);
    } else if (is("freed_argument")) {
        cudaFree(memory);
        error = launch_fill(device, 64, 64);
    } else if (is("host_argument")) {
        error = launch_fill(host, 64, 64);
    } else if (is("block_too_large")) {
        error = launch_fill(device, 64, 1025);
    } else if (is("no_blocks")) {
        error = launch_fill(device, 64, 0);
    } else if (is("out_of_memory")) {
        error = cudaMalloc(&memory, (size_t)1 << 50);
    } else if (is("no_bytes")) {
        error = cudaMalloc(&memory, 0);
        printf("%d\n", memory == nullptr && cudaFree(memory) == cudaSuccess);
    } else if (is("much_given")) {
        static Much much;
        void *values[] = {&device, &much};
        error = cudaLaunchKernel((const void *)takes_much, dim3(1), dim3(1), values, 0, nullptr);
    } else if (is("dead_stream")) {
        cudaStream_t stream;
        cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
        cudaStreamDestroy(stream);
        error = cudaStreamSynchronize(stream);
    } else if (is("reverse") || is("shuffled")) {
        int turns[33] = {0};
        void *counter = (char *)memory + 33 * sizeof(int);
        cudaMemcpy(device, turns, sizeof turns, cudaMemcpyHostToDevice);
        cudaMemset(counter, 0, sizeof(int));
        emulator_configure(is("reverse") ? "reverse" : "shuffled seed=7");
        void *values[] = {&memory, &counter};
        cudaLaunchKernel((const void *)order, dim3(1), dim3(32), values, 0, nullptr);
        cudaMemcpy(turns, device, sizeof turns, cudaMemcpyDeviceToHost);
        for (int i = 0; i < 32; ++i) {
            printf("%d ", turns[i]);
        }
    }
    emulator_counts counts;
    emulator_read(&counts);
    printf("error %s\n", cudaGetErrorName(error));
    printf("violations %d live %d\n", (int)counts.violations, (int)counts.live_allocations);
    return 0;
}
