// cuSOLVER on the emulated device: eigenvalues of symmetric matrices, by Jacobi's rotations in f64.

#include "handle.h"

#include <algorithm>
#include <numeric>

using namespace emulator;

namespace {

constexpr int SWEEPS = 60;

// Turns rows and columns `p` and `q` of X (n x n) so that X(p, q) is 0, and columns of V with them.
void rotate(int64_t n, Matrix<double> X, Matrix<double> V, int64_t p, int64_t q) {
    const double zeta = (X.at(q, q) - X.at(p, p)) / (2.0 * X.at(p, q));
    const double tangent = (zeta < 0.0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::hypot(1.0, zeta));
    const double cosine = 1.0 / std::hypot(1.0, tangent), sine = cosine * tangent;
    const auto turn = [&](double &first, double &second) {
        const double before = first;
        first = cosine * before - sine * second;
        second = sine * before + cosine * second;
    };
    for (int64_t i = 0; i < n; ++i) {
        turn(X.at(i, p), X.at(i, q));
        turn(V.at(i, p), V.at(i, q));
    }
    for (int64_t i = 0; i < n; ++i) {
        turn(X.at(p, i), X.at(q, i));
    }
    X.at(p, q) = X.at(q, p) = 0.0;  // but for rounding
}

// Values ascending in W, vectors as columns of A; the number of elements that did not become 0.
template <class T> int diagonalize(bool upper, int64_t n, Matrix<T> A, T *W) {
    std::vector<double> x(size_t(n * n)), v(size_t(n * n), 0.0);
    const Matrix<double> X{x.data(), n}, V{v.data(), n};
    double size = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < n; ++i) {
            X.at(i, j) = double((upper ? i <= j : i >= j) ? A.at(i, j) : A.at(j, i));
            size = std::max(size, std::fabs(X.at(i, j)));
        }
        V.at(j, j) = 1.0;
    }
    int left = 1;
    for (int sweep = 0; sweep < SWEEPS && left > 0; ++sweep) {
        left = 0;
        for (int64_t q = 1; q < n; ++q) {
            for (int64_t p = 0; p < q; ++p) {
                if (std::fabs(X.at(p, q)) > 1e-17 * size) {
                    ++left;
                    rotate(n, X, V, p, q);
                }
            }
        }
    }
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t i, int64_t j) { return X.at(i, i) < X.at(j, j); });
    for (int64_t j = 0; j < n; ++j) {
        W[j] = T(X.at(order[size_t(j)], order[size_t(j)]));
        for (int64_t i = 0; i < n; ++i) {
            A.at(i, j) = T(V.at(i, order[size_t(j)]));
        }
    }
    return left;
}

void check(Call &call, cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t uplo, int n, int lda) {
    check_matrix(call, handle, n, n, lda);
    check_triangle(call, uplo);
    call.require(mode == CUSOLVER_EIG_MODE_VECTOR || mode == CUSOLVER_EIG_MODE_NOVECTOR, "%d is no jobz", int(mode));
}

int elements(cusolverEigMode_t mode, int n) {
    return needed(n, mode == CUSOLVER_EIG_MODE_VECTOR ? 2 * n : n);
}

cusolverStatus_t syevd_size(
    const char *name, cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t uplo, int n, int lda,
    int *size) {
    Call call(name);
    check(call, handle, mode, uplo, n, lda);
    return tell_size(call, size, elements(mode, n));
}

template <class T>
cusolverStatus_t syevd(
    const char *name, cusolverDnHandle_t handle, cusolverEigMode_t mode, cublasFillMode_t uplo, int n, T *A, int lda,
    T *W, T *workspace, int size, int *info) {
    Call call(name);
    check(call, handle, mode, uplo, n, lda);
    call.require(size >= elements(mode, n), "lwork is %d, and bufferSize said %d", size, elements(mode, n));
    const size_t work = call.ok() ? size_t(size) : 0;
    check_arrays(
        call, handle,
        {range(A, extent(n, n, lda), "A"),
         range(W, call.ok() ? size_t(n) : 0, "W"),
         range(workspace, work, "the workspace"),
         range(info, 1, "info")});
    if (call.ok()) {
        call.run(handle->stream, [=, mode_now = handle->mode] {
            spoil(workspace, work * sizeof(T));
            const bool upper = uplo == CUBLAS_FILL_MODE_UPPER;
            if (!check_finite<T>(name, {A, lda}, n, n, true, upper)) {
                return;
            }
            *info = diagonalize(upper, n, Matrix<T>{A, lda}, W);
            vary(mode_now, W, n);
            for (int64_t j = 0; mode == CUSOLVER_EIG_MODE_NOVECTOR && j < n; ++j) {
                spoil(A + j * lda, size_t(n) * sizeof(T));
            }
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cusolverStatus_t cusolverDn##P##syevd_bufferSize(                                                                  \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, const T *, int lda,           \
        const T *, int *size) {                                                                                        \
        return syevd_size("cusolverDn" #P "syevd_bufferSize", handle, jobz, uplo, n, lda, size);                       \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##syevd(                                                                             \
        cusolverDnHandle_t handle, cusolverEigMode_t jobz, cublasFillMode_t uplo, int n, T *A, int lda, T *W,          \
        T *workspace, int size, int *info) {                                                                           \
        return syevd("cusolverDn" #P "syevd", handle, jobz, uplo, n, A, lda, W, workspace, size, info);                \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
