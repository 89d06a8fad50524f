// Recurrent layers of cuDNN on the emulated device: the arithmetic, in f64. Descriptors and calls are in
// `recurrent.cpp`.

#include "recurrent.h"

#include <cmath>

namespace emulator {

namespace {

double sigmoid(double x) {
    return 1.0 / (1.0 + std::exp(-x));
}

// result = matrix x + bias, with the matrix of `rows` rows stored by rows; no bias where its offset is -1.
void linear(
    const Numbers &weights, int64_t matrix, int64_t bias, const double *x, int64_t columns, int64_t rows,
    double *result) {
    for (int64_t row = 0; row < rows; ++row) {
        double sum = bias < 0 ? 0.0 : weights[size_t(bias + row)];
        for (int64_t column = 0; column < columns; ++column) {
            sum += weights[size_t(matrix + row * columns + column)] * x[column];
        }
        result[row] = sum;
    }
}

// result += transposed matrix y
void add_transposed(
    const Numbers &weights, int64_t matrix, const double *y, int64_t columns, int64_t rows, double *result) {
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t column = 0; column < columns; ++column) {
            result[column] += weights[size_t(matrix + row * columns + column)] * y[row];
        }
    }
}

// One cell: from the linear layers of all gates (input's and state's) to what the step keeps.
void step(
    const cudnnRNNStruct &rnn, const Numbers &of_input, const Numbers &of_state, const double *h_before,
    const double *c_before, double *kept) {
    const int64_t H = rnn.hidden;
    for (int64_t j = 0; j < H; ++j) {
        const auto in = [&](int64_t gate) { return of_input[size_t(gate * H + j)]; };
        const auto state = [&](int64_t gate) { return of_state[size_t(gate * H + j)]; };
        const auto keep = [&](int64_t which, double value) { kept[which * H + j] = value; };
        if (rnn.mode == CUDNN_LSTM) {
            const double i = sigmoid(in(0) + state(0)), f = sigmoid(in(1) + state(1));
            const double g = std::tanh(in(2) + state(2)), o = sigmoid(in(3) + state(3));
            const double c = f * c_before[j] + i * g;
            const double values[] = {i, f, g, o, c, o * std::tanh(c)};
            for (int64_t which = 0; which < 6; ++which) {
                keep(which, values[which]);
            }
        } else if (rnn.mode == CUDNN_GRU) {
            const double r = sigmoid(in(0) + state(0)), z = sigmoid(in(1) + state(1));
            const double n = std::tanh(in(2) + r * state(2));
            const double values[] = {r, z, n, state(2), (1.0 - z) * n + z * h_before[j]};
            for (int64_t which = 0; which < 5; ++which) {
                keep(which, values[which]);
            }
        } else {
            const double x = in(0) + state(0);
            keep(0, rnn.mode == CUDNN_RNN_RELU ? (x > 0.0 ? x : 0.0) : std::tanh(x));
        }
    }
}

// The reverse of `step`: gradients of the gates from dh and dc, which then are those of the step before, apart from
// what comes through the gates.
void step_back(
    const cudnnRNNStruct &rnn, const double *kept, const double *h_before, const double *c_before, double *dh,
    double *dc, double *gradients) {
    const int64_t H = rnn.hidden;
    for (int64_t j = 0; j < H; ++j) {
        const auto was = [&](int64_t which) { return kept[which * H + j]; };
        const auto give = [&](int64_t which, double value) { gradients[which * H + j] = value; };
        if (rnn.mode == CUDNN_LSTM) {
            const double i = was(0), f = was(1), g = was(2), o = was(3), top = std::tanh(was(4));
            dc[j] += dh[j] * o * (1.0 - top * top);
            give(0, dc[j] * g * i * (1.0 - i));
            give(1, dc[j] * c_before[j] * f * (1.0 - f));
            give(2, dc[j] * i * (1.0 - g * g));
            give(3, dh[j] * top * o * (1.0 - o));
            dc[j] *= f;
            dh[j] = 0.0;
        } else if (rnn.mode == CUDNN_GRU) {
            const double r = was(0), z = was(1), n = was(2), of_state = was(3);
            const double dn = dh[j] * (1.0 - z) * (1.0 - n * n);
            give(0, dn * of_state * r * (1.0 - r));
            give(1, dh[j] * (h_before[j] - n) * z * (1.0 - z));
            give(2, dn);
            give(3, dn * r);  // of the state's linear layer of the new gate, which r multiplies
            dh[j] *= z;
        } else {
            const double h = was(0);
            give(0, dh[j] * (rnn.mode == CUDNN_RNN_RELU ? double(h > 0.0) : 1.0 - h * h));
            dh[j] = 0.0;
        }
    }
}

// Which gradient of a step belongs to the state's linear layer of a gate.
int64_t state_gradient(const cudnnRNNStruct &rnn, int64_t gate) {
    return rnn.mode == CUDNN_GRU && gate == 2 ? 3 : gate;
}

// Calls `work(t)` for the steps of sequence `b` in the order of pseudo-layer `p`, or against it.
template <class Work> void each_step(const Recurrence &r, int64_t p, int64_t b, bool reversed, Work work) {
    const int64_t length = r.data.lengths[size_t(b)];
    const bool downwards = (p % r.rnn.directions == 1) != reversed;
    for (int64_t i = 0; i < length; ++i) {
        work(downwards ? length - 1 - i : i);
    }
}

}  // namespace

int64_t Recurrence::before(int64_t p, int64_t t, int64_t b) const {
    if (p % rnn.directions == 0) {
        return t - 1;
    }
    return t + 1 < data.lengths[size_t(b)] ? t + 1 : -1;
}

const double *Recurrence::previous_state(const Reserve &kept, int64_t p, int64_t t, int64_t b) const {
    const int64_t last = before(p, t, b);
    return last < 0 ? &hx[size_t((p * data.batch + b) * rnn.hidden)] : kept.state(p, last, b);
}

const double *Recurrence::previous_memory(const Reserve &kept, int64_t p, int64_t t, int64_t b) const {
    const int64_t last = before(p, t, b);
    return last < 0 ? &cx[size_t((p * data.batch + b) * rnn.hidden)] : kept.kept(p, last, b, 4);
}

Numbers Recurrence::input_at(const Reserve &kept, const Numbers &x, int64_t p, int64_t t, int64_t b) const {
    const int64_t layer = p / rnn.directions;
    if (layer == 0) {
        const auto start = x.begin() + data.place(t, b) * rnn.input;
        return Numbers(start, start + rnn.input);
    }
    Numbers input;
    for (int64_t direction = 0; direction < rnn.directions; ++direction) {
        const int64_t below = (layer - 1) * rnn.directions + direction;
        const double *state = kept.state(below, t, b), *mask = kept.mask(below, t, b);
        for (int64_t j = 0; j < rnn.hidden; ++j) {
            input.push_back(state[j] * mask[j]);
        }
    }
    return input;
}

void forward(const Recurrence &r, const Reserve &kept, const Numbers &x) {
    const cudnnRNNStruct &rnn = r.rnn;
    const int64_t G = rnn.gates(), H = rnn.hidden;
    Numbers of_input(size_t(G * H)), of_state(size_t(G * H));
    for (int64_t p = 0; p < rnn.pseudo_layers(); ++p) {
        for (int64_t b = 0; b < r.data.batch; ++b) {
            each_step(r, p, b, false, [&](int64_t t) {
                const Numbers input = r.input_at(kept, x, p, t, b);
                const double *h_before = r.previous_state(kept, p, t, b);
                for (int64_t gate = 0; gate < G; ++gate) {
                    linear(
                        r.weights, rnn.matrix_offset(p, gate), rnn.bias_offset(p, gate), input.data(),
                        rnn.input_of(p), H, &of_input[size_t(gate * H)]);
                    linear(
                        r.weights, rnn.matrix_offset(p, G + gate), rnn.bias_offset(p, G + gate), h_before, H, H,
                        &of_state[size_t(gate * H)]);
                }
                const double *c_before = rnn.mode == CUDNN_LSTM ? r.previous_memory(kept, p, t, b) : nullptr;
                step(rnn, of_input, of_state, h_before, c_before, kept.kept(p, t, b, 0));
            });
        }
    }
}

void backward_data(const Recurrence &r, const Reserve &kept, const Numbers &dy, Gradients &gradients) {
    const cudnnRNNStruct &rnn = r.rnn;
    const int64_t G = rnn.gates(), H = rnn.hidden, D = rnn.directions, steps = r.data.steps, batch = r.data.batch;
    // Of the states of a layer at (t, b), both directions: first the last layer's.
    Numbers d_states(size_t(steps * batch * D * H), 0.0);
    const auto at = [&](int64_t t, int64_t b, int64_t width) { return size_t((t * batch + b) * width); };
    for (int64_t b = 0; b < batch; ++b) {
        for (int64_t t = 0; t < r.data.lengths[size_t(b)]; ++t) {
            for (int64_t j = 0; j < D * H; ++j) {
                d_states[at(t, b, D * H) + size_t(j)] = dy[size_t(r.data.place(t, b) * D * H + j)];
            }
        }
    }
    gradients.dhx = gradients.dhy;
    gradients.dcx = gradients.dcy;
    for (int64_t layer = rnn.layers - 1; layer >= 0; --layer) {
        const int64_t width = rnn.input_of(layer * D);
        Numbers d_inputs(size_t(steps * batch * width), 0.0);
        for (int64_t p = layer * D; p < (layer + 1) * D; ++p) {
            for (int64_t b = 0; b < batch; ++b) {
                double *dh = &gradients.dhx[size_t((p * batch + b) * H)];
                double *dc = &gradients.dcx[size_t((p * batch + b) * H)];
                each_step(r, p, b, true, [&](int64_t t) {
                    for (int64_t j = 0; j < H; ++j) {
                        dh[j] += d_states[at(t, b, D * H) + size_t(p % D * H + j)];
                    }
                    const double *c_before = rnn.mode == CUDNN_LSTM ? r.previous_memory(kept, p, t, b) : nullptr;
                    const double *h_before = r.previous_state(kept, p, t, b);
                    step_back(rnn, kept.kept(p, t, b, 0), h_before, c_before, dh, dc, kept.gradient(p, t, b, 0));
                    for (int64_t gate = 0; gate < G; ++gate) {
                        add_transposed(
                            r.weights, rnn.matrix_offset(p, gate), kept.gradient(p, t, b, gate), width, H,
                            &d_inputs[at(t, b, width)]);
                        add_transposed(
                            r.weights, rnn.matrix_offset(p, G + gate),
                            kept.gradient(p, t, b, state_gradient(rnn, gate)), H, H, dh);
                    }
                });
            }
        }
        if (layer == 0) {
            for (int64_t b = 0; b < batch; ++b) {
                for (int64_t t = 0; t < r.data.lengths[size_t(b)]; ++t) {
                    for (int64_t j = 0; j < width; ++j) {
                        gradients.dx[size_t(r.data.place(t, b) * width + j)] = d_inputs[at(t, b, width) + size_t(j)];
                    }
                }
            }
            return;
        }
        for (size_t i = 0; i < d_inputs.size(); ++i) {
            const int64_t j = int64_t(i) % width, b = int64_t(i) / width % batch, t = int64_t(i) / width / batch;
            const bool inside = t < r.data.lengths[size_t(b)];
            d_states[i] = inside ? d_inputs[i] * kept.mask((layer - 1) * D + j / H, t, b)[j % H] : 0.0;
        }
    }
}

void backward_weights(const Recurrence &r, const Reserve &kept, const Numbers &x, Numbers &d_weights) {
    const cudnnRNNStruct &rnn = r.rnn;
    const int64_t G = rnn.gates(), H = rnn.hidden;
    const auto add = [&](int64_t p, int64_t linear, const double *gradient, const double *factor, int64_t columns) {
        const int64_t matrix = rnn.matrix_offset(p, linear), bias = rnn.bias_offset(p, linear);
        for (int64_t row = 0; row < H; ++row) {
            for (int64_t column = 0; column < columns; ++column) {
                d_weights[size_t(matrix + row * columns + column)] += gradient[row] * factor[column];
            }
            if (bias >= 0) {
                d_weights[size_t(bias + row)] += gradient[row];
            }
        }
    };
    for (int64_t p = 0; p < rnn.pseudo_layers(); ++p) {
        for (int64_t b = 0; b < r.data.batch; ++b) {
            each_step(r, p, b, false, [&](int64_t t) {
                const Numbers input = r.input_at(kept, x, p, t, b);
                const double *h_before = r.previous_state(kept, p, t, b);
                for (int64_t gate = 0; gate < G; ++gate) {
                    add(p, gate, kept.gradient(p, t, b, gate), input.data(), rnn.input_of(p));
                    add(p, G + gate, kept.gradient(p, t, b, state_gradient(rnn, gate)), h_before, H);
                }
            });
        }
    }
}

}  // namespace emulator
