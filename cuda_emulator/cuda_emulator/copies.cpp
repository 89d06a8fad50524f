// Copies and fills on the emulated device, and the host's pinned memory.
//
// A copy between a device and pageable host memory may be made at any time from the call to the next synchronisation:
// CUDA does not say. Where streams are lazy it is therefore made now or later by lot, so that a program that relies on
// either is found out.

#include "emulator.h"

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>

namespace emulator {

namespace {

struct Pinned {
    size_t size;
    int number;
    bool live;
};

std::map<const char *, Pinned> &pinned() {
    static auto &by_address = *new std::map<const char *, Pinned>;
    return by_address;
}

void list_pinned(std::vector<std::string> &lines) {
    for (const auto &[address, memory] : pinned()) {
        if (memory.live) {
            const std::string name = "pinned host memory " + std::to_string(memory.number);
            lines.push_back(name + ": " + std::to_string(memory.size) + " bytes");
        }
    }
}

const bool listed = (add_census(list_pinned), true);

struct Copy {
    void *target;
    const void *source;
    size_t size;
    enum cudaMemcpyKind kind;
};

const char *where(bool on_device) {
    return on_device ? "device" : "host";
}

int device_with(const void *address) {
    const Allocation *allocation = find_allocation(address);
    return allocation ? allocation->device : current_device();
}

cudaError_t check_copy(Copy &copy) {
    static const char *const names[] = {"HostToHost", "HostToDevice", "DeviceToHost", "DeviceToDevice"};
    const bool to_device = is_device_address(copy.target), from_device = is_device_address(copy.source);
    if (copy.kind == cudaMemcpyDefault) {
        copy.kind = cudaMemcpyKind((from_device ? 2 : 0) | (to_device ? 1 : 0));
    }
    if (copy.kind < cudaMemcpyHostToHost || copy.kind > cudaMemcpyDefault || to_device != (copy.kind & 1) ||
        from_device != (copy.kind >> 1)) {
        violation(
            "cudaMemcpy%s, but the target is on the %s and the source on the %s", names[copy.kind & 3],
            where(to_device), where(from_device));
        return failed(cudaErrorInvalidMemcpyDirection);
    }
    // Copies reach every device, peer access or not.
    if ((to_device && !check_device_range(copy.target, copy.size, "target of a copy", device_with(copy.target))) ||
        (from_device && !check_device_range(copy.source, copy.size, "source of a copy", device_with(copy.source)))) {
        return failed(cudaErrorInvalidValue);
    }
    return cudaSuccess;
}

void count_copy(const Copy &copy) {
    const int64_t size = int64_t(copy.size);
    switch (copy.kind) {
    case cudaMemcpyHostToDevice:
        ++counts.copies_to_device;
        counts.bytes_to_device += size;
        break;
    case cudaMemcpyDeviceToHost:
        ++counts.copies_to_host;
        counts.bytes_to_host += size;
        break;
    case cudaMemcpyDeviceToDevice:
        ++counts.copies_on_device;
        counts.copies_between_devices += device_with(copy.target) != device_with(copy.source);
        break;
    default:
        break;
    }
}

// Each side is opened by the device that has it.
void do_copy(const Copy &copy) {
    count_copy(copy);
    const bool crosses = copy.kind == cudaMemcpyDeviceToDevice && device_with(copy.target) != device_with(copy.source);
    if (!crosses) {
        DeviceWork work(device_with(copy.kind == cudaMemcpyDeviceToHost ? copy.source : copy.target));
        memmove(copy.target, copy.source, copy.size);
        return;
    }
    std::vector<char> between(copy.size);
    {
        DeviceWork work(device_with(copy.source));
        memcpy(between.data(), copy.source, copy.size);
    }
    DeviceWork work(device_with(copy.target));
    memcpy(copy.target, between.data(), copy.size);
}

cudaError_t enqueue_copy(Copy copy, cudaStream_t stream, const char *what) {
    cudaError_t error = check_copy(copy);
    if (error != cudaSuccess) {
        return error;
    }
    const bool pageable_source = copy.kind == cudaMemcpyHostToDevice && !is_pinned(copy.source);
    if (pageable_source && settings().lazy && !is_capturing(stream) && random_number(2) == 0) {
        const char *const bytes = static_cast<const char *>(copy.source);
        const auto staged = std::make_shared<std::vector<char>>(bytes, bytes + copy.size);
        return enqueue(stream, what, [copy, staged] {
            do_copy({copy.target, staged->data(), copy.size, copy.kind});
        });
    }
    error = enqueue(stream, what, [copy] { do_copy(copy); });
    const bool pageable_target = copy.kind == cudaMemcpyDeviceToHost && !is_pinned(copy.target);
    if (error == cudaSuccess && pageable_target && settings().lazy && !is_capturing(stream) && random_number(2) == 0) {
        wait_for_stream(stream);
    }
    return error;
}

}  // namespace

bool is_pinned(const void *address) {
    const char *at = static_cast<const char *>(address);
    auto after = pinned().upper_bound(at);
    if (after == pinned().begin()) {
        return false;
    }
    const auto &[start, memory] = *std::prev(after);
    return memory.live && at < start + memory.size;
}

}  // namespace emulator

using namespace emulator;

extern "C" {

cudaError_t cudaMemcpyAsync(
    void *target, const void *source, size_t size, enum cudaMemcpyKind kind, cudaStream_t stream) {
    Locked locked(device_lock);
    return enqueue_copy({target, source, size, kind}, stream, "cudaMemcpyAsync");
}

// In the null stream, and waits for it.
cudaError_t cudaMemcpy(void *target, const void *source, size_t size, enum cudaMemcpyKind kind) {
    Locked locked(device_lock);
    cudaError_t error = check_call("cudaMemcpy");
    if (error == cudaSuccess) {
        error = enqueue_copy({target, source, size, kind}, nullptr, "cudaMemcpy");
    }
    return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemcpyPeerAsync(
    void *target, int target_device, const void *source, int source_device, size_t size, cudaStream_t stream) {
    Locked locked(device_lock);
    const std::pair<const void *, int> sides[] = {{target, target_device}, {source, source_device}};
    for (const auto &[address, device] : sides) {
        const Allocation *allocation = find_allocation(address);
        if (is_device_address(address) && allocation && allocation->device != device) {
            violation(
                "cudaMemcpyPeerAsync: %p is on device %d, not on device %d", address, allocation->device, device);
            return failed(cudaErrorInvalidValue);
        }
    }
    return enqueue_copy({target, source, size, cudaMemcpyDeviceToDevice}, stream, "cudaMemcpyPeerAsync");
}

cudaError_t cudaMemcpyPeer(void *target, int target_device, const void *source, int source_device, size_t size) {
    Locked locked(device_lock);
    cudaError_t error = check_call("cudaMemcpyPeer");
    if (error == cudaSuccess) {
        error = cudaMemcpyPeerAsync(target, target_device, source, source_device, size, nullptr);
    }
    return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemsetAsync(void *target, int value, size_t size, cudaStream_t stream) {
    Locked locked(device_lock);
    if (!check_device_range(target, size, "target of a memset", device_of(stream))) {
        return failed(cudaErrorInvalidValue);
    }
    if (device_of(stream) != current_device()) {
        // A memset may be a kernel, which CUDA refuses there; a copy is not.
        violation(
            "cudaMemsetAsync: in a stream of device %d while device %d is set", device_of(stream), current_device());
        return failed(cudaErrorInvalidResourceHandle);
    }
    return enqueue(stream, "cudaMemsetAsync", [=] { memset(target, value, size); });
}

cudaError_t cudaMemset(void *target, int value, size_t size) {
    Locked locked(device_lock);
    cudaError_t error = check_call("cudaMemset");
    if (error == cudaSuccess) {
        error = cudaMemsetAsync(target, value, size, nullptr);
    }
    return error != cudaSuccess ? error : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMallocHost(void **address, size_t size) {
    static int made;
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaMallocHost");
    if (error != cudaSuccess || check_lost() != cudaSuccess) {
        return error != cudaSuccess ? error : check_lost();
    }
    const size_t padded = (size + 255) / 256 * 256 + 256;
    *address = aligned_alloc(256, padded);
    if (*address == nullptr) {
        return failed(cudaErrorMemoryAllocation);
    }
    memset(*address, 0xff, padded);
    pinned()[static_cast<const char *>(*address)] = Pinned{size, ++made, true};
    ++counts.live_pinned;
    return cudaSuccess;
}

cudaError_t cudaHostAlloc(void **address, size_t size, unsigned int) {
    return cudaMallocHost(address, size);
}

cudaError_t cudaFreeHost(void *address) {
    Locked locked(device_lock);
    const cudaError_t error = check_call("cudaFreeHost");
    if (error != cudaSuccess || address == nullptr) {
        return error;
    }
    const auto found = pinned().find(static_cast<const char *>(address));
    if (found == pinned().end() || !found->second.live) {
        violation("cudaFreeHost: %p is not live memory of cudaMallocHost", address);
        return failed(cudaErrorInvalidValue);
    }
    for (int device = 0; device < settings().devices; ++device) {
        wait_for_device(device);
    }
    found->second.live = false;
    --counts.live_pinned;
    free(address);
    return take_late_error();
}

}  // extern "C"
