// What went wrong on the emulated device: violations, the error that cudaGetLastError gives, names of errors; and the
// counts.

#include "emulator.h"

#include <cstdarg>
#include <cstdio>
#include <cstring>

#include "include/cuda_runtime.h"
#undef threadIdx
#undef blockIdx

namespace emulator {

std::recursive_mutex device_lock;
emulator_counts counts;
const char *running_kernel, *running_work;

namespace {

char last_violation[512];
cudaError_t last_error = cudaSuccess, late_error = cudaSuccess, lasting_error = cudaSuccess;

// A kernel that went astray: CUDA's state in this process is worth nothing from then on.
bool lasts(cudaError_t error) {
    return error == cudaErrorIllegalAddress || error == cudaErrorLaunchFailure;
}

std::vector<Census> &censuses() {
    static auto &all = *new std::vector<Census>;
    return all;
}

void say(const char *text) {
    snprintf(last_violation, sizeof last_violation, "%s", text);
    fprintf(stderr, "emulated device: %s\n", last_violation);
    ++counts.violations;
}

#define ERROR(name, text) {name, #name, text}
const struct {
    cudaError_t error;
    const char *name, *text;
} ERRORS[] = {
    ERROR(cudaSuccess, "no error"),
    ERROR(cudaErrorInvalidValue, "invalid argument"),
    ERROR(cudaErrorMemoryAllocation, "out of memory"),
    ERROR(cudaErrorInvalidConfiguration, "invalid configuration argument"),
    ERROR(cudaErrorInvalidMemcpyDirection, "invalid copy direction for memcpy"),
    ERROR(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version"),
    ERROR(cudaErrorNoDevice, "no CUDA-capable device is detected"),
    ERROR(cudaErrorInvalidDevice, "invalid device ordinal"),
    ERROR(cudaErrorInvalidKernelImage, "device kernel image is invalid"),
    ERROR(cudaErrorPeerAccessUnsupported, "peer access is not supported between these two devices"),
    ERROR(cudaErrorInvalidResourceHandle, "invalid resource handle"),
    ERROR(cudaErrorSymbolNotFound, "named symbol not found"),
    ERROR(cudaErrorNotReady, "device not ready"),
    ERROR(cudaErrorIllegalAddress, "an illegal memory access was encountered"),
    ERROR(cudaErrorPeerAccessAlreadyEnabled, "peer access is already enabled"),
    ERROR(cudaErrorPeerAccessNotEnabled, "peer access has not been enabled"),
    ERROR(cudaErrorLaunchFailure, "unspecified launch failure"),
    ERROR(cudaErrorNotPermitted, "operation not permitted"),
    ERROR(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing"),
    ERROR(cudaErrorStreamCaptureInvalidated, "operation failed due to a previous error during capture"),
    ERROR(cudaErrorStreamCaptureUnmatched, "capture was not initiated in this stream"),
    ERROR(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work"),
    ERROR(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream"),
    ERROR(
        cudaErrorStreamCaptureImplicit, "operation would make the legacy stream depend on a capturing blocking stream"),
    ERROR(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing stream"),
    ERROR(
        cudaErrorStreamCaptureWrongThread,
        "attempt to terminate a thread-local capture sequence from another thread"),
};
#undef ERROR

}  // namespace

void violation(const char *format, ...) {
    char text[sizeof last_violation];
    va_list values;
    va_start(values, format);
    vsnprintf(text, sizeof text, format, values);
    va_end(values);
    say(text);
}

void kernel_violation(const char *format, ...) {
    char text[sizeof last_violation];
    const EmulatedThread &at = emulated_thread;
    const int used = snprintf(
        text, sizeof text, "kernel %s, block (%u,%u,%u), thread (%u,%u,%u), ", running_kernel, at.block.x, at.block.y,
        at.block.z, at.thread.x, at.thread.y, at.thread.z);
    va_list values;
    va_start(values, format);
    if (used > 0 && size_t(used) < sizeof text) {
        vsnprintf(text + used, sizeof text - size_t(used), format, values);
    }
    va_end(values);
    say(text);
}

cudaError_t failed(cudaError_t error) {
    last_error = error;
    return error;
}

void failed_later(cudaError_t error) {
    if (late_error == cudaSuccess) {
        late_error = error;
    }
}

cudaError_t take_late_error() {
    const cudaError_t error = lasting_error == cudaSuccess ? late_error : lasting_error;
    late_error = cudaSuccess;
    lasting_error = lasts(error) ? error : cudaSuccess;
    return error == cudaSuccess ? error : failed(error);
}

cudaError_t check_lost() {
    return lasting_error == cudaSuccess ? cudaSuccess : failed(lasting_error);
}

void begin_anew() {
    last_error = late_error = lasting_error = cudaSuccess;
}

void add_census(Census census) {
    censuses().push_back(census);
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaGetLastError(void) {
    Locked locked(device_lock);
    const cudaError_t error = last_error;
    last_error = lasting_error;
    return error;
}

cudaError_t cudaPeekAtLastError(void) {
    Locked locked(device_lock);
    return last_error;
}

const char *cudaGetErrorName(cudaError_t error) {
    for (const auto &known : ERRORS) {
        if (known.error == error) {
            return known.name;
        }
    }
    return "unrecognized error code";
}

const char *cudaGetErrorString(cudaError_t error) {
    for (const auto &known : ERRORS) {
        if (known.error == error) {
            return known.text;
        }
    }
    return "unrecognized error code";
}

void emulator_read(emulator_counts *result) {
    Locked locked(device_lock);
    *result = counts;
}

const char *emulator_last_violation(void) {
    return last_violation;
}

const char *emulator_live_objects(void) {
    static auto &text = *new std::string;
    Locked locked(device_lock);
    std::vector<std::string> lines;
    for (const Census census : censuses()) {
        census(lines);
    }
    text.clear();
    for (const std::string &line : lines) {
        text += line + "\n";
    }
    return text.c_str();
}

}  // extern "C"
