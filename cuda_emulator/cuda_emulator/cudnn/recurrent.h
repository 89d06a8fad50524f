// Inside the emulated cuDNN: recurrent layers, their descriptors and where everything lies.
//
// A pseudo-layer is one direction of one layer. Its gates have linear layers 0, 1, ... of the input and as many again
// of the recurrent state: LSTM input, forget, cell, output; GRU reset, update, new.
#ifndef STAGED_EMULATED_CUDNN_RECURRENT_H
#define STAGED_EMULATED_CUDNN_RECURRENT_H

#include "tensors.h"

struct cudnnRNNStruct : emulator::Object {
    cudnnRNNMode_t mode = CUDNN_LSTM;
    cudnnRNNBiasMode_t bias_mode = CUDNN_RNN_DOUBLE_BIAS;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    int64_t directions = 1, input = 0, hidden = 0, layers = 0;
    bool padded = false;
    float dropout = 0.0f;  // between layers, in training
    void *dropout_states = nullptr;

    int64_t gates() const {
        return mode == CUDNN_LSTM ? 4 : mode == CUDNN_GRU ? 3 : 1;
    }
    int64_t pseudo_layers() const {
        return layers * directions;
    }
    int64_t input_of(int64_t pseudo_layer) const {
        return pseudo_layer < directions ? input : hidden * directions;
    }
    // The elements of the weights before the matrix of a linear layer, and before its bias; -1 where it has none.
    int64_t matrix_offset(int64_t pseudo_layer, int64_t linear) const;
    int64_t bias_offset(int64_t pseudo_layer, int64_t linear) const;
    int64_t weights() const;
    // Vectors of `hidden` numbers that a step keeps for the backward functions: gates, memory, state; and its
    // gradients.
    int64_t kept() const {
        return mode == CUDNN_LSTM ? 6 : mode == CUDNN_GRU ? 5 : 1;
    }
    int64_t gradients() const {
        return mode == CUDNN_LSTM || mode == CUDNN_GRU ? 4 : 1;
    }
};

struct cudnnRNNDataStruct : emulator::Object {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    cudnnRNNDataLayout_t layout = CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED;
    int64_t steps = 0, batch = 0, vector = 0;
    std::vector<int64_t> lengths;
    bool fills = false;
    double fill = 0.0;

    // Which vector of the data belongs to step `t` of sequence `b`.
    int64_t place(int64_t t, int64_t b) const;
    int64_t vectors() const;
    bool has_equal_lengths() const;
    bool has_falling_lengths() const;
};

namespace emulator {

using Numbers = std::vector<double>;

// What a training step leaves for the backward functions, in f64 whatever the type is: an array in the reserve space.
struct Reserve {
    const cudnnRNNStruct &rnn;
    const cudnnRNNDataStruct &data;
    double *memory;

    size_t count() const {
        return size_t(steps() * rnn.pseudo_layers() * (rnn.kept() + rnn.gradients() + 1) * rnn.hidden);
    }
    int64_t steps() const {
        return data.steps * data.batch;
    }
    // Vector number `which` that pseudo-layer `p` kept at (t, b).
    double *kept(int64_t p, int64_t t, int64_t b, int64_t which) const {
        return memory + (((p * data.steps + t) * data.batch + b) * rnn.kept() + which) * rnn.hidden;
    }
    double *state(int64_t p, int64_t t, int64_t b) const {
        return kept(p, t, b, rnn.kept() - 1);
    }
    double *gradient(int64_t p, int64_t t, int64_t b, int64_t which) const {
        double *start = memory + steps() * rnn.pseudo_layers() * rnn.kept() * rnn.hidden;
        return start + (((p * data.steps + t) * data.batch + b) * rnn.gradients() + which) * rnn.hidden;
    }
    // What dropout multiplies the state with, on its way to the next layer.
    double *mask(int64_t p, int64_t t, int64_t b) const {
        double *start = memory + steps() * rnn.pseudo_layers() * (rnn.kept() + rnn.gradients()) * rnn.hidden;
        return start + ((p * data.steps + t) * data.batch + b) * rnn.hidden;
    }
};

// The weights, and a state of every pseudo-layer: (pseudo-layers, batch, hidden).
struct Recurrence {
    cudnnRNNStruct rnn;
    cudnnRNNDataStruct data;  // lengths and sizes of the input
    Numbers weights, hx, cx;

    // The step before `t` in the direction of `p`; -1 at the start.
    int64_t before(int64_t p, int64_t t, int64_t b) const;
    const double *previous_state(const Reserve &kept, int64_t p, int64_t t, int64_t b) const;
    const double *previous_memory(const Reserve &kept, int64_t p, int64_t t, int64_t b) const;
    // What pseudo-layer `p` reads at (t, b): x, or the masked states of the layer below.
    Numbers input_at(const Reserve &kept, const Numbers &x, int64_t p, int64_t t, int64_t b) const;
};

void forward(const Recurrence &r, const Reserve &kept, const Numbers &x);

struct Gradients {
    Numbers dhy, dcy;  // in
    Numbers dx, dhx, dcx;  // out
};
void backward_data(const Recurrence &r, const Reserve &kept, const Numbers &dy, Gradients &gradients);
void backward_weights(const Recurrence &r, const Reserve &kept, const Numbers &x, Numbers &d_weights);

}  // namespace emulator

#endif
