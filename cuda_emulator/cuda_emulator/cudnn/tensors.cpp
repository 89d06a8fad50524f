// Handles, tensors and filters of cuDNN on the emulated device, and what is done to single tensors.

#include "tensors.h"

#include <cmath>
#include <cstdio>
#include <cstring>

using namespace emulator;

namespace emulator {

int64_t Layout::count() const {
    int64_t product = 1;
    for (int axis = 0; axis < rank; ++axis) {
        product *= extents[axis];
    }
    return product;
}

size_t Layout::bytes() const {
    int64_t last = 0;
    for (int axis = 0; axis < rank; ++axis) {
        last += (extents[axis] - 1) * strides[axis];
    }
    return size_t(last + 1) * element_size(type);
}

bool Layout::is_packed() const {
    Layout dense = *this;
    pack(dense);
    return memcmp(strides, dense.strides, sizeof strides) == 0;
}

bool Layout::has_extents_of(const Layout &other) const {
    return rank == other.rank && memcmp(extents, other.extents, sizeof extents) == 0;
}

bool Layout::is_same_as(const Layout &other) const {
    return type == other.type && has_extents_of(other) && memcmp(strides, other.strides, sizeof strides) == 0;
}

int64_t Layout::offset(int64_t index) const {
    int64_t sum = 0;
    for (int axis = rank - 1; axis >= 0; --axis) {
        sum += index % extents[axis] * strides[axis];
        index /= extents[axis];
    }
    return sum;
}

void pack(Layout &layout, const int *order) {
    int64_t stride = 1;
    for (int place = layout.rank - 1; place >= 0; --place) {
        const int axis = order ? order[place] : place;
        layout.strides[axis] = stride;
        stride *= layout.extents[axis];
    }
}

CudnnCall::CudnnCall(const char *name, cudnnHandle_t handle) : Call(name), handle(handle) {
    usable(handle, "the handle");
}

Layout CudnnCall::layout(const cudnnTensorStruct *descriptor, const char *what) {
    return usable(descriptor, what).ok() ? descriptor->layout : Layout();
}

Layout CudnnCall::layout(const cudnnFilterStruct *descriptor, const char *what) {
    return usable(descriptor, what).ok() ? descriptor->layout : Layout();
}

void CudnnCall::array(const void *address, const Layout &layout, const char *what) {
    device(address, layout.bytes(), what, element_size(layout.type));
}

double CudnnCall::factor(const void *address, const Layout &layout, const char *what) {
    if (!host(address, what).ok()) {
        return 0.0;
    }
    return layout.type == CUDNN_DATA_DOUBLE ? *static_cast<const double *>(address)
                                            : double(*static_cast<const float *>(address));
}

void CudnnCall::same_type(const Layout &first, const Layout &second, const char *what) {
    require(first.type == second.type, "%s have different types", what);
}

void CudnnCall::same_extents(const Layout &first, const Layout &second, const char *what) {
    require(first.has_extents_of(second), "%s have different extents", what);
}

void CudnnCall::supported(bool condition, const char *what) {
    lacking = lacking || (ok() && !condition);
    require(condition, "the emulated device does not have %s", what);
}

void CudnnCall::run(std::function<void()> work) {
    if (ok()) {
        Call::run(handle->stream, std::move(work));
    }
}

cudnnStatus_t CudnnCall::status() const {
    return ok() ? CUDNN_STATUS_SUCCESS : lacking ? CUDNN_STATUS_NOT_SUPPORTED : CUDNN_STATUS_BAD_PARAM;
}

}  // namespace emulator

namespace {

// The axes of (n, c, h, w) from outermost to innermost.
const int CHANNELS_LAST[] = {0, 2, 3, 1};

void check_extents(CudnnCall &call, const Layout &layout) {
    call.supported(layout.type == CUDNN_DATA_FLOAT || layout.type == CUDNN_DATA_DOUBLE, "tensors of this type");
    call.require(layout.rank >= 1 && layout.rank <= CUDNN_DIM_MAX, "a tensor of %d axes", layout.rank);
    for (int axis = 0; axis < layout.rank && call.ok(); ++axis) {
        call.require(
            layout.extents[axis] > 0, "extent %d is %lld", axis, static_cast<long long>(layout.extents[axis]));
    }
    for (int axis = 0; axis < layout.rank && call.ok(); ++axis) {
        call.require(
            layout.strides[axis] > 0, "stride %d is %lld", axis, static_cast<long long>(layout.strides[axis]));
    }
}

template <class Descriptor> cudnnStatus_t set(CudnnCall &call, Descriptor *descriptor, const Layout &layout) {
    check_extents(call, layout);
    if (call.ok()) {
        descriptor->layout = layout;
        descriptor->set = true;
    }
    return call.status();
}

// As `set`, of a tensor: cuDNN has none whose last element is 2^31 elements or more behind its first. Filters may be larger.
cudnnStatus_t set_tensor(CudnnCall &call, cudnnTensorStruct *descriptor, const Layout &layout) {
    check_extents(call, layout);
    int64_t last = 0;
    for (int axis = 0; axis < layout.rank && call.ok(); ++axis) {
        last += (layout.extents[axis] - 1) * layout.strides[axis];
    }
    call.supported(last < INT32_MAX, "tensors of 2^31 elements or more");
    return set(call, descriptor, layout);
}

Layout four(cudnnDataType_t type, cudnnTensorFormat_t format, int n, int c, int h, int w) {
    Layout layout{type, 4, {n, c, h, w}, {}};
    pack(layout, format == CUDNN_TENSOR_NHWC ? CHANNELS_LAST : nullptr);
    return layout;
}

// A tensor whose extents are those of `wanted` or 1, walked as if it had them: an axis of 1 stands still.
Layout broadcast(CudnnCall &call, Layout layout, const Layout &wanted, const char *what) {
    call.require(layout.rank == wanted.rank, "%s has another rank", what);
    for (int axis = 0; axis < layout.rank && call.ok(); ++axis) {
        const int64_t extent = layout.extents[axis];
        call.require(extent == wanted.extents[axis] || extent == 1, "%s does not fit along axis %d", what, axis);
        layout.strides[axis] = extent == 1 ? 0 : layout.strides[axis];
        layout.extents[axis] = wanted.extents[axis];
    }
    return layout;
}

double combine(cudnnOpTensorOp_t op, double a, double b) {
    switch (op) {
    case CUDNN_OP_TENSOR_ADD:
        return a + b;
    case CUDNN_OP_TENSOR_MUL:
        return a * b;
    case CUDNN_OP_TENSOR_MIN:
        return b < a ? b : a;
    case CUDNN_OP_TENSOR_MAX:
        return b > a ? b : a;
    case CUDNN_OP_TENSOR_SQRT:
        return std::sqrt(a);
    default:
        return 1.0 - a;
    }
}

}  // namespace

struct cudnnOpTensorStruct : Object {
    cudnnOpTensorOp_t op = CUDNN_OP_TENSOR_ADD;
};

extern "C" {

size_t cudnnGetVersion(void) {
    return CUDNN_VERSION;
}

const char *cudnnGetErrorString(cudnnStatus_t status) {
    switch (status) {
    case CUDNN_STATUS_SUCCESS:
        return "CUDNN_STATUS_SUCCESS";
    case CUDNN_STATUS_NOT_INITIALIZED:
        return "CUDNN_STATUS_NOT_INITIALIZED";
    case CUDNN_STATUS_BAD_PARAM:
        return "CUDNN_STATUS_BAD_PARAM";
    case CUDNN_STATUS_NOT_SUPPORTED:
        return "CUDNN_STATUS_NOT_SUPPORTED";
    case CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH:
        return "CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH";
    case CUDNN_STATUS_INTERNAL_ERROR:
        return "CUDNN_STATUS_INTERNAL_ERROR";
    case CUDNN_STATUS_EXECUTION_FAILED:
        return "CUDNN_STATUS_EXECUTION_FAILED";
    }
    return "an unknown status";
}

void cudnnGetLastErrorString(char *message, size_t max_size) {
    snprintf(message, max_size, "%s", emulator_last_violation());
}

cudnnStatus_t cudnnCreate(cudnnHandle_t *handle) {
    CudnnCall call("cudnnCreate");
    if (!call.creates_handle().ok()) {
        return call.status();
    }
    *handle = create_handle<cudnnContext>("cudnnHandle");
    return call.status();
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
    return destroy("cudnnDestroy", handle);
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
    CudnnCall call("cudnnSetStream", handle);
    if (call.ok()) {
        handle->stream = stream;
    }
    return call.status();
}

cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream) {
    CudnnCall call("cudnnGetStream", handle);
    if (call.ok()) {
        *stream = handle->stream;
    }
    return call.status();
}

// ---- descriptors ----

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *descriptor) {
    return create("cudnnCreateTensorDescriptor", "cudnnTensorDescriptor", descriptor);
}

cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor) {
    return destroy("cudnnDestroyTensorDescriptor", descriptor);
}

cudnnStatus_t cudnnSetTensor4dDescriptor(
    cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format, cudnnDataType_t type, int n, int c, int h, int w) {
    CudnnCall call("cudnnSetTensor4dDescriptor");
    call.live(descriptor, "the descriptor");
    return set_tensor(call, descriptor, four(type, format, n, c, h, w));
}

cudnnStatus_t cudnnSetTensor4dDescriptorEx(
    cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int n, int c, int h, int w, int n_stride, int c_stride,
    int h_stride, int w_stride) {
    CudnnCall call("cudnnSetTensor4dDescriptorEx");
    call.live(descriptor, "the descriptor");
    return set_tensor(call, descriptor, Layout{type, 4, {n, c, h, w}, {n_stride, c_stride, h_stride, w_stride}});
}

cudnnStatus_t cudnnSetTensorNdDescriptor(
    cudnnTensorDescriptor_t descriptor, cudnnDataType_t type, int rank, const int extents[], const int strides[]) {
    CudnnCall call("cudnnSetTensorNdDescriptor");
    call.live(descriptor, "the descriptor");
    // Fewer than three axes are refused by cuDNN; the missing ones are 1.
    call.require(rank >= 3 && rank <= CUDNN_DIM_MAX, "a tensor of %d axes, not of 3 to %d", rank, CUDNN_DIM_MAX);
    Layout layout{type, call.ok() ? rank : 0, {}, {}};
    for (int axis = 0; axis < layout.rank; ++axis) {
        layout.extents[axis] = extents[axis];
        layout.strides[axis] = strides[axis];
    }
    return set_tensor(call, descriptor, layout);
}

cudnnStatus_t cudnnGetTensorNdDescriptor(
    const cudnnTensorDescriptor_t descriptor, int requested, cudnnDataType_t *type, int *rank, int extents[],
    int strides[]) {
    CudnnCall call("cudnnGetTensorNdDescriptor");
    const Layout layout = call.layout(descriptor, "the descriptor");
    if (call.ok()) {
        *type = layout.type;
        *rank = layout.rank;
        for (int axis = 0; axis < layout.rank && axis < requested; ++axis) {
            extents[axis] = int(layout.extents[axis]);
            strides[axis] = int(layout.strides[axis]);
        }
    }
    return call.status();
}

cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t descriptor, size_t *size) {
    CudnnCall call("cudnnGetTensorSizeInBytes");
    *size = call.layout(descriptor, "the descriptor").bytes();
    return call.status();
}

cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *descriptor) {
    return create("cudnnCreateFilterDescriptor", "cudnnFilterDescriptor", descriptor);
}

cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor) {
    return destroy("cudnnDestroyFilterDescriptor", descriptor);
}

cudnnStatus_t cudnnSetFilter4dDescriptor(
    cudnnFilterDescriptor_t descriptor, cudnnDataType_t type, cudnnTensorFormat_t format, int k, int c, int h, int w) {
    CudnnCall call("cudnnSetFilter4dDescriptor");
    call.live(descriptor, "the descriptor");
    return set(call, descriptor, four(type, format, k, c, h, w));
}

cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t descriptor, size_t *size) {
    CudnnCall call("cudnnGetFilterSizeInBytes");
    *size = call.layout(descriptor, "the descriptor").bytes();
    return call.status();
}

// ---- tensors as a whole ----

cudnnStatus_t cudnnSetTensor(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t y_desc, void *y, const void *value_address) {
    CudnnCall call("cudnnSetTensor", handle);
    const Layout layout = call.layout(y_desc, "y's descriptor");
    call.array(y, layout, "y");
    const double value = call.factor(value_address, layout, "the value");
    call.run([=] {
        with_type(layout.type, [&](auto zero) {
            scatter(y, layout, std::vector<decltype(zero)>(size_t(layout.count()), decltype(zero)(value)), 1.0, 0.0);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnScaleTensor(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t y_desc, void *y, const void *alpha_address) {
    CudnnCall call("cudnnScaleTensor", handle);
    const Layout layout = call.layout(y_desc, "y's descriptor");
    call.array(y, layout, "y");
    const double alpha = call.factor(alpha_address, layout, "alpha");
    call.run([=] {
        with_type(layout.type, [&](auto zero) {
            scatter(y, layout, gather<decltype(zero)>(y, layout), alpha, 0.0);
        });
    });
    return call.status();
}

// C = alpha A + beta C, where A's axes of 1 are repeated.
cudnnStatus_t cudnnAddTensor(
    cudnnHandle_t handle, const void *alpha_address, const cudnnTensorDescriptor_t a_desc, const void *a,
    const void *beta_address, const cudnnTensorDescriptor_t c_desc, void *c) {
    CudnnCall call("cudnnAddTensor", handle);
    const Layout c_layout = call.layout(c_desc, "C's descriptor"), a_own = call.layout(a_desc, "A's descriptor");
    call.same_type(a_own, c_layout, "A and C");
    call.array(a, a_own, "A");
    call.array(c, c_layout, "C");
    const Layout a_layout = broadcast(call, a_own, c_layout, "A");
    const double alpha = call.factor(alpha_address, c_layout, "alpha");
    const double beta = call.factor(beta_address, c_layout, "beta");
    call.run([=] {
        with_type(c_layout.type, [&](auto zero) {
            scatter(c, c_layout, gather<decltype(zero)>(a, a_layout), alpha, beta);
        });
    });
    return call.status();
}

// y = alpha x + beta y from one layout to another.
cudnnStatus_t cudnnTransformTensor(
    cudnnHandle_t handle, const void *alpha_address, const cudnnTensorDescriptor_t x_desc, const void *x,
    const void *beta_address, const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnTransformTensor", handle);
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    call.same_type(from, to, "x and y");
    call.same_extents(from, to, "x and y");
    call.array(x, from, "x");
    call.array(y, to, "y");
    call.apart(x, from.bytes(), y, to.bytes(), "x and y");
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            scatter(y, to, gather<decltype(zero)>(x, from), alpha, beta);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t *op) {
    return create("cudnnCreateOpTensorDescriptor", "cudnnOpTensorDescriptor", op);
}

cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t op) {
    return destroy("cudnnDestroyOpTensorDescriptor", op);
}

cudnnStatus_t cudnnSetOpTensorDescriptor(
    cudnnOpTensorDescriptor_t descriptor, cudnnOpTensorOp_t op, cudnnDataType_t, cudnnNanPropagation_t) {
    CudnnCall call("cudnnSetOpTensorDescriptor");
    if (call.live(descriptor, "the descriptor").ok()) {
        descriptor->op = op;
        descriptor->set = true;
    }
    return call.status();
}

// C = op(alpha1 A, alpha2 B) + beta C, where B's axes of 1 are repeated; SQRT and NOT take A alone.
cudnnStatus_t cudnnOpTensor(
    cudnnHandle_t handle, const cudnnOpTensorDescriptor_t descriptor, const void *alpha1_address,
    const cudnnTensorDescriptor_t a_desc, const void *a, const void *alpha2_address,
    const cudnnTensorDescriptor_t b_desc, const void *b, const void *beta_address,
    const cudnnTensorDescriptor_t c_desc, void *c) {
    CudnnCall call("cudnnOpTensor", handle);
    call.usable(descriptor, "the descriptor");
    const Layout a_layout = call.layout(a_desc, "A's descriptor"), c_layout = call.layout(c_desc, "C's descriptor");
    const Layout b_own = call.layout(b_desc, "B's descriptor");
    call.same_type(a_layout, c_layout, "A and C");
    call.same_type(b_own, c_layout, "B and C");
    call.same_extents(a_layout, c_layout, "A and C");
    call.array(a, a_layout, "A");
    call.array(b, b_own, "B");
    call.array(c, c_layout, "C");
    const Layout b_layout = broadcast(call, b_own, c_layout, "B");
    const double alpha1 = call.factor(alpha1_address, c_layout, "alpha1");
    const double alpha2 = call.factor(alpha2_address, c_layout, "alpha2");
    const double beta = call.factor(beta_address, c_layout, "beta");
    const cudnnOpTensorOp_t op = call.ok() ? descriptor->op : CUDNN_OP_TENSOR_ADD;
    call.run([=] {
        with_type(c_layout.type, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values = gather<T>(a, a_layout);
            const std::vector<T> others = gather<T>(b, b_layout);
            for (size_t i = 0; i < values.size(); ++i) {
                values[i] = T(combine(op, alpha1 * double(values[i]), alpha2 * double(others[i])));
            }
            scatter(c, c_layout, values, 1.0, beta);
        });
    });
    return call.status();
}

}  // extern "C"
