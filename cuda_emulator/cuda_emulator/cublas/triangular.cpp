// cuBLAS on the emulated device, level 3: triangular systems.

#include "handle.h"

using namespace emulator;

namespace {

// op(A) X = alpha B, or X op(A) = alpha B, for a triangular A; X takes the place of B (m x n).
struct Trsm {
    cublasSideMode_t side;
    cublasFillMode_t uplo;
    cublasOperation_t operation;
    cublasDiagType_t diagonal;
    int64_t m, n;

    int64_t size() const {
        return side == CUBLAS_SIDE_LEFT ? m : n;
    }
};

template <class T> void solve(const Trsm &t, T alpha, Matrix<const T> A, Matrix<T> B) {
    const bool left = t.side == CUBLAS_SIDE_LEFT, turned = (t.operation != CUBLAS_OP_N) == left;
    const int64_t size = t.size(), systems = left ? t.n : t.m;
    // The systems are columns of B, or rows, which the turned op(A) stands in front of.
    const auto factor = [&](int64_t i, int64_t j) { return turned ? A.at(j, i) : A.at(i, j); };
    const auto at = [&](int64_t i, int64_t system) -> T & { return left ? B.at(i, system) : B.at(system, i); };
    const bool upper = (t.uplo == CUBLAS_FILL_MODE_UPPER) != turned;
    for (int64_t system = 0; system < systems; ++system) {
        for (int64_t step = 0; step < size; ++step) {
            const int64_t i = upper ? size - 1 - step : step;
            T sum = alpha == T(0) ? T(0) : alpha * at(i, system);
            for (int64_t done = 0; done < step && alpha != T(0); ++done) {
                const int64_t j = upper ? size - 1 - done : done;
                sum -= factor(i, j) * at(j, system);
            }
            at(i, system) = t.diagonal == CUBLAS_DIAG_UNIT || alpha == T(0) ? sum : sum / factor(i, i);
        }
    }
}

template <class T>
cublasStatus_t trsm(
    const char *name, cublasHandle_t handle, Trsm t, const T *alpha_address, Matrix<const T> A, Matrix<T> B) {
    Call call(name);
    call.usable(handle, "the handle").require(t.m >= 0 && t.n >= 0, "a size is negative");
    call.require(t.side == CUBLAS_SIDE_LEFT || t.side == CUBLAS_SIDE_RIGHT, "%d is no side", int(t.side));
    call.require(
        t.uplo == CUBLAS_FILL_MODE_LOWER || t.uplo == CUBLAS_FILL_MODE_UPPER, "%d is no triangle", int(t.uplo));
    call.require(
        t.diagonal == CUBLAS_DIAG_NON_UNIT || t.diagonal == CUBLAS_DIAG_UNIT, "%d is no diagonal", int(t.diagonal));
    check_operation(call, t.operation);
    const Factor<T> alpha(call, handle, alpha_address, "alpha");
    check_leading(call, "A", A.ld, t.size());
    check_leading(call, "B", B.ld, t.m);
    const size_t a = extent(t.size(), t.size(), A.ld) * sizeof(T), b = extent(t.m, t.n, B.ld) * sizeof(T);
    call.device(A.data, b > 0 ? a : 0, "A", sizeof(T)).device(B.data, b, "B", sizeof(T));
    call.apart(A.data, a, B.data, b, "A and B");
    if (call.ok() && b > 0) {
        call.run(handle->stream, [=] { solve(t, alpha.get(), A, B); });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cublasStatus_t cublas##P##trsm_v2(                                                                                 \
        cublasHandle_t handle, cublasSideMode_t side, cublasFillMode_t uplo, cublasOperation_t trans,                  \
        cublasDiagType_t diag, int m, int n, const T *alpha, const T *A, int lda, T *B, int ldb) {                     \
        return trsm<T>("cublas" #P "trsm", handle, {side, uplo, trans, diag, m, n}, alpha, {A, lda}, {B, ldb});        \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
