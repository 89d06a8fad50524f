// Inside the emulated cuBLAS: the handle, and what its functions check alike.
//
// What cuBLAS leaves undefined is refused: leading dimensions that are too small, matrices that do not fit their
// allocation, a result that overlaps an operand, scalars on the wrong side of the bus.
#ifndef STAGED_EMULATED_CUBLAS_HANDLE_H
#define STAGED_EMULATED_CUBLAS_HANDLE_H

#include "../include/cublas_v2.h"

#include "../library.h"
#include "../matrix.h"

struct cublasContext : emulator::Object {
    cudaStream_t stream = nullptr;
    cublasPointerMode_t pointer_mode = CUBLAS_POINTER_MODE_HOST;
    cublasMath_t math_mode = CUBLAS_DEFAULT_MATH;
    cublasAtomicsMode_t atomics_mode = CUBLAS_ATOMICS_NOT_ALLOWED;
    void *workspace = nullptr;
    size_t workspace_size = 0;
};

namespace emulator {

inline cublasStatus_t status(const Call &call) {
    return call.ok() ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

// A factor that the caller has on the host (read when the call is made) or on the device (read when it runs).
template <class T> class Factor {
  public:
    Factor(Call &call, cublasHandle_t handle, const T *address, const char *what) : address(address) {
        if (!call.ok()) {
            return;
        }
        on_device = handle->pointer_mode == CUBLAS_POINTER_MODE_DEVICE;
        if (on_device) {
            call.device(address, sizeof(T), what, sizeof(T));
        } else if (call.host(address, what).ok()) {
            value = *address;
        }
    }
    T get() const {
        return on_device ? *address : value;
    }

  private:
    const T *address;
    bool on_device = false;
    T value = T(0);
};

inline void check_operation(Call &call, cublasOperation_t operation) {
    call.require(operation >= CUBLAS_OP_N && operation <= CUBLAS_OP_C, "%d is not an operation", int(operation));
}

inline void check_leading(Call &call, const char *what, int64_t ld, int64_t rows) {
    call.require(
        ld >= (rows > 1 ? rows : 1), "the leading dimension of %s is %lld, less than its %lld rows", what,
        static_cast<long long>(ld), static_cast<long long>(rows));
}

}  // namespace emulator

#endif
