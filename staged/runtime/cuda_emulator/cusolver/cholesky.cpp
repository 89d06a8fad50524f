// cuSOLVER on the emulated device: its handle, and Cholesky factors.
//
// Refused is what cuSOLVER leaves undefined: a workspace of less than `bufferSize` said, matrices that do not fit.

#include "../include/cusolverDn.h"

#include "../library.h"
#include "../matrix.h"

#include <cmath>

struct cusolverDnContext : emulator::Object {
    cudaStream_t stream = nullptr;
};

using namespace emulator;

namespace {

cusolverStatus_t status(const Call &call) {
    return call.ok() ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;
}

// Elements: some number that depends on the size, so that one of another size is found.
int needed(int n) {
    return 32 * n + 7;
}

void check_matrix(Call &call, cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, int lda) {
    call.usable(handle, "the handle");
    call.require(uplo == CUBLAS_FILL_MODE_LOWER || uplo == CUBLAS_FILL_MODE_UPPER, "%d is no triangle", int(uplo));
    call.require(n >= 0, "n is negative");
    call.require(lda >= (n > 1 ? n : 1), "lda is %d, less than the %d rows", lda, n);
}

cusolverStatus_t size_of_workspace(
    const char *name, cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, int lda, int *size) {
    Call call(name);
    check_matrix(call, handle, uplo, n, lda);
    if (call.host(size, "Lwork").ok()) {
        *size = needed(n);
    }
    return status(call);
}

// The factor in the place of its triangle; 0, or the order of the first leading minor that is not positive definite.
template <class T> int factor(bool upper, int64_t n, Matrix<T> A) {
    const auto at = [&](int64_t i, int64_t j) -> T & { return upper ? A.at(j, i) : A.at(i, j); };
    for (int64_t j = 0; j < n; ++j) {
        T diagonal = at(j, j);
        for (int64_t k = 0; k < j; ++k) {
            diagonal -= at(j, k) * at(j, k);
        }
        if (!(diagonal > T(0))) {  // NaN too
            return int(j + 1);
        }
        at(j, j) = std::sqrt(diagonal);
        for (int64_t i = j + 1; i < n; ++i) {
            T sum = at(i, j);
            for (int64_t k = 0; k < j; ++k) {
                sum -= at(i, k) * at(j, k);
            }
            at(i, j) = sum / at(j, j);
        }
    }
    return 0;
}

template <class T>
cusolverStatus_t potrf(
    const char *name, cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *A, int lda, T *workspace, int size,
    int *info) {
    Call call(name);
    check_matrix(call, handle, uplo, n, lda);
    const size_t bytes = extent(n, n, lda) * sizeof(T);
    call.require(size >= needed(n), "Lwork is %d, and bufferSize said %d", size, needed(n));
    const size_t work_bytes = call.ok() ? size_t(size) * sizeof(T) : 0;
    call.device(A, bytes, "A", sizeof(T)).device(workspace, work_bytes, "the workspace", sizeof(T));
    call.device(info, sizeof(int), "devInfo", sizeof(int));
    call.apart(A, bytes, workspace, work_bytes, "A and the workspace");
    call.apart(A, bytes, info, sizeof(int), "A and devInfo");
    if (call.ok()) {
        call.run(handle->stream, [=] {
            spoil(workspace, work_bytes);
            *info = factor(uplo == CUBLAS_FILL_MODE_UPPER, n, Matrix<T>{A, lda});
        });
    }
    return status(call);
}

}  // namespace

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

cusolverStatus_t cusolverDnSpotrf_bufferSize(
    cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, float *, int lda, int *Lwork) {
    return size_of_workspace("cusolverDnSpotrf_bufferSize", handle, uplo, n, lda, Lwork);
}

cusolverStatus_t cusolverDnDpotrf_bufferSize(
    cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, double *, int lda, int *Lwork) {
    return size_of_workspace("cusolverDnDpotrf_bufferSize", handle, uplo, n, lda, Lwork);
}

cusolverStatus_t cusolverDnSpotrf(
    cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, float *A, int lda, float *Workspace, int Lwork,
    int *devInfo) {
    return potrf("cusolverDnSpotrf", handle, uplo, n, A, lda, Workspace, Lwork, devInfo);
}

cusolverStatus_t cusolverDnDpotrf(
    cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, double *A, int lda, double *Workspace, int Lwork,
    int *devInfo) {
    return potrf("cusolverDnDpotrf", handle, uplo, n, A, lda, Workspace, Lwork, devInfo);
}

}  // extern "C"
