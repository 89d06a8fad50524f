// Inside the emulated cuDNN: dropout, which recurrent layers use too.
#ifndef STAGED_EMULATED_CUDNN_DROPOUT_H
#define STAGED_EMULATED_CUDNN_DROPOUT_H

#include "tensors.h"

struct cudnnDropoutStruct : emulator::Object {
    float probability = 0.0f;
    void *states = nullptr;
    size_t states_size = 0;
};

namespace emulator {

// For each of `count` elements whether it is kept, drawn from the states on the device, which move on.
std::vector<uint8_t> draw(void *states, float probability, size_t count);

}  // namespace emulator

#endif
