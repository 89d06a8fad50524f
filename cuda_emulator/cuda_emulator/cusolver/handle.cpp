// cuSOLVER on the emulated device: its handle, and checks.

#include "handle.h"

#include <string>

namespace emulator {

void check_matrix(Call &call, cusolverDnHandle_t handle, int rows, int columns, int lda, const char *what) {
    call.usable(handle, "the handle");
    call.require(rows >= 0 && columns >= 0, "%s has %d rows and %d columns", what, rows, columns);
    call.require(
        lda >= (rows > 1 ? rows : 1), "the leading dimension of %s is %d, less than its %d rows", what, lda, rows);
}

void check_triangle(Call &call, cublasFillMode_t uplo) {
    call.require(uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER, "%d is no triangle", int(uplo));
}

cusolverStatus_t tell_size(Call &call, int *size, int elements) {
    if (call.host(size, "Lwork").ok()) {
        *size = elements;
    }
    return status(call);
}

void check_arrays(Call &call, cusolverDnHandle_t handle, std::initializer_list<Range> arrays) {
    for (const Range *each = arrays.begin(); each != arrays.end(); ++each) {
        call.device(each->address, each->bytes, each->what, each->alignment);
        for (const Range *other = arrays.begin(); other != each && call.ok(); ++other) {
            const std::string both = std::string(other->what) + " and " + each->what;
            call.apart(other->address, other->bytes, each->address, each->bytes, both.c_str());
        }
    }
    call.require(
        !call.ok() || !is_capturing(handle->stream),
        "the stream is captured, and it is not known whether a graph may have the call");
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cusolverStatus_t cusolverDnCreate(cusolverDnHandle_t *handle) {
    Call call("cusolverDnCreate");
    if (call.creates_handle().ok()) {
        *handle = create_handle<cusolverDnContext>("cusolverDnHandle");
    }
    return status(call);
}

cusolverStatus_t cusolverDnDestroy(cusolverDnHandle_t handle) {
    Call call("cusolverDnDestroy");
    return status(call.destroy(handle, "the handle"));
}

cusolverStatus_t cusolverDnSetStream(cusolverDnHandle_t handle, cudaStream_t stream) {
    Call call("cusolverDnSetStream");
    if (call.usable(handle, "the handle").ok()) {
        handle->stream = stream;
    }
    return status(call);
}

cusolverStatus_t cusolverDnSetDeterministicMode(cusolverDnHandle_t handle, cusolverDeterministicMode_t mode) {
    Call call("cusolverDnSetDeterministicMode");
    call.usable(handle, "the handle");
    call.require(
        mode == CUSOLVER_DETERMINISTIC_RESULTS || mode == CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS, "%d is no mode",
        int(mode));
    if (call.ok()) {
        handle->mode = mode;
    }
    return status(call);
}

}  // extern "C"
