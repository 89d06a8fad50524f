// Convolutions of cuDNN on the emulated device: the arithmetic. Descriptors and the choice of algorithms are in
// `convolution_algorithms.cpp`. All algorithms compute the same sums; those that cuDNN calls non-deterministic add them
// up in another order at every call.

#include "convolution.h"

#include "../matrix.h"

using namespace emulator;

namespace {

// The columns [first, last) of an output row at which filter column `s` meets the image, and the image's column at
// the first.
struct Overlap {
    int64_t first, last, column;
};

Overlap overlap(const Convolution &c, int64_t s) {
    const int64_t shift = s * c.dilation[1] - c.padding[1], step = c.stride[1];
    const int64_t first = shift >= 0 ? 0 : (-shift + step - 1) / step;
    const int64_t end = c.W - shift;  // columns q with q * step < end are inside
    const int64_t last = end <= 0 ? 0 : (end + step - 1) / step;
    return {first, last < c.Q ? last : c.Q, first * step + shift};
}

// Calls `row(output, image, weight, overlap)` for every output row and the image row under every row of its filter: the
// offsets of the three into their packed arrays.
template <class Row> void each_row(const Convolution &c, int64_t n, int64_t k, Row row) {
    const int64_t group = k / c.outputs();
    for (int64_t channel = 0; channel < c.inputs(); ++channel) {
        const int64_t image = (n * c.C + group * c.inputs() + channel) * c.H;
        for (int64_t r = 0; r < c.R; ++r) {
            for (int64_t s = 0; s < c.S; ++s) {
                const Overlap over = overlap(c, s);
                const int64_t weight = ((k * c.inputs() + channel) * c.R + r) * c.S + s;
                for (int64_t p = 0; p < c.P && over.first < over.last; ++p) {
                    const int64_t y = p * c.stride[0] - c.padding[0] + r * c.dilation[0];
                    if (y >= 0 && y < c.H) {
                        row(((n * c.K + k) * c.P + p) * c.Q, (image + y) * c.W + over.column, weight, over);
                    }
                }
            }
        }
    }
}

template <class T> std::vector<T> forward(const Convolution &c, const std::vector<T> &x, const std::vector<T> &w) {
    std::vector<T> y(size_t(c.N * c.K * c.P * c.Q), T(0));
    const int64_t step = c.stride[1];
    for (int64_t n = 0; n < c.N; ++n) {
        for (int64_t k = 0; k < c.K; ++k) {
            each_row(c, n, k, [&](int64_t output, int64_t image, int64_t weight, Overlap over) {
                T *out = &y[size_t(output + over.first)];
                const T *in = &x[size_t(image)], factor = w[size_t(weight)];
                const int64_t count = over.last - over.first;
                if (step == 1) {  // apart, so that it is compiled to vectors
                    for (int64_t q = 0; q < count; ++q) {
                        out[q] += factor * in[q];
                    }
                } else {
                    for (int64_t q = 0; q < count; ++q) {
                        out[q] += factor * in[q * step];
                    }
                }
            });
        }
    }
    return y;
}

// `first` is the output channel that is added first.
template <class T>
std::vector<T> backward_data(const Convolution &c, const std::vector<T> &dy, const std::vector<T> &w, int64_t first) {
    std::vector<T> dx(size_t(c.N * c.C * c.H * c.W), T(0));
    const int64_t step = c.stride[1];
    for (int64_t n = 0; n < c.N; ++n) {
        for (int64_t turn = 0; turn < c.K; ++turn) {
            each_row(c, n, (first + turn) % c.K, [&](int64_t output, int64_t image, int64_t weight, Overlap over) {
                T *out = &dx[size_t(image)];
                const T *in = &dy[size_t(output + over.first)], factor = w[size_t(weight)];
                const int64_t count = over.last - over.first;
                if (step == 1) {
                    for (int64_t q = 0; q < count; ++q) {
                        out[q] += factor * in[q];
                    }
                } else {
                    for (int64_t q = 0; q < count; ++q) {
                        out[q * step] += factor * in[q];
                    }
                }
            });
        }
    }
    return dx;
}

// `first` is the image that is added first.
template <class T>
std::vector<T> backward_filter(const Convolution &c, const std::vector<T> &x, const std::vector<T> &dy, int64_t first) {
    constexpr int64_t LANES = 8;  // partial sums, so that it is compiled to vectors
    std::vector<T> dw(size_t(c.K * c.inputs() * c.R * c.S), T(0));
    const int64_t step = c.stride[1];
    for (int64_t turn = 0; turn < c.N; ++turn) {
        for (int64_t k = 0; k < c.K; ++k) {
            each_row(c, (first + turn) % c.N, k, [&](int64_t output, int64_t image, int64_t weight, Overlap over) {
                const T *in = &x[size_t(image)], *out = &dy[size_t(output + over.first)];
                const int64_t count = over.last - over.first;
                T sums[LANES] = {}, sum = T(0);
                int64_t q = 0;
                for (; step == 1 && q + LANES <= count; q += LANES) {
                    for (int64_t lane = 0; lane < LANES; ++lane) {
                        sums[lane] += in[q + lane] * out[q + lane];
                    }
                }
                for (; q < count; ++q) {
                    sum += in[q * step] * out[q];
                }
                for (const T part : sums) {
                    sum += part;
                }
                dw[size_t(weight)] += sum;
            });
        }
    }
    return dw;
}

// The factors of the sums, packed: rounded where tensor cores may round them.
template <class T> std::vector<T> factors(const void *address, const Layout &layout, const Convolution &c) {
    std::vector<T> values = gather<T>(address, layout);
    if (c.tf32) {
        for (T &value : values) {
            value = round_to_tf32(value);
        }
    }
    return values;
}

// A filter as a cross-correlation has it, or back.
template <class T> std::vector<T> in_order(std::vector<T> w, const Convolution &c) {
    const int64_t window = c.R * c.S;
    for (int64_t start = 0; c.flipped && start < int64_t(w.size()); start += window) {
        for (int64_t i = 0; i < window / 2; ++i) {
            std::swap(w[size_t(start + i)], w[size_t(start + window - 1 - i)]);
        }
    }
    return w;
}

// Checks that a call's algorithm exists and has the workspace that it needs; its answer.
Algorithm check_algorithm(
    CudnnCall &call, Direction direction, int number, const Convolution &c, cudnnDataType_t type, const void *workspace,
    size_t workspace_size) {
    const Algorithm chosen = call.ok() ? algorithm(direction, number, c, type) : Algorithm{true, 0, true};
    call.supported(chosen.supported, "this algorithm for this convolution");
    call.workspace(workspace, workspace_size, chosen.workspace);
    return chosen;
}

// Where the sums of an algorithm start: elsewhere at every call of one that does not always give the same bits.
int64_t start(const Algorithm &chosen) {
    static int64_t calls = 0;
    return chosen.deterministic ? 0 : calls++;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnConvolutionForward(
    cudnnHandle_t handle, const void *alpha_address, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t workspace_size, const void *beta_address,
    const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnConvolutionForward", handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, x_desc, w_desc, y_desc, at);
    call.array(x, at.image, "x");
    call.array(w, at.filter, "w");
    call.array(y, at.output, "y");
    call.apart(y, at.output.bytes(), x, at.image.bytes(), "y and x");
    const Algorithm chosen =
        check_algorithm(call, Direction::FORWARD, algo, c, at.image.type, workspace, workspace_size);
    const double alpha = call.factor(alpha_address, at.output, "alpha");
    const double beta = call.factor(beta_address, at.output, "beta");
    call.run([=] {
        spoil(workspace, chosen.workspace);
        with_type(at.output.type, [&](auto zero) {
            using T = decltype(zero);
            const auto filter = in_order(factors<T>(w, at.filter, c), c);
            scatter(y, at.output, forward(c, factors<T>(x, at.image, c), filter), alpha, beta);
        });
    });
    return call.status();
}

// y = activation(alpha1 * convolution(x, w) + alpha2 * z + bias); z may be y.
cudnnStatus_t cudnnConvolutionBiasActivationForward(
    cudnnHandle_t handle, const void *alpha1_address, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnFilterDescriptor_t w_desc, const void *w, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionFwdAlgo_t algo, void *workspace, size_t workspace_size, const void *alpha2_address,
    const cudnnTensorDescriptor_t z_desc, const void *z, const cudnnTensorDescriptor_t bias_desc, const void *bias,
    const cudnnActivationDescriptor_t activation, const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnConvolutionBiasActivationForward", handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, x_desc, w_desc, y_desc, at);
    const Layout z_layout = call.layout(z_desc, "z's descriptor");
    const Layout bias_layout = call.layout(bias_desc, "the bias' descriptor");
    call.usable(activation, "the activation");
    const auto mode = call.ok() ? activation->mode : CUDNN_ACTIVATION_RELU;
    call.require(
        mode == CUDNN_ACTIVATION_RELU || mode == CUDNN_ACTIVATION_IDENTITY,
        "the activation is neither relu nor identity");
    call.require(
        mode == CUDNN_ACTIVATION_RELU || algo == CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM,
        "identity goes with CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM alone");
    call.require(!call.ok() || !activation->keeps_nan, "the activation must have CUDNN_NOT_PROPAGATE_NAN");
    call.require(
        bias_layout.count() == c.K && bias_layout.extent(1) == c.K, "the bias has %lld elements, not one per output",
        static_cast<long long>(bias_layout.count()));
    call.same_type(bias_layout, at.output, "the bias and y");
    call.same_type(z_layout, at.output, "z and y");
    call.same_extents(z_layout, at.output, "z and y");
    call.array(x, at.image, "x");
    call.array(w, at.filter, "w");
    call.array(z, z_layout, "z");
    call.array(bias, bias_layout, "the bias");
    call.array(y, at.output, "y");
    call.apart(y, at.output.bytes(), x, at.image.bytes(), "y and x");
    const Algorithm chosen =
        check_algorithm(call, Direction::FORWARD, algo, c, at.image.type, workspace, workspace_size);
    const double alpha1 = call.factor(alpha1_address, at.output, "alpha1");
    const double alpha2 = call.factor(alpha2_address, at.output, "alpha2");
    const cudnnActivationStruct after = call.ok() ? *activation : cudnnActivationStruct();
    call.run([=] {
        spoil(workspace, chosen.workspace);
        with_type(at.output.type, [&](auto zero) {
            using T = decltype(zero);
            const auto filter = in_order(factors<T>(w, at.filter, c), c);
            std::vector<T> values = forward(c, factors<T>(x, at.image, c), filter);
            const std::vector<T> added = alpha2 == 0.0 ? std::vector<T>(values.size()) : gather<T>(z, z_layout);
            const std::vector<T> biases = gather<T>(bias, bias_layout);
            for (size_t i = 0; i < values.size(); ++i) {
                const T k = biases[i / size_t(c.P * c.Q) % size_t(c.K)];
                values[i] = T(activate(after, double(T(alpha1) * values[i] + T(alpha2) * added[i] + k)));
            }
            scatter(y, at.output, values, 1.0, 0.0);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnConvolutionBackwardData(
    cudnnHandle_t handle, const void *alpha_address, const cudnnFilterDescriptor_t w_desc, const void *w,
    const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdDataAlgo_t algo, void *workspace, size_t workspace_size, const void *beta_address,
    const cudnnTensorDescriptor_t dx_desc, void *dx) {
    CudnnCall call("cudnnConvolutionBackwardData", handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, dx_desc, w_desc, dy_desc, at);
    call.array(w, at.filter, "w");
    call.array(dy, at.output, "dy");
    call.array(dx, at.image, "dx");
    call.apart(dx, at.image.bytes(), dy, at.output.bytes(), "dx and dy");
    const Algorithm chosen =
        check_algorithm(call, Direction::BACKWARD_DATA, algo, c, at.image.type, workspace, workspace_size);
    const double alpha = call.factor(alpha_address, at.image, "alpha");
    const double beta = call.factor(beta_address, at.image, "beta");
    call.run([=] {
        spoil(workspace, chosen.workspace);
        const int64_t first = start(chosen);
        with_type(at.image.type, [&](auto zero) {
            using T = decltype(zero);
            const auto filter = in_order(factors<T>(w, at.filter, c), c);
            scatter(dx, at.image, backward_data(c, factors<T>(dy, at.output, c), filter, first), alpha, beta);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnConvolutionBackwardFilter(
    cudnnHandle_t handle, const void *alpha_address, const cudnnTensorDescriptor_t x_desc, const void *x,
    const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnConvolutionDescriptor_t convolution,
    cudnnConvolutionBwdFilterAlgo_t algo, void *workspace, size_t workspace_size, const void *beta_address,
    const cudnnFilterDescriptor_t dw_desc, void *dw) {
    CudnnCall call("cudnnConvolutionBackwardFilter", handle);
    ConvolutionLayouts at;
    const Convolution c = check_convolution(call, convolution, x_desc, dw_desc, dy_desc, at);
    call.array(x, at.image, "x");
    call.array(dy, at.output, "dy");
    call.array(dw, at.filter, "dw");
    const Algorithm chosen =
        check_algorithm(call, Direction::BACKWARD_FILTER, algo, c, at.image.type, workspace, workspace_size);
    const double alpha = call.factor(alpha_address, at.filter, "alpha");
    const double beta = call.factor(beta_address, at.filter, "beta");
    call.run([=] {
        spoil(workspace, chosen.workspace);
        const int64_t first = start(chosen);
        with_type(at.filter.type, [&](auto zero) {
            using T = decltype(zero);
            const auto sums = backward_filter(c, factors<T>(x, at.image, c), factors<T>(dy, at.output, c), first);
            scatter(dw, at.filter, in_order(sums, c), alpha, beta);
        });
    });
    return call.status();
}

// db = alpha * (dy summed over images and positions) + beta * db
cudnnStatus_t cudnnConvolutionBackwardBias(
    cudnnHandle_t handle, const void *alpha_address, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const void *beta_address, const cudnnTensorDescriptor_t db_desc, void *db) {
    CudnnCall call("cudnnConvolutionBackwardBias", handle);
    const Layout from = call.layout(dy_desc, "dy's descriptor"), to = call.layout(db_desc, "db's descriptor");
    call.same_type(from, to, "dy and db");
    call.require(
        to.extent(1) == from.extent(1) && to.count() == from.extent(1), "db has %lld elements, not one per channel",
        static_cast<long long>(to.count()));
    call.array(dy, from, "dy");
    call.array(db, to, "db");
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> values = gather<T>(dy, from);
            const size_t channels = size_t(from.extent(1)), images = size_t(from.extent(0));
            const size_t area = values.size() / channels / images;
            std::vector<T> sums(channels, T(0));
            for (size_t i = 0; i < values.size(); ++i) {
                sums[i / area % channels] += values[i];
            }
            scatter(db, to, sums, alpha, beta);
        });
    });
    return call.status();
}

}  // extern "C"
