// A stand-in for libcuda.so.1, so that NVIDIA's libraries load and build plans on a machine without a driver and a GPU.
//
// Nothing runs here. Every function returns CUDA_ERROR_NO_DEVICE, except these: the version, the functions that look up
// functions, and those with which a library of kernels is loaded and prepared. With STAND_IN_CUDA_LOG=1 each name that is
// looked up is printed.
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORTED __attribute__((visibility("default")))

enum { SUCCESS = 0, NO_DEVICE = 100, NOT_FOUND = 500 };

static int no_device(void) {
    return NO_DEVICE;
}

// Looked up by name when cuDNN's parts are loaded.
#define FAILING(X) \
    X(cuCtxGetCurrent) X(cuCtxGetLimit) X(cuCtxPopCurrent) X(cuCtxPushCurrent) X(cuDeviceGet) X(cuDeviceGetCount) \
    X(cuKernelGetAttribute) X(cuLaunchCooperativeKernel) X(cuLaunchKernel) X(cuLaunchKernelEx) \
    X(cuLibraryLoadFromFile) X(cuLinkAddData) X(cuLinkComplete) X(cuLinkCreate) X(cuLinkDestroy) \
    X(cuOccupancyMaxPotentialClusterSize) X(cuStreamGetCtx)

#define RETURNS_NO_DEVICE(name) \
    EXPORTED int name(void) { \
        return NO_DEVICE; \
    }
FAILING(RETURNS_NO_DEVICE)

EXPORTED int cuInit(unsigned int flags) {
    (void)flags;
    return NO_DEVICE;
}

EXPORTED int cuLibraryUnload(void) {
    return SUCCESS;
}

EXPORTED int cuKernelSetAttribute(void) {
    return SUCCESS;
}

EXPORTED int cuFuncSetAttribute(void) {
    return SUCCESS;
}

EXPORTED int cuDriverGetVersion(int *version) {
    *version = 13000;
    return SUCCESS;
}

EXPORTED int cuGetErrorName(int error, const char **name) {
    (void)error;
    *name = "CUDA_ERROR_NO_DEVICE";
    return SUCCESS;
}

EXPORTED int cuGetErrorString(int error, const char **words) {
    (void)error;
    *words = "no CUDA-capable device is detected";
    return SUCCESS;
}

// A library, a kernel and a function are numbers that nobody reads.
static int next_handle(uintptr_t *made) {
    static uintptr_t last = 0;
    *made = __atomic_add_fetch(&last, 64, __ATOMIC_RELAXED);
    return SUCCESS;
}

EXPORTED int cuLibraryLoadData(uintptr_t *library, const void *code) {
    (void)code;
    return next_handle(library);
}

EXPORTED int cuLibraryGetKernel(uintptr_t *kernel, uintptr_t library, const char *name) {
    (void)library;
    (void)name;
    return next_handle(kernel);
}

EXPORTED int cuKernelGetFunction(uintptr_t *function, uintptr_t kernel) {
    (void)kernel;
    return next_handle(function);
}

static const struct {
    const char *name;
    void *function;
} KNOWN[] = {
    {"cuDriverGetVersion", (void *)cuDriverGetVersion},
    {"cuGetErrorName", (void *)cuGetErrorName},
    {"cuGetErrorString", (void *)cuGetErrorString},
    {"cuLibraryLoadData", (void *)cuLibraryLoadData},
    {"cuLibraryGetKernel", (void *)cuLibraryGetKernel},
    {"cuLibraryUnload", (void *)cuLibraryUnload},
    {"cuKernelGetFunction", (void *)cuKernelGetFunction},
    {"cuFuncSetAttribute", (void *)cuFuncSetAttribute},
    {"cuKernelSetAttribute", (void *)cuKernelSetAttribute},
};

EXPORTED int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status);

EXPORTED int cuGetProcAddress(const char *name, void **function, int version, uint64_t flags) {
    return cuGetProcAddress_v2(name, function, version, flags, NULL);
}

EXPORTED int cuGetProcAddress_v2(const char *name, void **function, int version, uint64_t flags, int *status) {
    (void)version;
    (void)flags;
    if (getenv("STAND_IN_CUDA_LOG") != NULL) {
        fprintf(stderr, "libcuda: %s\n", name);
    }
    *function = (void *)no_device;
    if (strcmp(name, "cuGetProcAddress") == 0) {
        *function = (void *)cuGetProcAddress_v2;
    }
    for (size_t number = 0; number < sizeof KNOWN / sizeof *KNOWN; ++number) {
        if (strcmp(name, KNOWN[number].name) == 0) {
            *function = KNOWN[number].function;
        }
    }
    if (status != NULL) {
        *status = 0;  // found
    }
    return SUCCESS;
}
