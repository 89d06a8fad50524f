// Handles, descriptors and checks of the emulated libraries. See `library.h`.

#include "library.h"

#include <cstdarg>
#include <cstdio>
#include <cstdint>
#include <cstring>
#include <map>
#include <string>

namespace emulator {

namespace {

struct KindCount {
    int64_t live, created;
};

// By name, so that they are listed in one order.
std::map<std::string, KindCount> &kinds() {
    static std::map<std::string, KindCount> by_name;
    return by_name;
}

// Every object ever made, dead ones too.
std::map<const Object *, bool> &objects() {
    static std::map<const Object *, bool> all;
    return all;
}

void list_objects(std::vector<std::string> &lines) {
    for (const auto &[kind, count] : kinds()) {
        if (count.live > 0) {
            lines.push_back(kind + ": " + std::to_string(count.live));
        }
    }
}

const bool listed = (add_census(list_objects), true);

}  // namespace

void add_object(Object *object, const char *kind, bool is_handle) {
    object->kind = kind;
    object->is_handle = is_handle;
    objects()[object] = true;
    KindCount &count = kinds()[kind];
    ++count.live;
    ++count.created;
    counts.live_handles += is_handle;
    counts.live_descriptors += !is_handle;
    counts.descriptors_created += !is_handle;
}

Call::Call(const char *name, bool counted) : locked(device_lock), call_name(name), late(!counted) {
    counts.library_calls += counted;
}

Call::~Call() {
    if (late && !right) {
        failed_later(cudaErrorIllegalAddress);  // as a kernel that found it on a GPU
    }
}

Call &Call::require(bool condition, const char *format, ...) {
    if (right && !condition) {
        char words[384];
        va_list values;
        va_start(values, format);
        vsnprintf(words, sizeof words, format, values);
        va_end(values);
        violation("%s: %s", call_name, words);
        right = false;
    }
    return *this;
}

Call &Call::live(const Object *object, const char *what) {
    // An address that was never an object must not be looked into.
    require(objects().count(object) == 1, "%s is not a handle or descriptor", what);
    return require(!right || object->live, "%s was destroyed before", what);
}

Call &Call::usable(const Object *object, const char *what) {
    live(object, what);
    require(!right || object->set, "%s was not set", what);
    const bool is_there = !right || object->device < 0 || object->device == current_device();
    return require(
        is_there, "%s is of device %d, and device %d is set", what, right ? object->device : 0, current_device());
}

Call &Call::creates_handle() {
    right = right && check_call(call_name) == cudaSuccess && check_lost() == cudaSuccess;
    return *this;
}

Call &Call::device(const void *address, size_t size, const char *what, size_t alignment) {
    if (!right || size == 0) {
        return *this;
    }
    require(
        is_device_address(address), "%s is %s, not an address of the device", what,
        address == nullptr ? "NULL" : "an address of the host");
    require(
        reinterpret_cast<uintptr_t>(address) % alignment == 0, "%s is not aligned to its elements of %zu bytes", what,
        alignment);
    const std::string name = std::string(call_name) + ": " + what;
    right = right && check_device_range(address, size, name.c_str());
    return *this;
}

Call &Call::host(const void *address, const char *what) {
    require(address != nullptr, "%s is NULL", what);
    return require(!is_device_address(address), "%s is an address of the device, not of the host", what);
}

Call &Call::apart(
    const void *first, size_t first_size, const void *second, size_t second_size, const char *what) {
    const char *a = static_cast<const char *>(first), *b = static_cast<const char *>(second);
    const bool overlap = first_size && second_size && a < b + second_size && b < a + first_size;
    return require(!overlap, "%s overlap", what);
}

Call &Call::workspace(const void *address, size_t size, size_t needed) {
    require(size >= needed, "the workspace has %zu bytes and needs %zu", size, needed);
    return device(address, needed, "the workspace");
}

Call &Call::destroy(Object *object, const char *what) {
    live(object, what);
    if (right) {
        object->live = false;
        --kinds()[object->kind].live;
        counts.live_handles -= object->is_handle;
        counts.live_descriptors -= !object->is_handle;
    }
    return *this;
}

Call &Call::run(cudaStream_t stream, std::function<void()> work) {
    right = right && enqueue(stream, call_name, std::move(work)) == cudaSuccess;
    return *this;
}

void spoil(void *address, size_t size) {
    if (size > 0) {
        memset(address, 0xff, size);
    }
}

}  // namespace emulator

using namespace emulator;

extern "C" int emulator_read_kind(int index, const char **kind, int64_t *live, int64_t *created) {
    Locked locked(device_lock);
    for (const auto &[name, count] : kinds()) {
        if (index-- == 0) {
            *kind = name.c_str();
            *live = count.live;
            *created = count.created;
            return 1;
        }
    }
    return 0;
}
