// Recurrent layers of cuDNN on the emulated device: descriptors and calls. The arithmetic is in
// `recurrent_steps.cpp`.
//
// Where cuDNN is free, this is stricter than it may be: padding of a result is written only where the descriptor has
// a fill value; the gradients of weights need those of the data first; a workspace is spoilt.

#include "recurrent.h"

#include "dropout.h"

#include <algorithm>
#include <cstring>

using namespace emulator;

int64_t cudnnRNNStruct::matrix_offset(int64_t pseudo_layer, int64_t linear) const {
    int64_t offset = 0;
    for (int64_t p = 0; p < pseudo_layer; ++p) {
        offset += gates() * hidden * (input_of(p) + hidden);
    }
    const int64_t of_input = std::min(linear, gates()), of_state = linear - of_input;
    return offset + of_input * hidden * input_of(pseudo_layer) + of_state * hidden * hidden;
}

int64_t cudnnRNNStruct::bias_offset(int64_t pseudo_layer, int64_t linear) const {
    const bool of_input = linear < gates();
    const int64_t all = matrix_offset(pseudo_layers(), 0);
    switch (bias_mode) {
    case CUDNN_RNN_NO_BIAS:
        return -1;
    case CUDNN_RNN_SINGLE_INP_BIAS:
        return of_input ? all + (pseudo_layer * gates() + linear) * hidden : -1;
    case CUDNN_RNN_SINGLE_REC_BIAS:
        return of_input ? -1 : all + (pseudo_layer * gates() + linear - gates()) * hidden;
    default:
        return all + (pseudo_layer * 2 * gates() + linear) * hidden;
    }
}

int64_t cudnnRNNStruct::weights() const {
    const int64_t biases = bias_mode == CUDNN_RNN_NO_BIAS ? 0 : bias_mode == CUDNN_RNN_DOUBLE_BIAS ? 2 : 1;
    return matrix_offset(pseudo_layers(), 0) + pseudo_layers() * gates() * biases * hidden;
}

int64_t cudnnRNNDataStruct::place(int64_t t, int64_t b) const {
    if (layout == CUDNN_RNN_DATA_LAYOUT_BATCH_MAJOR_UNPACKED) {
        return b * steps + t;
    }
    if (layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_UNPACKED) {
        return t * batch + b;
    }
    int64_t before = 0;  // packed: step t has the sequences that are long enough for it
    for (const int64_t length : lengths) {
        before += std::min(length, t);
    }
    return before + b;
}

int64_t cudnnRNNDataStruct::vectors() const {
    return layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED ? place(steps, 0) : steps * batch;
}

bool cudnnRNNDataStruct::has_equal_lengths() const {
    return std::all_of(lengths.begin(), lengths.end(), [&](int64_t length) { return length == steps; });
}

bool cudnnRNNDataStruct::has_falling_lengths() const {
    return std::is_sorted(lengths.rbegin(), lengths.rend());
}

namespace {

Layout flat(cudnnDataType_t type, int64_t count) {
    Layout layout{type, 1, {count}, {1}};
    return layout;
}

Numbers load(const void *address, cudnnDataType_t type, int64_t count) {
    Numbers numbers(size_t(count), 0.0);
    if (address != nullptr) {  // an initial state that is NULL is zero
        with_type(type, [&](auto zero) {
            const auto values = gather<decltype(zero)>(address, flat(type, count));
            numbers.assign(values.begin(), values.end());
        });
    }
    return numbers;
}

void store(void *address, cudnnDataType_t type, const Numbers &numbers) {
    if (address != nullptr) {
        with_type(type, [&](auto zero) {
            using T = decltype(zero);
            const std::vector<T> values(numbers.begin(), numbers.end());
            scatter(address, flat(type, int64_t(values.size())), values, 1.0, 0.0);
        });
    }
}

// Writes the vectors of all sequences, and where there is a fill value the padding.
void store_sequences(void *address, const cudnnRNNDataStruct &data, const Numbers &numbers) {
    if (address == nullptr) {
        return;
    }
    with_type(data.type, [&](auto zero) {
        using T = decltype(zero);
        T *out = static_cast<T *>(address);
        const bool packed = data.layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
        for (int64_t b = 0; b < data.batch; ++b) {
            const int64_t length = data.lengths[size_t(b)];
            for (int64_t t = 0; t < (packed || !data.fills ? length : data.steps); ++t) {
                for (int64_t j = 0; j < data.vector; ++j) {
                    const size_t at = size_t(data.place(t, b) * data.vector + j);
                    out[at] = t < length ? T(numbers[at]) : T(data.fill);
                }
            }
        }
    });
}

Layout sequences(const cudnnRNNDataStruct &data) {
    return flat(data.type, data.vectors() * data.vector);
}

size_t workspace_bytes(const cudnnRNNStruct &rnn, const cudnnRNNDataStruct &data) {
    return size_t(data.batch * rnn.gates() * rnn.hidden * rnn.pseudo_layers()) * sizeof(double);
}

// The arguments that the three functions share. Nothing of it may be used after a check that failed.
struct Arguments {
    CudnnCall &call;
    Recurrence r;
    Layout states;

    Arguments(
        CudnnCall &call, const cudnnRNNStruct *rnn, const cudnnRNNDataStruct *x_desc, const cudnnRNNDataStruct *y_desc,
        const int32_t *lengths, const cudnnTensorStruct *h_desc, const cudnnTensorStruct *c_desc)
        : call(call) {
        call.usable(rnn, "the RNN's descriptor").usable(x_desc, "x's descriptor").usable(y_desc, "y's descriptor");
        if (!call.ok()) {
            return;
        }
        r.rnn = *rnn;
        r.data = *x_desc;
        call.require(x_desc->type == rnn->type && y_desc->type == rnn->type, "the types of x, y and the RNN differ");
        call.require(
            x_desc->vector == rnn->input, "x's vectors have %d numbers and the RNN reads %d", int(x_desc->vector),
            int(rnn->input));
        call.require(
            y_desc->vector == rnn->hidden * rnn->directions, "y's vectors have %d numbers and the RNN gives %d",
            int(y_desc->vector), int(rnn->hidden * rnn->directions));
        call.require(
            x_desc->lengths == y_desc->lengths && x_desc->layout == y_desc->layout && x_desc->steps == y_desc->steps,
            "x and y have different lengths or layouts");
        const bool packed = x_desc->layout == CUDNN_RNN_DATA_LAYOUT_SEQ_MAJOR_PACKED;
        call.require(!packed || x_desc->has_falling_lengths(), "packed sequences are not sorted from long to short");
        call.require(
            packed || rnn->padded || x_desc->has_equal_lengths(),
            "sequences of different lengths need CUDNN_RNN_PADDED_IO_ENABLED or a packed layout");
        if (lengths != nullptr) {
            call.device(lengths, size_t(x_desc->batch) * sizeof(int32_t), "the lengths on the device", sizeof(int32_t));
        }
        states = Layout{rnn->type, 3, {rnn->pseudo_layers(), x_desc->batch, rnn->hidden}, {}};
        pack(states);
        state_layout(h_desc, "h's descriptor");
        if (rnn->mode == CUDNN_LSTM) {
            state_layout(c_desc, "c's descriptor");
        }
    }

    void state_layout(const cudnnTensorStruct *descriptor, const char *what) {
        const Layout layout = call.layout(descriptor, what);
        call.require(
            !call.ok() || layout.is_same_as(states),
            "%s is not packed (pseudo-layers, batch, hidden) = (%d, %d, %d)", what, int(states.extent(0)),
            int(states.extent(1)), int(states.extent(2)));
    }
    // A state or its gradient, which may be NULL.
    void state(const void *address, const char *what) {
        if (address != nullptr && call.ok()) {
            call.array(address, states, what);
        }
    }
    void weights(const void *address, size_t size) {
        const size_t needed = call.ok() ? size_t(r.rnn.weights()) * element_size(r.rnn.type) : 0;
        call.require(size >= needed, "the weight space has %zu bytes and needs %zu", size, needed);
        call.device(address, needed, "the weight space", element_size(r.rnn.type));
    }
    void memory(void *workspace, size_t workspace_size, void *reserve, size_t reserve_size, bool training) {
        if (!call.ok()) {
            return;
        }
        call.workspace(workspace, workspace_size, workspace_bytes(r.rnn, r.data));
        const size_t needed = training ? Reserve{r.rnn, r.data, nullptr}.count() * sizeof(double) : 0;
        call.require(reserve_size >= needed, "the reserve space has %zu bytes and needs %zu", reserve_size, needed);
        call.device(reserve, needed, "the reserve space", sizeof(double));
    }
};

void draw_masks(const Reserve &kept, bool training) {
    const cudnnRNNStruct &rnn = kept.rnn;
    const size_t count = size_t(kept.steps() * rnn.pseudo_layers() * rnn.hidden);
    const float probability = training ? rnn.dropout : 0.0f;
    const std::vector<uint8_t> keeps = draw(rnn.dropout_states, probability, count);
    double *mask = kept.mask(0, 0, 0);
    for (size_t i = 0; i < count; ++i) {
        mask[i] = keeps[i] && probability < 1.0f ? 1.0 / (1.0 - double(probability)) : 0.0;
    }
}

// The states after each sequence's last step, or its memory; `which` numbers the kept vectors.
Numbers last_states(const Recurrence &r, const Reserve &kept, int64_t which) {
    Numbers last;
    for (int64_t p = 0; p < r.rnn.pseudo_layers(); ++p) {
        for (int64_t b = 0; b < r.data.batch; ++b) {
            const double *state = kept.kept(p, p % r.rnn.directions == 0 ? r.data.lengths[size_t(b)] - 1 : 0, b, which);
            last.insert(last.end(), state, state + r.rnn.hidden);
        }
    }
    return last;
}

Numbers outputs(const Recurrence &r, const Reserve &kept) {
    const int64_t H = r.rnn.hidden, D = r.rnn.directions;
    Numbers y(size_t(r.data.vectors() * D * H));
    for (int64_t b = 0; b < r.data.batch; ++b) {
        for (int64_t t = 0; t < r.data.lengths[size_t(b)]; ++t) {
            for (int64_t direction = 0; direction < D; ++direction) {
                const double *state = kept.state((r.rnn.layers - 1) * D + direction, t, b);
                std::copy(state, state + H, y.begin() + r.data.place(t, b) * D * H + direction * H);
            }
        }
    }
    return y;
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateRNNDescriptor(cudnnRNNDescriptor_t *rnn) {
    return create("cudnnCreateRNNDescriptor", "cudnnRNNDescriptor", rnn);
}

cudnnStatus_t cudnnDestroyRNNDescriptor(cudnnRNNDescriptor_t rnn) {
    return destroy("cudnnDestroyRNNDescriptor", rnn);
}

cudnnStatus_t cudnnSetRNNDescriptor_v8(
    cudnnRNNDescriptor_t rnn, cudnnRNNAlgo_t algo, cudnnRNNMode_t mode, cudnnRNNBiasMode_t bias_mode,
    cudnnDirectionMode_t direction_mode, cudnnRNNInputMode_t input_mode, cudnnDataType_t type,
    cudnnDataType_t precision, cudnnMathType_t, int32_t input, int32_t hidden, int32_t projection, int32_t layers,
    cudnnDropoutDescriptor_t dropout, uint32_t flags) {
    CudnnCall call("cudnnSetRNNDescriptor_v8");
    call.live(rnn, "the descriptor");
    call.require(input > 0 && hidden > 0 && layers > 0, "input, hidden or layers is not positive");
    call.require(precision == type, "it computes in another type than its data have");
    call.supported(algo == CUDNN_RNN_ALGO_STANDARD, "persistent recurrent layers");
    call.supported(input_mode == CUDNN_LINEAR_INPUT, "recurrent layers without a matrix for their input");
    call.supported(projection == hidden, "recurrent layers with a projection");  // that size means none
    call.usable(dropout, "the dropout");  // of probability 0 where nothing is dropped
    if (call.ok()) {
        rnn->mode = mode;
        rnn->bias_mode = bias_mode;
        rnn->directions = direction_mode == CUDNN_BIDIRECTIONAL ? 2 : 1;
        rnn->type = type;
        rnn->input = input;
        rnn->hidden = hidden;
        rnn->layers = layers;
        rnn->padded = (flags & CUDNN_RNN_PADDED_IO_ENABLED) != 0;
        rnn->dropout = dropout->probability;
        rnn->dropout_states = dropout->states;
        rnn->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnCreateRNNDataDescriptor(cudnnRNNDataDescriptor_t *descriptor) {
    return create("cudnnCreateRNNDataDescriptor", "cudnnRNNDataDescriptor", descriptor);
}

cudnnStatus_t cudnnDestroyRNNDataDescriptor(cudnnRNNDataDescriptor_t descriptor) {
    return destroy("cudnnDestroyRNNDataDescriptor", descriptor);
}

cudnnStatus_t cudnnSetRNNDataDescriptor(
    cudnnRNNDataDescriptor_t descriptor, cudnnDataType_t type, cudnnRNNDataLayout_t layout, int steps, int batch,
    int vector, const int lengths[], void *padding_fill) {
    CudnnCall call("cudnnSetRNNDataDescriptor");
    call.live(descriptor, "the descriptor").host(lengths, "the lengths");
    call.supported(type == CUDNN_DATA_FLOAT || type == CUDNN_DATA_DOUBLE, "sequences of this type");
    call.require(steps > 0 && batch > 0 && vector > 0, "a size is not positive");
    for (int b = 0; b < batch && call.ok(); ++b) {
        call.require(lengths[b] > 0 && lengths[b] <= steps, "the length of sequence %d is %d", b, lengths[b]);
    }
    if (call.ok()) {
        descriptor->type = type;
        descriptor->layout = layout;
        descriptor->steps = steps;
        descriptor->batch = batch;
        descriptor->vector = vector;
        descriptor->lengths.assign(lengths, lengths + batch);
        descriptor->fills = padding_fill != nullptr;
        descriptor->fill = padding_fill == nullptr ? 0.0 : call.factor(padding_fill, flat(type, 1), "the fill value");
        descriptor->set = true;
    }
    return call.status();
}

cudnnStatus_t cudnnGetRNNWeightSpaceSize(cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, size_t *size) {
    CudnnCall call("cudnnGetRNNWeightSpaceSize", handle);
    if (call.usable(rnn, "the RNN's descriptor").host(size, "the place for the size").ok()) {
        *size = size_t(rnn->weights()) * element_size(rnn->type);
    }
    return call.status();
}

// Matrix and bias of a linear layer: (1, hidden, columns), by rows, and (1, hidden, 1); NULL where there is no bias.
cudnnStatus_t cudnnGetRNNWeightParams(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, int32_t pseudo_layer, size_t weight_space_size,
    const void *weight_space, int32_t linear, cudnnTensorDescriptor_t m_desc, void **m_address,
    cudnnTensorDescriptor_t b_desc, void **b_address) {
    CudnnCall call("cudnnGetRNNWeightParams", handle);
    call.usable(rnn, "the RNN's descriptor");
    call.live(m_desc, "the matrix' descriptor").live(b_desc, "the bias' descriptor");
    if (!call.ok()) {
        return call.status();
    }
    const size_t element = element_size(rnn->type);
    call.require(weight_space_size >= size_t(rnn->weights()) * element, "the weight space is too small");
    call.require(pseudo_layer >= 0 && pseudo_layer < rnn->pseudo_layers(), "there is no pseudo-layer %d", pseudo_layer);
    call.require(linear >= 0 && linear < 2 * rnn->gates(), "there is no linear layer %d", linear);
    call.host(m_address, "the place for the matrix").host(b_address, "the place for the bias");
    if (call.ok()) {
        char *start = static_cast<char *>(const_cast<void *>(weight_space));
        const int64_t bias = rnn->bias_offset(pseudo_layer, linear);
        const int64_t columns = linear < rnn->gates() ? rnn->input_of(pseudo_layer) : rnn->hidden;
        m_desc->layout = Layout{rnn->type, 3, {1, rnn->hidden, columns}, {}};
        b_desc->layout = Layout{rnn->type, 3, {1, rnn->hidden, 1}, {}};
        pack(m_desc->layout);
        pack(b_desc->layout);
        m_desc->set = true;
        b_desc->set = bias >= 0;
        *m_address = start + size_t(rnn->matrix_offset(pseudo_layer, linear)) * element;
        *b_address = bias < 0 ? nullptr : start + size_t(bias) * element;
    }
    return call.status();
}

cudnnStatus_t cudnnGetRNNTempSpaceSizes(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode, cudnnRNNDataDescriptor_t x_desc,
    size_t *workspace_size, size_t *reserve_size) {
    CudnnCall call("cudnnGetRNNTempSpaceSizes", handle);
    call.usable(rnn, "the RNN's descriptor").usable(x_desc, "x's descriptor");
    call.host(workspace_size, "the place for the workspace's size");
    if (call.ok()) {
        *workspace_size = workspace_bytes(*rnn, *x_desc);
        if (reserve_size != nullptr) {
            const size_t needed = Reserve{*rnn, *x_desc, nullptr}.count() * sizeof(double);
            *reserve_size = mode == CUDNN_FWD_MODE_TRAINING ? needed : 0;
        }
    }
    return call.status();
}

cudnnStatus_t cudnnRNNForward(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnForwardMode_t mode, const int32_t lengths[],
    cudnnRNNDataDescriptor_t x_desc, const void *x, cudnnRNNDataDescriptor_t y_desc, void *y,
    cudnnTensorDescriptor_t h_desc, const void *hx, void *hy, cudnnTensorDescriptor_t c_desc, const void *cx, void *cy,
    size_t weight_space_size, const void *weight_space, size_t workspace_size, void *workspace, size_t reserve_size,
    void *reserve) {
    CudnnCall call("cudnnRNNForward", handle);
    const bool training = mode == CUDNN_FWD_MODE_TRAINING;
    Arguments with(call, rnn, x_desc, y_desc, lengths, h_desc, c_desc);
    with.weights(weight_space, weight_space_size);
    with.memory(workspace, workspace_size, reserve, reserve_size, training);
    for (const void *state : {hx, static_cast<const void *>(hy)}) {
        with.state(state, "hx or hy");
    }
    const bool has_memory = call.ok() && rnn->mode == CUDNN_LSTM;
    for (const void *state : {cx, static_cast<const void *>(cy)}) {
        with.state(has_memory ? state : nullptr, "cx or cy");
    }
    if (!call.ok()) {
        return call.status();
    }
    call.array(x, sequences(*x_desc), "x");
    call.array(y, sequences(*y_desc), "y");
    call.run([=, at = with.states, r = with.r, out = *y_desc]() mutable {
        spoil(workspace, workspace_bytes(r.rnn, r.data));
        Numbers own(training ? 0 : Reserve{r.rnn, r.data, nullptr}.count());
        const Reserve kept{r.rnn, r.data, training ? static_cast<double *>(reserve) : own.data()};
        spoil(kept.memory, kept.count() * sizeof(double));
        draw_masks(kept, training);
        r.weights = load(weight_space, r.rnn.type, r.rnn.weights());
        r.hx = load(hx, r.rnn.type, at.count());
        r.cx = load(has_memory ? cx : nullptr, r.rnn.type, at.count());
        forward(r, kept, load(x, r.rnn.type, r.data.vectors() * r.rnn.input));
        store_sequences(y, out, outputs(r, kept));
        store(hy, r.rnn.type, last_states(r, kept, r.rnn.kept() - 1));
        if (has_memory) {
            store(cy, r.rnn.type, last_states(r, kept, 4));
        }
    });
    return call.status();
}

cudnnStatus_t cudnnRNNBackwardData_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, const int32_t lengths[], cudnnRNNDataDescriptor_t y_desc,
    const void *y, const void *dy, cudnnRNNDataDescriptor_t x_desc, void *dx, cudnnTensorDescriptor_t h_desc,
    const void *hx, const void *dhy, void *dhx, cudnnTensorDescriptor_t c_desc, const void *cx, const void *dcy,
    void *dcx, size_t weight_space_size, const void *weight_space, size_t workspace_size, void *workspace,
    size_t reserve_size, void *reserve) {
    CudnnCall call("cudnnRNNBackwardData_v8", handle);
    Arguments with(call, rnn, x_desc, y_desc, lengths, h_desc, c_desc);
    with.weights(weight_space, weight_space_size);
    with.memory(workspace, workspace_size, reserve, reserve_size, true);
    for (const void *state : {hx, dhy, static_cast<const void *>(dhx)}) {
        with.state(state, "hx, dhy or dhx");
    }
    const bool has_memory = call.ok() && rnn->mode == CUDNN_LSTM;
    for (const void *state : {cx, dcy, static_cast<const void *>(dcx)}) {
        with.state(has_memory ? state : nullptr, "cx, dcy or dcx");
    }
    if (!call.ok()) {
        return call.status();
    }
    call.array(y, sequences(*y_desc), "y");
    call.array(dy, sequences(*y_desc), "dy");
    call.array(dx, sequences(*x_desc), "dx");
    call.run([=, at = with.states, r = with.r, width = y_desc->vector]() mutable {
        spoil(workspace, workspace_bytes(r.rnn, r.data));
        const Reserve kept{r.rnn, r.data, static_cast<double *>(reserve)};
        r.weights = load(weight_space, r.rnn.type, r.rnn.weights());
        r.hx = load(hx, r.rnn.type, at.count());
        r.cx = load(has_memory ? cx : nullptr, r.rnn.type, at.count());
        Gradients gradients;
        gradients.dhy = load(dhy, r.rnn.type, at.count());
        gradients.dcy = load(has_memory ? dcy : nullptr, r.rnn.type, at.count());
        gradients.dx = Numbers(size_t(r.data.vectors() * r.rnn.input));
        backward_data(r, kept, load(dy, r.rnn.type, r.data.vectors() * width), gradients);
        store_sequences(dx, r.data, gradients.dx);
        store(dhx, r.rnn.type, gradients.dhx);
        if (has_memory) {
            store(dcx, r.rnn.type, gradients.dcx);
        }
    });
    return call.status();
}

// Adds to the gradients that are there; cuDNN has no other mode.
cudnnStatus_t cudnnRNNBackwardWeights_v8(
    cudnnHandle_t handle, cudnnRNNDescriptor_t rnn, cudnnWgradMode_t mode, const int32_t lengths[],
    cudnnRNNDataDescriptor_t x_desc, const void *x, cudnnTensorDescriptor_t h_desc, const void *hx,
    cudnnRNNDataDescriptor_t y_desc, const void *y, size_t weight_space_size, void *d_weight_space,
    size_t workspace_size, void *workspace, size_t reserve_size, void *reserve) {
    CudnnCall call("cudnnRNNBackwardWeights_v8", handle);
    call.supported(mode == CUDNN_WGRAD_MODE_ADD, "CUDNN_WGRAD_MODE_SET");
    Arguments with(call, rnn, x_desc, y_desc, lengths, h_desc, h_desc);
    with.weights(d_weight_space, weight_space_size);
    with.memory(workspace, workspace_size, reserve, reserve_size, true);
    with.state(hx, "hx");
    if (!call.ok()) {
        return call.status();
    }
    call.array(x, sequences(*x_desc), "x");
    call.array(y, sequences(*y_desc), "y");
    call.run([=, at = with.states, r = with.r]() mutable {
        spoil(workspace, workspace_bytes(r.rnn, r.data));
        const Reserve kept{r.rnn, r.data, static_cast<double *>(reserve)};
        r.hx = load(hx, r.rnn.type, at.count());
        Numbers d_weights = load(d_weight_space, r.rnn.type, r.rnn.weights());
        backward_weights(r, kept, load(x, r.rnn.type, r.data.vectors() * r.rnn.input), d_weights);
        store(d_weight_space, r.rnn.type, d_weights);
    });
    return call.status();
}

}  // extern "C"
