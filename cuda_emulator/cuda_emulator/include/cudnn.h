// cuDNN on the emulated device: the part of the legacy interface that generated programs use, for C and C++; with
// that of operation graphs, `cudnn_graph.h`.
//
// Names, numbers and parameters are NVIDIA's.
#ifndef STAGED_EMULATED_CUDNN_H
#define STAGED_EMULATED_CUDNN_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus
extern "C" {
#endif

#define CUDNN_MAJOR 9
#define CUDNN_MINOR 19
#define CUDNN_PATCHLEVEL 0
#define CUDNN_VERSION (CUDNN_MAJOR * 10000 + CUDNN_MINOR * 100 + CUDNN_PATCHLEVEL)

#define CUDNN_DIM_MAX 8
#define CUDNN_BN_MIN_EPSILON 0.0
#define CUDNN_RNN_PADDED_IO_DISABLED 0
#define CUDNN_RNN_PADDED_IO_ENABLED (1U << 0)

// ---- types ----

typedef enum {
    CUDNN_STATUS_SUCCESS = 0,
    CUDNN_STATUS_NOT_INITIALIZED = 1001,
    CUDNN_STATUS_BAD_PARAM = 2000,
    CUDNN_STATUS_NOT_SUPPORTED = 3000,
    CUDNN_STATUS_NOT_SUPPORTED_ARCH_MISMATCH = 3007,
    CUDNN_STATUS_INTERNAL_ERROR = 4000,
    CUDNN_STATUS_EXECUTION_FAILED = 5000
} cudnnStatus_t;

typedef enum {
    CUDNN_DATA_FLOAT = 0,
    CUDNN_DATA_DOUBLE = 1,
    CUDNN_DATA_HALF = 2,
    CUDNN_DATA_INT32 = 4,
    CUDNN_DATA_BFLOAT16 = 9,
    CUDNN_DATA_BOOLEAN = 11
} cudnnDataType_t;

typedef enum {
    CUDNN_DEFAULT_MATH = 0,
    CUDNN_TENSOR_OP_MATH = 1,
    CUDNN_TENSOR_OP_MATH_ALLOW_CONVERSION = 2,
    CUDNN_FMA_MATH = 3
} cudnnMathType_t;

typedef enum {
    CUDNN_NOT_PROPAGATE_NAN = 0,
    CUDNN_PROPAGATE_NAN = 1
} cudnnNanPropagation_t;

typedef enum {
    CUDNN_TENSOR_NCHW = 0,
    CUDNN_TENSOR_NHWC = 1
} cudnnTensorFormat_t;

typedef enum {
    CUDNN_NON_DETERMINISTIC = 0,
    CUDNN_DETERMINISTIC = 1
} cudnnDeterminism_t;

typedef enum {
    CUDNN_OP_TENSOR_ADD = 0,
    CUDNN_OP_TENSOR_MUL = 1,
    CUDNN_OP_TENSOR_MIN = 2,
    CUDNN_OP_TENSOR_MAX = 3,
    CUDNN_OP_TENSOR_SQRT = 4,
    CUDNN_OP_TENSOR_NOT = 5
} cudnnOpTensorOp_t;

typedef enum {
    CUDNN_REDUCE_TENSOR_ADD = 0,
    CUDNN_REDUCE_TENSOR_MUL = 1,
    CUDNN_REDUCE_TENSOR_MIN = 2,
    CUDNN_REDUCE_TENSOR_MAX = 3,
    CUDNN_REDUCE_TENSOR_AMAX = 4,
    CUDNN_REDUCE_TENSOR_AVG = 5,
    CUDNN_REDUCE_TENSOR_NORM1 = 6,
    CUDNN_REDUCE_TENSOR_NORM2 = 7,
    CUDNN_REDUCE_TENSOR_MUL_NO_ZEROS = 8
} cudnnReduceTensorOp_t;

typedef enum {
    CUDNN_REDUCE_TENSOR_NO_INDICES = 0,
    CUDNN_REDUCE_TENSOR_FLATTENED_INDICES = 1
} cudnnReduceTensorIndices_t;

typedef enum {
    CUDNN_32BIT_INDICES = 0,
    CUDNN_64BIT_INDICES = 1,
    CUDNN_16BIT_INDICES = 2,
    CUDNN_8BIT_INDICES = 3
} cudnnIndicesType_t;

typedef enum {
    CUDNN_ACTIVATION_SIGMOID = 0,
    CUDNN_ACTIVATION_RELU = 1,
    CUDNN_ACTIVATION_TANH = 2,
    CUDNN_ACTIVATION_CLIPPED_RELU = 3,
    CUDNN_ACTIVATION_ELU = 4,
    CUDNN_ACTIVATION_IDENTITY = 5,
    CUDNN_ACTIVATION_SWISH = 6
} cudnnActivationMode_t;

typedef enum {
    CUDNN_SOFTMAX_FAST = 0,
    CUDNN_SOFTMAX_ACCURATE = 1,
    CUDNN_SOFTMAX_LOG = 2
} cudnnSoftmaxAlgorithm_t;

typedef enum {
    CUDNN_SOFTMAX_MODE_INSTANCE = 0,
    CUDNN_SOFTMAX_MODE_CHANNEL = 1
} cudnnSoftmaxMode_t;

typedef enum {
    CUDNN_POOLING_MAX = 0,
    CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING = 1,
    CUDNN_POOLING_AVERAGE_COUNT_EXCLUDE_PADDING = 2,
    CUDNN_POOLING_MAX_DETERMINISTIC = 3
} cudnnPoolingMode_t;

typedef enum {
    CUDNN_BATCHNORM_PER_ACTIVATION = 0,
    CUDNN_BATCHNORM_SPATIAL = 1,
    CUDNN_BATCHNORM_SPATIAL_PERSISTENT = 2
} cudnnBatchNormMode_t;

typedef enum {
    CUDNN_CONVOLUTION = 0,
    CUDNN_CROSS_CORRELATION = 1
} cudnnConvolutionMode_t;

typedef enum {
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_GEMM = 0,
    CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM = 1,
    CUDNN_CONVOLUTION_FWD_ALGO_GEMM = 2,
    CUDNN_CONVOLUTION_FWD_ALGO_DIRECT = 3,
    CUDNN_CONVOLUTION_FWD_ALGO_FFT = 4,
    CUDNN_CONVOLUTION_FWD_ALGO_FFT_TILING = 5,
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD = 6,
    CUDNN_CONVOLUTION_FWD_ALGO_WINOGRAD_NONFUSED = 7,
    CUDNN_CONVOLUTION_FWD_ALGO_COUNT = 8
} cudnnConvolutionFwdAlgo_t;

typedef enum {
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_0 = 0,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT = 2,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_FFT_TILING = 3,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD = 4,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_WINOGRAD_NONFUSED = 5,
    CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT = 6
} cudnnConvolutionBwdDataAlgo_t;

typedef enum {
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_0 = 0,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_1 = 1,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT = 2,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_3 = 3,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD = 4,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_WINOGRAD_NONFUSED = 5,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_FFT_TILING = 6,
    CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT = 7
} cudnnConvolutionBwdFilterAlgo_t;

typedef enum {
    CUDNN_RNN_ALGO_STANDARD = 0,
    CUDNN_RNN_ALGO_PERSIST_STATIC = 1,
    CUDNN_RNN_ALGO_PERSIST_DYNAMIC = 2,
    CUDNN_RNN_ALGO_PERSIST_STATIC_SMALL_H = 3,
    CUDNN_RNN_ALGO_COUNT = 4
} cudnnRNNAlgo_t;

typedef enum {
    CUDNN_FWD_MODE_INFERENCE = 0,
    CUDNN_FWD_MODE_TRAINING = 1
} cudnnForwardMode_t;

typedef enum {
    CUDNN_RNN_RELU = 0,
    CUDNN_RNN_TANH = 1,
    CUDNN_LSTM = 2,
    CUDNN_GRU = 3
} cudnnRNNMode_t;

typedef enum {
    CUDNN_RNN_NO_BIAS = 0,
    CUDNN_RNN_SINGLE_INP_BIAS = 1,
    CUDNN_RNN_DOUBLE_BIAS = 2,
    CUDNN_RNN_SINGLE_REC_BIAS = 3
} cudnnRNNBiasMode_t;

typedef enum {
    CUDNN_UNIDIRECTIONAL = 0,
    CUDNN_BIDIRECTIONAL = 1
} cudnnDirectionMode_t;

typedef enum {
    CUDNN_LINEAR_INPUT = 0,
    CUDNN_SKIP_INPUT = 1
} cudnnRNNInputMode_t;

typedef enum {
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED = 0,
    CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED = 1,
    CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED = 2
} cudnnRNNDataLayout_t;

typedef enum {
    CUDNN_WGRAD_MODE_ADD = 0,
    CUDNN_WGRAD_MODE_SET = 1
} cudnnWgradMode_t;

typedef enum {
    CUDNN_LOSS_NORMALIZATION_NONE = 0,
    CUDNN_LOSS_NORMALIZATION_SOFTMAX = 1
} cudnnLossNormalizationMode_t;

typedef enum {
    CUDNN_CTC_ZERO_OOB_GRADIENTS = 0,
    CUDNN_CTC_SKIP_OOB_GRADIENTS = 1
} cudnnCTCGradMode_t;

typedef enum {
    CUDNN_CTC_LOSS_ALGO_DETERMINISTIC = 0,
    CUDNN_CTC_LOSS_ALGO_NON_DETERMINISTIC = 1
} cudnnCTCLossAlgo_t;

typedef struct cudnnContext *cudnnHandle_t;
typedef struct cudnnTensorStruct *cudnnTensorDescriptor_t;
typedef struct cudnnFilterStruct *cudnnFilterDescriptor_t;
typedef struct cudnnOpTensorStruct *cudnnOpTensorDescriptor_t;
typedef struct cudnnReduceTensorStruct *cudnnReduceTensorDescriptor_t;
typedef struct cudnnActivationStruct *cudnnActivationDescriptor_t;
typedef struct cudnnPoolingStruct *cudnnPoolingDescriptor_t;
typedef struct cudnnDropoutStruct *cudnnDropoutDescriptor_t;
typedef struct cudnnConvolutionStruct *cudnnConvolutionDescriptor_t;
typedef struct cudnnRNNStruct *cudnnRNNDescriptor_t;
typedef struct cudnnRNNDataStruct *cudnnRNNDataDescriptor_t;
typedef struct cudnnCTCLossStruct *cudnnCTCLossDescriptor_t;

typedef struct cudnnConvolutionFwdAlgoPerfStruct {
    cudnnConvolutionFwdAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionFwdAlgoPerf_t;

typedef struct cudnnConvolutionBwdDataAlgoPerfStruct {
    cudnnConvolutionBwdDataAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionBwdDataAlgoPerf_t;

typedef struct cudnnConvolutionBwdFilterAlgoPerfStruct {
    cudnnConvolutionBwdFilterAlgo_t algo;
    cudnnStatus_t status;
    float time;
    size_t memory;
    cudnnDeterminism_t determinism;
    cudnnMathType_t mathType;
    int reserved[3];
} cudnnConvolutionBwdFilterAlgoPerf_t;

// ---- handles ----

size_t cudnnGetVersion(void);
const char *cudnnGetErrorString(cudnnStatus_t status);
void cudnnGetLastErrorString(char *message, size_t max_size);
cudnnStatus_t cudnnCreate(cudnnHandle_t *handle);
cudnnStatus_t cudnnDestroy(cudnnHandle_t handle);
cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream);
cudnnStatus_t cudnnGetStream(cudnnHandle_t handle, cudaStream_t *stream);

// ---- tensors and filters ----

cudnnStatus_t cudnnCreateTensorDescriptor(cudnnTensorDescriptor_t *descriptor);
cudnnStatus_t cudnnDestroyTensorDescriptor(cudnnTensorDescriptor_t descriptor);
cudnnStatus_t cudnnSetTensor4dDescriptor(
    cudnnTensorDescriptor_t descriptor, cudnnTensorFormat_t format, cudnnDataType_t data_type, int n, int c, int h,
    int w);
cudnnStatus_t cudnnSetTensor4dDescriptorEx(
    cudnnTensorDescriptor_t descriptor, cudnnDataType_t data_type, int n, int c, int h, int w, int n_stride,
    int c_stride, int h_stride, int w_stride);
cudnnStatus_t cudnnSetTensorNdDescriptor(
    cudnnTensorDescriptor_t descriptor, cudnnDataType_t data_type, int rank, const int extents[],
    const int strides[]);
cudnnStatus_t cudnnGetTensorNdDescriptor(
    const cudnnTensorDescriptor_t descriptor, int requested, cudnnDataType_t *data_type, int *rank, int extents[],
    int strides[]);
cudnnStatus_t cudnnGetTensorSizeInBytes(const cudnnTensorDescriptor_t descriptor, size_t *size);
cudnnStatus_t cudnnCreateFilterDescriptor(cudnnFilterDescriptor_t *descriptor);
cudnnStatus_t cudnnDestroyFilterDescriptor(cudnnFilterDescriptor_t descriptor);
cudnnStatus_t cudnnSetFilter4dDescriptor(
    cudnnFilterDescriptor_t descriptor, cudnnDataType_t data_type, cudnnTensorFormat_t format, int k, int c, int h,
    int w);
cudnnStatus_t cudnnGetFilterSizeInBytes(const cudnnFilterDescriptor_t descriptor, size_t *size);
cudnnStatus_t cudnnSetTensor(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t y_desc, void *y, const void *value_ptr);
cudnnStatus_t cudnnScaleTensor(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t y_desc, void *y, const void *alpha);
cudnnStatus_t cudnnAddTensor(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t a_desc, const void *a, const void *beta,
    const cudnnTensorDescriptor_t c_desc, void *c);
cudnnStatus_t cudnnTransformTensor(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta,
    const cudnnTensorDescriptor_t y_desc, void *y);
cudnnStatus_t cudnnCreateOpTensorDescriptor(cudnnOpTensorDescriptor_t *op);
cudnnStatus_t cudnnDestroyOpTensorDescriptor(cudnnOpTensorDescriptor_t op);
cudnnStatus_t cudnnSetOpTensorDescriptor(
    cudnnOpTensorDescriptor_t op, cudnnOpTensorOp_t op_tensor_op, cudnnDataType_t op_tensor_comp_type,
    cudnnNanPropagation_t op_tensor_nan_opt);
cudnnStatus_t cudnnOpTensor(
    cudnnHandle_t handle, const cudnnOpTensorDescriptor_t op, const void *alpha1,
    const cudnnTensorDescriptor_t a_desc, const void *a, const void *alpha2, const cudnnTensorDescriptor_t b_desc,
    const void *b, const void *beta, const cudnnTensorDescriptor_t c_desc, void *c);

// ---- reductions ----

cudnnStatus_t cudnnCreateReduceTensorDescriptor(cudnnReduceTensorDescriptor_t *reduction);
cudnnStatus_t cudnnDestroyReduceTensorDescriptor(cudnnReduceTensorDescriptor_t reduction);
cudnnStatus_t cudnnSetReduceTensorDescriptor(
    cudnnReduceTensorDescriptor_t reduction, cudnnReduceTensorOp_t reduce_tensor_op,
    cudnnDataType_t reduce_tensor_comp_type, cudnnNanPropagation_t reduce_tensor_nan_opt,
    cudnnReduceTensorIndices_t reduce_tensor_indices, cudnnIndicesType_t reduce_tensor_indices_type);
cudnnStatus_t cudnnGetReductionIndicesSize(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduction, const cudnnTensorDescriptor_t a_desc,
    const cudnnTensorDescriptor_t c_desc, size_t *size);
cudnnStatus_t cudnnGetReductionWorkspaceSize(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduction, const cudnnTensorDescriptor_t a_desc,
    const cudnnTensorDescriptor_t c_desc, size_t *size);
cudnnStatus_t cudnnReduceTensor(
    cudnnHandle_t handle, const cudnnReduceTensorDescriptor_t reduction, void *indices, size_t indices_size,
    void *workspace, size_t workspace_size, const void *alpha, const cudnnTensorDescriptor_t a_desc, const void *a,
    const void *beta, const cudnnTensorDescriptor_t c_desc, void *c);

// ---- activations and softmax ----

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *activation);
cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation);
cudnnStatus_t cudnnSetActivationDescriptor(
    cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode, cudnnNanPropagation_t relu_nan_opt,
    double coef);
cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activation, double swish_beta);
cudnnStatus_t cudnnActivationForward(
    cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta, const cudnnTensorDescriptor_t y_desc,
    void *y);
cudnnStatus_t cudnnActivationBackward(
    cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta, const cudnnTensorDescriptor_t dx_desc,
    void *dx);
cudnnStatus_t cudnnSoftmaxForward(
    cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta, const cudnnTensorDescriptor_t y_desc,
    void *y);
cudnnStatus_t cudnnSoftmaxBackward(
    cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const void *beta, const cudnnTensorDescriptor_t dx_desc, void *dx);

// ---- pooling ----

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *pooling);
cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling);
cudnnStatus_t cudnnSetPooling2dDescriptor(
    cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode, cudnnNanPropagation_t maxpooling_nan_opt,
    int window_height, int window_width, int vertical_padding, int horizontal_padding, int vertical_stride,
    int horizontal_stride);
cudnnStatus_t cudnnGetPooling2dForwardOutputDim(
    const cudnnPoolingDescriptor_t pooling, const cudnnTensorDescriptor_t x_desc, int *n, int *c, int *h, int *w);
cudnnStatus_t cudnnPoolingForward(
    cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void *alpha,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta, const cudnnTensorDescriptor_t y_desc,
    void *y);
cudnnStatus_t cudnnPoolingBackward(
    cudnnHandle_t handle, const cudnnPoolingDescriptor_t pooling, const void *alpha,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta, const cudnnTensorDescriptor_t dx_desc,
    void *dx);

// ---- batch norm ----

cudnnStatus_t cudnnDeriveBNTensorDescriptor(
    cudnnTensorDescriptor_t derived_bn_desc, const cudnnTensorDescriptor_t x_desc, cudnnBatchNormMode_t mode);
cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc, void *y,
    const cudnnTensorDescriptor_t scale_desc, const void *scale, const void *bias, double exponential_average_factor,
    void *result_running_mean, void *result_running_variance, double epsilon, void *result_save_mean,
    void *result_save_inv_variance);
cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha, const void *beta,
    const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc, void *y,
    const cudnnTensorDescriptor_t scale_desc, const void *scale, const void *bias, const void *estimated_mean,
    const void *estimated_variance, double epsilon);
cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha_data_diff, const void *beta_data_diff,
    const void *alpha_param_diff, const void *beta_param_diff, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnTensorDescriptor_t dx_desc, void *dx,
    const cudnnTensorDescriptor_t scale_desc, const void *scale, void *d_bn_scale_result, void *d_bn_bias_result,
    double epsilon, const void *saved_mean, const void *saved_inv_variance);

// ---- dropout ----

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *dropout);
cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout);
cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *size);
cudnnStatus_t cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t x_desc, size_t *size);
cudnnStatus_t cudnnSetDropoutDescriptor(
    cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability, void *states, size_t states_size,
    unsigned long long seed);
cudnnStatus_t cudnnRestoreDropoutDescriptor(
    cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability, void *states, size_t states_size,
    unsigned long long seed);
cudnnStatus_t cudnnDropoutForward(
    cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropout, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnTensorDescriptor_t y_desc, void *y, void *reserve_space, size_t reserve_size);
cudnnStatus_t cudnnDropoutBackward(
    cudnnHandle_t handle, const cudnnDropoutDescriptor_t dropout, const cudnnTensorDescriptor_t dy_desc,
    const void *dy, const cudnnTensorDescriptor_t dx_desc, void *dx, void *reserve_space, size_t reserve_size);

// ---- convolutions ----

cudnnStatus_t cudnnCreateConvolutionDescriptor(cudnnConvolutionDescriptor_t *convolution);
cudnnStatus_t cudnnDestroyConvolutionDescriptor(cudnnConvolutionDescriptor_t convolution);
cudnnStatus_t cudnnSetConvolution2dDescriptor(
    cudnnConvolutionDescriptor_t convolution, int pad_h, int pad_w, int u, int v, int dilation_h, int dilation_w,
    cudnnConvolutionMode_t mode, cudnnDataType_t compute_type);
cudnnStatus_t cudnnSetConvolutionMathType(cudnnConvolutionDescriptor_t convolution, cudnnMathType_t math_type);
cudnnStatus_t cudnnSetConvolutionGroupCount(cudnnConvolutionDescriptor_t convolution, int group_count);
cudnnStatus_t cudnnGetConvolution2dForwardOutputDim(
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t x_desc,
    const cudnnFilterDescriptor_t descriptor, int *n, int *c, int *h, int *w);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithmMaxCount(cudnnHandle_t handle, int *count);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithmMaxCount(cudnnHandle_t handle, int *count);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithmMaxCount(cudnnHandle_t handle, int *count);
cudnnStatus_t cudnnGetConvolutionForwardAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t descriptor,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results);
cudnnStatus_t cudnnGetConvolutionBackwardDataAlgorithm_v7(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t descriptor, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t grad_desc, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results);
cudnnStatus_t cudnnGetConvolutionBackwardFilterAlgorithm_v7(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t grad_desc, const int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t w_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, const int requested,
    int *returned, cudnnConvolutionFwdAlgoPerf_t *results);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithm(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc, const int requested,
    int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithm(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc, const int requested,
    int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results);
cudnnStatus_t cudnnFindConvolutionForwardAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnFilterDescriptor_t w_desc,
    const void *w, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc, void *y,
    const int requested, int *returned, cudnnConvolutionFwdAlgoPerf_t *results, void *workspace,
    size_t workspace_size);
cudnnStatus_t cudnnFindConvolutionBackwardDataAlgorithmEx(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnTensorDescriptor_t dy_desc,
    const void *dy, const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc, void *dx,
    const int requested, int *returned, cudnnConvolutionBwdDataAlgoPerf_t *results, void *workspace,
    size_t workspace_size);
cudnnStatus_t cudnnFindConvolutionBackwardFilterAlgorithmEx(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t dy_desc,
    const void *y, const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t dw_desc, void *dw,
    const int requested, int *returned, cudnnConvolutionBwdFilterAlgoPerf_t *results, void *workspace,
    size_t workspace_size);
cudnnStatus_t cudnnGetConvolutionForwardWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnFilterDescriptor_t w_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t y_desc,
    cudnnConvolutionFwdAlgo_t algo, size_t *size);
cudnnStatus_t cudnnGetConvolutionBackwardDataWorkspaceSize(
    cudnnHandle_t handle, const cudnnFilterDescriptor_t w_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnTensorDescriptor_t dx_desc,
    cudnnConvolutionBwdDataAlgo_t algo, size_t *size);
cudnnStatus_t cudnnGetConvolutionBackwardFilterWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t x_desc, const cudnnTensorDescriptor_t dy_desc,
    const cudnnConvolutionDescriptor_t convolution, const cudnnFilterDescriptor_t grad_desc,
    cudnnConvolutionBwdFilterAlgo_t algo, size_t *size);
cudnnStatus_t cudnnConvolutionForward(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t workspace_size, const void *beta,
    const cudnnTensorDescriptor_t y_desc, void *y);
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t workspace_size, const void *alpha2,
    const cudnnTensorDescriptor_t z_desc, const void *z, const cudnnTensorDescriptor_t bias_desc, const void *bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_desc, void *y);
cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void *alpha, const cudnnFilterDescriptor_t w_desc, const void *w,
    const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdDataAlgo_t algo, void *workspace, size_t workspace_size, const void *beta,
    const cudnnTensorDescriptor_t dx_desc, void *dx);
cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdFilterAlgo_t algo, void *workspace, size_t workspace_size, const void *beta,
    const cudnnFilterDescriptor_t dw_desc, void *dw);
cudnnStatus_t cudnnConvolutionBackwardBias(
    cudnnHandle_t handle, const void *alpha, const cudnnTensorDescriptor_t dy_desc, const void *dy, const void *beta,
    const cudnnTensorDescriptor_t db_desc, void *db);

// ---- recurrent layers ----

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *rnn);
cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn);
cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algo, cudnnRNNMode_t cell_mode, cudnnRNNBiasMode_t bias_mode,
    cudnnDirectionMode_t dir_mode, cudnnRNNInputMode_t input_mode, cudnnDataType_t data_type,
    cudnnDataType_t math_prec, cudnnMathType_t math_type, int32_t input_size, int32_t hidden_size, int32_t proj_size,
    int32_t num_layers, cudnnDropoutDescriptor_t dropout, uint32_t aux_flags);
cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *descriptor);
cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor);
cudnnStatus_t cudnnSetRNNDataDescriptor(
    cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t data_type, cudnnRNNDataLayout_t layout, int max_seq_length,
    int batch_size, int vector_size, const int seq_length_array[], void *padding_fill);
cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *weight_space_size);
cudnnStatus_t cudnnGetRNNWeightParams(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer, size_t weight_space_size,
    const void *weight_space, int32_t lin_layer_id, cudnnTensorDescriptor_t m_desc, void **m_addr,
    cudnnTensorDescriptor_t b_desc, void **b_addr);
cudnnStatus_t cudnnGetRNNTempSpaceSizes(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t fwd_mode, cudnnRNNDataDescriptor_t x_desc,
    size_t *workspace_size, size_t *reserve_size);
cudnnStatus_t cudnnRNNForward(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t fwd_mode, const int32_t dev_seq_lengths[],
    cudnnRNNDataDescriptor_t x_desc, const void *x, cudnnRNNDataDescriptor_t y_desc, void *y,
    cudnnTensorDescriptor_t h_desc, const void *hx, void *hy, cudnnTensorDescriptor_t c_desc, const void *cx,
    void *cy, size_t weight_space_size, const void *weight_space, size_t workspace_size, void *workspace,
    size_t reserve_size, void *reserve_space);
cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t dev_seq_lengths[], cudnnRNNDataDescriptor_t y_desc,
    const void *y, const void *dy, cudnnRNNDataDescriptor_t x_desc, void *dx, cudnnTensorDescriptor_t h_desc,
    const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t c_desc, const void *cx, const void *dcy,
    void *dcx, size_t weight_space_size, const void *weight_space, size_t workspace_size, void *workspace,
    size_t reserve_size, void *reserve_space);
cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t add_grad, const int32_t dev_seq_lengths[],
    cudnnRNNDataDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t h_desc, const void *hx,
    cudnnRNNDataDescriptor_t y_desc, const void *y, size_t weight_space_size, void *dweight_space,
    size_t workspace_size, void *workspace, size_t reserve_size, void *reserve_space);

// ---- CTC loss ----

cudnnStatus_t cudnnCreateCTCLossDescriptor(cudnnCTCLossDescriptor_t *ctc);
cudnnStatus_t cudnnDestroyCTCLossDescriptor(cudnnCTCLossDescriptor_t ctc);
cudnnStatus_t cudnnSetCTCLossDescriptorEx(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t comp_type, cudnnLossNormalizationMode_t norm_mode,
    cudnnNanPropagation_t grad_mode);
cudnnStatus_t cudnnSetCTCLossDescriptor_v8(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t comp_type, cudnnLossNormalizationMode_t norm_mode,
    cudnnNanPropagation_t grad_mode, int max_label_length);
cudnnStatus_t cudnnSetCTCLossDescriptor_v9(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t comp_type, cudnnLossNormalizationMode_t norm_mode,
    cudnnCTCGradMode_t ctc_grad_mode, int max_label_length);
cudnnStatus_t cudnnGetCTCLossWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t probs_desc, const cudnnTensorDescriptor_t gradients_desc,
    const int *labels, const int *label_lengths, const int *input_lengths, cudnnCTCLossAlgo_t algo,
    cudnnCTCLossDescriptor_t ctc, size_t *size);
cudnnStatus_t cudnnCTCLoss(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t probs_desc, const void *probs, const int host_labels[],
    const int host_label_lengths[], const int host_input_lengths[], void *costs,
    const cudnnTensorDescriptor_t gradients_desc, void *gradients, cudnnCTCLossAlgo_t algo,
    cudnnCTCLossDescriptor_t ctc, void *workspace, size_t workspace_size);
cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(
    cudnnHandle_t handle, cudnnCTCLossAlgo_t algo, cudnnCTCLossDescriptor_t ctc,
    const cudnnTensorDescriptor_t probs_desc, const cudnnTensorDescriptor_t gradients_desc, size_t *size);
cudnnStatus_t cudnnCTCLoss_v8(
    cudnnHandle_t handle, cudnnCTCLossAlgo_t algo, cudnnCTCLossDescriptor_t ctc,
    const cudnnTensorDescriptor_t probs_desc, const void *probs, const int labels[], const int label_lengths[],
    const int input_lengths[], void *costs, const cudnnTensorDescriptor_t gradients_desc, void *gradients,
    size_t workspace_size, void *workspace);

#ifdef __cplusplus
}
#endif

#include "cudnn_graph.h"
#endif
