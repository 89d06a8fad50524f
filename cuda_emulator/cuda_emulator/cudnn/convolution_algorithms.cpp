// Convolutions of cuDNN on the emulated device: descriptors, sizes, and which algorithms there are.
//
// Which ones cuDNN really has for a convolution, what they need and which is fastest, only cuDNN knows. The rules
// here are of its documented kind: some need workspaces, some do not exist for some shapes, and the first that the
// heuristics offer backwards is one that does not always give the same bits, so that a program which needs those must
// look for it.

#include "convolution.h"

using namespace emulator;

namespace emulator {

namespace {

int64_t output_extent(int64_t extent, int64_t window, int64_t padding, int64_t stride, int64_t dilation) {
    const int64_t room = extent + 2 * padding - ((window - 1) * dilation + 1);
    return room < 0 ? 0 : room / stride + 1;
}

}  // namespace

Convolution check_convolution(
    CudnnCall &call, const cudnnConvolutionStruct *convolution, const cudnnTensorStruct *image_desc,
    const cudnnFilterStruct *filter_desc, const cudnnTensorStruct *output_desc, ConvolutionLayouts &at) {
    call.usable(convolution, "the convolution's descriptor");
    at.image = call.layout(image_desc, "the images' descriptor");
    at.filter = call.layout(filter_desc, "the filters' descriptor");
    at.output = output_desc ? call.layout(output_desc, "the outputs' descriptor") : at.image;
    Convolution c{};
    if (!call.ok()) {
        return c;
    }
    call.supported(at.image.rank == 4 && at.filter.rank == 4 && at.output.rank == 4, "convolutions of other ranks");
    call.same_type(at.image, at.filter, "images and filters");
    call.same_type(at.image, at.output, "images and outputs");
    call.require(
        convolution->compute_type == at.image.type, "the convolution computes in another type than its images have");
    c = {at.image.extent(0), at.image.extent(1), at.image.extent(2), at.image.extent(3), at.filter.extent(0),
         at.filter.extent(2), at.filter.extent(3), 0, 0, convolution->groups, {}, {}, {},
         convolution->mode == CUDNN_CONVOLUTION,
         convolution->math_type != CUDNN_FMA_MATH && at.image.type == CUDNN_DATA_FLOAT};
    for (int axis = 0; axis < 2; ++axis) {
        c.padding[axis] = convolution->padding[axis];
        c.stride[axis] = convolution->stride[axis];
        c.dilation[axis] = convolution->dilation[axis];
    }
    c.P = output_extent(c.H, c.R, c.padding[0], c.stride[0], c.dilation[0]);
    c.Q = output_extent(c.W, c.S, c.padding[1], c.stride[1], c.dilation[1]);
    call.require(
        c.C == at.filter.extent(1) * c.groups && c.K % c.groups == 0,
        "images of %lld channels and filters (%lld, %lld, ...) do not go together in %lld groups",
        static_cast<long long>(c.C), static_cast<long long>(c.K), static_cast<long long>(at.filter.extent(1)),
        static_cast<long long>(c.groups));
    call.require(c.P > 0 && c.Q > 0, "the filter is larger than the padded image");
    const auto &o = at.output;
    call.require(
        output_desc == nullptr ||
            (o.extent(0) == c.N && o.extent(1) == c.K && o.extent(2) == c.P && o.extent(3) == c.Q),
        "the outputs' descriptor is (%lld, %lld, %lld, %lld) and the convolution gives (%lld, %lld, %lld, %lld)",
        static_cast<long long>(o.extent(0)), static_cast<long long>(o.extent(1)), static_cast<long long>(o.extent(2)),
        static_cast<long long>(o.extent(3)), static_cast<long long>(c.N), static_cast<long long>(c.K),
        static_cast<long long>(c.P), static_cast<long long>(c.Q));
    return c;
}

Algorithm algorithm(Direction direction, int number, const Convolution &c, cudnnDataType_t type) {
    if (!settings().algorithms) {
        return {false, 0, true};
    }
    const size_t element = element_size(type);
    const size_t columns = size_t(c.inputs() * c.R * c.S * c.P * c.Q) * element;  // of one image, as a matrix
    const size_t offsets = size_t(c.inputs() * c.R * c.S) * sizeof(int);
    const bool winograd = c.R == 3 && c.S == 3 && c.stride[0] == 1 && c.stride[1] == 1 && c.dilation[0] == 1 &&
                          c.dilation[1] == 1 && type == CUDNN_DATA_FLOAT;
    const size_t tiles = size_t(c.N * ((c.P + 1) / 2) * ((c.Q + 1) / 2) * 16 * (c.C + c.K)) * element;
    if (direction == Direction::FORWARD) {
        switch (number) {
        case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM:
            return {true, 0, true};
        case CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM:
            return {true, offsets, true};
        case CUDNN_CONVOLUTION_FWD_ALGO_GEMM:
            return {c.groups == 1, columns, true};
        case CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED:
            return {winograd && c.groups == 1, tiles, true};
        }
    } else if (direction == Direction::BACKWARD_DATA) {
        switch (number) {
        case CUDNN_CONVOLUTION_BWD_DATA_ALGO_0:
            return {true, 0, false};
        case CUDNN_CONVOLUTION_BWD_DATA_ALGO_1:
            return {true, offsets, true};
        case CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED:
            return {winograd && c.groups == 1, tiles, true};
        }
    } else {
        switch (number) {
        case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0:
            return {true, 0, false};
        case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1:
            return {true, offsets, true};
        case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3:
            return {c.groups == 1, columns, false};
        case CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED:
            return {winograd && c.groups == 1, tiles, true};
        }
    }
    return {false, 0, true};
}

}  // namespace emulator

namespace {

constexpr int ALGORITHMS[] = {
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT, CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT, CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT};

// Lists algorithms as the heuristics do: those that there are, best first, then the others. `workspace_size` bounds
// the memory of those that may be tried.
template <class Result>
void list(
    Direction direction, const Convolution &c, cudnnDataType_t type, cudnnMathType_t math, size_t workspace_size,
    int requested, int *returned, Result *results) {
    *returned = 0;
    for (const bool supported : {true, false}) {
        for (int number = 0; number < ALGORITHMS[int(direction)] && *returned < requested; ++number) {
            const Algorithm found = algorithm(direction, number, c, type);
            const bool usable = found.supported && found.workspace <= workspace_size;
            if (usable == supported) {
                Result &result = results[(*returned)++];
                result = Result();
                result.algo = decltype(result.algo)(number);
                result.status = usable ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
                result.time = usable ? float(*returned) : -1.0f;
                result.memory = found.workspace;
                result.determinism = found.deterministic ? CUDNN_DETERMINISTIC : CUDNN_NON_DETERMINISTIC;
                result.mathType = math;
            }
        }
    }
}

template <class Result>
cudnnStatus_t ask(
    const char *name, Direction direction, cudnnHandle_t handle, const cudnnTensorStruct *image,
    const cudnnFilterStruct *filter, const cudnnConvolutionStruct *convolution, const cudnnTensorStruct *output,
    size_t workspace_size, int requested, int *returned, Result *results) {
    CudnnCall call(name, handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, image, filter, output, at);
    call.host(returned, "the place for the count").host(results, "the place for the results");
    call.require(requested > 0, "%d results were asked for", requested);
    if (call.ok()) {
        list(direction, c, at.image.type, convolution->math_type, workspace_size, requested, returned, results);
    }
    return call.status();
}

cudnnStatus_t workspace_size(
    const char *name, Direction direction, cudnnHandle_t handle, const cudnnTensorStruct *image,
    const cudnnFilterStruct *filter, const cudnnConvolutionStruct *convolution, const cudnnTensorStruct *output,
    int number, size_t *size) {
    CudnnCall call(name, handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, image, filter, output, at);
    call.host(size, "the place for the size");
    if (!call.ok()) {
        return call.status();
    }
    const Algorithm found = algorithm(direction, number, c, at.image.type);
    *size = found.workspace;
    if (!settings().algorithms) {
        return CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH;  // a reason, as cuDNN gives it
    }
    return found.supported ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED;
}

constexpr size_t ANY_SIZE = size_t(-1);

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution) {
    return create("cudnnCreateConvolutionDescriptor", "cudnnConvolutionDescriptor", convolution);
}

cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution) {
    return destroy("cudnnDestroyConvolutionDescriptor", convolution);
}

cudnnStatus_t cudnnSetConvolution2dDescriptor(
    cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int stride_h, int stride_w, int dilation_h,
    int dilation_w, cudnnConvolutionMode_t mode, cudnnDataType_t compute_type) {
    CudnnCall call("cudnnSetConvolution2dDescriptor");
    call.live(convolution, "the descriptor");
    call.require(pad_h >= 0 && pad_w >= 0, "the padding is (%d, %d)", pad_h, pad_w);
    call.require(stride_h > 0 && stride_w > 0, "the stride is (%d, %d)", stride_h, stride_w);
    call.require(dilation_h > 0 && dilation_w > 0, "the dilation is (%d, %d)", dilation_h, dilation_w);
    if (call.ok()) {
        const int values[3][2] = {{pad_h, pad_w}, {stride_h, stride_w}, {dilation_h, dilation_w}};
        for (int axis = 0; axis < 2; ++axis) {
            convolution->padding[axis] = values[0][axis];
            convolution->stride[axis] = values[1][axis];
            convolution->dilation[axis] = values[2][axis];
        }
        convolution->mode = mode;
        convolution->compute_type = compute_type;
        convolution->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math_type) {
    CudnnCall call("cudnnSetConvolutionMathType");
    if (call.live(convolution, "the descriptor").ok()) {
        convolution->math_type = math_type;
    }
    return call.status();
}

cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int group_count) {
    CudnnCall call("cudnnSetConvolutionGroupCount");
    call.live(convolution, "the descriptor").require(group_count > 0, "%d groups", group_count);
    if (call.ok()) {
        convolution->groups = group_count;
    }
    return call.status();
}

cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t x_desc,
    const cudnnFilterDescriptor_t w_desc, int *n, int *c, int *h, int *w) {
    CudnnCall call("cudnnGetConvolution2dForwardOutputDim");
    ConvolutionLayouts at;
    const Convolution sizes = check_convolution(call, convolution, x_desc, w_desc, nullptr, at);
    *n = int(sizes.N);
    *c = int(sizes.K);
    *h = int(sizes.P);
    *w = int(sizes.Q);
    return call.status();
}

cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int *count) {
    CudnnCall call("cudnnGetConvolutionForwardAlgorithmMaxCount", handle);
    *count = CUDNN_CONVOLUTION_FWD_ALGO_COUNT;
    return call.status();
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int *count) {
    CudnnCall call("cudnnGetConvolutionBackwardDataAlgorithmMaxCount", handle);
    *count = CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT;
    return call.status();
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int *count) {
    CudnnCall call("cudnnGetConvolutionBackwardFilterAlgorithmMaxCount", handle);
    *count = CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT;
    return call.status();
}

// ---- heuristics, and trying: with memory of cuDNN's own, or in the workspace that the caller has ----

cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t w_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results) {
    return ask(
        "cudnnGetConvolutionForwardAlgorithm_v7", Direction::FORWARD, handle, x_desc, w_desc, convolution, y_desc,
        ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results) {
    return ask(
        "cudnnGetConvolutionBackwardDataAlgorithm_v7", Direction::BACKWARD_DATA, handle, dx_desc, w_desc, convolution,
        dy_desc, ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc, const int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    return ask(
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7", Direction::BACKWARD_FILTER, handle, x_desc, dw_desc,
        convolution, dy_desc, ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t w_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results) {
    return ask(
        "cudnnFindConvolutionForwardAlgorithm", Direction::FORWARD, handle, x_desc, w_desc, convolution, y_desc,
        ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results) {
    return ask(
        "cudnnFindConvolutionBackwardDataAlgorithm", Direction::BACKWARD_DATA, handle, dx_desc, w_desc, convolution,
        dy_desc, ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc, const int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results) {
    return ask(
        "cudnnFindConvolutionBackwardFilterAlgorithm", Direction::BACKWARD_FILTER, handle, x_desc, dw_desc, convolution,
        dy_desc, ANY_SIZE, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void *, const cudnnFilterDescriptor_t w_desc,
    const void *, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, void *,
    const int requested, int *returned, cudnnConvolutionFwdAlgoPerf_t *results, void *, size_t workspace_size) {
    return ask(
        "cudnnFindConvolutionForwardAlgorithmEx", Direction::FORWARD, handle, x_desc, w_desc, convolution, y_desc,
        workspace_size, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const void *, const cudnnTensorDescriptor_t dy_desc,
    const void *, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc, void *,
    const int requested, int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results, void *, size_t workspace_size) {
    return ask(
        "cudnnFindConvolutionBackwardDataAlgorithmEx", Direction::BACKWARD_DATA, handle, dx_desc, w_desc, convolution,
        dy_desc, workspace_size, requested, returned, results);
}

cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void *, const cudnnTensorDescriptor_t dy_desc,
    const void *, const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc, void *,
    const int requested, int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results, void *, size_t workspace_size) {
    return ask(
        "cudnnFindConvolutionBackwardFilterAlgorithmEx", Direction::BACKWARD_FILTER, handle, x_desc, dw_desc,
        convolution, dy_desc, workspace_size, requested, returned, results);
}

cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t w_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc,
    cudnnConvolutionFwdAlgo_t algo, size_t *size) {
    return workspace_size(
        "cudnnGetConvolutionForwardWorkspaceSize", Direction::FORWARD, handle, x_desc, w_desc, convolution, y_desc,
        algo, size);
}

cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *size) {
    return workspace_size(
        "cudnnGetConvolutionBackwardDataWorkspaceSize", Direction::BACKWARD_DATA, handle, dx_desc, w_desc, convolution,
        dy_desc, algo, size);
}

cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *size) {
    return workspace_size(
        "cudnnGetConvolutionBackwardFilterWorkspaceSize", Direction::BACKWARD_FILTER, handle, x_desc, dw_desc,
        convolution, dy_desc, algo, size);
}

}  // extern "C"
