// Batch norm of cuDNN on the emulated device.
//
// Statistics belong to a channel (spatial modes: over images and positions) or to a single activation (over images).
// Variances normalise by the count of values; the running variance takes in the unbiased one, that is divided by one
// less.

#include "tensors.h"

#include <cmath>

using namespace emulator;

namespace {

// How a tensor (n, c, spatial...) falls apart into sets of values that share their statistics.
struct Sets {
    int64_t images, count, inner;  // `inner` values of an image, one after the other, belong to one set

    Sets(const Layout &x, cudnnBatchNormMode_t mode) {
        const int64_t whole = x.count() / x.extent(0);
        images = x.extent(0);
        count = mode == CUDNN_BATCHNORM_PER_ACTIVATION ? whole : x.extent(1);
        inner = whole / count;
    }
    int64_t values() const {
        return images * inner;
    }
    size_t set_of(size_t index) const {
        return index / size_t(inner) % size_t(count);
    }
};

// The layout of statistics, scales and biases: (1, c, 1, 1), or (1, c, spatial...) per activation.
Layout derived(const Layout &x, cudnnBatchNormMode_t mode) {
    Layout layout = x;
    for (int axis = 0; axis < layout.rank; ++axis) {
        const bool kept = axis == 1 || (axis > 1 && mode == CUDNN_BATCHNORM_PER_ACTIVATION);
        layout.extents[axis] = kept ? x.extents[axis] : 1;
    }
    pack(layout);
    return layout;
}

struct Statistics {
    std::vector<double> mean, inverse_deviation, variance;
};

template <class T> Statistics statistics(const std::vector<T> &x, const Sets &sets, double epsilon) {
    const size_t count = size_t(sets.count);
    Statistics s{std::vector<double>(count), std::vector<double>(count), std::vector<double>(count)};
    for (size_t i = 0; i < x.size(); ++i) {
        s.mean[sets.set_of(i)] += double(x[i]) / double(sets.values());
    }
    for (size_t i = 0; i < x.size(); ++i) {
        const double distance = double(x[i]) - s.mean[sets.set_of(i)];
        s.variance[sets.set_of(i)] += distance * distance / double(sets.values());
    }
    for (size_t set = 0; set < count; ++set) {
        s.inverse_deviation[set] = 1.0 / std::sqrt(s.variance[set] + epsilon);
    }
    return s;
}

template <class T> std::vector<T> narrowed(const std::vector<double> &values) {
    return std::vector<T>(values.begin(), values.end());
}

// running = (1 - factor) * running + factor * now
template <class T>
void update_running(void *running, const Layout &layout, const std::vector<double> &now, double factor) {
    scatter(running, layout, narrowed<T>(now), factor, 1.0 - factor);
}

// What the functions check alike: x, y (or dy, dx) of one shape, and scales of the derived layout.
void check(
    CudnnCall &call, cudnnBatchNormMode_t mode, const Layout &x, const Layout &y, const Layout &scale, double epsilon) {
    call.same_type(x, y, "x and y");
    call.same_extents(x, y, "x and y");
    call.require(x.rank == 4 || x.rank == 5, "x has %d axes, not 4 or 5", x.rank);
    // Some of cuDNN's kernels, though not all, take no more.
    call.require(x.extent(0) <= 65535, "there are more than 65535 images");
    call.require(
        !call.ok() || scale.is_same_as(derived(x, mode)), "the scales' descriptor is not the one derived from x's");
    call.require(epsilon >= CUDNN_BN_MIN_EPSILON, "epsilon is negative");
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnDeriveBNTensorDescriptor(
    cudnnTensorDescriptor_t derived_desc, const cudnnTensorDescriptor_t x_desc, cudnnBatchNormMode_t mode) {
    CudnnCall call("cudnnDeriveBNTensorDescriptor");
    call.live(derived_desc, "the descriptor");
    const Layout x = call.layout(x_desc, "x's descriptor");
    if (call.ok()) {
        derived_desc->layout = derived(x, mode);
        derived_desc->set = true;
    }
    return call.status();
}

// y = alpha (scale (x - mean) / sqrt(variance + epsilon) + bias) + beta y
cudnnStatus_t cudnnBatchNormalizationForwardTraining(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha_address, const void *beta_address,
    const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc, void *y,
    const cudnnTensorDescriptor_t scale_desc, const void *scale, const void *bias, double factor, void *running_mean,
    void *running_variance, double epsilon, void *saved_mean, void *saved_inverse_deviation) {
    CudnnCall call("cudnnBatchNormalizationForwardTraining", handle);
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    const Layout few = call.layout(scale_desc, "the scales' descriptor");
    check(call, mode, from, to, few, epsilon);
    call.array(x, from, "x");
    call.array(y, to, "y");
    call.array(scale, few, "the scales");
    call.array(bias, few, "the biases");
    call.require((running_mean == nullptr) == (running_variance == nullptr), "one running statistic is NULL");
    call.require((saved_mean == nullptr) == (saved_inverse_deviation == nullptr), "one saved statistic is NULL");
    for (void *statistic : {running_mean, running_variance, saved_mean, saved_inverse_deviation}) {
        if (statistic != nullptr) {
            call.array(statistic, few, "a statistic");
        }
    }
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values = gather<T>(x, from);
            const std::vector<T> scales = gather<T>(scale, few), biases = gather<T>(bias, few);
            const Sets sets(from, mode);
            Statistics s = statistics(values, sets, epsilon);
            for (size_t i = 0; i < values.size(); ++i) {
                const size_t set = sets.set_of(i);
                const double normal = (double(values[i]) - s.mean[set]) * s.inverse_deviation[set];
                values[i] = T(double(scales[set]) * normal + double(biases[set]));
            }
            scatter(y, to, values, alpha, beta);
            if (saved_mean != nullptr) {
                scatter(saved_mean, few, narrowed<T>(s.mean), 1.0, 0.0);
                scatter(saved_inverse_deviation, few, narrowed<T>(s.inverse_deviation), 1.0, 0.0);
            }
            if (running_mean != nullptr) {
                const double unbiased = sets.values() > 1 ? double(sets.values()) / double(sets.values() - 1) : 1.0;
                for (double &variance : s.variance) {
                    variance *= unbiased;
                }
                update_running<T>(running_mean, few, s.mean, factor);
                update_running<T>(running_variance, few, s.variance, factor);
            }
        });
    });
    return call.status();
}

cudnnStatus_t cudnnBatchNormalizationForwardInference(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha_address, const void *beta_address,
    const cudnnTensorDescriptor_t x_desc, const void *x, const cudnnTensorDescriptor_t y_desc, void *y,
    const cudnnTensorDescriptor_t scale_desc, const void *scale, const void *bias, const void *mean,
    const void *variance, double epsilon) {
    CudnnCall call("cudnnBatchNormalizationForwardInference", handle);
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    const Layout few = call.layout(scale_desc, "the scales' descriptor");
    check(call, mode, from, to, few, epsilon);
    call.array(x, from, "x");
    call.array(y, to, "y");
    for (const void *array : {scale, bias, mean, variance}) {
        call.array(array, few, "scales, biases, means or variances");
    }
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            std::vector<T> values = gather<T>(x, from);
            const std::vector<T> scales = gather<T>(scale, few), biases = gather<T>(bias, few);
            const std::vector<T> means = gather<T>(mean, few), variances = gather<T>(variance, few);
            const Sets sets(from, mode);
            for (size_t i = 0; i < values.size(); ++i) {
                const size_t set = sets.set_of(i);
                const double normal =
                    (double(values[i]) - double(means[set])) / std::sqrt(double(variances[set]) + epsilon);
                values[i] = T(double(scales[set]) * normal + double(biases[set]));
            }
            scatter(y, to, values, alpha, beta);
        });
    });
    return call.status();
}

// With n the normalised x and m the values of a set: d_bias = sum(dy), d_scale = sum(dy n), and
// dx = scale / (m deviation) * (m dy - d_bias - n d_scale). Saved statistics may be NULL: they are computed again.
cudnnStatus_t cudnnBatchNormalizationBackward(
    cudnnHandle_t handle, cudnnBatchNormMode_t mode, const void *alpha_data_address, const void *beta_data_address,
    const void *alpha_param_address, const void *beta_param_address, const cudnnTensorDescriptor_t x_desc,
    const void *x, const cudnnTensorDescriptor_t dy_desc, const void *dy, const cudnnTensorDescriptor_t dx_desc,
    void *dx, const cudnnTensorDescriptor_t scale_desc, const void *scale, void *d_scale, void *d_bias, double epsilon,
    const void *saved_mean, const void *saved_inverse_deviation) {
    CudnnCall call("cudnnBatchNormalizationBackward", handle);
    const Layout x_layout = call.layout(x_desc, "x's descriptor"), dy_layout = call.layout(dy_desc, "dy's descriptor");
    const Layout dx_layout = call.layout(dx_desc, "dx's descriptor");
    const Layout few = call.layout(scale_desc, "the scales' descriptor");
    check(call, mode, x_layout, dy_layout, few, epsilon);
    check(call, mode, x_layout, dx_layout, few, epsilon);
    call.array(x, x_layout, "x");
    call.array(dy, dy_layout, "dy");
    call.array(dx, dx_layout, "dx");
    call.array(scale, few, "the scales");
    call.array(d_scale, few, "the gradient of the scales");
    call.array(d_bias, few, "the gradient of the biases");
    call.require((saved_mean == nullptr) == (saved_inverse_deviation == nullptr), "one saved statistic is NULL");
    if (saved_mean != nullptr) {
        call.array(saved_mean, few, "the saved means");
        call.array(saved_inverse_deviation, few, "the saved deviations");
    }
    const double alpha = call.factor(alpha_data_address, dx_layout, "alphaDataDiff");
    const double beta = call.factor(beta_data_address, dx_layout, "betaDataDiff");
    const double alpha_param = call.factor(alpha_param_address, few, "alphaParamDiff");
    const double beta_param = call.factor(beta_param_address, few, "betaParamDiff");
    call.run([=] {
        with_type(dx_layout.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> xs = gather<T>(x, x_layout), scales = gather<T>(scale, few);
            std::vector<T> values = gather<T>(dy, dy_layout);
            const Sets sets(x_layout, mode);
            Statistics s = statistics(xs, sets, epsilon);
            if (saved_mean != nullptr) {
                const std::vector<T> means = gather<T>(saved_mean, few);
                const std::vector<T> others = gather<T>(saved_inverse_deviation, few);
                s.mean.assign(means.begin(), means.end());
                s.inverse_deviation.assign(others.begin(), others.end());
            }
            const auto normal = [&](size_t i, size_t set) {
                return (double(xs[i]) - s.mean[set]) * s.inverse_deviation[set];
            };
            std::vector<double> sums(size_t(sets.count)), products(size_t(sets.count));
            for (size_t i = 0; i < values.size(); ++i) {
                const size_t set = sets.set_of(i);
                sums[set] += double(values[i]);
                products[set] += double(values[i]) * normal(i, set);
            }
            const double m = double(sets.values());
            for (size_t i = 0; i < values.size(); ++i) {
                const size_t set = sets.set_of(i);
                const double centred = m * double(values[i]) - sums[set] - normal(i, set) * products[set];
                values[i] = T(double(scales[set]) * s.inverse_deviation[set] / m * centred);
            }
            scatter(dx, dx_layout, values, alpha, beta);
            scatter(d_scale, few, narrowed<T>(products), alpha_param, beta_param);
            scatter(d_bias, few, narrowed<T>(sums), alpha_param, beta_param);
        });
    });
    return call.status();
}

}  // extern "C"
