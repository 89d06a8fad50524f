// cuBLAS on the emulated device, levels 1 and 2: vectors, and a matrix with vectors. The loops are the definition of
// each function; matrices are column-major.

#include "handle.h"

#include <cmath>

using namespace emulator;

namespace {

// n elements, `inc` apart; with a negative `inc` the first is at the end.
template <class T> struct Vector {
    T *data;
    int64_t n, inc;

    T &operator[](int64_t i) const {
        return data[inc >= 0 ? i * inc : (i - n + 1) * inc];
    }
    size_t bytes() const {
        return n == 0 ? 0 : size_t((n - 1) * (inc < 0 ? -inc : inc) + 1) * sizeof(T);
    }
};

template <class T> void check_vector(Call &call, Vector<T> x, const char *what) {
    call.require(x.inc != 0, "the increment of %s is 0", what).device(x.data, x.bytes(), what, sizeof(T));
}

// Gives the result of a reduction to where the caller wants it. A result on the host is there when the call returns.
template <class T, class Reduce>
cublasStatus_t reduce(Call &call, cublasHandle_t handle, T *result, Reduce value) {
    const bool on_device = call.ok() && handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
    if (on_device) {
        call.device(result, sizeof(T), "the result", sizeof(T));
    } else {
        call.host(result, "the result");
    }
    if (call.ok()) {
        call.run(handle->stream, [=] { *result = value(); });
    }
    if (call.ok() && !on_device) {
        cudaStreamSynchronize(handle->stream);
    }
    return status(call);
}

// ---- level 1 ----

template <class T>
cublasStatus_t axpy(
    const char *name, cublasHandle_t handle, const T *alpha_address, Vector<const T> x, Vector<T> y) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0, "n is negative");
    const Factor<T> alpha(call, handle, alpha_address, "alpha");
    check_vector(call, x, "x");
    check_vector(call, y, "y");
    if (call.ok() && x.n > 0) {
        call.run(handle->stream, [=] {
            const T factor = alpha.get();
            for (int64_t i = 0; i < x.n; ++i) {
                y[i] += factor * x[i];
            }
        });
    }
    return status(call);
}

template <class T>
cublasStatus_t scal(const char *name, cublasHandle_t handle, const T *alpha_address, Vector<T> x) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0 && x.inc > 0, "n = %d, incx = %d", int(x.n), int(x.inc));
    const Factor<T> alpha(call, handle, alpha_address, "alpha");
    check_vector(call, x, "x");
    if (call.ok() && x.n > 0) {
        call.run(handle->stream, [=] {
            const T factor = alpha.get();
            for (int64_t i = 0; i < x.n; ++i) {
                x[i] *= factor;
            }
        });
    }
    return status(call);
}

template <class T>
cublasStatus_t copy(const char *name, cublasHandle_t handle, Vector<const T> x, Vector<T> y) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0, "n is negative");
    check_vector(call, x, "x");
    check_vector(call, y, "y");
    call.apart(x.data, x.bytes(), y.data, y.bytes(), "x and y");
    if (call.ok() && x.n > 0) {
        call.run(handle->stream, [=] {
            for (int64_t i = 0; i < x.n; ++i) {
                y[i] = x[i];
            }
        });
    }
    return status(call);
}

template <class T>
cublasStatus_t dot(const char *name, cublasHandle_t handle, Vector<const T> x, Vector<const T> y, T *result) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0, "n is negative");
    check_vector(call, x, "x");
    check_vector(call, y, "y");
    return reduce(call, handle, result, [=] {
        T sum = T(0);
        for (int64_t i = 0; i < x.n; ++i) {
            sum += x[i] * y[i];
        }
        return sum;
    });
}

template <class T> cublasStatus_t nrm2(const char *name, cublasHandle_t handle, Vector<const T> x, T *result) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0, "n is negative");
    check_vector(call, x, "x");
    return reduce(call, handle, result, [=] {
        double squares = 0.0;  // wide, so that nothing overflows that has a norm in T
        for (int64_t i = 0; i < x.n; ++i) {
            squares = std::hypot(squares, double(x[i]));
        }
        return T(squares);
    });
}

template <class T> cublasStatus_t asum(const char *name, cublasHandle_t handle, Vector<const T> x, T *result) {
    Call call(name);
    call.usable(handle, "the handle").require(x.n >= 0, "n is negative");
    check_vector(call, x, "x");
    return reduce(call, handle, result, [=] {
        T sum = T(0);
        for (int64_t i = 0; i < x.n; ++i) {
            sum += std::fabs(x[i]);
        }
        return sum;
    });
}

// ---- level 2 ----

// y = alpha op(A) x + beta y for each of `batch` triples that lie `stride_...` elements apart.
template <class T>
cublasStatus_t gemv(
    const char *name, cublasHandle_t handle, cublasOperation_t trans, int64_t m, int64_t n, const T *alpha_address,
    Matrix<const T> A, int64_t stride_a, const T *x, int64_t incx, int64_t stride_x, const T *beta_address, T *y,
    int64_t incy, int64_t stride_y, int64_t batch) {
    Call call(name);
    call.usable(handle, "the handle").require(m >= 0 && n >= 0 && batch >= 0, "a size is negative");
    check_operation(call, trans);
    check_leading(call, "A", A.ld, m);
    const Factor<T> alpha(call, handle, alpha_address, "alpha"), beta(call, handle, beta_address, "beta");
    const bool transposed = trans != CUBLAS_OP_N;
    const int64_t rows = transposed ? n : m, columns = transposed ? m : n;
    const Vector<const T> first_x{x, columns, incx};
    const Vector<T> first_y{y, rows, incy};
    for (int64_t i = 0; i < batch && call.ok(); ++i) {
        call.device(A.data + i * stride_a, extent(m, n, A.ld) * sizeof(T), "A", sizeof(T));
        check_vector(call, Vector<const T>{x + i * stride_x, columns, incx}, "x");
        check_vector(call, Vector<T>{y + i * stride_y, rows, incy}, "y");
        call.apart(y + i * stride_y, first_y.bytes(), x + i * stride_x, first_x.bytes(), "x and y");
    }
    // As BLAS has it: of a matrix without elements y is left alone, whatever beta is.
    if (!call.ok() || rows == 0 || columns == 0 || batch == 0) {
        return status(call);
    }
    call.run(handle->stream, [=] {
        for (int64_t i = 0; i < batch; ++i) {
            const Matrix<const T> a{A.data + i * stride_a, A.ld};
            const Vector<const T> in{x + i * stride_x, columns, incx};
            const Vector<T> out{y + i * stride_y, rows, incy};
            for (int64_t row = 0; row < rows; ++row) {
                T sum = T(0);
                for (int64_t column = 0; column < columns; ++column) {
                    sum += (transposed ? a.at(column, row) : a.at(row, column)) * in[column];
                }
                blend(out[row], alpha.get(), sum, beta.get());
            }
        }
    });
    return status(call);
}

template <class T>
cublasStatus_t ger(
    const char *name, cublasHandle_t handle, int64_t m, int64_t n, const T *alpha_address, Vector<const T> x,
    Vector<const T> y, Matrix<T> A) {
    Call call(name);
    call.usable(handle, "the handle").require(m >= 0 && n >= 0, "a size is negative");
    check_leading(call, "A", A.ld, m);
    const Factor<T> alpha(call, handle, alpha_address, "alpha");
    check_vector(call, x, "x");
    check_vector(call, y, "y");
    call.device(A.data, extent(m, n, A.ld) * sizeof(T), "A", sizeof(T));
    if (call.ok() && m > 0 && n > 0) {
        call.run(handle->stream, [=] {
            for (int64_t column = 0; column < n; ++column) {
                for (int64_t row = 0; row < m; ++row) {
                    A.at(row, column) += alpha.get() * x[row] * y[column];
                }
            }
        });
    }
    return status(call);
}

}  // namespace

extern "C" {

// A function per type, each a line of parameters away from its template.
#define FOR_TYPE(P, T)                                                                                                 \
    cublasStatus_t cublas##P##axpy_v2(                                                                                 \
        cublasHandle_t handle, int n, const T *alpha, const T *x, int incx, T *y, int incy) {                          \
        return axpy<T>("cublas" #P "axpy", handle, alpha, {x, n, incx}, {y, n, incy});                                 \
    }                                                                                                                  \
    cublasStatus_t cublas##P##scal_v2(cublasHandle_t handle, int n, const T *alpha, T *x, int incx) {                  \
        return scal<T>("cublas" #P "scal", handle, alpha, {x, n, incx});                                               \
    }                                                                                                                  \
    cublasStatus_t cublas##P##copy_v2(cublasHandle_t handle, int n, const T *x, int incx, T *y, int incy) {            \
        return copy<T>("cublas" #P "copy", handle, {x, n, incx}, {y, n, incy});                                        \
    }                                                                                                                  \
    cublasStatus_t cublas##P##dot_v2(                                                                                  \
        cublasHandle_t handle, int n, const T *x, int incx, const T *y, int incy, T *result) {                         \
        return dot<T>("cublas" #P "dot", handle, {x, n, incx}, {y, n, incy}, result);                                  \
    }                                                                                                                  \
    cublasStatus_t cublas##P##nrm2_v2(cublasHandle_t handle, int n, const T *x, int incx, T *result) {                 \
        return nrm2<T>("cublas" #P "nrm2", handle, {x, n, incx}, result);                                              \
    }                                                                                                                  \
    cublasStatus_t cublas##P##asum_v2(cublasHandle_t handle, int n, const T *x, int incx, T *result) {                 \
        return asum<T>("cublas" #P "asum", handle, {x, n, incx}, result);                                              \
    }                                                                                                                  \
    cublasStatus_t cublas##P##gemv_v2(                                                                                 \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T *alpha, const T *A, int lda, const T *x, \
        int incx, const T *beta, T *y, int incy) {                                                                     \
        return gemv<T>("cublas" #P "gemv", handle, trans, m, n, alpha, {A, lda}, 0, x, incx, 0, beta, y, incy, 0, 1);  \
    }                                                                                                                  \
    cublasStatus_t cublas##P##gemvStridedBatched(                                                                      \
        cublasHandle_t handle, cublasOperation_t trans, int m, int n, const T *alpha, const T *A, int lda,             \
        long long strideA, const T *x, int incx, long long stridex, const T *beta, T *y, int incy, long long stridey,  \
        int batch) {                                                                                                   \
        return gemv<T>(                                                                                                \
            "cublas" #P "gemvStridedBatched", handle, trans, m, n, alpha, \
            {A, lda}, strideA, x, incx, stridex, beta, y, \
            incy, stridey, batch);                                                                                     \
    }                                                                                                                  \
    cublasStatus_t cublas##P##ger_v2(                                                                                  \
        cublasHandle_t handle, int m, int n, const T *alpha, const T *x, int incx, const T *y, int incy, T *A,         \
        int lda) {                                                                                                     \
        return ger<T>("cublas" #P "ger", handle, m, n, alpha, {x, m, incx}, {y, n, incy}, {A, lda});                   \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

}  // extern "C"
