// Inside the emulated device: what its files share.
#ifndef STAGED_EMULATOR_H
#define STAGED_EMULATOR_H

#include "include/cuda_runtime_api.h"

#include <functional>
#include <mutex>

namespace emulator {

// One at a time: the device's state, and everything that runs on it. Recursive, since one call of the API uses others.
extern std::recursive_mutex device_lock;
using Locked = std::lock_guard<std::recursive_mutex>;

extern emulator_counts counts;

// Misuse of the API that a GPU might let pass or answer with an error much later: said on stderr, counted, refused.
__attribute__((format(printf, 1, 2))) void violation(const char *format, ...);

// Keeps an error for cudaGetLastError; returns it.
cudaError_t failed(cudaError_t error);

struct Allocation {
    char *address;  // what cudaMalloc gave; ends at the guard page, so that one byte too far faults
    size_t size;
    char *pages;
    size_t span;  // bytes of its pages
    int number;
    bool live;
    bool open;  // whether its pages can be touched now
};

// Whether an address is in the device's memory, allocated or not.
bool is_device_address(const void *address);
// The allocation whose pages, or the guard page behind them, hold `address`; NULL if none does.
Allocation *find_allocation(const void *address);
bool check_device_range(const void *address, size_t size, const char *what);

// While one lives, this thread works for the device and may touch its memory.
class DeviceWork {
  public:
    DeviceWork();
    ~DeviceWork();
    DeviceWork(const DeviceWork &) = delete;
    DeviceWork &operator=(const DeviceWork &) = delete;

  private:
    Locked locked;
};

// Runs the work of a library (`what` names its call) on the device, in the order of the stream.
cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<void()> work);

// What runs now, for messages; NULL between launches.
extern const char *running_kernel;

}  // namespace emulator

#endif
