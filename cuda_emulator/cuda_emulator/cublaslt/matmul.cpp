// cublasLt on the emulated device: the product and its epilogues.
//
// An epilogue works on the finished sums, D's rows being the features: a bias has a number per row. Relu of NaN is 0
// (NVIDIA's forum, "Incorrect result of cublasLtMatmul with CUBLASLT_EPILOGUE_RELU when input is NaN"). For its gradient
// relu keeps a bit per element, gelu (its approximation by tanh) the number that it was given; both are column-major.

#include "objects.h"

#include "../matrix.h"

#include <cmath>

using namespace emulator;

namespace {

// The bits of an epilogue's number.
constexpr int RELU = 2, BIAS = 4, D_RELU = 8, BIAS_GRADIENT = 16, GELU = 32, D_GELU = 64, AUX = 128;

bool has(cublasLtEpilogue_t epilogue, int bit) {
    return (int(epilogue) & bit) != 0;
}

bool uses_bias(cublasLtEpilogue_t epilogue) {
    return has(epilogue, BIAS | BIAS_GRADIENT) || epilogue == CUBLASLT_EPILOGUE_BGRADA ||
           epilogue == CUBLASLT_EPILOGUE_BGRADB;
}

bool has_bits(cublasLtEpilogue_t epilogue) {
    return has(epilogue, AUX) && has(epilogue, RELU | D_RELU);
}

bool is_known(cublasLtEpilogue_t epilogue) {
    switch (epilogue) {
    case CUBLASLT_EPILOGUE_DEFAULT:
    case CUBLASLT_EPILOGUE_RELU:
    case CUBLASLT_EPILOGUE_RELU_AUX:
    case CUBLASLT_EPILOGUE_BIAS:
    case CUBLASLT_EPILOGUE_RELU_BIAS:
    case CUBLASLT_EPILOGUE_RELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DRELU:
    case CUBLASLT_EPILOGUE_DRELU_BGRAD:
    case CUBLASLT_EPILOGUE_GELU:
    case CUBLASLT_EPILOGUE_GELU_AUX:
    case CUBLASLT_EPILOGUE_GELU_BIAS:
    case CUBLASLT_EPILOGUE_GELU_AUX_BIAS:
    case CUBLASLT_EPILOGUE_DGELU:
    case CUBLASLT_EPILOGUE_DGELU_BGRAD:
    case CUBLASLT_EPILOGUE_BGRADA:
    case CUBLASLT_EPILOGUE_BGRADB:
        return true;
    }
    return false;
}

constexpr double GELU_SCALE = 0.7978845608028654;  // sqrt(2 / pi)
constexpr double GELU_CUBE = 0.044715;

double gelu(double x) {
    return 0.5 * x * (1.0 + std::tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x)));
}

double gelu_slope(double x) {
    const double t = std::tanh(GELU_SCALE * (x + GELU_CUBE * x * x * x));
    return 0.5 * (1.0 + t) + 0.5 * x * (1.0 - t * t) * GELU_SCALE * (1.0 + 3.0 * GELU_CUBE * x * x);
}

bool read_bit(const void *bits, int64_t index) {
    return (static_cast<const uint8_t *>(bits)[index / 8] >> (index % 8) & 1) != 0;
}

void write_bit(void *bits, int64_t index, bool value) {
    uint8_t &byte = static_cast<uint8_t *>(bits)[index / 8];
    const int mask = 1 << (index % 8);
    byte = uint8_t(value ? byte | mask : byte & ~mask);
}

// Bias and aux of product number `i` of a batch.
template <class T> struct Epilogue {
    cublasLtEpilogue_t kind;
    T *bias;
    T *values;  // gelu's aux
    void *bits;  // relu's aux, from bit `first_bit` on
    int64_t first_bit, ld;

    Epilogue(const MatmulDescriptor &d, int32_t i)
        : kind(d.epilogue), bias(static_cast<T *>(d.bias) + i * d.bias_stride),
          values(static_cast<T *>(d.aux) + i * d.aux_stride), bits(d.aux), first_bit(i * d.aux_stride), ld(d.aux_ld) {}

    T apply(T value, int64_t row, int64_t column) const {
        const int64_t at = row + column * ld;
        if (has(kind, BIAS)) {
            value += bias[row];
        }
        if (has(kind, RELU)) {
            if (has(kind, AUX)) {
                write_bit(bits, first_bit + at, value > T(0));
            }
            value = value > T(0) ? value : T(0);  // a GPU's maximum of NaN and 0 is 0
        } else if (has(kind, GELU)) {
            if (has(kind, AUX)) {
                values[at] = value;
            }
            value = T(gelu(double(value)));
        } else if (has(kind, D_RELU)) {
            value = read_bit(bits, first_bit + at) ? value : T(0);
        } else if (has(kind, D_GELU)) {
            value *= T(gelu_slope(double(values[at])));
        }
        return value;
    }
};

template <class T> T &element(const MatrixLayout &layout, T *data, int64_t row, int64_t column) {
    return data[layout.order == CUBLASLT_ORDER_COL ? row + column * layout.ld : row * layout.ld + column];
}

// A matrix that is stored by rows is its transpose stored by columns.
template <class T>
std::vector<T> product(const Product &p, const T *a, const T *b) {
    const bool ta = (p.descriptor.transa != CUBLAS_OP_N) != (p.a.order == CUBLASLT_ORDER_ROW);
    const bool tb = (p.descriptor.transb != CUBLAS_OP_N) != (p.b.order == CUBLASLT_ORDER_ROW);
    const bool tf32 = p.descriptor.compute_type == CUBLAS_COMPUTE_32F_FAST_TF32;
    return product(Matrix<const T>{a, p.a.ld}, ta, Matrix<const T>{b, p.b.ld}, tb, p.m, p.n, p.k, tf32);
}

// bias[i] = sum over k of op(A)[i, k], or bias[j] = sum over k of op(B)[k, j]
template <class T> void sum_operand(const Product &p, const T *a, const T *b, T *bias) {
    const bool of_a = p.descriptor.epilogue == CUBLASLT_EPILOGUE_BGRADA;
    for (int64_t i = 0; i < (of_a ? p.m : p.n); ++i) {
        T sum = T(0);
        for (int64_t l = 0; l < p.k; ++l) {
            if (of_a) {
                const bool t = p.descriptor.transa != CUBLAS_OP_N;
                sum += element(p.a, a, t ? l : i, t ? i : l);
            } else {
                const bool t = p.descriptor.transb != CUBLAS_OP_N;
                sum += element(p.b, b, t ? i : l, t ? l : i);
            }
        }
        bias[i] = sum;
    }
}

template <class T>
void compute(const Product &p, int32_t i, const T *a, const T *b, const T *c, T *d, T alpha, T beta) {
    a += i * p.a.stride;
    b += i * p.b.stride;
    c += i * p.c.stride;
    d += i * p.d.stride;
    const Epilogue<T> epilogue(p.descriptor, i);
    const std::vector<T> sums = product(p, a, b);
    std::vector<T> row_sums(size_t(p.m), T(0));
    for (int64_t column = 0; column < p.n; ++column) {
        for (int64_t row = 0; row < p.m; ++row) {
            T value = beta == T(0) ? T(0) : element(p.c, c, row, column);
            blend(value, alpha, sums[size_t(row + column * p.m)], beta);
            value = epilogue.apply(value, row, column);
            row_sums[size_t(row)] += value;
            element(p.d, d, row, column) = value;
        }
    }
    if (has(epilogue.kind, BIAS_GRADIENT)) {
        for (int64_t row = 0; row < p.m; ++row) {
            epilogue.bias[row] = row_sums[size_t(row)];
        }
    } else if (epilogue.kind == CUBLASLT_EPILOGUE_BGRADA || epilogue.kind == CUBLASLT_EPILOGUE_BGRADB) {
        sum_operand(p, a, b, epilogue.bias);
    }
}

constexpr int VECTOR_MULTIPLE = 16;

void check_epilogue(Call &call, const Product &p) {
    const MatmulDescriptor &d = p.descriptor;
    const size_t element = element_size(p.d.type);
    const int64_t last = p.batch() - 1;
    call.require(is_known(d.epilogue), "%d is not an epilogue", int(d.epilogue));
    if (uses_bias(d.epilogue)) {
        const int64_t length = d.epilogue == CUBLASLT_EPILOGUE_BGRADB ? p.n : p.m;
        call.device(d.bias, size_t(last * d.bias_stride + length) * element, "the bias", element);
        // No preference says where it is, and NVIDIA's kernels may read or write it in units of 16 bytes.
        call.require(
            uintptr_t(d.bias) % VECTOR_MULTIPLE == 0, "the bias is not at a multiple of %d bytes", VECTOR_MULTIPLE);
    }
    if (!has(d.epilogue, AUX)) {
        return;
    }
    const int64_t multiple = has_bits(d.epilogue) ? 128 : 8;
    call.require(
        d.aux_ld >= p.m && d.aux_ld % multiple == 0,
        "the leading dimension of aux is %lld: it must be at least the rows of D and a multiple of %lld",
        static_cast<long long>(d.aux_ld), static_cast<long long>(multiple));
    const size_t elements = size_t(last * d.aux_stride + (p.n - 1) * d.aux_ld + p.m);
    call.device(d.aux, has_bits(d.epilogue) ? (elements + 7) / 8 : elements * element, "aux", 16);
}

template <class T>
void multiply(
    Call &call, const Product &p, const void *alpha_address, const void *a, const void *b, const void *beta_address,
    const void *c, void *d, void *workspace, size_t workspace_bytes, cudaStream_t stream) {
    const bool on_device = p.descriptor.pointer_mode == CUBLASLT_POINTER_MODE_DEVICE;
    const T *alpha = static_cast<const T *>(alpha_address), *beta = static_cast<const T *>(beta_address);
    if (on_device) {
        call.device(alpha, sizeof(T), "alpha", sizeof(T)).device(beta, sizeof(T), "beta", sizeof(T));
    } else {
        call.host(alpha, "alpha").host(beta, "beta");
    }
    if (!call.ok()) {
        return;
    }
    const T alpha_now = on_device ? T(0) : *alpha, beta_now = on_device ? T(0) : *beta;
    const size_t d_bytes = p.d.elements() * sizeof(T);
    call.device(a, p.a.elements() * sizeof(T), "A", sizeof(T)).device(b, p.b.elements() * sizeof(T), "B", sizeof(T));
    call.device(d, d_bytes, "D", sizeof(T));
    call.apart(d, d_bytes, a, p.a.elements() * sizeof(T), "D and A");
    call.apart(d, d_bytes, b, p.b.elements() * sizeof(T), "D and B");
    if (on_device || beta_now != T(0)) {
        call.device(c, p.c.elements() * sizeof(T), "C", sizeof(T));
        const bool in_place = c == d && p.c.order == p.d.order && p.c.ld == p.d.ld;
        call.require(!call.ok() || c != d || in_place, "C is D, and their layouts differ");
    }
    if (call.ok() && d_bytes > 0) {
        call.run(stream, [=] {
            spoil(workspace, workspace_bytes);
            for (int32_t i = 0; i < p.batch(); ++i) {
                compute(
                    p, i, static_cast<const T *>(a), static_cast<const T *>(b), static_cast<const T *>(c),
                    static_cast<T *>(d), on_device ? *alpha : alpha_now, on_device ? *beta : beta_now);
            }
        });
    }
}

}  // namespace

extern "C" cublasStatus_t cublasLtMatmul(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, const void *alpha, const void *A,
    cublasLtMatrixLayout_t a_layout, const void *B, cublasLtMatrixLayout_t b_layout, const void *beta, const void *C,
    cublasLtMatrixLayout_t c_layout, void *D, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo,
    void *workspace, size_t workspace_size, cudaStream_t stream) {
    Call call("cublasLtMatmul");
    call.usable(handle, "the handle");
    const Product p = check_product(call, descriptor, a_layout, b_layout, c_layout, d_layout);
    if (!call.ok()) {
        return status(call);
    }
    check_epilogue(call, p);
    size_t needed = 0;  // without an algorithm one is chosen that fits
    if (algo != nullptr) {
        call.require(
            algo->data[FOR_PRODUCT] == p.fingerprint(), "the algorithm was chosen for another product, or not at all");
        needed = algo->data[NEEDS_WORKSPACE];
        const struct {
            const char *name;
            const void *address;
            uint64_t multiple;
        } operands[] = {
            {"A", A, algo->data[COUNTS_ON_A]},
            {"B", B, algo->data[COUNTS_ON_B]},
            {"C", C, algo->data[COUNTS_ON_C]},
            {"D", D, algo->data[COUNTS_ON_D]},
        };
        for (const auto &operand : operands) {
            call.require(
                operand.multiple == 0 || uintptr_t(operand.address) % operand.multiple == 0,
                "the algorithm counts on %s at a multiple of %llu bytes", operand.name,
                static_cast<unsigned long long>(operand.multiple));
        }
        call.workspace(workspace, workspace_size, needed);
    }
    if (p.d.type == CUDA_R_64F) {
        multiply<double>(call, p, alpha, A, B, beta, C, D, workspace, needed, stream);
    } else {
        multiply<float>(call, p, alpha, A, B, beta, C, D, workspace, needed, stream);
    }
    return status(call);
}
