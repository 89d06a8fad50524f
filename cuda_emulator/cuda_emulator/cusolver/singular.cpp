// cuSOLVER on the emulated device: singular values, by rotations of columns in f64 until these are orthogonal.

#include "handle.h"

#include <algorithm>
#include <numeric>

using namespace emulator;

namespace {

constexpr int SWEEPS = 60;

double dot(int64_t m, Matrix<double> X, int64_t i, Matrix<double> Y, int64_t j) {
    double sum = 0.0;
    for (int64_t k = 0; k < m; ++k) {
        sum += X.at(k, i) * Y.at(k, j);
    }
    return sum;
}

// Turns columns of X (m x n), and of V with them; the number of pairs that were not orthogonal in the last sweep.
int make_orthogonal(int64_t m, int64_t n, Matrix<double> X, Matrix<double> V) {
    int left = 1;
    for (int sweep = 0; sweep < SWEEPS && left > 0; ++sweep) {
        left = 0;
        for (int64_t q = 1; q < n; ++q) {
            for (int64_t p = 0; p < q; ++p) {
                const double a = dot(m, X, p, X, p), b = dot(m, X, q, X, q), c = dot(m, X, p, X, q);
                if (!(std::fabs(c) > 1e-15 * double(m) * std::sqrt(a) * std::sqrt(b))) {
                    continue;
                }
                ++left;
                const double zeta = (b - a) / (2.0 * c);
                const double tangent = (zeta < 0.0 ? -1.0 : 1.0) / (std::fabs(zeta) + std::hypot(1.0, zeta));
                const double cosine = 1.0 / std::hypot(1.0, tangent), sine = cosine * tangent;
                const auto turn = [&](Matrix<double> Y, int64_t rows) {
                    for (int64_t k = 0; k < rows; ++k) {
                        const double first = Y.at(k, p), second = Y.at(k, q);
                        Y.at(k, p) = cosine * first - sine * second;
                        Y.at(k, q) = sine * first + cosine * second;
                    }
                };
                turn(X, m);
                turn(V, n);
            }
        }
    }
    return left;
}

// Column `j` of U, orthogonal to those before it, from column `from` of X, or from a unit vector where that is 0, or
// in the span of those.
void add_column(int64_t m, Matrix<double> U, int64_t j, Matrix<double> X, int64_t from) {
    for (int64_t unit = -1; unit < m; ++unit) {
        for (int64_t k = 0; k < m; ++k) {
            U.at(k, j) = unit < 0 ? X.at(k, from) : double(k == unit);
        }
        const double before = std::sqrt(dot(m, U, j, U, j));
        for (int again = 0; again < 2; ++again) {
            for (int64_t i = 0; i < j; ++i) {
                const double part = dot(m, U, i, U, j);
                for (int64_t k = 0; k < m; ++k) {
                    U.at(k, j) -= part * U.at(k, i);
                }
            }
        }
        const double size = std::sqrt(dot(m, U, j, U, j));
        if (size > (unit < 0 ? 0.9 : 0.1 / std::sqrt(double(m))) * before) {
            for (int64_t k = 0; k < m; ++k) {
                U.at(k, j) /= size;
            }
            return;
        }
    }
}

// Values descending in S; with `vectors` u as the columns of U (m x n), and the turned v as VT. The number of pairs
// that did not become orthogonal.
template <class T>
int decompose(int64_t m, int64_t n, Matrix<T> A, T *S, bool vectors, Matrix<T> U, Matrix<T> VT) {
    std::vector<double> x(size_t(m * n)), v(size_t(n * n), 0.0), u(size_t(m * n)), sizes(static_cast<size_t>(n));
    const Matrix<double> X{x.data(), m}, V{v.data(), n}, Left{u.data(), m};
    double largest = 0.0;
    for (int64_t j = 0; j < n; ++j) {
        V.at(j, j) = 1.0;
        for (int64_t i = 0; i < m; ++i) {
            largest = std::max(largest, std::fabs(double(A.at(i, j))));
        }
    }
    const double scale = largest > 0.0 ? largest : 1.0;  // squares would be infinite, or 0
    for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
            X.at(i, j) = double(A.at(i, j)) / scale;
        }
    }
    const int left = make_orthogonal(m, n, X, V);
    for (int64_t j = 0; j < n; ++j) {
        sizes[size_t(j)] = std::sqrt(dot(m, X, j, X, j));
    }
    std::vector<int64_t> order(static_cast<size_t>(n));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(
        order.begin(), order.end(), [&](int64_t i, int64_t j) { return sizes[size_t(i)] > sizes[size_t(j)]; });
    for (int64_t j = 0; j < n; ++j) {
        const int64_t from = order[size_t(j)];
        S[j] = T(sizes[size_t(from)] * scale);
        if (!vectors) {
            continue;
        }
        add_column(m, Left, j, X, from);
        for (int64_t i = 0; i < m; ++i) {
            U.at(i, j) = T(Left.at(i, j));
        }
        for (int64_t i = 0; i < n; ++i) {
            VT.at(j, i) = T(V.at(i, from));
        }
    }
    return left;
}

void check(Call &call, cusolverDnHandle_t handle, int m, int n) {
    check_matrix(call, handle, m, n, m > 1 ? m : 1);
    call.require(m >= n, "A has %d rows, less than its %d columns", m, n);
}

cusolverStatus_t gesvd_size(const char *name, cusolverDnHandle_t handle, int m, int n, int *size) {
    Call call(name);
    check(call, handle, m, n);
    return tell_size(call, size, needed(m, 2 * n));
}

template <class T>
cusolverStatus_t gesvd(
    const char *name, cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m, int n, Matrix<T> A, T *S,
    Matrix<T> U, Matrix<T> VT, T *workspace, int size, T *rwork, int *info) {
    if (jobu != jobvt || (jobu != 'S' && jobu != 'N')) {
        return CUSOLVER_STATUS_NOT_SUPPORTED;  // cuSOLVER has 'A' and 'O' too, and different ones
    }
    Call call(name);
    check(call, handle, m, n);
    check_matrix(call, handle, m, n, int(A.ld));
    const bool vectors = jobu == 'S';
    if (vectors) {
        check_matrix(call, handle, m, n, int(U.ld), "U");
        check_matrix(call, handle, n, n, int(VT.ld), "VT");
    }
    call.require(size >= needed(m, 2 * n), "lwork is %d, and bufferSize said %d", size, needed(m, 2 * n));
    const size_t work = call.ok() ? size_t(size) : 0;
    const size_t further = rwork != nullptr && call.ok() && n > 1 ? size_t(n - 1) : 0;
    check_arrays(
        call, handle,
        {range(A.data, extent(m, n, A.ld), "A"),
         range(S, call.ok() ? size_t(n) : 0, "S"),
         range(U.data, vectors ? extent(m, n, U.ld) : 0, "U"),
         range(VT.data, vectors ? extent(n, n, VT.ld) : 0, "VT"),
         range(workspace, work, "the workspace"),
         range(rwork, further, "rwork"),
         range(info, 1, "info")});
    if (call.ok()) {
        call.run(handle->stream, [=, mode_now = handle->mode] {
            spoil(workspace, work * sizeof(T));
            if (!check_finite<T>(name, {A.data, A.ld}, m, n, false, false)) {
                return;
            }
            *info = decompose(m, n, A, S, vectors, U, VT);
            vary(mode_now, S, m > n ? n : 0);
            for (int64_t j = 0; j < n; ++j) {
                spoil(A.data + j * A.ld, size_t(m) * sizeof(T));
            }
            spoil(rwork, further * sizeof(T));
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

#define FOR_TYPE(P, T)                                                                                                 \
    cusolverStatus_t cusolverDn##P##gesvd_bufferSize(cusolverDnHandle_t handle, int m, int n, int *size) {             \
        return gesvd_size("cusolverDn" #P "gesvd_bufferSize", handle, m, n, size);                                     \
    }                                                                                                                  \
    cusolverStatus_t cusolverDn##P##gesvd(                                                                             \
        cusolverDnHandle_t handle, signed char jobu, signed char jobvt, int m, int n, T *A, int lda, T *S, T *U,       \
        int ldu, T *VT, int ldvt, T *workspace, int size, T *rwork, int *info) {                                       \
        return gesvd<T>(                                                                                               \
            "cusolverDn" #P "gesvd", handle, jobu, jobvt, m, n, {A, lda}, S, {U, ldu}, {VT, ldvt}, workspace, size,    \
            rwork, info);                                                                                              \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
