// cuSOLVER on the emulated device: QR factors by Householder's reflections 1 - tau v v'.

#include "handle.h"

using namespace emulator;

namespace {

// The columns of A from `from` on, times a reflection whose v is 1 in row `j` and stands below it in column `j`.
template <class T> void reflect(int64_t m, int64_t n, Matrix<T> A, int64_t j, T tau, int64_t from) {
    for (int64_t k = from; k < n; ++k) {
        T sum = A.at(j, k);
        for (int64_t i = j + 1; i < m; ++i) {
            sum += A.at(i, j) * A.at(i, k);
        }
        A.at(j, k) -= tau * sum;
        for (int64_t i = j + 1; i < m; ++i) {
            A.at(i, k) -= tau * A.at(i, j) * sum;
        }
    }
}

// r on and above the diagonal, the rest of each v below it.
template <class T> void factor(int64_t m, int64_t n, Matrix<T> A, T *tau) {
    for (int64_t j = 0; j < (m < n ? m : n); ++j) {
        T below = T(0);
        for (int64_t i = j + 1; i < m; ++i) {
            below = std::hypot(below, A.at(i, j));
        }
        tau[j] = T(0);
        if (below == T(0)) {
            continue;
        }
        const T head = A.at(j, j), beta = -std::copysign(std::hypot(head, below), head);
        tau[j] = (beta - head) / beta;
        for (int64_t i = j + 1; i < m; ++i) {
            A.at(i, j) /= head - beta;
        }
        reflect(m, n, A, j, tau[j], j + 1);
        A.at(j, j) = beta;
    }
}

// The first n columns of the product of k reflections, in the place of these.
template <class T> void join(int64_t m, int64_t n, int64_t k, Matrix<T> A, const T *tau) {
    for (int64_t column = k; column < n; ++column) {
        for (int64_t i = 0; i < m; ++i) {
            A.at(i, column) = T(i == column);
        }
    }
    for (int64_t j = k - 1; j >= 0; --j) {
        reflect(m, n, A, j, tau[j], j + 1);
        for (int64_t i = 0; i < m; ++i) {
            A.at(i, j) = i < j ? T(0) : i == j ? T(1) - tau[j] : -tau[j] * A.at(i, j);
        }
    }
}

cusolverStatus_t geqrf_size(const char *name, cusolverDnHandle_t handle, int m, int n, int lda, int *size) {
    Call call(name);
    check_matrix(call, handle, m, n, lda);
    return tell_size(call, size, needed(m, n));
}

template <class T>
cusolverStatus_t geqrf(
    const char *name, cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *tau, T *workspace, int size,
    int *info) {
    Call call(name);
    check_matrix(call, handle, m, n, lda);
    call.require(size >= needed(m, n), "Lwork is %d, and bufferSize said %d", size, needed(m, n));
    const size_t work = call.ok() ? size_t(size) : 0;
    check_arrays(
        call, handle,
        {range(A, extent(m, n, lda), "A"),
         range(tau, call.ok() ? size_t(m < n ? m : n) : 0, "TAU"),
         range(workspace, work, "the workspace"),
         range(info, 1, "devInfo")});
    if (call.ok()) {
        call.run(handle->stream, [=, mode_now = handle->mode] {
            spoil(workspace, work * sizeof(T));
            factor(m, n, Matrix<T>{A, lda}, tau);
            vary(mode_now, A, m > 0 && n > 0);
            *info = 0;
        });
    }
    return status(call);
}

void check_join(Call &call, cusolverDnHandle_t handle, int m, int n, int k, int lda) {
    check_matrix(call, handle, m, n, lda);
    call.require(m >= n && n >= k && k >= 0, "%d columns of %d reflections have %d rows", n, k, m);
}

cusolverStatus_t orgqr_size(const char *name, cusolverDnHandle_t handle, int m, int n, int k, int lda, int *size) {
    Call call(name);
    check_join(call, handle, m, n, k, lda);
    return tell_size(call, size, needed(m, n + k));
}

template <class T>
cusolverStatus_t orgqr(
    const char *name, cusolverDnHandle_t handle, int m, int n, int k, T *A, int lda, const T *tau, T *workspace,
    int size, int *info) {
    Call call(name);
    check_join(call, handle, m, n, k, lda);
    call.require(size >= needed(m, n + k), "lwork is %d, and bufferSize said %d", size, needed(m, n + k));
    const size_t work = call.ok() ? size_t(size) : 0;
    check_arrays(
        call, handle,
        {range(A, extent(m, n, lda), "A"),
         range(tau, call.ok() ? size_t(k) : 0, "tau"),
         range(workspace, work, "the workspace"),
         range(info, 1, "info")});
    if (call.ok()) {
        call.run(handle->stream, [=] {
            spoil(workspace, work * sizeof(T));
            join(m, n, k, Matrix<T>{A, lda}, tau);
            *info = 0;
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cusolverStatus_t cusolverDn##P##geqrf_bufferSize(                                                                  \
        cusolverDnHandle_t handle, int m, int n, T *, int lda, int *size) {                                            \
        return geqrf_size("cusolverDn" #P "geqrf_bufferSize", handle, m, n, lda, size);                                \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##geqrf(                                                                             \
        cusolverDnHandle_t handle, int m, int n, T *A, int lda, T *tau, T *workspace, int size, int *info) {           \
        return geqrf("cusolverDn" #P "geqrf", handle, m, n, A, lda, tau, workspace, size, info);                       \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##orgqr_bufferSize(                                                                  \
        cusolverDnHandle_t handle, int m, int n, int k, const T *, int lda, const T *, int *size) {                    \
        return orgqr_size("cusolverDn" #P "orgqr_bufferSize", handle, m, n, k, lda, size);                             \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##orgqr(                                                                             \
        cusolverDnHandle_t handle, int m, int n, int k, T *A, int lda, const T *tau, T *workspace, int size,           \
        int *info) {                                                                                                   \
        return orgqr("cusolverDn" #P "orgqr", handle, m, n, k, A, lda, tau, workspace, size, info);                    \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
