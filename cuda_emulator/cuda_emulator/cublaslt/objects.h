// Inside the emulated cublasLt: what its pointers lead to.
#ifndef STAGED_EMULATED_CUBLASLT_OBJECTS_H
#define STAGED_EMULATED_CUBLASLT_OBJECTS_H

#include "../include/cublasLt.h"

#include "../library.h"

struct cublasLtContext : emulator::Object {};

namespace emulator {

struct MatrixLayout : Object {
    cudaDataType type = CUDA_R_32F;
    cublasLtOrder_t order = CUBLASLT_ORDER_COL;
    uint64_t rows = 0, cols = 0;
    int64_t ld = 0;
    int32_t batch = 1;
    int64_t stride = 0;  // of the batch

    // The elements of memory from its first to its last.
    size_t elements() const;
};

struct MatmulDescriptor : Object {
    cublasComputeType_t compute_type = CUBLAS_COMPUTE_32F;
    cudaDataType scale_type = CUDA_R_32F;
    cublasLtPointerMode_t pointer_mode = CUBLASLT_POINTER_MODE_HOST;
    cublasOperation_t transa = CUBLAS_OP_N, transb = CUBLAS_OP_N;
    cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    void *bias = nullptr, *aux = nullptr;
    int64_t bias_stride = 0, aux_ld = 0, aux_stride = 0;
};

struct MatmulPreference : Object {
    uint32_t search_mode = 0;
    uint64_t max_workspace = 0;
    uint32_t alignment[4] = {256, 256, 256, 256};  // bytes that the addresses of A, B, C and D are multiples of
};

// What the data of an algorithm is here: the product that it was chosen for, the workspace that it needs, and the
// alignment that it counts on.
enum { FOR_PRODUCT, NEEDS_WORKSPACE, COUNTS_ON_A, COUNTS_ON_B, COUNTS_ON_C, COUNTS_ON_D };

// The objects behind cublasLt's pointers. They must be known to live before anything is read of them: see
// `Call::usable`.
inline MatrixLayout *object(cublasLtMatrixLayout_t layout) {
    return reinterpret_cast<MatrixLayout *>(layout);
}
inline MatmulDescriptor *object(cublasLtMatmulDesc_t descriptor) {
    return reinterpret_cast<MatmulDescriptor *>(descriptor);
}
inline MatmulPreference *object(cublasLtMatmulPreference_t preference) {
    return reinterpret_cast<MatmulPreference *>(preference);
}

inline cublasStatus_t status(const Call &call) {
    return call.ok() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

inline size_t element_size(cudaDataType type) {
    return type == CUDA_R_64F ? sizeof(double) : sizeof(float);
}

// The sizes of a product, taken from its descriptors once these are known to fit one another.
struct Product {
    MatmulDescriptor descriptor;
    MatrixLayout a, b, c, d;
    int64_t m, n, k;

    int32_t batch() const {
        return d.batch;
    }
    // Tells products apart, so that an algorithm is used for what it was chosen for.
    uint64_t fingerprint() const;
};

Product check_product(
    Call &call, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d);

}  // namespace emulator

#endif
