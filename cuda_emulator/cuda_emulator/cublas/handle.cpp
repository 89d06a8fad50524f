// Handles of cuBLAS on the emulated device, their properties, and the names of statuses.

#include "handle.h"

using namespace emulator;

namespace {

const struct {
    cublasStatus_t status;
    const char *name, *text;
} STATUSES[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_NOT_INITIALIZED, "CUBLAS_STATUS_NOT_INITIALIZED", "the library was not initialized"},
    {CUBLAS_STATUS_ALLOC_FAILED, "CUBLAS_STATUS_ALLOC_FAILED", "the resource allocation failed"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed"},
    {CUBLAS_STATUS_ARCH_MISMATCH, "CUBLAS_STATUS_ARCH_MISMATCH", "the device cannot do this"},
    {CUBLAS_STATUS_MAPPING_ERROR, "CUBLAS_STATUS_MAPPING_ERROR", "an access to device memory failed"},
    {CUBLAS_STATUS_EXECUTION_FAILED, "CUBLAS_STATUS_EXECUTION_FAILED", "the program failed on the device"},
    {CUBLAS_STATUS_INTERNAL_ERROR, "CUBLAS_STATUS_INTERNAL_ERROR", "an internal operation failed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported"},
    {CUBLAS_STATUS_LICENSE_ERROR, "CUBLAS_STATUS_LICENSE_ERROR", "the license was not found"},
};

// One property of a handle.
template <class Change> cublasStatus_t change(const char *name, cublasHandle_t handle, Change what) {
    Call call(name);
    if (call.usable(handle, "the handle").ok()) {
        what(*handle);
    }
    return status(call);
}

}  // namespace

extern "C" {

cublasStatus_t cublasCreate_v2(cublasHandle_t *handle) {
    Call call("cublasCreate");
    if (!call.creates_handle().ok()) {
        return status(call);
    }
    *handle = create_handle<cublasContext>("cublasHandle");
    return status(call);
}

cublasStatus_t cublasDestroy_v2(cublasHandle_t handle) {
    Call call("cublasDestroy");
    return status(call.destroy(handle, "the handle"));
}

cublasStatus_t cublasGetVersion_v2(cublasHandle_t handle, int *version) {
    return change("cublasGetVersion", handle, [&](cublasContext &) { *version = 130100; });
}

// Gives the default workspace back, as in cuBLAS.
cublasStatus_t cublasSetStream_v2(cublasHandle_t handle, cudaStream_t stream) {
    return change("cublasSetStream", handle, [&](cublasContext &h) {
        h.stream = stream;
        h.workspace = nullptr;
        h.workspace_size = 0;
    });
}

cublasStatus_t cublasGetStream_v2(cublasHandle_t handle, cudaStream_t *stream) {
    return change("cublasGetStream", handle, [&](cublasContext &h) { *stream = h.stream; });
}

cublasStatus_t cublasSetWorkspace_v2(cublasHandle_t handle, void *workspace, size_t size) {
    Call call("cublasSetWorkspace");
    call.usable(handle, "the handle").device(workspace, size, "the workspace", 256);
    if (call.ok()) {
        handle->workspace = workspace;
        handle->workspace_size = size;
    }
    return status(call);
}

cublasStatus_t cublasSetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t mode) {
    return change("cublasSetPointerMode", handle, [&](cublasContext &h) { h.pointer_mode = mode; });
}

cublasStatus_t cublasGetPointerMode_v2(cublasHandle_t handle, cublasPointerMode_t *mode) {
    return change("cublasGetPointerMode", handle, [&](cublasContext &h) { *mode = h.pointer_mode; });
}

cublasStatus_t cublasSetAtomicsMode(cublasHandle_t handle, cublasAtomicsMode_t mode) {
    return change("cublasSetAtomicsMode", handle, [&](cublasContext &h) { h.atomics_mode = mode; });
}

cublasStatus_t cublasSetMathMode(cublasHandle_t handle, cublasMath_t mode) {
    return change("cublasSetMathMode", handle, [&](cublasContext &h) { h.math_mode = mode; });
}

cublasStatus_t cublasGetMathMode(cublasHandle_t handle, cublasMath_t *mode) {
    return change("cublasGetMathMode", handle, [&](cublasContext &h) { *mode = h.math_mode; });
}

const char *cublasGetStatusName(cublasStatus_t status) {
    for (const auto &known : STATUSES) {
        if (known.status == status) {
            return known.name;
        }
    }
    return "unknown status";
}

const char *cublasGetStatusString(cublasStatus_t status) {
    for (const auto &known : STATUSES) {
        if (known.status == status) {
            return known.text;
        }
    }
    return "unknown status";
}

}  // extern "C"
