// Pooling of cuDNN on the emulated device.
//
// Padding takes no part in a maximum. Of equal maxima the first of its window, row by row, gets the gradient.

#include "tensors.h"

#include <cmath>

using namespace emulator;

struct cudnnPoolingStruct : Object {
    cudnnPoolingMode_t mode = CUDNN_POOLING_MAX;
    bool keeps_nan = false;
    int window[2] = {}, padding[2] = {}, stride[2] = {};

    bool is_max() const {
        return mode == CUDNN_POOLING_MAX || mode == CUDNN_POOLING_MAX_DETERMINISTIC;
    }
};

namespace {

int64_t output_extent(const cudnnPoolingStruct &pooling, const Layout &x, int axis) {
    const int64_t room = x.extent(axis + 2) + 2 * pooling.padding[axis] - pooling.window[axis];
    return room < 0 ? 0 : room / pooling.stride[axis] + 1;
}

// The part of a window that lies in its image.
struct Window {
    int64_t top, bottom, left, right, width;

    int64_t size() const {
        return (bottom - top) * (right - left);
    }
    // Calls `visit` with the position of each of its elements in the image, row by row.
    template <class Visit> void each(Visit visit) const {
        for (int64_t row = top; row < bottom; ++row) {
            for (int64_t column = left; column < right; ++column) {
                visit(size_t(row * width + column));
            }
        }
    }
};

// Calls `work(output, image, window)` for every element of the output: its packed index, and where its image starts.
template <class Work> void each_window(const cudnnPoolingStruct &pooling, const Layout &x, const Layout &y, Work work) {
    const int64_t H = x.extent(2), W = x.extent(3), P = y.extent(2), Q = y.extent(3);
    for (int64_t output = 0; output < y.count(); ++output) {
        const int64_t image = output / (P * Q), p = output / Q % P, q = output % Q;
        const int64_t top = p * pooling.stride[0] - pooling.padding[0], bottom = top + pooling.window[0];
        const int64_t left = q * pooling.stride[1] - pooling.padding[1], right = left + pooling.window[1];
        const Window window{
            top < 0 ? 0 : top, bottom > H ? H : bottom, left < 0 ? 0 : left, right > W ? W : right, W};
        work(size_t(output), size_t(image * H * W), window);
    }
}

template <class T> double average(const cudnnPoolingStruct &pooling, const Window &window, T sum) {
    const int64_t all = int64_t(pooling.window[0]) * pooling.window[1];
    const bool counts_padding = pooling.mode == CUDNN_POOLING_AVERAGE_COUNT_INCLUDE_PADDING;
    return double(sum) / double(counts_padding ? all : window.size());
}

// Where the maximum of a window is.
template <class T>
size_t first_maximum(const cudnnPoolingStruct &pooling, const std::vector<T> &x, size_t image, const Window &window) {
    size_t best = size_t(-1);
    window.each([&](size_t at) {
        const T value = x[image + at];
        const bool better = best == size_t(-1) || value > x[best] || (std::isnan(x[best]) && !pooling.keeps_nan);
        if (better || (pooling.keeps_nan && std::isnan(value) && !std::isnan(x[best]))) {
            best = image + at;
        }
    });
    return best;
}

void check(CudnnCall &call, const cudnnPoolingStruct *pooling, const Layout &x, const Layout &y) {
    call.usable(pooling, "the pooling's descriptor").require(x.rank == 4 && y.rank == 4, "x or y has not four axes");
    call.same_type(x, y, "x and y");
    // What some versions of cuDNN refuse.
    call.require(x.extent(0) <= 65535 && x.extent(1) <= 65535, "there are more than 65535 images or channels");
    if (call.ok()) {
        call.require(
            pooling->window[0] * pooling->window[1] <= 1024, "the window has %d x %d elements, more than 1024",
            pooling->window[0], pooling->window[1]);
    }
    if (call.ok()) {
        const int64_t P = output_extent(*pooling, x, 0), Q = output_extent(*pooling, x, 1);
        call.require(
            y.extent(0) == x.extent(0) && y.extent(1) == x.extent(1) && y.extent(2) == P && y.extent(3) == Q,
            "y's descriptor is (%lld, %lld, %lld, %lld) and pooling gives (%lld, %lld, %lld, %lld)",
            static_cast<long long>(y.extent(0)), static_cast<long long>(y.extent(1)),
            static_cast<long long>(y.extent(2)), static_cast<long long>(y.extent(3)),
            static_cast<long long>(x.extent(0)), static_cast<long long>(x.extent(1)), static_cast<long long>(P),
            static_cast<long long>(Q));
    }
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreatePoolingDescriptor(cudnnPoolingDescriptor_t *pooling) {
    return create("cudnnCreatePoolingDescriptor", "cudnnPoolingDescriptor", pooling);
}

cudnnStatus_t cudnnDestroyPoolingDescriptor(cudnnPoolingDescriptor_t pooling) {
    return destroy("cudnnDestroyPoolingDescriptor", pooling);
}

cudnnStatus_t cudnnSetPooling2dDescriptor(
    cudnnPoolingDescriptor_t pooling, cudnnPoolingMode_t mode, cudnnNanPropagation_t nan, int window_height,
    int window_width, int vertical_padding, int horizontal_padding, int vertical_stride, int horizontal_stride) {
    CudnnCall call("cudnnSetPooling2dDescriptor");
    call.live(pooling, "the descriptor");
    call.require(window_height > 0 && window_width > 0, "the window is (%d, %d)", window_height, window_width);
    call.require(
        vertical_stride > 0 && horizontal_stride > 0, "the stride is (%d, %d)", vertical_stride, horizontal_stride);
    call.require(
        vertical_padding >= 0 && vertical_padding < window_height && horizontal_padding >= 0 &&
            horizontal_padding < window_width,
        "the padding (%d, %d) is not smaller than the window", vertical_padding, horizontal_padding);
    if (call.ok()) {
        pooling->mode = mode;
        pooling->keeps_nan = nan == CUDNN_PROPAGATE_NAN;
        pooling->window[0] = window_height;
        pooling->window[1] = window_width;
        pooling->padding[0] = vertical_padding;
        pooling->padding[1] = horizontal_padding;
        pooling->stride[0] = vertical_stride;
        pooling->stride[1] = horizontal_stride;
        pooling->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnGetPooling2dForwardOutputDim(
    const cudnnPoolingDescriptor_t pooling, const cudnnTensorDescriptor_t x_desc, int *n, int *c, int *h, int *w) {
    CudnnCall call("cudnnGetPooling2dForwardOutputDim");
    call.usable(pooling, "the pooling's descriptor");
    const Layout x = call.layout(x_desc, "x's descriptor");
    if (call.ok()) {
        *n = int(x.extent(0));
        *c = int(x.extent(1));
        *h = int(output_extent(*pooling, x, 0));
        *w = int(output_extent(*pooling, x, 1));
    }
    return call.status();
}

cudnnStatus_t cudnnPoolingForward(
    cudnnHandle_t handle, const cudnnPoolingDescriptor_t descriptor, const void *alpha_address,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta_address,
    const cudnnTensorDescriptor_t y_desc, void *y) {
    CudnnCall call("cudnnPoolingForward", handle);
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    check(call, descriptor, from, to);
    call.array(x, from, "x");
    call.array(y, to, "y");
    call.apart(x, from.bytes(), y, to.bytes(), "x and y");
    const double alpha = call.factor(alpha_address, to, "alpha"), beta = call.factor(beta_address, to, "beta");
    const cudnnPoolingStruct pooling = call.ok() ? *descriptor : cudnnPoolingStruct();
    call.run([=] {
        with_type(to.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> xs = gather<T>(x, from);
            std::vector<T> values(size_t(to.count()));
            each_window(pooling, from, to, [&](size_t output, size_t image, const Window &window) {
                T sum = T(0);
                window.each([&](size_t at) { sum += xs[image + at]; });
                values[output] = pooling.is_max() ? xs[first_maximum(pooling, xs, image, window)]
                                                  : T(average(pooling, window, sum));
            });
            scatter(y, to, values, alpha, beta);
        });
    });
    return call.status();
}

// Windows that overlap add their gradients.
cudnnStatus_t cudnnPoolingBackward(
    cudnnHandle_t handle, const cudnnPoolingDescriptor_t descriptor, const void *alpha_address,
    const cudnnTensorDescriptor_t y_desc, const void *y, const cudnnTensorDescriptor_t dy_desc, const void *dy,
    const cudnnTensorDescriptor_t x_desc, const void *x, const void *beta_address,
    const cudnnTensorDescriptor_t dx_desc, void *dx) {
    CudnnCall call("cudnnPoolingBackward", handle);
    const Layout y_layout = call.layout(y_desc, "y's descriptor"), dy_layout = call.layout(dy_desc, "dy's descriptor");
    const Layout x_layout = call.layout(x_desc, "x's descriptor"), dx_layout = call.layout(dx_desc, "dx's descriptor");
    check(call, descriptor, x_layout, y_layout);
    call.same_extents(y_layout, dy_layout, "y and dy");
    call.same_extents(x_layout, dx_layout, "x and dx");
    call.same_type(dy_layout, dx_layout, "dy and dx");
    call.array(y, y_layout, "y");
    call.array(dy, dy_layout, "dy");
    call.array(x, x_layout, "x");
    call.array(dx, dx_layout, "dx");
    const double alpha = call.factor(alpha_address, dx_layout, "alpha");
    const double beta = call.factor(beta_address, dx_layout, "beta");
    const cudnnPoolingStruct pooling = call.ok() ? *descriptor : cudnnPoolingStruct();
    call.run([=] {
        with_type(dx_layout.type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> xs = gather<T>(x, x_layout), dys = gather<T>(dy, dy_layout);
            std::vector<T> values(size_t(dx_layout.count()), T(0));
            each_window(pooling, x_layout, y_layout, [&](size_t output, size_t image, const Window &window) {
                if (pooling.is_max()) {
                    values[first_maximum(pooling, xs, image, window)] += dys[output];
                } else {
                    const T share = T(average(pooling, window, dys[output]));
                    window.each([&](size_t at) { values[image + at] += share; });
                }
            });
            scatter(dx, dx_layout, values, alpha, beta);
        });
    });
    return call.status();
}

}  // extern "C"
