// The threads of a kernel on the emulated device: who they are, and how they meet (barriers, warps, shared memory).
//
// What blocks is a macro, so that the emulator is told the line at which a thread waits.
#ifndef STAGED_EMULATED_THREADS_H
#define STAGED_EMULATED_THREADS_H

#include "cuda_runtime_api.h"

#include <cstdint>
#include <cstring>

// The thread that runs now. One thread of one block of one kernel runs at a time.
struct EmulatedThread {
    uint3 thread, block;
    dim3 block_size, grid_size;
};

enum EmulatedWarpKind { EMULATED_SHUFFLE, EMULATED_VOTE, EMULATED_WARP_BARRIER };

extern "C" {
extern EmulatedThread emulated_thread;
// Waits for the block's threads; returns for how many of them `predicate` is not zero.
int emulator_barrier(int predicate, int line);
// Waits for the lanes of `mask`; gives what lane `source` brought, or the caller's own value for a source of -1.
uint64_t emulator_warp_exchange(unsigned int mask, uint64_t value, int source, int line);
// Waits for the lanes of `mask`; gives the lanes among them that brought a predicate other than zero.
unsigned int emulator_warp_vote(enum EmulatedWarpKind kind, unsigned int mask, int predicate, int line);
unsigned int emulator_active_lanes(void);
int emulator_lane(void);
// The launch's dynamic shared memory.
void *emulator_dynamic_shared(void);
// Ends the kernel with an error, as `__trap()` does on a GPU.
[[noreturn]] void emulator_trap(int line);
}

#define threadIdx (emulated_thread.thread)
#define blockIdx (emulated_thread.block)
#define blockDim (emulated_thread.block_size)
#define gridDim (emulated_thread.grid_size)
#define warpSize 32

// ---- shared memory: statics in a section of their own, since one block runs at a time; each finds NaN there ----

#ifndef __APPLE__
#define __shared__ static __attribute__((section("staged_shared")))
extern "C" {
extern char __start_staged_shared[] __attribute__((weak, visibility("hidden")));
extern char __stop_staged_shared[] __attribute__((weak, visibility("hidden")));
}
#endif
// In place of `extern __shared__ type name[]`, which C++ cannot say.
#define STAGED_DYNAMIC_SHARED(type, name) type *name = static_cast<type *>(emulator_dynamic_shared())

// ---- barriers ----

#define __syncthreads() ((void)emulator_barrier(0, __LINE__))
#define __syncthreads_count(predicate) emulator_barrier((predicate) ? 1 : 0, __LINE__)
#define __syncthreads_or(predicate) (emulator_barrier((predicate) ? 1 : 0, __LINE__) != 0)
#define __syncthreads_and(predicate) (emulator_barrier((predicate) ? 0 : 1, __LINE__) == 0)
#define __trap() emulator_trap(__LINE__)

// One thread runs at a time and none is preempted: writes are seen in the order in which they are made.
static inline void __threadfence_block() {}
static inline void __threadfence() {}
static inline void __threadfence_system() {}

// ---- warps ----

template <class Value> static inline uint64_t emulated_bits(Value value) {
    static_assert(sizeof(Value) <= 8, "a warp exchanges values of at most 8 bytes");
    uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof value);
    return bits;
}

template <class Value> static inline Value emulated_value(uint64_t bits) {
    Value value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}

template <class Value>
static inline Value emulated_shuffle(int line, unsigned int mask, Value value, int source, int width = 32) {
    const int first = emulator_lane() & ~(width - 1);
    return emulated_value<Value>(
        emulator_warp_exchange(mask, emulated_bits(value), first | (source & (width - 1)), line));
}

template <class Value>
static inline Value emulated_shuffle_up(int line, unsigned int mask, Value value, unsigned int delta, int width = 32) {
    const int lane = emulator_lane(), within = (lane & (width - 1)) - int(delta);
    return emulated_value<Value>(
        emulator_warp_exchange(mask, emulated_bits(value), within >= 0 ? lane - int(delta) : -1, line));
}

template <class Value>
static inline Value
emulated_shuffle_down(int line, unsigned int mask, Value value, unsigned int delta, int width = 32) {
    const int lane = emulator_lane(), within = (lane & (width - 1)) + int(delta);
    return emulated_value<Value>(
        emulator_warp_exchange(mask, emulated_bits(value), within < width ? lane + int(delta) : -1, line));
}

// A lane of an earlier group may be read, one of a later group not: then the caller keeps its own value.
template <class Value>
static inline Value emulated_shuffle_xor(int line, unsigned int mask, Value value, int lanes, int width = 32) {
    const int lane = emulator_lane(), source = lane ^ lanes;
    const bool allowed = source < 32 && source / width <= lane / width;
    return emulated_value<Value>(emulator_warp_exchange(mask, emulated_bits(value), allowed ? source : -1, line));
}

#define __shfl_sync(...) emulated_shuffle(__LINE__, __VA_ARGS__)
#define __shfl_up_sync(...) emulated_shuffle_up(__LINE__, __VA_ARGS__)
#define __shfl_down_sync(...) emulated_shuffle_down(__LINE__, __VA_ARGS__)
#define __shfl_xor_sync(...) emulated_shuffle_xor(__LINE__, __VA_ARGS__)
#define __ballot_sync(mask, predicate) emulator_warp_vote(EMULATED_VOTE, mask, (predicate) ? 1 : 0, __LINE__)
#define __any_sync(mask, predicate) (emulator_warp_vote(EMULATED_VOTE, mask, (predicate) ? 1 : 0, __LINE__) != 0)
#define __all_sync(mask, predicate) (emulator_warp_vote(EMULATED_VOTE, mask, (predicate) ? 0 : 1, __LINE__) == 0)
#define __activemask() emulator_active_lanes()

// A functor, so that the mask may be left out.
struct EmulatedWarpBarrier {
    int line;
    void operator()(unsigned int mask = 0xffffffffu) const {
        (void)emulator_warp_vote(EMULATED_WARP_BARRIER, mask, 0, line);
    }
};

#define __syncwarp EmulatedWarpBarrier{__LINE__}

#endif
