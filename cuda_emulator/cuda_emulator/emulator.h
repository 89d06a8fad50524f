// Inside the emulated device: what its files share.
#ifndef STAGED_EMULATOR_H
#define STAGED_EMULATOR_H

#include "include/cuda_runtime_api.h"

#include <functional>
#include <mutex>
#include <set>
#include <string>
#include <vector>

namespace emulator {

// One at a time: the device's state, and everything that runs on it. Recursive, since one call of the API uses others.
extern std::recursive_mutex device_lock;
using Locked = std::lock_guard<std::recursive_mutex>;

// ---- what went wrong (errors.cpp) ----

extern emulator_counts counts;

// Misuse of the API that a GPU might let pass or answer with an error much later: said on stderr, counted, refused.
__attribute__((format(printf, 1, 2))) void violation(const char *format, ...);
// The same, by the thread that `emulated_thread` says.
__attribute__((format(printf, 1, 2))) void kernel_violation(const char *format, ...);

// Keeps an error for cudaGetLastError; returns it.
cudaError_t failed(cudaError_t error);
// Work that was enqueued failed: the next call that waits for it answers with `error`.
void failed_later(cudaError_t error);
// The error that work left behind, or `cudaSuccess`. If a kernel went astray, the device is lost to the process: this,
// and whatever needs the device, answers with the same error ever after.
cudaError_t take_late_error();
// That error, or `cudaSuccess`.
cudaError_t check_lost();
// As if the process had just started: for tests, several of which share one.
void begin_anew();

// ---- settings (settings.cpp) ----

enum class ThreadOrder { forward, reverse, shuffled };

struct Settings {
    bool lazy;  // work waits until something synchronises, and is then interleaved at random
    ThreadOrder threads;
    unsigned seed;
    int devices;
    size_t memory;  // bytes of each device
    bool algorithms;  // whether the libraries have algorithms for products with an epilogue, and for convolutions
    bool engines;     // whether cuDNN has engines for graphs of operations
};

// Those of `STAGED_CUDA_EMULATOR`, until `emulator_configure` says otherwise.
const Settings &settings();
// From 0 to `count` - 1, from the generator that the seed began.
size_t random_number(size_t count);

// ---- devices (devices.cpp) ----

// That of this host thread, as cudaSetDevice has chosen it.
int current_device();
// Whether kernels of `device` may touch memory of `other`.
bool can_reach(int device, int other);

// ---- memory (memory.cpp, copies.cpp) ----

struct Allocation {
    char *address;  // what cudaMalloc gave; ends at the guard page, so that one byte too far faults
    size_t size;
    char *pages;
    size_t span;  // bytes of its pages
    int number;
    int device;
    bool live;
    bool open;    // whether its pages can be touched now
    bool ending;  // cudaFreeAsync has been called: nobody may use it in what is enqueued from now on
};

// Whether an address is in the device's memory, allocated or not.
bool is_device_address(const void *address);
// The allocation whose pages, or the guard page behind them, hold `address`; NULL if none does.
Allocation *find_allocation(const void *address);
// Whether `size` bytes are inside an allocation of `device` or one that it can reach.
bool is_usable(const void *address, size_t size, int device);
// The same; a violation if not.
bool check_device_range(const void *address, size_t size, const char *what, int device = current_device());
// Whether they are not on a device; a violation if they are.
bool check_host_range(const void *address, size_t size, const char *what);
// The allocation's bytes are given back; a violation where somebody wrote around it.
void release(Allocation &allocation);
// Whether an address is in memory of cudaMallocHost.
bool is_pinned(const void *address);

// While one lives, this thread works for a device and may touch its memory.
class DeviceWork {
  public:
    explicit DeviceWork(int device = current_device());
    ~DeviceWork();
    DeviceWork(const DeviceWork &) = delete;
    DeviceWork &operator=(const DeviceWork &) = delete;

  private:
    Locked locked;
    int device_before;
};

// What runs now, for messages: a kernel, or some other work of a stream; NULL for none.
extern const char *running_kernel, *running_work;
// Whether a function of cudaLaunchHostFunc runs now: it must not call the API.
extern bool in_host_function;

// ---- streams (streams.cpp) ----

// Does `work` in its turn: at once if streams are eager, when something waits for it if they are lazy, at each replay
// if the stream is captured. It may touch the device's memory, and nothing that belongs to the caller's frame. `what`
// names it in messages.
cudaError_t enqueue(cudaStream_t stream, const char *what, std::function<void()> work);
// The device of a stream, which must be live; the current one for the null stream.
int device_of(cudaStream_t stream);
bool is_stream(cudaStream_t stream, const char *what);
// Waits for all work of a device, as cudaFree does.
void wait_for_device(int device);
void wait_for_stream(cudaStream_t stream);
bool is_capturing(cudaStream_t stream);
// Whether `what` may be called now: not from a host function, nor where a capture would miss it.
cudaError_t check_call(const char *what);

// ---- objects with handles ----

// The live handles of one kind. What is destroyed keeps its address, so that a use of it later is told from that of
// another.
template <class Object> class Handles {
  public:
    Handles(const char *kind_, int64_t emulator_counts::*count_) : kind(kind_), count(count_) {}

    Object *add(Object *object) {
        live.insert(object);
        ++(counts.*count);
        return object;
    }
    bool check(const Object *object, const char *what) const {
        if (live.count(const_cast<Object *>(object))) {
            return true;
        }
        const bool destroyed = dead.count(const_cast<Object *>(object)) != 0;
        violation(
            "%s: %p is not a live %s%s", what, static_cast<const void *>(object), kind,
            destroyed ? ": it was destroyed" : "");
        return false;
    }
    bool remove(Object *object, const char *what) {
        if (!check(object, what)) {
            return false;
        }
        live.erase(object);
        dead.insert(object);
        --(counts.*count);
        return true;
    }
    const std::set<Object *> &all() const {
        return live;
    }

  private:
    const char *kind;
    int64_t emulator_counts::*count;
    std::set<Object *> live, dead;
};

// Lines about what is live, for `emulator_live_objects`: each file that has objects adds its own.
using Census = void (*)(std::vector<std::string> &lines);
void add_census(Census census);

}  // namespace emulator

#endif
