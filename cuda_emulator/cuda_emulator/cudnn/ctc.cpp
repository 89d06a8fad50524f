// The CTC loss of cuDNN on the emulated device, after Graves et al., Connectionist Temporal Classification (2006).
//
// Costs are -log p(label | input) per sequence; the gradient is that of the sum of costs in the unnormalised
// activations, whether or not the softmax is taken here. Label 0 is the blank. A label that cannot be had from its
// input, for want of steps between equal characters, costs infinity; its gradient is zero or left alone, as the
// descriptor says. One of more characters than its input has steps is refused: cuDNN reads what is not there. So are
// labels of more than 255 characters. NaN is what cuDNN makes no promise of: gradients beyond the end of an input,
// which some versions leave alone, and of a probability of 0.

#include "tensors.h"

#include <algorithm>
#include <cmath>

using namespace emulator;

struct cudnnCTCLossStruct : Object {
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    bool softmax = false;
    bool zeros = false;  // the gradient of a label that cannot be had
    int max_label_length = 0;
};

namespace {

double add_logs(double a, double b) {
    const double top = std::max(a, b);
    return top == -INFINITY ? top : top + std::log(std::exp(a - top) + std::exp(b - top));
}

// One sequence: logarithms of probabilities (steps x classes), and its label.
struct Sequence {
    std::vector<std::vector<double>> log_p;
    std::vector<int> label;

    size_t states() const {
        return 2 * label.size() + 1;
    }
    // The class of a state: blanks before, between and behind the label.
    size_t at(size_t state) const {
        return state % 2 == 0 ? 0 : size_t(label[state / 2]);
    }
    // Whether a path may come from two states before: over a blank between labels that differ.
    bool may_skip(size_t state) const {
        return state >= 2 && state % 2 == 1 && at(state) != at(state - 2);
    }
};

using Table = std::vector<std::vector<double>>;

// Logarithm of the probability of all paths that are in a state at a step, with that step.
Table forward_paths(const Sequence &q) {
    Table alpha(q.log_p.size(), std::vector<double>(q.states(), -INFINITY));
    for (size_t t = 0; t < alpha.size(); ++t) {
        for (size_t s = 0; s < q.states(); ++s) {
            double before = t == 0 ? (s <= 1 ? 0.0 : -INFINITY) : alpha[t - 1][s];
            if (t > 0 && s >= 1) {
                before = add_logs(before, alpha[t - 1][s - 1]);
            }
            if (t > 0 && q.may_skip(s)) {
                before = add_logs(before, alpha[t - 1][s - 2]);
            }
            alpha[t][s] = before + q.log_p[t][q.at(s)];
        }
    }
    return alpha;
}

// Logarithm of the probability of all paths from a state at a step to the end, without that step.
Table backward_paths(const Sequence &q) {
    const size_t states = q.states(), steps = q.log_p.size();
    Table beta(steps, std::vector<double>(states, -INFINITY));
    for (size_t t = steps; t-- > 0;) {
        for (size_t s = 0; s < states; ++s) {
            if (t + 1 == steps) {
                beta[t][s] = s + 2 >= states ? 0.0 : -INFINITY;
                continue;
            }
            for (size_t next = s; next < states && next <= s + 2; ++next) {
                if (next < s + 2 || q.may_skip(next)) {
                    beta[t][s] = add_logs(beta[t][s], beta[t + 1][next] + q.log_p[t + 1][q.at(next)]);
                }
            }
        }
    }
    return beta;
}

// What the work of a call needs.
struct Batch {
    Layout probs, gradients;
    const float *probs_address;
    float *costs, *gradients_address;
    bool softmax, zeros;

    int64_t place(const Layout &layout, int64_t t, int64_t n, int64_t a) const {
        return t * layout.strides[0] + n * layout.strides[1] + a * layout.strides[2];
    }
};

Sequence read(const Batch &batch, int64_t n, int steps, const int *label, int label_length) {
    const int64_t classes = batch.probs.extent(2);
    Sequence q;
    q.label.assign(label, label + label_length);
    for (int64_t t = 0; t < steps; ++t) {
        std::vector<double> row;
        double total = -INFINITY;
        for (int64_t a = 0; a < classes; ++a) {
            const double value = double(batch.probs_address[batch.place(batch.probs, t, n, a)]);
            row.push_back(batch.softmax ? value : std::log(value));
            total = add_logs(total, row.back());
        }
        for (double &value : row) {
            value -= batch.softmax ? total : 0.0;
        }
        q.log_p.push_back(row);
    }
    return q;
}

void loss(const Batch &batch, int64_t n, const Sequence &q) {
    const Table alpha = forward_paths(q), beta = backward_paths(q);
    const std::vector<double> &last = alpha.back();
    const double total = q.states() > 1 ? add_logs(last[q.states() - 1], last[q.states() - 2]) : last[0];
    batch.costs[n] = float(-total);
    const bool impossible = total == -INFINITY;
    if (batch.gradients_address == nullptr || (impossible && !batch.zeros)) {
        return;
    }
    for (int64_t t = 0; t < batch.probs.extent(0); ++t) {
        const bool inside = size_t(t) < q.log_p.size();
        std::vector<double> share(size_t(batch.probs.extent(2)), -INFINITY);
        for (size_t s = 0; s < q.states() && inside; ++s) {
            double &sum = share[q.at(s)];
            sum = add_logs(sum, alpha[size_t(t)][s] + beta[size_t(t)][s]);
        }
        for (int64_t a = 0; a < batch.probs.extent(2); ++a) {
            const double p = inside ? std::exp(q.log_p[size_t(t)][size_t(a)]) : 0.0;
            double gradient = p > 0.0 ? p - std::exp(share[size_t(a)] - total) : NAN;
            if (inside && impossible) {
                gradient = 0.0;
            }
            batch.gradients_address[batch.place(batch.gradients, t, n, a)] = float(gradient);
        }
    }
}

// The loss of all sequences, whose labels lie one behind the other.
void losses(
    Call &call, const Batch &batch, const int *labels, const int *label_lengths, const int *steps, int longest) {
    for (int64_t n = 0; n < batch.probs.extent(1) && call.ok(); ++n) {
        call.require(
            steps[n] > 0 && steps[n] <= batch.probs.extent(0), "the length of input %d is %d", int(n), steps[n]);
        call.require(
            label_lengths[n] >= 0 && label_lengths[n] <= longest, "label %d has %d characters, and %d are allowed",
            int(n), label_lengths[n], longest);
        call.require(
            label_lengths[n] <= steps[n], "label %d has %d characters, and its input %d steps", int(n),
            label_lengths[n], steps[n]);
        for (int i = 0; i < label_lengths[n] && call.ok(); ++i) {
            call.require(
                labels[i] > 0 && labels[i] < batch.probs.extent(2), "label %d has the class %d", int(n), labels[i]);
        }
        if (call.ok()) {
            loss(batch, n, read(batch, n, steps[n], labels, label_lengths[n]));
            labels += label_lengths[n];
        }
    }
}

size_t workspace_bytes(const Layout &probs, int longest) {
    return 2 * size_t(probs.extent(0)) * size_t(probs.extent(1)) * size_t(2 * longest + 1) * sizeof(double);
}

// What both forms of the loss check.
Batch check(
    CudnnCall &call, const cudnnCTCLossStruct *ctc, const cudnnTensorStruct *probs_desc, const void *probs, void *costs,
    const cudnnTensorStruct *gradients_desc, void *gradients) {
    call.usable(ctc, "the loss' descriptor");
    Batch batch{};
    batch.probs = call.layout(probs_desc, "the probabilities' descriptor");
    call.supported(batch.probs.type == CUDNN_DATA_FLOAT, "the CTC loss of f64");
    call.require(batch.probs.rank == 3, "the probabilities are not (steps, batch, classes)");
    if (gradients != nullptr) {
        batch.gradients = call.layout(gradients_desc, "the gradients' descriptor");
        call.same_type(batch.probs, batch.gradients, "probabilities and gradients");
        call.same_extents(batch.probs, batch.gradients, "probabilities and gradients");
        call.array(gradients, batch.gradients, "the gradients");
    }
    if (call.ok()) {
        call.array(probs, batch.probs, "the probabilities");
        call.device(costs, size_t(batch.probs.extent(1)) * sizeof(float), "the costs", sizeof(float));
    }
    batch.probs_address = static_cast<const float *>(probs);
    batch.costs = static_cast<float *>(costs);
    batch.gradients_address = static_cast<float *>(gradients);
    batch.softmax = call.ok() && ctc->softmax;
    batch.zeros = call.ok() && ctc->zeros;
    return batch;
}

constexpr int LONGEST = 255;  // label that cuDNN takes

cudnnStatus_t set(
    const char *name, cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type, cudnnLossNormalizationMode_t normalization,
    bool zeros, int max_label_length) {
    CudnnCall call(name);
    call.live(ctc, "the descriptor").require(max_label_length >= 0, "the longest label is %d", max_label_length);
    call.supported(type == CUDNN_DATA_FLOAT, "the CTC loss of f64");
    call.supported(max_label_length <= LONGEST, "the CTC loss of labels of more than 255 characters");
    if (call.ok()) {
        ctc->type = type;
        ctc->softmax = normalization == CUDNN_LOSS_NORMALIZATION_SOFTMAX;
        ctc->zeros = zeros;
        ctc->max_label_length = max_label_length;
        ctc->set = true;
    }
    return call.status();
}

}  // namespace

extern "C" {

cudnnStatus_t cudnnCreateCTCLossDescriptor(cudnnCTCLossDescriptor_t *ctc) {
    return create("cudnnCreateCTCLossDescriptor", "cudnnCTCLossDescriptor", ctc);
}

cudnnStatus_t cudnnDestroyCTCLossDescriptor(cudnnCTCLossDescriptor_t ctc) {
    return destroy("cudnnDestroyCTCLossDescriptor", ctc);
}

cudnnStatus_t cudnnSetCTCLossDescriptorEx(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type, cudnnLossNormalizationMode_t normalization,
    cudnnNanPropagation_t mode) {
    return set("cudnnSetCTCLossDescriptorEx", ctc, type, normalization, mode == CUDNN_NOT_PROPAGATE_NAN, LONGEST);
}

cudnnStatus_t cudnnSetCTCLossDescriptor_v8(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type, cudnnLossNormalizationMode_t normalization,
    cudnnNanPropagation_t mode, int max_label_length) {
    const bool zeros = mode == CUDNN_NOT_PROPAGATE_NAN;
    return set("cudnnSetCTCLossDescriptor_v8", ctc, type, normalization, zeros, max_label_length);
}

cudnnStatus_t cudnnSetCTCLossDescriptor_v9(
    cudnnCTCLossDescriptor_t ctc, cudnnDataType_t type, cudnnLossNormalizationMode_t normalization,
    cudnnCTCGradMode_t mode, int max_label_length) {
    const bool zeros = mode == CUDNN_CTC_ZERO_OOB_GRADIENTS;
    return set("cudnnSetCTCLossDescriptor_v9", ctc, type, normalization, zeros, max_label_length);
}

// ---- labels and lengths on the host ----

cudnnStatus_t cudnnGetCTCLossWorkspaceSize(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t probs_desc, const cudnnTensorDescriptor_t, const int *labels,
    const int *label_lengths, const int *input_lengths, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc,
    size_t *size) {
    CudnnCall call("cudnnGetCTCLossWorkspaceSize", handle);
    call.usable(ctc, "the loss' descriptor").host(labels, "the labels").host(label_lengths, "the labels' lengths");
    call.host(input_lengths, "the inputs' lengths").host(size, "the place for the size");
    const Layout probs = call.layout(probs_desc, "the probabilities' descriptor");
    if (call.ok()) {
        *size = workspace_bytes(probs, *std::max_element(label_lengths, label_lengths + probs.extent(1)));
    }
    return call.status();
}

cudnnStatus_t cudnnCTCLoss(
    cudnnHandle_t handle, const cudnnTensorDescriptor_t probs_desc, const void *probs, const int labels[],
    const int label_lengths[], const int input_lengths[], void *costs, const cudnnTensorDescriptor_t gradients_desc,
    void *gradients, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc, void *workspace, size_t workspace_size) {
    CudnnCall call("cudnnCTCLoss", handle);
    const Batch batch = check(call, ctc, probs_desc, probs, costs, gradients_desc, gradients);
    call.host(labels, "the labels").host(label_lengths, "the labels' lengths");
    call.host(input_lengths, "the inputs' lengths");
    if (!call.ok()) {
        return call.status();
    }
    // What lies on the host is read now: the caller may change it afterwards.
    const auto copied = [&](const int *numbers, int64_t count) { return std::vector<int>(numbers, numbers + count); };
    const std::vector<int> lengths = copied(label_lengths, batch.probs.extent(1));
    const std::vector<int> steps = copied(input_lengths, batch.probs.extent(1));
    int64_t total = 0;
    for (const int length : lengths) {
        total += std::max(length, 0);
    }
    const std::vector<int> all = copied(labels, total);
    const size_t needed = workspace_bytes(batch.probs, *std::max_element(lengths.begin(), lengths.end()));
    call.workspace(workspace, workspace_size, needed);
    call.run([=] {
        Call later("cudnnCTCLoss", false);
        spoil(workspace, needed);
        losses(later, batch, all.data(), lengths.data(), steps.data(), LONGEST);
    });
    return call.status();
}

// ---- labels and lengths on the device: they are checked when the work runs ----

cudnnStatus_t cudnnGetCTCLossWorkspaceSize_v8(
    cudnnHandle_t handle, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc, const cudnnTensorDescriptor_t probs_desc,
    const cudnnTensorDescriptor_t, size_t *size) {
    CudnnCall call("cudnnGetCTCLossWorkspaceSize_v8", handle);
    const Layout probs = call.layout(probs_desc, "the probabilities' descriptor");
    call.usable(ctc, "the loss' descriptor").host(size, "the place for the size");
    if (call.ok()) {
        *size = workspace_bytes(probs, ctc->max_label_length);
    }
    return call.status();
}

cudnnStatus_t cudnnCTCLoss_v8(
    cudnnHandle_t handle, cudnnCTCLossAlgo_t, cudnnCTCLossDescriptor_t ctc, const cudnnTensorDescriptor_t probs_desc,
    const void *probs, const int labels[], const int label_lengths[], const int input_lengths[], void *costs,
    const cudnnTensorDescriptor_t gradients_desc, void *gradients, size_t workspace_size, void *workspace) {
    CudnnCall call("cudnnCTCLoss_v8", handle);
    const Batch batch = check(call, ctc, probs_desc, probs, costs, gradients_desc, gradients);
    const size_t lengths_bytes = size_t(batch.probs.extent(1)) * sizeof(int);
    call.device(label_lengths, lengths_bytes, "the labels' lengths", sizeof(int));
    call.device(input_lengths, lengths_bytes, "the inputs' lengths", sizeof(int));
    call.device(labels, sizeof(int), "the labels", sizeof(int));
    const int longest = call.ok() ? ctc->max_label_length : 0;
    const size_t needed = call.ok() ? workspace_bytes(batch.probs, longest) : 0;
    call.workspace(workspace, workspace_size, needed);
    call.run([=] {
        Call later("cudnnCTCLoss_v8", false);
        spoil(workspace, needed);
        losses(later, batch, labels, label_lengths, input_lengths, longest);
    });
    return call.status();
}

}  // extern "C"
