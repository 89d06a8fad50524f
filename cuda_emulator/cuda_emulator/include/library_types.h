// Types that CUDA's libraries share: names and numbers are NVIDIA's.
#ifndef STAGED_EMULATED_LIBRARY_TYPES_H
#define STAGED_EMULATED_LIBRARY_TYPES_H

typedef enum cudaDataType_t {
    CUDA_R_32F = 0,
    CUDA_R_64F = 1
} cudaDataType;

#ifndef __cplusplus
typedef enum cudaDataType_t cudaDataType_t;
#endif

#endif
