// Inside the emulated cuDNN: what the files about convolutions share.
#ifndef STAGED_EMULATED_CUDNN_CONVOLUTION_H
#define STAGED_EMULATED_CUDNN_CONVOLUTION_H

#include "tensors.h"

struct cudnnConvolutionStruct : emulator::Object {
    int padding[2] = {}, stride[2] = {1, 1}, dilation[2] = {1, 1};
    int groups = 1;
    cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    cudnnDataType_t compute_type = CUDNN_DATA_FLOAT;
    cudnnMathType_t math_type = CUDNN_DEFAULT_MATH;
};

namespace emulator {

// One convolution: images (N, C, H, W) and filters (K, C / groups, R, S) give outputs (N, K, P, Q).
struct Convolution {
    int64_t N, C, H, W, K, R, S, P, Q;
    int64_t groups, padding[2], stride[2], dilation[2];
    bool flipped;  // a convolution in the sense of mathematics: the filter runs backwards
    bool tf32;     // factors are rounded, as tensor cores do unless CUDNN_FMA_MATH is asked for

    int64_t inputs() const {
        return C / groups;
    }
    int64_t outputs() const {
        return K / groups;
    }
};

enum class Direction { FORWARD, BACKWARD_DATA, BACKWARD_FILTER };

// The descriptors of a convolution, whichever of its three arrays is the result.
struct ConvolutionLayouts {
    Layout image, filter, output;
};

// Checks that three descriptors are of one convolution; its sizes.
Convolution check_convolution(
    CudnnCall &call, const cudnnConvolutionStruct *convolution, const cudnnTensorStruct *image,
    const cudnnFilterStruct *filter, const cudnnTensorStruct *output, ConvolutionLayouts &layouts);

// Whether the emulated device has an algorithm for it, what memory that needs, and whether it always gives the same
// bits.
struct Algorithm {
    bool supported;
    size_t workspace;
    bool deterministic;
};
Algorithm algorithm(Direction direction, int number, const Convolution &c, cudnnDataType_t type);

}  // namespace emulator

#endif
