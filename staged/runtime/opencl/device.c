// OpenCL's devices for programs of staged: memory that is reached by an address on either side (shared virtual memory
// of OpenCL 2.0, "coarse-grained buffers"), one queue in order for each device, kernels built from text. All programs
// of a process share the device; what a call asks of it is answered with 0, or the words of `st_ocl_words`.

#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <pthread.h>

// What is used of OpenCL's interface (The OpenCL Specification, version 3.0): its headers need not be installed.
typedef int32_t cl_int;
typedef uint32_t cl_uint;
typedef uint64_t cl_bits;
enum { CL_SUCCESS = 0, CL_PLATFORMS = 8, CL_DEVICES = 16, CL_PROGRAM_BUILD_LOG = 0x1183,
        CL_DEVICE_NAME = 0x102B, CL_DEVICE_VERSION = 0x102F, CL_DEVICE_SVM_CAPABILITIES = 0x1053 };
enum { CL_DEVICE_TYPE_CPU = 2, CL_DEVICE_TYPE_GPU = 4, CL_MEM_READ_WRITE = 1, CL_MAP_READ = 1, CL_SVM_COARSE = 1,
        CL_DEVICE_NOT_FOUND = -1 };
extern cl_int clGetPlatformIDs(cl_uint, void **, cl_uint *);
extern cl_int clGetDeviceIDs(void *, cl_bits, cl_uint, void **, cl_uint *);
extern cl_int clGetDeviceInfo(void *, cl_uint, size_t, void *, size_t *);
extern void *clCreateContext(const intptr_t *, cl_uint, void *const *, void *, void *, cl_int *);
extern void *clCreateCommandQueueWithProperties(void *, void *, const cl_bits *, cl_int *);
extern void *clSVMAlloc(void *, cl_bits, size_t, cl_uint);
extern void clSVMFree(void *, void *);
extern cl_int clEnqueueSVMMemcpy(void *, cl_uint, void *, const void *, size_t, cl_uint, void *const *, void **);
extern cl_int clEnqueueSVMMemFill(void *, void *, const void *, size_t, size_t, cl_uint, void *const *, void **);
extern cl_int clEnqueueSVMMap(void *, cl_uint, cl_bits, void *, size_t, cl_uint, void *const *, void **);
extern cl_int clEnqueueSVMUnmap(void *, void *, cl_uint, void *const *, void **);
extern void *clCreateProgramWithSource(void *, cl_uint, const char **, const size_t *, cl_int *);
extern cl_int clBuildProgram(void *, cl_uint, void *const *, const char *, void *, void *);
extern cl_int clGetProgramBuildInfo(void *, void *, cl_uint, size_t, void *, size_t *);
extern cl_int clReleaseProgram(void *);
extern void *clCreateKernel(void *, const char *, cl_int *);
extern cl_int clReleaseKernel(void *);
extern cl_int clSetKernelArg(void *, cl_uint, size_t, const void *);
extern cl_int clSetKernelArgSVMPointer(void *, cl_uint, const void *);
extern cl_int clEnqueueNDRangeKernel(void *, void *, cl_uint, const size_t *, const size_t *, const size_t *, cl_uint,
                                     void *const *, void **);
extern cl_int clFinish(void *);

typedef struct st_ocl {
    void *device, *context, *queue;
} st_ocl;

static __thread char words[4096];
static pthread_mutex_t opening = PTHREAD_MUTEX_INITIALIZER;
static st_ocl devices[CL_DEVICES];

// What was wrong with this thread's last call.
const char *st_ocl_words(void);
const char *st_ocl_words(void) {
    return words;
}

static int answer(const char *call, cl_int status) {
    if (status != CL_SUCCESS) {
        snprintf(words, sizeof words, "%s: OpenCL's error %d", call, status);
    }
    return status;
}

// The devices of all platforms, GPUs first; how many there are.
static cl_uint found_devices(void **found) {
    void *platforms[CL_PLATFORMS];
    cl_uint platform_count = 0, count = 0;
    if (clGetPlatformIDs(CL_PLATFORMS, platforms, &platform_count) != CL_SUCCESS) {
        return 0;
    }
    for (int pass = 0; pass < 2; ++pass) {
        const cl_bits type = pass == 0 ? CL_DEVICE_TYPE_GPU : CL_DEVICE_TYPE_CPU;
        for (cl_uint p = 0; p < platform_count && p < CL_PLATFORMS; ++p) {
            cl_uint here = 0;
            if (clGetDeviceIDs(platforms[p], type, CL_DEVICES - count, found + count, &here) == CL_SUCCESS) {
                count += here < CL_DEVICES - count ? here : CL_DEVICES - count;
            }
        }
    }
    return count;
}

// The device of this number; NULL where there is none, or it has no shared virtual memory.
st_ocl *st_ocl_open(int number);
st_ocl *st_ocl_open(int number) {
    st_ocl *const own = number < CL_DEVICES ? &devices[number] : NULL;
    pthread_mutex_lock(&opening);
    if (own != NULL && own->queue == NULL) {
        void *found[CL_DEVICES];
        const cl_uint count = found_devices(found);
        cl_bits svm = 0;
        cl_int status = CL_DEVICE_NOT_FOUND;
        if ((cl_uint)number >= count) {
            snprintf(words, sizeof words, "there are %u OpenCL devices", count);
        } else if (clGetDeviceInfo(found[number], CL_DEVICE_SVM_CAPABILITIES, sizeof svm, &svm, NULL) != CL_SUCCESS ||
                   (svm & CL_SVM_COARSE) == 0) {
            snprintf(words, sizeof words,
                    "the OpenCL device has no shared virtual memory (OpenCL 2.0, coarse-grained buffers)");
        } else {
            own->device = found[number];
            own->context = clCreateContext(NULL, 1, &own->device, NULL, NULL, &status);
            if (answer("clCreateContext", status) == CL_SUCCESS) {
                own->queue = clCreateCommandQueueWithProperties(own->context, own->device, NULL, &status);
                answer("clCreateCommandQueueWithProperties", status);
            }
        }
    }
    pthread_mutex_unlock(&opening);
    return own != NULL && own->queue != NULL ? own : NULL;
}

// The name of a device and the version of its driver.
const char *st_ocl_name(st_ocl *gpu);
const char *st_ocl_name(st_ocl *gpu) {
    char name[256] = "", version[256] = "";
    (void)clGetDeviceInfo(gpu->device, CL_DEVICE_NAME, sizeof name - 1, name, NULL);
    (void)clGetDeviceInfo(gpu->device, CL_DEVICE_VERSION, sizeof version - 1, version, NULL);
    snprintf(words, sizeof words, "%s, %s", name, version);
    return words;
}

// Memory of the device; NULL where it has no room.
void *st_ocl_allocate(st_ocl *gpu, size_t bytes);
void *st_ocl_allocate(st_ocl *gpu, size_t bytes) {
    void *const memory = clSVMAlloc(gpu->context, CL_MEM_READ_WRITE, bytes > 0 ? bytes : 1, 0);
    if (memory == NULL) {
        snprintf(words, sizeof words, "clSVMAlloc of %zu bytes: the device has no room", bytes);
    }
    return memory;
}

int st_ocl_finish(st_ocl *gpu);
int st_ocl_finish(st_ocl *gpu) {
    return answer("clFinish", clFinish(gpu->queue));
}

void st_ocl_free(st_ocl *gpu, void *memory);
void st_ocl_free(st_ocl *gpu, void *memory) {
    (void)clFinish(gpu->queue);
    clSVMFree(gpu->context, memory);
}

// After the work so far; when it returns, the elements are there.
int st_ocl_copy(st_ocl *gpu, void *to, const void *from, size_t bytes);
int st_ocl_copy(st_ocl *gpu, void *to, const void *from, size_t bytes) {
    const int status = bytes == 0 ? 0 : clEnqueueSVMMemcpy(gpu->queue, 1, to, from, bytes, 0, NULL, NULL);
    return answer("clEnqueueSVMMemcpy", status);
}

// Let the host read memory of the device in its place, until it gives it back.
int st_ocl_map(st_ocl *gpu, void *memory, size_t bytes);
int st_ocl_map(st_ocl *gpu, void *memory, size_t bytes) {
    return answer("clEnqueueSVMMap", clEnqueueSVMMap(gpu->queue, 1, CL_MAP_READ, memory, bytes, 0, NULL, NULL));
}

int st_ocl_unmap(st_ocl *gpu, void *memory);
int st_ocl_unmap(st_ocl *gpu, void *memory) {
    return answer("clEnqueueSVMUnmap", clEnqueueSVMUnmap(gpu->queue, memory, 0, NULL, NULL));
}

int st_ocl_zero(st_ocl *gpu, void *to, size_t bytes);
int st_ocl_zero(st_ocl *gpu, void *to, size_t bytes) {
    const unsigned char zero = 0;
    const int status = bytes == 0 ? 0 : clEnqueueSVMMemFill(gpu->queue, to, &zero, 1, bytes, 0, NULL, NULL);
    return answer("clEnqueueSVMMemFill", status);
}

// A program's kernels, as the device runs them; NULL where its compiler refuses the text.
void *st_ocl_build(st_ocl *gpu, const char *text);
void *st_ocl_build(st_ocl *gpu, const char *text) {
    cl_int status = CL_SUCCESS;
    void *const program = clCreateProgramWithSource(gpu->context, 1, &text, NULL, &status);
    if (answer("clCreateProgramWithSource", status) != CL_SUCCESS) {
        return NULL;
    }
    status = clBuildProgram(program, 1, &gpu->device, "-cl-std=CL1.2", NULL, NULL);
    if (answer("clBuildProgram", status) != CL_SUCCESS) {
        const size_t used = strlen(words);
        (void)snprintf(words + used, sizeof words - used, "\n");
        (void)clGetProgramBuildInfo(program, gpu->device, CL_PROGRAM_BUILD_LOG, sizeof words - used - 1,
                words + used + 1, NULL);
        if (strstr(words, "unknown target CPU") != NULL) {  // PoCL 3.0 does not know recent processors
            const size_t end = strlen(words);
            (void)snprintf(words + end, sizeof words - end, "\nTo fix: install PoCL 3.1 or newer, or another OpenCL driver");
        }
        (void)clReleaseProgram(program);
        return NULL;
    }
    return program;
}

void *st_ocl_kernel(void *program, const char *name);
void *st_ocl_kernel(void *program, const char *name) {
    cl_int status = CL_SUCCESS;
    void *const kernel = clCreateKernel(program, name, &status);
    (void)answer("clCreateKernel", status);
    return kernel;
}

void st_ocl_forget(void *program, void *const *kernels, int count);
void st_ocl_forget(void *program, void *const *kernels, int count) {
    for (int k = 0; k < count; ++k) {
        if (kernels[k] != NULL) {
            (void)clReleaseKernel(kernels[k]);
        }
    }
    (void)clReleaseProgram(program);
}

// Start a kernel in a grid of blocks, each with three sides: `sizes` are the bytes of what `values` point to, 0 for an address of the device, which is the value
// itself.
int st_ocl_launch(st_ocl *gpu, void *kernel, const size_t *grid, const size_t *block, int count,
                  const void *const *values, const size_t *sizes);
int st_ocl_launch(st_ocl *gpu, void *kernel, const size_t *grid, const size_t *block, int count,
                  const void *const *values, const size_t *sizes) {
    for (int k = 0; k < count; ++k) {
        const cl_int status = sizes[k] == 0 ? clSetKernelArgSVMPointer(kernel, (cl_uint)k, values[k])
                                            : clSetKernelArg(kernel, (cl_uint)k, sizes[k], values[k]);
        if (status != CL_SUCCESS) {
            return answer("clSetKernelArg", status);
        }
    }
    const size_t all[3] = {grid[0] * block[0], grid[1] * block[1], grid[2] * block[2]};
    return answer("clEnqueueNDRangeKernel",
                  clEnqueueNDRangeKernel(gpu->queue, kernel, 3, NULL, all, block, 0, NULL, NULL));
}
