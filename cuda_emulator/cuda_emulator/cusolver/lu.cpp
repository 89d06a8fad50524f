// cuSOLVER on the emulated device: LU factors with partial pivoting, and exchanges of rows.

#include "handle.h"

#include <utility>

using namespace emulator;

namespace {

// Both factors in the place of A, and by step the row, counted from 1, that it exchanged its own with; 0, or the number
// of the first 0 of the upper factor's diagonal.
template <class T> int factor(int64_t m, int64_t n, Matrix<T> A, int *pivots) {
    int first_zero = 0;
    for (int64_t j = 0; j < (m < n ? m : n); ++j) {
        int64_t pivot = j;
        for (int64_t i = j + 1; i < m; ++i) {
            if (std::fabs(A.at(i, j)) > std::fabs(A.at(pivot, j))) {
                pivot = i;
            }
        }
        if (pivots != nullptr && !std::isfinite(A.at(pivot, j))) {
            pivots[j] = 0;  // cuSOLVER does not say what it names then
        } else if (pivots != nullptr) {
            pivots[j] = int(pivot + 1);
            for (int64_t k = 0; k < n; ++k) {
                std::swap(A.at(j, k), A.at(pivot, k));
            }
        }
        if (A.at(j, j) == T(0)) {
            first_zero = first_zero ? first_zero : int(j + 1);
            continue;
        }
        for (int64_t i = j + 1; i < m; ++i) {
            A.at(i, j) /= A.at(j, j);
        }
        for (int64_t k = j + 1; k < n; ++k) {
            for (int64_t i = j + 1; i < m; ++i) {
                A.at(i, k) -= A.at(i, j) * A.at(j, k);
            }
        }
    }
    return first_zero;
}

cusolverStatus_t getrf_size(const char *name, cusolverDnHandle_t handle, int m, int n, int lda, int *size) {
    Call call(name);
    check_matrix(call, handle, m, n, lda);
    return tell_size(call, size, needed(m, n));
}

template <class T>
cusolverStatus_t getrf(
    const char *name, cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *workspace, int *pivots, int *info) {
    Call call(name);
    check_matrix(call, handle, m, n, lda);
    const size_t work = call.ok() ? size_t(needed(m, n)) : 0;
    const size_t steps = pivots == nullptr || !call.ok() ? 0 : size_t(m < n ? m : n);
    check_arrays(
        call, handle,
        {range(A, extent(m, n, lda), "A"),
         range(workspace, work, "the workspace"),
         range(pivots, steps, "devIpiv"),
         range(info, 1, "devInfo")});
    if (call.ok()) {
        call.run(handle->stream, [=] {
            spoil(workspace, work * sizeof(T));
            *info = factor(m, n, Matrix<T>{A, lda}, pivots);
        });
    }
    return status(call);
}

// Exchanges rows `k1` to `k2`, counted from 1, one after the other, each with the one that its pivot names.
template <class T>
cusolverStatus_t laswp(
    const char *name, cusolverDnHandle_t handle, int n, T *A, int lda, int k1, int k2, const int *pivots, int step) {
    Call call(name);
    call.usable(handle, "the handle");
    call.require(n >= 0 && lda >= 1, "A has %d columns, %d apart", n, lda);
    call.require(1 <= k1 && k1 <= k2, "rows %d to %d are exchanged", k1, k2);
    call.require(step == 1, "pivots are %d apart, which programs do not need", step);
    check_arrays(
        call, handle,
        {range(A, extent(k2, n, lda), "A"), range(pivots, call.ok() ? size_t(k2) : 0, "devIpiv")});
    if (call.ok() && n > 0) {
        call.run(handle->stream, [=] {
            Call later(name, false);
            for (int k = k1; k <= k2 && later.ok(); ++k) {
                const int other = pivots[k - 1];
                later.require(1 <= other && other <= lda, "row %d is exchanged with row %d of %d", k, other, lda);
                for (int64_t column = 0; column < n && later.ok(); ++column) {
                    std::swap(A[k - 1 + column * lda], A[other - 1 + column * lda]);
                }
            }
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cusolverStatus_t cusolverDn##P##getrf_bufferSize(                                                                  \
        cusolverDnHandle_t handle, int m, int n, T *, int lda, int *size) {                                            \
        return getrf_size("cusolverDn" #P "getrf_bufferSize", handle, m, n, lda, size);                                \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##getrf(                                                                             \
        cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *workspace, int *pivots, int *info) {                \
        return getrf("cusolverDn" #P "getrf", handle, m, n, A, lda, workspace, pivots, info);                          \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##laswp(                                                                             \
        cusolverDnHandle_t handle, int n, T *A, int lda, int k1, int k2, const int *pivots, int step) {                \
        return laswp("cusolverDn" #P "laswp", handle, n, A, lda, k1, k2, pivots, step);                                \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
