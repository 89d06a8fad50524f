// Atomic operations of kernels on the emulated device.
//
// One thread runs at a time, so a plain read and write would do; they are real atomics so that the race detector tells
// them from plain accesses. It knows no fences, hence each orders what is around it, which is stronger than on a GPU.
#ifndef STAGED_EMULATED_ATOMICS_H
#define STAGED_EMULATED_ATOMICS_H

#include <cstdint>

template <class T> struct EmulatedSame {
    using type = T;
};
// A parameter that takes no part in deducing T, so that `atomicAdd(&unsigned_total, 1)` is as legal as in CUDA.
template <class T> using EmulatedOperand = typename EmulatedSame<T>::type;

// Replaces `*address` by what `next` makes of it; gives what was there.
template <class T, class Next> static inline T emulated_atomic(T *address, Next next) {
    T before, after;
    __atomic_load(address, &before, __ATOMIC_ACQUIRE);
    do {
        after = next(before);
    } while (!__atomic_compare_exchange(address, &before, &after, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE));
    return before;
}

template <class T> static inline T atomicAdd(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return T(before + value); });
}

template <class T> static inline T atomicSub(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return T(before - value); });
}

template <class T> static inline T atomicMin(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return value < before ? value : before; });
}

template <class T> static inline T atomicMax(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return before < value ? value : before; });
}

template <class T> static inline T atomicAnd(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return T(before & value); });
}

template <class T> static inline T atomicOr(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return T(before | value); });
}

template <class T> static inline T atomicXor(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T before) { return T(before ^ value); });
}

template <class T> static inline T atomicExch(T *address, EmulatedOperand<T> value) {
    return emulated_atomic(address, [value](T) { return value; });
}

// Counts up to `last`, then from 0 again: the usual ticket of the block that finishes last.
static inline unsigned int atomicInc(unsigned int *address, unsigned int last) {
    return emulated_atomic(address, [last](unsigned int before) { return before >= last ? 0u : before + 1u; });
}

static inline unsigned int atomicDec(unsigned int *address, unsigned int last) {
    return emulated_atomic(
        address, [last](unsigned int before) { return before == 0u || before > last ? last : before - 1u; });
}

// `value` where `expected` stands; gives what was there. For integers, as in CUDA: NaN equals nothing.
template <class T> static inline T atomicCAS(T *address, EmulatedOperand<T> expected, EmulatedOperand<T> value) {
    T before = expected;
    __atomic_compare_exchange(address, &before, &value, false, __ATOMIC_ACQ_REL, __ATOMIC_ACQUIRE);
    return before;
}

#endif
