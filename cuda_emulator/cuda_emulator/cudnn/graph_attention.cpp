// The graphs that engines of the emulated cuDNN take: attention and its gradient, in the operations, types and sizes
// for which cuDNN has fused kernels. Any other graph has no engine, as it would have none on a GPU.

#include "graph.h"

#include <string>

namespace emulator {

namespace {

// The operations of a graph, counted by what they do.
struct Tally {
    int matmul = 0, sum = 0, peak = 0, reshape = 0;
    std::map<int, int> modes;

    int of(cudnnPointwiseMode_t mode) const {
        const auto found = modes.find(int(mode));
        return found == modes.end() ? 0 : found->second;
    }
};

Tally tally_of(const std::vector<Operation> &operations) {
    Tally tally;
    for (const Operation &operation : operations) {
        switch (operation.kind) {
        case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
            ++tally.matmul;
            break;
        case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
            ++(operation.reduction == CUDNN_REDUCE_TENSOR_ADD ? tally.sum : tally.peak);
            break;
        case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
            ++tally.reshape;
            break;
        default:
            ++tally.modes[int(operation.mode)];
        }
    }
    return tally;
}

// Without a mask, or with one of the scores behind the diagonal.
bool has_known_mask(const Tally &tally) {
    const int masks = tally.of(CUDNN_POINTWISE_BINARY_SELECT);
    return masks <= 1 && tally.of(CUDNN_POINTWISE_CMP_GE) == masks &&
           tally.of(CUDNN_POINTWISE_GEN_INDEX) == 2 * masks;
}

size_t known_masks(const Tally &tally) {
    return size_t(4 * tally.of(CUDNN_POINTWISE_BINARY_SELECT));
}

bool is_forward(const Tally &tally, size_t operations) {
    return operations == 10 + known_masks(tally) && tally.matmul == 2 && tally.peak == 1 && tally.sum == 1 &&
           tally.of(CUDNN_POINTWISE_MUL) == 1 && tally.of(CUDNN_POINTWISE_SUB) == 1 &&
           tally.of(CUDNN_POINTWISE_EXP) == 1 && tally.of(CUDNN_POINTWISE_LOG) == 1 &&
           tally.of(CUDNN_POINTWISE_ADD) == 1 && tally.of(CUDNN_POINTWISE_DIV) == 1;
}

bool is_gradient(const Tally &tally, size_t operations) {
    const int added_up = tally.of(CUDNN_POINTWISE_IDENTITY);
    return operations == 16 + size_t(tally.sum) + size_t(added_up) + known_masks(tally) && tally.matmul == 5 &&
           tally.sum >= 1 && tally.sum <= 3 && tally.peak == 0 && tally.reshape == 3 && added_up <= 1 &&
           tally.of(CUDNN_POINTWISE_MUL) == 5 && tally.of(CUDNN_POINTWISE_SUB) == 2 &&
           tally.of(CUDNN_POINTWISE_EXP) == 1;
}

bool is_half(const GraphTensor &tensor) {
    return tensor.type == CUDNN_DATA_HALF || tensor.type == CUDNN_DATA_BFLOAT16;
}

}  // namespace

std::vector<Engine> engines_for(const std::vector<Operation> &operations, std::string &words) {
    const auto none = [&](const char *why) {
        words = why;
        return std::vector<Engine>();
    };
    const Tally tally = tally_of(operations);
    const bool forward = is_forward(tally, operations.size()), gradient = is_gradient(tally, operations.size());
    if (!has_known_mask(tally) || (!forward && !gradient)) {
        return none("these operations are neither attention nor its gradient");
    }
    int64_t scores = 0, rows = 0, columns = 0;
    for (const Operation &operation : operations) {
        std::vector<const GraphTensor *> tensors{&operation.output};
        for (const GraphTensor &input : operation.inputs) {
            tensors.push_back(&input);
        }
        for (const GraphTensor *tensor : tensors) {
            if (tensor->is_virtual || tensor->by_value) {
                continue;
            }
            if (tensor->alignment % 16 != 0) {
                return none("arrays of attention are aligned to 16 bytes");
            }
            if (is_half(*tensor) && tensor->strides[2] != 1 && tensor->strides[3] != 1) {
                return none("the features of a head do not lie next to one another");
            }
        }
        if (operation.kind != CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
            continue;
        }
        const GraphTensor &a = operation.inputs[0], &b = operation.inputs[1];
        if (!is_half(b) || (a.type != b.type && !(gradient && a.is_virtual))) {
            return none("the operands of a product are not both f16, or bf16");
        }
        if (scores == 0) {
            // Queries by keys come first.
            const int64_t width = a.extents[3];
            if (width % 8 != 0 || width > 128) {
                return none("a head has features by eights, up to 128");
            }
            scores = operation.output.count();
            rows = a.extents[2];
            columns = b.extents[3];
        } else if (forward && (b.extents[3] % 8 != 0 || b.extents[3] > 128)) {
            return none("a value has features by eights, up to 128");
        }
    }
    if (gradient && rows == 1 && columns == 1) {
        return none("the gradient for one query and one key");
    }
    if (forward) {
        return {{true, 64}};
    }
    if (tally.of(CUDNN_POINTWISE_IDENTITY)) {
        return {{false, 256}};
    }
    // The preferred one adds up with atomics; the other one keeps the gradients of all scores.
    return {{false, 128}, {true, 2 * size_t(scores)}};
}

}  // namespace emulator
