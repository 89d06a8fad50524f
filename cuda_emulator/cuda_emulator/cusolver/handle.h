// Inside the emulated cuSOLVER: the handle, and what its functions check alike.
//
// Refused is what cuSOLVER leaves undefined: a workspace of less than `bufferSize` said, matrices that do not fit,
// arrays that overlap. And any call on a stream that is captured: it is not known which of them a
// graph may have.
#ifndef STAGED_EMULATED_CUSOLVER_HANDLE_H
#define STAGED_EMULATED_CUSOLVER_HANDLE_H

#include "../include/cusolverDn.h"

#include "../library.h"
#include "../matrix.h"

#include <cmath>
#include <initializer_list>

struct cusolverDnContext : emulator::Object {
    cudaStream_t stream = nullptr;
    cusolverDeterministicMode_t mode = CUSOLVER_ALLOW_NON_DETERMINISTIC_RESULTS;
};

namespace emulator {

inline cusolverStatus_t status(const Call &call) {
    return call.ok() ? CUSOLVER_STATUS_SUCCESS : CUSOLVER_STATUS_INVALID_VALUE;
}

// Elements of a workspace: some number that depends on the sizes, so that one of other sizes is found.
inline int needed(int rows, int columns) {
    return 16 * rows + 16 * columns + 7;
}

// A matrix of the caller's.
void check_matrix(Call &call, cusolverDnHandle_t handle, int rows, int columns, int lda, const char *what = "A");

void check_triangle(Call &call, cublasFillMode_t uplo);

// What `bufferSize` tells, once the sizes were checked.
cusolverStatus_t tell_size(Call &call, int *size, int elements);

// An array of the caller's on the device.
struct Range {
    const void *address;
    size_t bytes;
    const char *what;
    size_t alignment;
};

template <class T> Range range(const T *address, size_t elements, const char *what) {
    return {address, elements * sizeof(T), what, alignof(T)};
}

// That the device has each array, and no two overlap; then the stream, which must not be captured.
void check_arrays(Call &call, cusolverDnHandle_t handle, std::initializer_list<Range> arrays);

// Whether a matrix, or with `upper` its upper triangle, has numbers alone. With NaN or infinity an iteration might not
// end; it is found when the work runs.
template <class T>
bool check_finite(const char *name, Matrix<const T> A, int64_t m, int64_t n, bool triangle, bool upper) {
    bool finite = true;
    for (int64_t j = 0; j < n; ++j) {
        for (int64_t i = 0; i < m; ++i) {
            finite &= (triangle && (upper ? i > j : i < j)) || std::isfinite(A.at(i, j));
        }
    }
    Call later(name, false);
    return later.require(finite, "A has NaN or infinity, with which the iteration might not end").ok();
}

// What a function that is not deterministic, unless told to be, makes of its results: last bits that differ from run to
// run.
template <class T> void vary(cusolverDeterministicMode_t mode, T *results, int64_t count) {
    for (int64_t i = 0; mode != CUSOLVER_DETERMINISTIC_RESULTS && i < count; ++i) {
        if (random_number(2) == 0) {
            results[i] = std::nextafter(results[i], T(0));
        }
    }
}

}  // namespace emulator

#endif
