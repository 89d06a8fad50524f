// Reductions of cuDNN on the emulated device: C = alpha reduce(A) + beta C over the axes at which C has an extent of 1.

#include "tensors.h"

#include <cmath>

using namespace emulator;

struct cudnnReduceTensorStruct : Object {
    cudnnReduceTensorOp_t op = CUDNN_REDUCE_TENSOR_ADD;
    bool keeps_nan = false;
    bool has_indices = false;

    // Only these can say where their result comes from.
    bool chooses() const {
        return op == CUDNN_REDUCE_TENSOR_MIN || op == CUDNN_REDUCE_TENSOR_MAX || op == CUDNN_REDUCE_TENSOR_AMAX;
    }
    bool writes_indices() const {
        return has_indices && chooses();
    }
};

namespace {

// What one element of the result has seen so far.
struct Running {
    double value;
    int64_t seen;
    uint32_t index;  // of the element that was chosen, counted over the reduced axes alone
};

bool is_better(const cudnnReduceTensorStruct &reduction, double candidate, double best) {
    if (std::isnan(candidate) || std::isnan(best)) {
        return reduction.keeps_nan ? std::isnan(candidate) && !std::isnan(best) : std::isnan(best);
    }
    return reduction.op == CUDNN_REDUCE_TENSOR_MIN ? candidate < best : candidate > best;
}

void take(const cudnnReduceTensorStruct &reduction, Running &running, double element) {
    const bool first = running.seen == 0;
    switch (reduction.op) {
    case CUDNN_REDUCE_TENSOR_ADD:
    case CUDNN_REDUCE_TENSOR_AVG:
        running.value += element;
        break;
    case CUDNN_REDUCE_TENSOR_NORM1:
        running.value += std::fabs(element);
        break;
    case CUDNN_REDUCE_TENSOR_NORM2:
        running.value += element * element;
        break;
    case CUDNN_REDUCE_TENSOR_MUL:
        running.value = (first ? 1.0 : running.value) * element;
        break;
    case CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS:
        running.value = (first ? 1.0 : running.value) * (element == 0.0 ? 1.0 : element);
        break;
    case CUDNN_REDUCE_TENSOR_MIN:
    case CUDNN_REDUCE_TENSOR_MAX:
    case CUDNN_REDUCE_TENSOR_AMAX: {
        const double candidate = reduction.op == CUDNN_REDUCE_TENSOR_AMAX ? std::fabs(element) : element;
        if (first || is_better(reduction, candidate, running.value)) {
            running.value = candidate;
            running.index = uint32_t(running.seen);
        }
        break;
    }
    }
    ++running.seen;
}

double result(const cudnnReduceTensorStruct &reduction, const Running &running) {
    switch (reduction.op) {
    case CUDNN_REDUCE_TENSOR_AVG:
        return running.value / double(running.seen);
    case CUDNN_REDUCE_TENSOR_NORM2:
        return std::sqrt(running.value);
    default:
        return running.value;
    }
}

// The packed index in C of the element that A's element `index` goes to.
size_t target(const Layout &a, const Layout &c, int64_t index) {
    int64_t position = 0, stride = 1;
    for (int axis = a.rank - 1; axis >= 0; --axis) {
        const int64_t at = index % a.extents[axis];
        index /= a.extents[axis];
        position += c.extents[axis] == 1 ? 0 : at * stride;
        stride *= c.extents[axis];
    }
    return size_t(position);
}

// A block of partial results, as a reduction in two passes has it.
size_t workspace_bytes(const Layout &c) {
    return size_t(c.count()) * 32 * sizeof(double);
}

size_t indices_bytes(const cudnnReduceTensorStruct &reduction, const Layout &c) {
    return reduction.writes_indices() ? size_t(c.count()) * sizeof(uint32_t) : 0;
}

struct Sides {
    Layout a, c;
};

Sides check(
    CudnnCall &call, const cudnnReduceTensorStruct *reduction, const cudnnTensorStruct *a_desc,
    const cudnnTensorStruct *c_desc) {
    call.usable(reduction, "the reduction");
    const Sides sides{call.layout(a_desc, "A's descriptor"), call.layout(c_desc, "C's descriptor")};
    call.same_type(sides.a, sides.c, "A and C");
    call.require(sides.a.rank == sides.c.rank, "A and C have different ranks");
    for (int axis = 0; axis < sides.a.rank && call.ok(); ++axis) {
        call.require(
            sides.c.extents[axis] == 1 || sides.c.extents[axis] == sides.a.extents[axis],
            "C does not fit A along axis %d", axis);
    }
    return sides;
}

cudnnStatus_t size_of(
    const char *name, cudnnHandle_t handle, const cudnnReduceTensorStruct *reduction, const cudnnTensorStruct *a_desc,
    const cudnnTensorStruct *c_desc, bool indices, size_t *size) {
    CudnnCall call(name, handle);
    const Sides sides = check(call, reduction, a_desc, c_desc);
    if (call.host(size, "the place for the size").ok()) {
        *size = indices ? indices_bytes(*reduction, sides.c) : workspace_bytes(sides.c);
    }
    return call.status();
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateReduceTensorDescriptor(cudnnReduceTensorDescriptor_t *reduction) {
    return create("cudnnCreateReduceTensorDescriptor", "cudnnReduceTensorDescriptor", reduction);
}

cudnnStatus_t cudnnDestroyReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduction) {
    return destroy("cudnnDestroyReduceTensorDescriptor", reduction);
}

cudnnStatus_t cudnnSetReduceTensorDescriptor(
    cudnnReduceTensorDescriptor_t reduction, cudnnReduceTensorOp_t op, cudnnDataType_t, cudnnNanPropagation_t nan,
    cudnnReduceTensorIndices_t indices, cudnnIndicesType_t indices_type) {
    CudnnCall call("cudnnSetReduceTensorDescriptor");
    call.live(reduction, "the descriptor").require(indices_type == CUDNN_32BIT_INDICES, "indices have 32 bits");
    if (call.ok()) {
        reduction->op = op;
        reduction->keeps_nan = nan == CUDNN_PROPAGATE_NAN;
        reduction->has_indices = indices == CUDNN_REDUCE_TENSOR_FLATTENED_INDICES;
        reduction->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnGetReductionIndicesSize(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduction, const cudnnTensorDescriptor_t a_desc,
    const cudnnTensorDescriptor_t c_desc, size_t *size) {
    return size_of("cudnnGetReductionIndicesSize", handle, reduction, a_desc, c_desc, true, size);
}

cudnnStatus_t cudnnGetReductionWorkspaceSize(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduction, const cudnnTensorDescriptor_t a_desc,
    const cudnnTensorDescriptor_t c_desc, size_t *size) {
    return size_of("cudnnGetReductionWorkspaceSize", handle, reduction, a_desc, c_desc, false, size);
}

cudnnStatus_t cudnnReduceTensor(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t descriptor, void *indices, size_t indices_size,
    void *workspace, size_t workspace_size, const void *alpha_address, const cudnnTensorDescriptor_t a_desc,
    const void *a, const void *beta_address, const cudnnTensorDescriptor_t c_desc, void *c) {
    CudnnCall call("cudnnReduceTensor", handle);
    const Sides sides = check(call, descriptor, a_desc, c_desc);
    call.array(a, sides.a, "A");
    call.array(c, sides.c, "C");
    call.apart(a, sides.a.bytes(), c, sides.c.bytes(), "A and C");
    const size_t needed = workspace_bytes(sides.c);
    call.workspace(workspace, workspace_size, needed);
    const cudnnReduceTensorStruct reduction = call.ok() ? *descriptor : cudnnReduceTensorStruct();
    const size_t index_bytes = indices_bytes(reduction, sides.c);
    call.require(indices_size >= index_bytes, "the indices have %zu bytes and need %zu", indices_size, index_bytes);
    call.device(indices, index_bytes, "the indices", sizeof(uint32_t));
    const double alpha = call.factor(alpha_address, sides.c, "alpha");
    const double beta = call.factor(beta_address, sides.c, "beta");
    call.run([=] {
        spoil(workspace, needed);
        with_type(sides.c.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> elements = gather<T>(a, sides.a);
            std::vector<Running> running(size_t(sides.c.count()), Running{0.0, 0, 0});
            for (size_t i = 0; i < elements.size(); ++i) {
                take(reduction, running[target(sides.a, sides.c, int64_t(i))], double(elements[i]));
            }
            std::vector<T> values(running.size());
            for (size_t i = 0; i < values.size(); ++i) {
                values[i] = T(result(reduction, running[i]));
                if (index_bytes > 0) {
                    static_cast<uint32_t *>(indices)[i] = running[i].index;
                }
            }
            scatter(c, sides.c, values, alpha, beta);
        });
    });
    return call.status();
}

}  // extern "C"
