// What kernels see when a C++ compiler builds them for the emulated device: CUDA's words, as macros and functions.
#ifndef STAGED_EMULATED_CUDA_RUNTIME_H
#define STAGED_EMULATED_CUDA_RUNTIME_H

#include "cuda_runtime_api.h"

#ifdef __cplusplus

#define STAGED_CUDA_EMULATED 1

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __launch_bounds__(...)

#include "emulated_threads.h"

#include "emulated_atomics.h"
#include "emulated_kernels.h"
#include "emulated_maths.h"

#endif
#endif
