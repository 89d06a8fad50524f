// The emulated machine's devices: which there are, which one a host thread means, who reaches whose memory.

#include "emulator.h"

#include <utility>

namespace emulator {

namespace {

thread_local int chosen_device;

std::set<std::pair<int, int>> &reachable() {
    static auto &pairs = *new std::set<std::pair<int, int>>;
    return pairs;
}

bool is_device(int device) {
    return device >= 0 && device < settings().devices;
}

// Those of an H100 or H200 where programs may ask.
const struct {
    enum cudaDeviceAttr attribute;
    int value;
} ATTRIBUTES[] = {
    {cudaDevAttrMaxThreadsPerBlock, 1024},
    {cudaDevAttrMaxBlockDimX, 1024},
    {cudaDevAttrMaxBlockDimY, 1024},
    {cudaDevAttrMaxBlockDimZ, 64},
    {cudaDevAttrMaxGridDimX, 0x7fffffff},
    {cudaDevAttrMaxGridDimY, 65535},
    {cudaDevAttrMaxGridDimZ, 65535},
    {cudaDevAttrMaxSharedMemoryPerBlock, 48 << 10},
    {cudaDevAttrWarpSize, 32},
    {cudaDevAttrMaxRegistersPerBlock, 65536},
    {cudaDevAttrMultiProcessorCount, 132},
    {cudaDevAttrMaxThreadsPerMultiProcessor, 2048},
    {cudaDevAttrComputeCapabilityMajor, 9},
    {cudaDevAttrComputeCapabilityMinor, 0},
    {cudaDevAttrMaxSharedMemoryPerMultiprocessor, 228 << 10},
    {cudaDevAttrMaxSharedMemoryPerBlockOptin, 227 << 10},
};

}  // namespace

int current_device() {
    return chosen_device;
}

bool can_reach(int device, int other) {
    return device == other || reachable().count({device, other}) != 0;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaGetDeviceCount(int *count) {
    Locked locked(device_lock);
    *count = settings().devices;
    return *count > 0 ? cudaSuccess : failed(cudaErrorNoDevice);
}

cudaError_t cudaSetDevice(int device) {
    Locked locked(device_lock);
    if (!is_device(device)) {
        return failed(settings().devices > 0 ? cudaErrorInvalidDevice : cudaErrorNoDevice);
    }
    chosen_device = device;
    return cudaSuccess;
}

cudaError_t cudaGetDevice(int *device) {
    *device = chosen_device;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    Locked locked(device_lock);
    if (!is_device(device)) {
        return failed(cudaErrorInvalidDevice);
    }
    for (const auto &known : ATTRIBUTES) {
        if (known.attribute == attribute) {
            *value = known.value;
            return cudaSuccess;
        }
    }
    return failed(cudaErrorInvalidValue);
}

cudaError_t cudaDriverGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = 13000;
    return cudaSuccess;
}

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    Locked locked(device_lock);
    if (!is_device(device) || !is_device(peer)) {
        return failed(cudaErrorInvalidDevice);
    }
    *can = device != peer;
    return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned int flags) {
    Locked locked(device_lock);
    if (!is_device(peer) || peer == chosen_device || flags != 0) {
        return failed(cudaErrorInvalidDevice);
    }
    const bool is_new = reachable().insert({chosen_device, peer}).second;
    return is_new ? cudaSuccess : failed(cudaErrorPeerAccessAlreadyEnabled);
}

cudaError_t cudaDeviceDisablePeerAccess(int peer) {
    Locked locked(device_lock);
    return reachable().erase({chosen_device, peer}) ? cudaSuccess : failed(cudaErrorPeerAccessNotEnabled);
}

}  // extern "C"
