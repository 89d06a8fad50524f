// Dropout of cuDNN on the emulated device.
//
// Which elements cuDNN drops nobody but cuDNN knows; a program may rely only on their share, on the backward function
// dropping the same, and on the same seed giving the same sequence. The states on the device hold the seed and how many
// elements were drawn; the reserve space holds a byte per element, 1 where it was kept.

#include "dropout.h"

#include <cstring>

using namespace emulator;

namespace {

struct States {
    uint64_t seed, drawn;
};

// cuDNN's states are large; a program must ask for their size.
constexpr size_t STATES_BYTES = 4096;

// A number of [0, 1) from the seed and its place in the sequence: the mixing function of SplitMix64.
double uniform(const States &states, uint64_t place) {
    uint64_t z = states.seed + (states.drawn + place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return double((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

}  // namespace

std::vector<uint8_t> emulator::draw(void *states, float probability, size_t count) {
    std::vector<uint8_t> kept(count, 1);
    if (probability > 0.0f) {
        States now;
        memcpy(&now, states, sizeof now);
        for (size_t i = 0; i < count; ++i) {
            kept[i] = uniform(now, i) >= double(probability);
        }
        now.drawn += count;
        memcpy(states, &now, sizeof now);
    }
    return kept;
}

namespace {

cudnnStatus_t set(
    CudnnCall &call, cudnnDropoutDescriptor_t dropout, float probability, void *states, size_t states_size) {
    call.live(dropout, "the descriptor");
    call.require(probability >= 0.0f && probability <= 1.0f, "the probability is %g", double(probability));
    if (probability > 0.0f) {
        call.require(states_size >= STATES_BYTES, "the states have %zu bytes and need %zu", states_size, STATES_BYTES);
        call.device(states, states_size, "the states", alignof(States));
    }
    if (call.ok()) {
        dropout->probability = probability;
        dropout->states = states;
        dropout->states_size = states_size;
        dropout->set = true;
    }
    return call.status();
}

// Multiplies what was kept, so that the expected value stays.
template <class T> void apply(std::vector<T> &values, const std::vector<uint8_t> &kept, float probability) {
    const T factor = probability < 1.0f ? T(1) / T(1.0f - probability) : T(0);
    for (size_t i = 0; i < values.size(); ++i) {
        values[i] = kept[i] ? values[i] * factor : T(0);
    }
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateDropoutDescriptor(cudnnDropoutDescriptor_t *dropout) {
    return create("cudnnCreateDropoutDescriptor", "cudnnDropoutDescriptor", dropout);
}

cudnnStatus_t cudnnDestroyDropoutDescriptor(cudnnDropoutDescriptor_t dropout) {
    return destroy("cudnnDestroyDropoutDescriptor", dropout);
}

cudnnStatus_t cudnnDropoutGetStatesSize(cudnnHandle_t handle, size_t *size) {
    CudnnCall call("cudnnDropoutGetStatesSize", handle);
    *size = STATES_BYTES;
    return call.status();
}

cudnnStatus_t cudnnDropoutGetReserveSpaceSize(cudnnTensorDescriptor_t x_desc, size_t *size) {
    CudnnCall call("cudnnDropoutGetReserveSpaceSize");
    *size = size_t(call.layout(x_desc, "x's descriptor").count());
    return call.status();
}

// Starts the sequence of the seed.
cudnnStatus_t cudnnSetDropoutDescriptor(
    cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability, void *states, size_t states_size,
    unsigned long long seed) {
    CudnnCall call("cudnnSetDropoutDescriptor", handle);
    set(call, dropout, probability, states, states_size);
    if (states != nullptr) {
        call.run([=] {
            const States start{seed, 0};
            memcpy(states, &start, sizeof start);
        });
    }
    return call.status();
}

// Takes the sequence up where the states have it.
cudnnStatus_t cudnnRestoreDropoutDescriptor(
    cudnnDropoutDescriptor_t dropout, cudnnHandle_t handle, float probability, void *states, size_t states_size,
    unsigned long long) {
    CudnnCall call("cudnnRestoreDropoutDescriptor", handle);
    return set(call, dropout, probability, states, states_size);
}

cudnnStatus_t cudnnDropoutForward(
    cudnnHandle_t handle, const cudnnDropoutDescriptor_t descriptor, const cudnnTensorDescriptor_t x_desc,
    const void *x, const cudnnTensorDescriptor_t y_desc, void *y, void *reserve, size_t reserve_size) {
    CudnnCall call("cudnnDropoutForward", handle);
    call.usable(descriptor, "the dropout");
    const Layout from = call.layout(x_desc, "x's descriptor"), to = call.layout(y_desc, "y's descriptor");
    call.same_type(from, to, "x and y");
    call.same_extents(from, to, "x and y");
    call.array(x, from, "x");
    call.array(y, to, "y");
    const size_t count = size_t(from.count());
    call.require(reserve_size >= count, "the reserve space has %zu bytes and needs %zu", reserve_size, count);
    call.device(reserve, count, "the reserve space");
    const float probability = call.ok() ? descriptor->probability : 0.0f;
    void *states = call.ok() ? descriptor->states : nullptr;
    call.run([=] {
        const std::vector<uint8_t> kept = draw(states, probability, count);
        memcpy(reserve, kept.data(), count);
        with_type(to.type, [&](auto zero) {
            auto values = gather<decltype(zero)>(x, from);
            apply(values, kept, probability);
            scatter(y, to, values, 1.0, 0.0);
        });
    });
    return call.status();
}

cudnnStatus_t cudnnDropoutBackward(
    cudnnHandle_t handle, const cudnnDropoutDescriptor_t descriptor, const cudnnTensorDescriptor_t dy_desc,
    const void *dy, const cudnnTensorDescriptor_t dx_desc, void *dx, void *reserve, size_t reserve_size) {
    CudnnCall call("cudnnDropoutBackward", handle);
    call.usable(descriptor, "the dropout");
    const Layout from = call.layout(dy_desc, "dy's descriptor"), to = call.layout(dx_desc, "dx's descriptor");
    call.same_type(from, to, "dy and dx");
    call.same_extents(from, to, "dy and dx");
    call.array(dy, from, "dy");
    call.array(dx, to, "dx");
    const size_t count = size_t(from.count());
    call.require(reserve_size >= count, "the reserve space has %zu bytes and needs %zu", reserve_size, count);
    call.device(reserve, count, "the reserve space");
    const float probability = call.ok() ? descriptor->probability : 0.0f;
    call.run([=] {
        const uint8_t *flags = static_cast<const uint8_t *>(reserve);
        const std::vector<uint8_t> kept(flags, flags + count);
        with_type(to.type, [&](auto zero) {
            auto values = gather<decltype(zero)>(dy, from);
            apply(values, kept, probability);
            scatter(dx, to, values, 1.0, 0.0);
        });
    });
    return call.status();
}

}  // extern "C"
