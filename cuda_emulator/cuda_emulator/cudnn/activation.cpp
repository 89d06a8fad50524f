// Activations and softmax of cuDNN on the emulated device.

#include "tensors.h"

#include <cmath>

namespace emulator {

double activate(const cudnnActivationStruct &activation, double x) {
    const bool hides_nan = !activation.keeps_nan && std::isnan(x);
    switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return 1.0 / (1.0 + std::exp(-x));
    case CUDNN_ACTIVATION_RELU:
        return x < 0.0 || hides_nan ? 0.0 : x;
    case CUDNN_ACTIVATION_TANH:
        return std::tanh(x);
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return x < 0.0 || hides_nan ? 0.0 : x > activation.coefficient ? activation.coefficient : x;
    case CUDNN_ACTIVATION_ELU:
        return x < 0.0 ? activation.coefficient * std::expm1(x) : x;
    case CUDNN_ACTIVATION_SWISH:
        return x / (1.0 + std::exp(-activation.swish_beta * x));
    case CUDNN_ACTIVATION_IDENTITY:
        return x;
    }
    return x;
}

double activation_slope(const cudnnActivationStruct &activation, double x, double y) {
    switch (activation.mode) {
    case CUDNN_ACTIVATION_SIGMOID:
        return y * (1.0 - y);
    case CUDNN_ACTIVATION_RELU:
        return x > 0.0 ? 1.0 : 0.0;
    case CUDNN_ACTIVATION_TANH:
        return 1.0 - y * y;
    case CUDNN_ACTIVATION_CLIPPED_RELU:
        return x > 0.0 && x < activation.coefficient ? 1.0 : 0.0;
    case CUDNN_ACTIVATION_ELU:
        return x < 0.0 ? y + activation.coefficient : 1.0;
    case CUDNN_ACTIVATION_SWISH: {
        const double gate = 1.0 / (1.0 + std::exp(-activation.swish_beta * x));
        return gate + activation.swish_beta * y * (1.0 - gate);
    }
    case CUDNN_ACTIVATION_IDENTITY:
        return 1.0;
    }
    return 1.0;
}

}  // namespace emulator

using namespace emulator;

namespace {

// How a tensor (n, c, spatial...) falls apart into softmaxes: over c at each place, or over everything of an instance.
struct Groups {
    int64_t outer, length, inner;

    // The packed index of element `i` of the softmax number `group`.
    size_t at(int64_t group, int64_t i) const {
        return size_t((group / inner * length + i) * inner + group % inner);
    }
    int64_t count() const {
        return outer * inner;
    }
};

Groups groups(const Layout &layout, cudnnSoftmaxMode_t mode) {
    const int64_t n = layout.extent(0), whole = layout.count() / n;
    return mode == CUDNN_SOFTMAX_MODE_INSTANCE ? Groups{n, whole, 1}
                                               : Groups{n, layout.extent(1), whole / layout.extent(1)};
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateActivationDescriptor(cudnnActivationDescriptor_t *activation) {
    return create("cudnnCreateActivationDescriptor", "cudnnActivationDescriptor", activation);
}

cudnnStatus_t cudnnDestroyActivationDescriptor(cudnnActivationDescriptor_t activation) {
    return destroy("cudnnDestroyActivationDescriptor", activation);
}

cudnnStatus_t cudnnSetActivationDescriptor(
    cudnnActivationDescriptor_t activation, cudnnActivationMode_t mode, cudnnNanPropagation_t nan, double coefficient) {
    CudnnCall call("cudnnSetActivationDescriptor");
    if (call.live(activation, "the descriptor").ok()) {
        activation->mode = mode;
        activation->keeps_nan = nan == CUDNN_PROPAGATE_NAN;
        activation->coefficient = coefficient;
        activation->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnSetActivationDescriptorSwishBeta(cudnnActivationDescriptor_t activation, double swish_beta) {
    CudnnCall call("cudnnSetActivationDescriptorSwishBeta");
    if (call.live(activation, "the descriptor").ok()) {
        activation->swish_beta = swish_beta;
    }
    return call.status();
}

// y = alpha f(x) + beta y; y may be x.
cudnnStatus_t cudnnActivationForward(
    cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha_address,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta_address,
    const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnActivationForward", handle);
    call.usable(activation, "the activation");
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    call.same_type(from, to, "x and y");
    call.same_extents(from, to, "x and y");
    call.array(x, from, "x");
    call.array(y, to, "y");
    call.require(x != y || from.is_same_as(to), "x is y, and their descriptors differ");
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    const cudnnActivationStruct f = call.ok() ? *activation : cudnnActivationStruct();
    call.require(f.mode != CUDNN_ACTIVATION_IDENTITY || !call.ok(), "identity is for convolutions with a bias alone");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values = gather<T>(x, from);
            for (T &value : values) {
                value = T(activate(f, double(value)));
            }
            scatter(y, to, values, alpha, beta);
        });
    });
    return call.status();
}

// dx = alpha dy f'(x) + beta dx
cudnnStatus_t cudnnActivationBackward(
    cudnnHandle_t handle, cudnnActivationDescriptor_t activation, const void *alpha_address,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta_address,
    const cudnnTensorDescriptor_t dx_desc, void *dx) {
    CudnnCall call("cudnnActivationBackward", handle);
    call.usable(activation, "the activation");
    const Layout y_layout = call.layout(y_desc, "y's descriptor"), dy_layout = call.layout(dy_desc, "dy's descriptor");
    const Layout x_layout = call.layout(x_desc, "x's descriptor"), dx_layout = call.layout(dx_desc, "dx's descriptor");
    for (const Layout *other : {&y_layout, &dy_layout, &x_layout}) {
        call.same_type(*other, dx_layout, "an operand and dx");
        call.same_extents(*other, dx_layout, "an operand and dx");
    }
    call.array(y, y_layout, "y");
    call.array(dy, dy_layout, "dy");
    call.array(x, x_layout, "x");
    call.array(dx, dx_layout, "dx");
    const double alpha = call.factor(alpha_address, dx_layout, "alpha");
    const double beta = call.factor(beta_address, dx_layout, "beta");
    const cudnnActivationStruct f = call.ok() ? *activation : cudnnActivationStruct();
    call.run([=] {
        with_type(dx_layout.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> ys = gather<T>(y, y_layout), xs = gather<T>(x, x_layout);
            std::vector<T> values = gather<T>(dy, dy_layout);
            for (size_t i = 0; i < values.size(); ++i) {
                values[i] *= T(activation_slope(f, double(xs[i]), double(ys[i])));
            }
            scatter(dx, dx_layout, values, alpha, beta);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnSoftmaxForward(
    cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha_address,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta_address,
    const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnSoftmaxForward", handle);
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    call.same_type(from, to, "x and y");
    call.same_extents(from, to, "x and y");
    call.array(x, from, "x");
    call.array(y, to, "y");
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values = gather<T>(x, from);
            const Groups all = groups(from, mode);
            for (int64_t group = 0; group < all.count(); ++group) {
                double top = algo == CUDNN_SOFTMAX_FAST ? 0.0 : -INFINITY, sum = 0.0;
                for (int64_t i = 0; i < all.length && algo != CUDNN_SOFTMAX_FAST; ++i) {
                    top = std::fmax(top, double(values[all.at(group, i)]));
                }
                for (int64_t i = 0; i < all.length; ++i) {
                    sum += std::exp(double(values[all.at(group, i)]) - top);
                }
                for (int64_t i = 0; i < all.length; ++i) {
                    T &value = values[all.at(group, i)];
                    const double shifted = double(value) - top;
                    value = T(algo == CUDNN_SOFTMAX_LOG ? shifted - std::log(sum) : std::exp(shifted) / sum);
                }
            }
            scatter(y, to, values, alpha, beta);
        });
    });
    return call.status();
}

// From y, the result of the forward function: dx = y (dy - sum(y dy)), and of the logarithm dy - exp(y) sum(dy).
cudnnStatus_t cudnnSoftmaxBackward(
    cudnnHandle_t handle, cudnnSoftmaxAlgorithm_t algo, cudnnSoftmaxMode_t mode, const void *alpha_address,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const void *beta_address, const cudnnTensorDescriptor_t dx_desc, void *dx) {
    CudnnCall call("cudnnSoftmaxBackward", handle);
    const Layout y_layout = call.layout(y_desc, "y's descriptor"), dy_layout = call.layout(dy_desc, "dy's descriptor");
    const Layout dx_layout = call.layout(dx_desc, "dx's descriptor");
    for (const Layout *other : {&y_layout, &dy_layout}) {
        call.same_type(*other, dx_layout, "an operand and dx");
        call.same_extents(*other, dx_layout, "an operand and dx");
    }
    call.array(y, y_layout, "y");
    call.array(dy, dy_layout, "dy");
    call.array(dx, dx_layout, "dx");
    const double alpha = call.factor(alpha_address, dx_layout, "alpha");
    const double beta = call.factor(beta_address, dx_layout, "beta");
    const bool is_log = algo == CUDNN_SOFTMAX_LOG;
    call.run([=] {
        with_type(dx_layout.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> ys = gather<T>(y, y_layout);
            std::vector<T> values = gather<T>(dy, dy_layout);
            const Groups all = groups(dx_layout, mode);
            for (int64_t group = 0; group < all.count(); ++group) {
                double sum = 0.0;
                for (int64_t i = 0; i < all.length; ++i) {
                    const size_t at = all.at(group, i);
                    sum += double(values[at]) * (is_log ? 1.0 : double(ys[at]));
                }
                for (int64_t i = 0; i < all.length; ++i) {
                    const size_t at = all.at(group, i);
                    const double out = double(ys[at]), d_out = double(values[at]);
                    values[at] = T(is_log ? d_out - std::exp(out) * sum : out * (d_out - sum));
                }
            }
            scatter(dx, dx_layout, values, alpha, beta);
        });
    });
    return call.status();
}

}  // extern "C"
