// cublasLt on the emulated device: handles, descriptors, and the choice of an algorithm.

#include "objects.h"

#include <cstring>

using namespace emulator;

namespace emulator {

size_t MatrixLayout::elements() const {
    const int64_t lines = order == CUBLASLT_ORDER_COL ? int64_t(cols) : int64_t(rows);
    const int64_t length = order == CUBLASLT_ORDER_COL ? int64_t(rows) : int64_t(cols);
    return lines == 0 || length == 0 ? 0 : size_t((batch - 1) * stride + (lines - 1) * ld + length);
}

uint64_t Product::fingerprint() const {
    uint64_t mixed = 0xcbf29ce484222325u;
    for (const uint64_t part :
         {uint64_t(m), uint64_t(n), uint64_t(k), uint64_t(batch()), uint64_t(descriptor.transa),
          uint64_t(descriptor.transb), uint64_t(descriptor.epilogue), uint64_t(descriptor.compute_type)}) {
        mixed = (mixed ^ part) * 0x100000001b3u;
    }
    return mixed;
}

namespace {

// An operand that all products share is a batch too, whose stride is 0.
void check_layout(Call &call, const MatrixLayout &layout, const Product &p, const char *what) {
    const int64_t least = layout.order == CUBLASLT_ORDER_COL ? int64_t(layout.rows) : int64_t(layout.cols);
    call.require(
        layout.ld >= least, "the leading dimension of %s is %lld, less than %lld", what,
        static_cast<long long>(layout.ld), static_cast<long long>(least));
    call.require(layout.type == p.d.type, "%s has another type than D", what);
    call.require(layout.batch == p.d.batch, "%s is a batch of %d and D of %d", what, layout.batch, p.d.batch);
}

}  // namespace

Product check_product(
    Call &call, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d) {
    call.usable(object(descriptor), "the product's descriptor").usable(object(a), "A's layout");
    call.usable(object(b), "B's layout").usable(object(c), "C's layout").usable(object(d), "D's layout");
    Product p{};
    if (!call.ok()) {
        return p;
    }
    p = {*object(descriptor), *object(a), *object(b), *object(c), *object(d), 0, 0, 0};
    p.m = int64_t(p.d.rows);
    p.n = int64_t(p.d.cols);
    const bool ta = p.descriptor.transa != CUBLAS_OP_N, tb = p.descriptor.transb != CUBLAS_OP_N;
    p.k = int64_t(ta ? p.a.rows : p.a.cols);
    const int64_t a_rows = int64_t(ta ? p.a.cols : p.a.rows), b_rows = int64_t(tb ? p.b.cols : p.b.rows);
    const int64_t b_cols = int64_t(tb ? p.b.rows : p.b.cols);
    call.require(
        a_rows == p.m && b_rows == p.k && b_cols == p.n && p.c.rows == p.d.rows && p.c.cols == p.d.cols,
        "op(A) (%lld, %lld), op(B) (%lld, %lld) and D (%lld, %lld) do not fit", static_cast<long long>(a_rows),
        static_cast<long long>(p.k), static_cast<long long>(b_rows), static_cast<long long>(b_cols),
        static_cast<long long>(p.m), static_cast<long long>(p.n));
    check_layout(call, p.a, p, "A");
    check_layout(call, p.b, p, "B");
    check_layout(call, p.c, p, "C");
    check_layout(call, p.d, p, "D");
    const bool f64 = p.descriptor.compute_type == CUBLAS_COMPUTE_64F ||
                     p.descriptor.compute_type == CUBLAS_COMPUTE_64F_PEDANTIC;
    call.require(
        (p.d.type == CUDA_R_64F) == f64 && p.descriptor.scale_type == p.d.type,
        "the product computes in another type than its matrices have");
    return p;
}

namespace {

// One attribute: copies `size` bytes to where it is kept.
template <class T> void keep(Call &call, T &place, const void *value, size_t size) {
    call.host(value, "the value");
    call.require(size == sizeof place, "the value has %zu bytes, not %zu", size, sizeof place);
    if (call.ok()) {
        memcpy(&place, value, sizeof place);
    }
}

const struct {
    cublasStatus_t status;
    const char *name, *text;
} STATUSES[] = {
    {CUBLAS_STATUS_SUCCESS, "CUBLAS_STATUS_SUCCESS", "success"},
    {CUBLAS_STATUS_INVALID_VALUE, "CUBLAS_STATUS_INVALID_VALUE", "an unsupported value or parameter was passed"},
    {CUBLAS_STATUS_NOT_SUPPORTED, "CUBLAS_STATUS_NOT_SUPPORTED", "the functionality is not supported"},
};

}  // namespace

}  // namespace emulator

extern "C" {

const char *cublasLtGetStatusName(cublasStatus_t status) {
    for (const auto &known : STATUSES) {
        if (known.status == status) {
            return known.name;
        }
    }
    return "unknown status";
}

const char *cublasLtGetStatusString(cublasStatus_t status) {
    for (const auto &known : STATUSES) {
        if (known.status == status) {
            return known.text;
        }
    }
    return "unknown status";
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle) {
    Call call("cublasLtCreate");
    if (!call.creates_handle().ok()) {
        return status(call);
    }
    *handle = create_handle<cublasLtContext>("cublasLtHandle");
    return status(call);
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
    Call call("cublasLtDestroy");
    return status(call.destroy(handle, "the handle"));
}

cublasStatus_t cublasLtMatrixLayoutCreate(
    cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows, uint64_t cols, int64_t ld) {
    Call call("cublasLtMatrixLayoutCreate");
    MatrixLayout *made = create_descriptor<MatrixLayout>("cublasLtMatrixLayout");
    made->type = type;
    made->rows = rows;
    made->cols = cols;
    made->ld = ld;
    made->set = true;
    *layout = reinterpret_cast<cublasLtMatrixLayout_t>(made);
    return status(call);
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
    Call call("cublasLtMatrixLayoutDestroy");
    return status(call.destroy(object(layout), "the layout"));
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(
    cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t size) {
    Call call("cublasLtMatrixLayoutSetAttribute");
    if (!call.usable(object(layout), "the layout").ok()) {
        return status(call);
    }
    MatrixLayout &of = *object(layout);
    switch (attribute) {
    case CUBLASLT_MATRIX_LAYOUT_TYPE:
        keep(call, of.type, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_ORDER:
        keep(call, of.order, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_ROWS:
        keep(call, of.rows, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_COLS:
        keep(call, of.cols, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_LD:
        keep(call, of.ld, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT:
        keep(call, of.batch, value, size);
        break;
    case CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET:
        keep(call, of.stride, value, size);
        break;
    default:
        call.require(false, "attribute %d is not known", int(attribute));
    }
    return status(call);
}

cublasStatus_t cublasLtMatmulDescCreate(
    cublasLtMatmulDesc_t *descriptor, cublasComputeType_t compute_type, cudaDataType_t scale_type) {
    Call call("cublasLtMatmulDescCreate");
    MatmulDescriptor *made = create_descriptor<MatmulDescriptor>("cublasLtMatmulDesc");
    made->compute_type = compute_type;
    made->scale_type = scale_type;
    made->set = true;
    *descriptor = reinterpret_cast<cublasLtMatmulDesc_t>(made);
    return status(call);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t descriptor) {
    Call call("cublasLtMatmulDescDestroy");
    return status(call.destroy(object(descriptor), "the descriptor"));
}

cublasStatus_t cublasLtMatmulDescSetAttribute(
    cublasLtMatmulDesc_t descriptor, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t size) {
    Call call("cublasLtMatmulDescSetAttribute");
    if (!call.usable(object(descriptor), "the descriptor").ok()) {
        return status(call);
    }
    MatmulDescriptor &of = *object(descriptor);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_COMPUTE_TYPE:
        keep(call, of.compute_type, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_SCALE_TYPE:
        keep(call, of.scale_type, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_POINTER_MODE:
        keep(call, of.pointer_mode, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSA:
        keep(call, of.transa, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
        keep(call, of.transb, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
        keep(call, of.epilogue, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
        keep(call, of.bias, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_BIAS_BATCH_STRIDE:
        keep(call, of.bias_stride, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER:
        keep(call, of.aux, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD:
        keep(call, of.aux_ld, value, size);
        break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_BATCH_STRIDE:
        keep(call, of.aux_stride, value, size);
        break;
    default:
        call.require(false, "attribute %d is not known", int(attribute));
    }
    return status(call);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference) {
    Call call("cublasLtMatmulPreferenceCreate");
    MatmulPreference *made = create_descriptor<MatmulPreference>("cublasLtMatmulPreference");
    made->set = true;
    *preference = reinterpret_cast<cublasLtMatmulPreference_t>(made);
    return status(call);
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
    Call call("cublasLtMatmulPreferenceDestroy");
    return status(call.destroy(object(preference), "the preference"));
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(
    cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute, const void *value,
    size_t size) {
    Call call("cublasLtMatmulPreferenceSetAttribute");
    if (!call.usable(object(preference), "the preference").ok()) {
        return status(call);
    }
    switch (attribute) {
    case CUBLASLT_MATMUL_PREF_SEARCH_MODE:
        keep(call, object(preference)->search_mode, value, size);
        break;
    case CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES:
        keep(call, object(preference)->max_workspace, value, size);
        break;
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES:
    case CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES: {
        uint32_t &kept = object(preference)->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES];
        keep(call, kept, value, size);
        call.require(kept != 0 && (kept & (kept - 1)) == 0, "an alignment of %u bytes", kept);
        break;
    }
    default:
        call.require(false, "attribute %d is not known", int(attribute));
    }
    return status(call);
}

// Two algorithms: one that splits the sums and needs a workspace for that, the faster one, where it may have that;
// and one that needs nothing. An algorithm carries what it was chosen for and what it needs.
cublasStatus_t cublasLtMatmulAlgoGetHeuristic(
    cublasLtHandle_t handle, cublasLtMatmulDesc_t descriptor, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
    cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int requested,
    cublasLtMatmulHeuristicResult_t results[], int *returned) {
    Call call("cublasLtMatmulAlgoGetHeuristic");
    call.usable(handle, "the handle").usable(object(preference), "the preference");
    call.host(results, "the place for the results").host(returned, "the place for the count");
    call.require(requested > 0, "%d algorithms were asked for", requested);
    const Product p = check_product(call, descriptor, a, b, c, d);
    if (!call.ok()) {
        return status(call);
    }
    const size_t split = size_t(p.m * p.n * p.batch()) * element_size(p.d.type);
    *returned = 0;
    if (!settings().algorithms) {
        return CUBLAS_STATUS_NOT_SUPPORTED;
    }
    for (const size_t workspace : {split, size_t(0)}) {
        if (workspace <= object(preference)->max_workspace && *returned < requested) {
            cublasLtMatmulHeuristicResult_t &result = results[(*returned)++];
            result = cublasLtMatmulHeuristicResult_t();
            result.algo.data[FOR_PRODUCT] = p.fingerprint();
            result.algo.data[NEEDS_WORKSPACE] = workspace;
            for (int number = 0; number < 4; ++number) {
                result.algo.data[COUNTS_ON_A + number] = object(preference)->alignment[number];
            }
            result.workspaceSize = workspace;
            result.state = CUBLAS_STATUS_SUCCESS;
            result.wavesCount = 1.0f;
        }
    }
    return status(call);
}

}  // extern "C"
