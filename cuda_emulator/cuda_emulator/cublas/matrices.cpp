// cuBLAS on the emulated device, level 3: products and sums of matrices, column-major.

#include "handle.h"

using namespace emulator;

namespace {

// C = alpha op(A) op(B) + beta C, `batch` times: op(A) is m x k, op(B) k x n.
struct Gemm {
    cublasOperation_t transa, transb;
    int64_t m, n, k;
    int64_t lda, ldb, ldc;
    int batch = 1;
    bool tf32 = false;

    bool is_empty() const {
        return m == 0 || n == 0 || batch == 0;
    }
};

template <class T> struct Operands {
    const T *A, *B;
    T *C;
};

void check_gemm(Call &call, const Gemm &g) {
    check_operation(call, g.transa);
    check_operation(call, g.transb);
    call.require(g.m >= 0 && g.n >= 0 && g.k >= 0 && g.batch >= 0, "a size is negative");
    check_leading(call, "A", g.lda, g.transa == CUBLAS_OP_N ? g.m : g.k);
    check_leading(call, "B", g.ldb, g.transb == CUBLAS_OP_N ? g.k : g.n);
    check_leading(call, "C", g.ldc, g.m);
}

template <class T> void check_operands(Call &call, const Gemm &g, const Operands<T> &o) {
    const bool a_is_plain = g.transa == CUBLAS_OP_N, b_is_plain = g.transb == CUBLAS_OP_N;
    const size_t a = extent(a_is_plain ? g.m : g.k, a_is_plain ? g.k : g.m, g.lda) * sizeof(T);
    const size_t b = extent(b_is_plain ? g.k : g.n, b_is_plain ? g.n : g.k, g.ldb) * sizeof(T);
    const size_t c = extent(g.m, g.n, g.ldc) * sizeof(T);
    call.device(o.A, a, "A", sizeof(T)).device(o.B, b, "B", sizeof(T)).device(o.C, c, "C", sizeof(T));
    call.apart(o.C, c, o.A, a, "C and A").apart(o.C, c, o.B, b, "C and B");
}

template <class T> void compute(const Gemm &g, const Operands<T> &o, T alpha, T beta) {
    const int64_t k = alpha == T(0) ? 0 : g.k;  // then nothing is read of A and B
    const std::vector<T> sums = product(
        Matrix<const T>{o.A, g.lda}, g.transa != CUBLAS_OP_N, Matrix<const T>{o.B, g.ldb}, g.transb != CUBLAS_OP_N, g.m,
        g.n, k, g.tf32);
    const Matrix<T> C{o.C, g.ldc};
    for (int64_t column = 0; column < g.n; ++column) {
        for (int64_t row = 0; row < g.m; ++row) {
            blend(C.at(row, column), alpha, sums[size_t(row + column * g.m)], beta);
        }
    }
}

// `operands(i)` are the matrices of product `i`.
template <class T, class Each>
cublasStatus_t gemm(
    const char *name, cublasHandle_t handle, Gemm g, const T *alpha_address, const T *beta_address, Each operands) {
    Call call(name);
    call.usable(handle, "the handle");
    check_gemm(call, g);
    const Factor<T> alpha(call, handle, alpha_address, "alpha"), beta(call, handle, beta_address, "beta");
    for (int i = 0; i < g.batch && call.ok() && !g.is_empty(); ++i) {
        check_operands(call, g, operands(i));
    }
    if (call.ok() && !g.is_empty()) {
        g.tf32 = g.tf32 || handle->math_mode == CUBLAS_TF32_TENSOR_OP_MATH;
        call.run(handle->stream, [=] {
            for (int i = 0; i < g.batch; ++i) {
                compute(g, operands(i), alpha.get(), beta.get());
            }
        });
    }
    return status(call);
}

// The addresses of the matrices lie on the device, so they are known, and checked, when the work runs.
template <class T>
cublasStatus_t gemm_of_pointers(
    const char *name, cublasHandle_t handle, Gemm g, const T *alpha_address, const T *const A[], const T *const B[],
    const T *beta_address, T *const C[]) {
    Call call(name);
    call.usable(handle, "the handle");
    check_gemm(call, g);
    const Factor<T> alpha(call, handle, alpha_address, "alpha"), beta(call, handle, beta_address, "beta");
    const void *const arrays[] = {A, B, C};
    for (const void *array : arrays) {
        call.device(array, size_t(g.batch) * sizeof(T *), "an array of addresses", sizeof(T *));
    }
    if (call.ok() && !g.is_empty()) {
        g.tf32 = handle->math_mode == CUBLAS_TF32_TENSOR_OP_MATH;
        call.run(handle->stream, [=] {
            Call later(name, false);
            for (int i = 0; i < g.batch; ++i) {
                const Operands<T> operands{A[i], B[i], C[i]};
                check_operands(later, g, operands);
                if (later.ok()) {
                    compute(g, operands, alpha.get(), beta.get());
                }
            }
        });
    }
    return status(call);
}

// The typed forms of gemm: factors and matrices of one type, f32 or f64.
cublasStatus_t gemm_typed(
    const char *name, cublasHandle_t handle, Gemm g, const void *alpha, const void *A, cudaDataType a_type,
    int64_t stride_a, const void *B, cudaDataType b_type, int64_t stride_b, const void *beta, void *C,
    cudaDataType c_type, int64_t stride_c, cublasComputeType_t compute_type) {
    const bool is_f64 = compute_type == CUBLAS_COMPUTE_64F || compute_type == CUBLAS_COMPUTE_64F_PEDANTIC;
    const cudaDataType type = is_f64 ? CUDA_R_64F : CUDA_R_32F;
    if (a_type != type || b_type != type || c_type != type) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    g.tf32 = compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
    const auto with = [=](auto zero) {
        using T = decltype(zero);
        const T *a = static_cast<const T *>(A), *b = static_cast<const T *>(B);
        T *c = static_cast<T *>(C);
        return gemm(name, handle, g, static_cast<const T *>(alpha), static_cast<const T *>(beta), [=](int i) {
            return Operands<T>{a + i * stride_a, b + i * stride_b, c + i * stride_c};
        });
    };
    return is_f64 ? with(0.0) : with(0.0f);
}

// C = alpha op(A) + beta op(B). C may be A or B where that one is not transposed.
template <class T>
cublasStatus_t geam(
    const char *name, cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int64_t m, int64_t n,
    const T *alpha_address, Matrix<const T> A, const T *beta_address, Matrix<const T> B, Matrix<T> C) {
    Call call(name);
    call.usable(handle, "the handle").require(m >= 0 && n >= 0, "a size is negative");
    check_operation(call, transa);
    check_operation(call, transb);
    const Factor<T> alpha(call, handle, alpha_address, "alpha"), beta(call, handle, beta_address, "beta");
    const size_t size = extent(m, n, C.ld) * sizeof(T);
    const auto check_operand = [&](Matrix<const T> X, bool transposed, const char *what) {
        check_leading(call, what, X.ld, transposed ? n : m);
        const size_t bytes = extent(transposed ? n : m, transposed ? m : n, X.ld) * sizeof(T);
        call.device(X.data, bytes, what, sizeof(T));
        if (X.data != C.data || transposed || X.ld != C.ld) {
            call.apart(C.data, size, X.data, bytes, "C and an operand");
        }
    };
    check_leading(call, "C", C.ld, m);
    call.device(C.data, size, "C", sizeof(T));
    // An operand whose factor is a zero of the host is not read, and may be NULL.
    const bool on_device = call.ok() && handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
    const bool reads_a = on_device || alpha.get() != T(0), reads_b = on_device || beta.get() != T(0);
    if (reads_a) {
        check_operand(A, transa != CUBLAS_OP_N, "A");
    }
    if (reads_b) {
        check_operand(B, transb != CUBLAS_OP_N, "B");
    }
    if (call.ok() && size > 0) {
        call.run(handle->stream, [=] {
            const auto element = [](Matrix<const T> X, cublasOperation_t operation, int64_t row, int64_t column) {
                return operation == CUBLAS_OP_N ? X.at(row, column) : X.at(column, row);
            };
            for (int64_t column = 0; column < n; ++column) {
                for (int64_t row = 0; row < m; ++row) {
                    const T a = reads_a ? alpha.get() * element(A, transa, row, column) : T(0);
                    const T b = reads_b ? beta.get() * element(B, transb, row, column) : T(0);
                    C.at(row, column) = a + b;
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
    cublasStatus_t cublas##P##gemm_v2(                                                                                 \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T *alpha, \
        const T *A, int lda, const T *B, int ldb, const T *beta, T *C, int ldc) {                                      \
        const Gemm g{transa, transb, m, n, k, lda, ldb, ldc};                                                          \
        return gemm("cublas" #P "gemm", handle, g, alpha, beta, [=](int) { return Operands<T>{A, B, C}; });            \
    }                                                                                                                  \
    cublasStatus_t cublas##P##gemmStridedBatched(                                                                      \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T *alpha, \
        const T *A, int lda, long long strideA, const T *B, int ldb, long long strideB, const T *beta, T *C, int ldc,  \
        long long strideC, int batch) {                                                                                \
        const Gemm g{transa, transb, m, n, k, lda, ldb, ldc, batch};                                                   \
        return gemm("cublas" #P "gemmStridedBatched", handle, g, alpha, beta, [=](int i) {                             \
            return Operands<T>{A + i * strideA, B + i * strideB, C + i * strideC};                                     \
        });                                                                                                            \
    }                                                                                                                  \
    cublasStatus_t cublas##P##gemmBatched(                                                                             \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, \
        const T *alpha, \
        const T *const A[], int lda, const T *const B[], int ldb, const T *beta, T *const C[], int ldc, int batch) {   \
        const Gemm g{transa, transb, m, n, k, lda, ldb, ldc, batch};                                                   \
        return gemm_of_pointers("cublas" #P "gemmBatched", handle, g, alpha, A, B, beta, C);                           \
    }                                                                                                                  \
    cublasStatus_t cublas##P##geam(                                                                                    \
        cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, const T *alpha,       \
        const T *A, int lda, const T *beta, const T *B, int ldb, T *C, int ldc) {                                      \
        return geam<T>(                                                                                                \
            "cublas" #P "geam", handle, transa, transb, m, n, alpha, {A, lda}, beta, {B, ldb}, {C, ldc});              \
    }

FOR_TYPE(S, float)
FOR_TYPE(D, double)

cublasStatus_t cublasGemmEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType a_type, int lda, const void *B, cudaDataType b_type, int ldb, const void *beta, void *C,
    cudaDataType c_type, int ldc, cublasComputeType_t compute_type, cublasGemmAlgo_t) {
    const Gemm g{transa, transb, m, n, k, lda, ldb, ldc};
    return gemm_typed(
        "cublasGemmEx", handle, g, alpha, A, a_type, 0, B, b_type, 0, beta, C, c_type, 0, compute_type);
}

cublasStatus_t cublasGemmStridedBatchedEx(
    cublasHandle_t handle, cublasOperation_t transa, cublasOperation_t transb, int m, int n, int k, const void *alpha,
    const void *A, cudaDataType a_type, int lda, long long strideA, const void *B, cudaDataType b_type, int ldb,
    long long strideB, const void *beta, void *C, cudaDataType c_type, int ldc, long long strideC, int batch,
    cublasComputeType_t compute_type, cublasGemmAlgo_t) {
    const Gemm g{transa, transb, m, n, k, lda, ldb, ldc, batch};
    return gemm_typed(
        "cublasGemmStridedBatchedEx", handle, g, alpha, A, a_type, strideA, B, b_type, strideB, beta, C, c_type,
        strideC, compute_type);
}

}  // extern "C"
