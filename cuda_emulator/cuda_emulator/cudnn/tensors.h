// Inside the emulated cuDNN: handles, descriptors of tensors, and what its functions check and walk alike.
//
// A function checks its call, copies what the descriptors say (they may change before the work runs) and gives the
// work to the stream. The work takes tensors out of the device's memory as packed arrays, computes by plain loops,
// and blends the result back: y = alpha * result + beta * y.
#ifndef STAGED_EMULATED_CUDNN_TENSORS_H
#define STAGED_EMULATED_CUDNN_TENSORS_H

#include "../include/cudnn.h"

#include "../library.h"

#include <vector>

struct cudnnContext : emulator::Object {
    cudaStream_t stream = nullptr;
};

namespace emulator {

// What a descriptor of a tensor or filter says: extents and strides in elements, outermost first.
struct Layout {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int rank = 0;
    int64_t extents[CUDNN_DIM_MAX] = {}, strides[CUDNN_DIM_MAX] = {};

    // Extent number `axis`; 1 past the last.
    int64_t extent(int axis) const {
        return axis < rank ? extents[axis] : 1;
    }
    int64_t count() const;
    // The bytes of memory from its first element to its last.
    size_t bytes() const;
    // Whether its elements lie one after the other, the last axis innermost.
    bool is_packed() const;
    bool has_extents_of(const Layout &other) const;
    bool is_same_as(const Layout &other) const;
    // Where element number `index` of the packed tensor lies.
    int64_t offset(int64_t index) const;
};

inline size_t element_size(cudnnDataType_t type) {
    return type == CUDNN_DATA_DOUBLE ? sizeof(double) : sizeof(float);
}

// Strides of a packed tensor: its axes from outermost to innermost are `order` (NULL: as they come).
void pack(Layout &layout, const int *order = nullptr);

}  // namespace emulator

struct cudnnTensorStruct : emulator::Object {
    emulator::Layout layout;
};

struct cudnnFilterStruct : emulator::Object {
    emulator::Layout layout;  // (outputs, inputs per group, height, width)
};

struct cudnnActivationStruct : emulator::Object {
    cudnnActivationMode_t mode = CUDNN_ACTIVATION_IDENTITY;
    bool keeps_nan = false;
    double coefficient = 0.0, swish_beta = 1.0;
};

namespace emulator {

// A call of cuDNN: the checks of `Call`, of what its functions have in common.
class CudnnCall : public Call {
  public:
    // Of a function that needs no handle.
    explicit CudnnCall(const char *name) : Call(name) {}
    CudnnCall(const char *name, cudnnHandle_t handle);

    // What a descriptor says; nothing useful where it cannot be used.
    Layout layout(const cudnnTensorStruct *descriptor, const char *what);
    Layout layout(const cudnnFilterStruct *descriptor, const char *what);
    // An array of this layout on the device.
    void array(const void *address, const Layout &layout, const char *what);
    // The factor at a host address: f64 for f64 tensors, f32 otherwise.
    double factor(const void *address, const Layout &layout, const char *what);
    void same_type(const Layout &first, const Layout &second, const char *what);
    void same_extents(const Layout &first, const Layout &second, const char *what);
    // For what cuDNN has and this stand-in has not.
    void supported(bool condition, const char *what);

    void run(std::function<void()> work);
    cudnnStatus_t status() const;

  private:
    cudnnHandle_t handle = nullptr;
    bool lacking = false;
};

// Calls `work` with a zero of the type's C++ type.
template <class Work> void with_type(cudnnDataType_t type, Work work) {
    if (type == CUDNN_DATA_DOUBLE) {
        work(0.0);
    } else {
        work(0.0f);
    }
}

// The elements of a tensor on the device, packed.
template <class T> std::vector<T> gather(const void *address, const Layout &layout) {
    const T *data = static_cast<const T *>(address);
    if (layout.is_packed()) {
        return std::vector<T>(data, data + layout.count());
    }
    std::vector<T> packed(static_cast<size_t>(layout.count()));
    for (size_t index = 0; index < packed.size(); ++index) {
        packed[index] = data[layout.offset(int64_t(index))];
    }
    return packed;
}

// tensor = alpha * values + beta * tensor
template <class T>
void scatter(void *address, const Layout &layout, const std::vector<T> &values, double alpha, double beta) {
    T *data = static_cast<T *>(address);
    const bool packed = layout.is_packed();
    for (size_t index = 0; index < values.size(); ++index) {
        blend(data[packed ? int64_t(index) : layout.offset(int64_t(index))], T(alpha), values[index], T(beta));
    }
}

// Descriptors, one kind each.
template <class T> cudnnStatus_t create(const char *name, const char *kind, T **descriptor) {
    CudnnCall call(name);
    call.host(descriptor, "the place for the descriptor");
    if (call.ok()) {
        *descriptor = create_descriptor<T>(kind);
    }
    return call.status();
}

inline cudnnStatus_t destroy(const char *name, Object *descriptor) {
    CudnnCall call(name);
    call.destroy(descriptor, "the descriptor");
    return call.status();
}

// One element's activation and its derivative, from the input x and the output y.
double activate(const cudnnActivationStruct &activation, double x);
double activation_slope(const cudnnActivationStruct &activation, double x, double y);

}  // namespace emulator

#endif
