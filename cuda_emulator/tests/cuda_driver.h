// What the programs of cuda_*.cu share: a word on the command line chooses a case, which runs; then they
// say what the emulated device has noticed.
#ifndef CUDA_DRIVER_H
#define CUDA_DRIVER_H

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

struct Case {
    const char *name;
    cudaError_t (*run)();
};

// The case's error, the number of violations and what is live.
template <size_t N> int run_case(const Case (&cases)[N], const char *name) {
    for (const Case &each : cases) {
        if (strcmp(each.name, name) == 0) {
            const cudaError_t error = each.run();
            emulator_counts counts;
            emulator_read(&counts);
            printf("error %s\nviolations %d\n%s", cudaGetErrorName(error), (int)counts.violations, emulator_live_objects());
            return 0;
        }
    }
    fprintf(stderr, "no case %s\n", name);
    return 2;
}

template <class T> T *on_device(const std::vector<T> &values) {
    void *memory = nullptr;
    cudaMalloc(&memory, values.size() * sizeof(T));
    cudaMemcpy(memory, values.data(), values.size() * sizeof(T), cudaMemcpyHostToDevice);
    return (T *)memory;
}

template <class T> std::vector<T> on_host(const T *device, size_t count) {
    std::vector<T> values(count);
    cudaMemcpy(values.data(), device, count * sizeof(T), cudaMemcpyDeviceToHost);
    return values;
}

template <class T> void print(const std::vector<T> &values) {
    for (const T value : values) {
        printf("%.10g ", (double)value);
    }
    printf("\n");
}

// Launches with the arguments' addresses, as generated programs do.
template <class Function, class... Arguments>
cudaError_t launch(Function *kernel, dim3 grid, dim3 block, size_t shared, cudaStream_t stream, Arguments... arguments) {
    void *values[] = {(void *)&arguments..., nullptr};
    return cudaLaunchKernel((const void *)kernel, grid, block, values, shared, stream);
}

#endif
