// cuSOLVER on the emulated device: Cholesky factors.

#include "handle.h"

using namespace emulator;

namespace {

void check(Call &call, cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, int lda) {
    check_matrix(call, handle, n, n, lda);
    check_triangle(call, uplo);
}

cusolverStatus_t potrf_size(
    const char *name, cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, int lda, int *size) {
    Call call(name);
    check(call, handle, uplo, n, lda);
    return tell_size(call, size, needed(n, n));
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
    check(call, handle, uplo, n, lda);
    call.require(size >= needed(n, n), "Lwork is %d, and bufferSize said %d", size, needed(n, n));
    const size_t work = call.ok() ? size_t(size) : 0;
    check_arrays(
        call, handle,
        {range(A, extent(n, n, lda), "A"),
         range(workspace, work, "the workspace"),
         range(info, 1, "devInfo")});
    if (call.ok()) {
        call.run(handle->stream, [=] {
            spoil(workspace, work * sizeof(T));
            *info = factor(uplo == CUBLAS_FILL_MODE_UPPER, n, Matrix<T>{A, lda});
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cusolverStatus_t cusolverDn##P##potrf_bufferSize(                                                                  \
        cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *, int lda, int *size) {                            \
        return potrf_size("cusolverDn" #P "potrf_bufferSize", handle, uplo, n, lda, size);                             \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##potrf(                                                                             \
        cusolverDnHandle_t handle, cublasFillMode_t uplo, int n, T *A, int lda, T *workspace, int size, int *info) {   \
        return potrf("cusolverDn" #P "potrf", handle, uplo, n, A, lda, workspace, size, info);                         \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
