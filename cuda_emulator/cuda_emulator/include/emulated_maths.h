// What CUDA has built in beside C's maths: vector types, intrinsics, bits of numbers.
#ifndef STAGED_EMULATED_MATHS_H
#define STAGED_EMULATED_MATHS_H

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "emulated_threads.h"

// ---- vector types, with CUDA's alignments: a misaligned address is a mistake here too ----

#define STAGED_EMULATED_VECTORS(type, name, of2, of4)                                                                 \
    struct alignas(of2) name##2 { type x, y; };                                                                       \
    struct name##3 { type x, y, z; };                                                                                 \
    struct alignas(of4) name##4 { type x, y, z, w; };                                                                 \
    static inline name##2 make_##name##2(type x, type y) { return {x, y}; }                                           \
    static inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; }                                \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }

STAGED_EMULATED_VECTORS(signed char, char, 2, 4)
STAGED_EMULATED_VECTORS(unsigned char, uchar, 2, 4)
STAGED_EMULATED_VECTORS(short, short, 4, 8)
STAGED_EMULATED_VECTORS(unsigned short, ushort, 4, 8)
STAGED_EMULATED_VECTORS(int, int, 8, 16)
STAGED_EMULATED_VECTORS(long long, longlong, 16, 16)
STAGED_EMULATED_VECTORS(unsigned long long, ulonglong, 16, 16)
STAGED_EMULATED_VECTORS(float, float, 8, 16)
STAGED_EMULATED_VECTORS(double, double, 16, 16)

// `uint3` is in cuda_runtime_api.h, where C sees it too.
struct alignas(8) uint2 { unsigned int x, y; };
struct alignas(16) uint4 { unsigned int x, y, z, w; };
static inline uint2 make_uint2(unsigned int x, unsigned int y) { return {x, y}; }
static inline uint3 make_uint3(unsigned int x, unsigned int y, unsigned int z) { return {x, y, z}; }
static inline uint4 make_uint4(unsigned int x, unsigned int y, unsigned int z, unsigned int w) { return {x, y, z, w}; }

#define __align__(bytes) alignas(bytes)

// ---- functions ----

using std::isfinite;
using std::isinf;
using std::isnan;
using std::max;
using std::min;
using std::signbit;

static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __saturatef(float x) { return x > 0.0f ? (x < 1.0f ? x : 1.0f) : 0.0f; }
// Macros, since the C library has functions of these names.
#define __expf(x) expf(x)
#define __logf(x) logf(x)
#define __log2f(x) log2f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x) sinf(x)
#define __cosf(x) cosf(x)
#define __tanf(x) tanf(x)

// Without being joined into a multiply-add, whatever the compiler's flags.
static inline float __fadd_rn(float x, float y) { volatile float sum = x + y; return sum; }
static inline float __fmul_rn(float x, float y) { volatile float product = x * y; return product; }
static inline double __dadd_rn(double x, double y) { volatile double sum = x + y; return sum; }
static inline double __dmul_rn(double x, double y) { volatile double product = x * y; return product; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline double __fma_rn(double x, double y, double z) { return fma(x, y, z); }

static inline int __popc(unsigned int bits) { return __builtin_popcount(bits); }
static inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
static inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(unsigned(bits)); }
static inline int __clzll(long long bits) { return bits == 0 ? 64 : __builtin_clzll((unsigned long long)bits); }
static inline int __ffs(int bits) { return __builtin_ffs(bits); }
static inline unsigned int __umulhi(unsigned int x, unsigned int y) { return (unsigned int)((uint64_t(x) * y) >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)(((unsigned __int128)x * y) >> 64);
}

static inline int __float_as_int(float x) { return emulated_value<int>(emulated_bits(x)); }
static inline unsigned int __float_as_uint(float x) { return emulated_value<unsigned int>(emulated_bits(x)); }
static inline float __int_as_float(int x) { return emulated_value<float>(emulated_bits(x)); }
static inline float __uint_as_float(unsigned int x) { return emulated_value<float>(emulated_bits(x)); }
static inline long long __double_as_longlong(double x) { return emulated_value<long long>(emulated_bits(x)); }
static inline double __longlong_as_double(long long x) { return emulated_value<double>(emulated_bits(x)); }

// Through the read-only cache, on a GPU.
template <class T> static inline T __ldg(const T *address) { return *address; }

#endif
