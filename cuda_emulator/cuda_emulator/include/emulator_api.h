// What only the emulated device has: for tests, and for Python.
#ifndef STAGED_EMULATOR_API_H
#define STAGED_EMULATOR_API_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// What it has seen since it was loaded; `live_...`: not yet given back. `DeviceCounts` in Python has the same fields.
typedef struct emulator_counts {
    int64_t copies_to_device;
    int64_t copies_to_host;
    int64_t copies_on_device;
    int64_t copies_between_devices;  // those of `copies_on_device` that go from one device to another
    int64_t bytes_to_device;
    int64_t bytes_to_host;
    int64_t launches;  // those of replayed graphs too
    int64_t graph_launches;
    int64_t enqueued;          // pieces of work that the host gave to streams; a graph is one
    int64_t synchronisations;  // calls that wait for a stream, an event or a device
    int64_t allocations;       // ever made
    int64_t live_allocations;
    int64_t live_bytes;
    int64_t live_pinned;
    int64_t live_streams;
    int64_t live_events;
    int64_t live_graphs;  // executable ones too
    int64_t live_libraries;
    int64_t library_calls;     // by the host: a captured one counts once
    int64_t live_handles;      // of cuBLAS, cublasLt and cuDNN
    int64_t live_descriptors;  // of cublasLt and cuDNN
    int64_t descriptors_created;
    int64_t violations;  // misuse that was reported to stderr and refused
} emulator_counts;

void emulator_read(emulator_counts *counts);
// The text of the last violation; empty where there was none.
const char *emulator_last_violation(void);
// Handles and descriptors by kind, in the order of their names: how many live and were ever made. 0 past the last.
int emulator_read_kind(int index, const char **kind, int64_t *live, int64_t *created);
// A line for each object that is live. The text lasts until the next call.
const char *emulator_live_objects(void);
// Behaviour from now on, after all work has been done: words as in STAGED_CUDA_EMULATOR; "" for that of the beginning.
// NULL, or what is wrong with them.
const char *emulator_configure(const char *words);

#ifdef __cplusplus
}
#endif
#endif
