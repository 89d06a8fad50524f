// What the emulated libraries (cuBLAS, cublasLt, cuDNN) share: handles and descriptors that are known by kind while
// they live, checks of what a call was given, and the way of its work to the device.
//
// A call is checked when it is made; its work goes to the stream and runs when the stream runs.
#ifndef STAGED_EMULATED_LIBRARY_H
#define STAGED_EMULATED_LIBRARY_H

#include "emulator.h"

#include <functional>
#include <limits>
#include <type_traits>

namespace emulator {

// What a program creates and destroys through a library. It stays in memory when it is destroyed, so that the use of a
// dead one is found instead of being a fault; programs make few of them.
struct Object {
    const char *kind = nullptr;
    bool is_handle = false;
    int device = -1;  // of a handle: that which was set when it was made
    bool live = true;
    bool set = false;  // whether a descriptor was given its values
    virtual ~Object() = default;
};

void add_object(Object *object, const char *kind, bool is_handle);

template <class T> T *create_handle(const char *kind) {
    T *handle = new T();
    add_object(handle, kind, true);
    handle->device = current_device();
    handle->set = true;
    return handle;
}

template <class T> T *create_descriptor(const char *kind) {
    T *descriptor = new T();
    add_object(descriptor, kind, false);
    return descriptor;
}

// One call of a library: the checks that it makes, in words that name it. After the first that fails the others do
// nothing, and `ok` tells it. While it lives the emulator is locked.
class Call {
  public:
    // `counted`: whether the program made it; not so where work checks what it finds only when it runs: then the next
    // call that waits for it has the error.
    explicit Call(const char *name, bool counted = true);
    ~Call();
    Call(const Call &) = delete;
    Call &operator=(const Call &) = delete;

    bool ok() const {
        return right;
    }
    const char *name() const {
        return call_name;
    }

    // What the caller must see to; `format` says what was wrong.
    __attribute__((format(printf, 3, 4))) Call &require(bool condition, const char *format, ...);
    // A handle or descriptor that is alive, whether or not it was set.
    Call &live(const Object *object, const char *what);
    // A handle or descriptor that can be used.
    Call &usable(const Object *object, const char *what);
    // That a handle can be made now: it takes memory, which a capture would miss.
    Call &creates_handle();
    // `size` bytes of one live allocation of the device, aligned for elements of `alignment` bytes. Nothing is read
    // of no bytes.
    Call &device(const void *address, size_t size, const char *what, size_t alignment = 1);
    // An address of host memory.
    Call &host(const void *address, const char *what);
    // Two ranges that a call must not be given in common, since it writes one while it reads the other.
    Call &apart(const void *first, size_t first_size, const void *second, size_t second_size, const char *what);
    // A workspace of at least `needed` bytes. What lies in it is lost: see `spoil`.
    Call &workspace(const void *address, size_t size, size_t needed);
    // Destroys an object; a second time is a mistake.
    Call &destroy(Object *object, const char *what);
    // Gives `work` to the stream under the name of this call; not ok if the stream does not live.
    Call &run(cudaStream_t stream, std::function<void()> work);

  private:
    Locked locked;
    const char *call_name;
    bool late;
    bool right = true;
};

// Fills memory that a call may use as it likes with NaN, so that nobody relies on what was there.
void spoil(void *address, size_t size);

// result = alpha * value + beta * result, where a beta of zero means that the old result is not read: it may be NaN.
template <class T> void blend(T &result, T alpha, T value, T beta) {
    result = beta == T(0) ? alpha * value : alpha * value + beta * result;
}

}  // namespace emulator

#endif
