// Inside the emulated cuDNN: operation graphs. A descriptor is a kind and its attributes; finalizing checks them, and
// says what they mean once for all that follows.
//
//     graph.cpp            descriptors, attributes, heuristics, plans, execution
//     graph_operations.cpp what an operation computes
//     graph_attention.cpp  the graphs that an engine takes: fused attention, and its gradient
#ifndef STAGED_EMULATED_CUDNN_GRAPH_DESCRIPTORS_H
#define STAGED_EMULATED_CUDNN_GRAPH_DESCRIPTORS_H

#include "tensors.h"

#include <cstring>
#include <map>
#include <string>
#include <vector>

namespace emulator {

// The elements of an attribute, as the caller's array had them.
struct Attribute {
    int64_t count = 0;
    std::vector<unsigned char> bytes;

    template <class T> T at(int64_t index = 0) const {
        T value;
        memcpy(&value, bytes.data() + size_t(index) * sizeof(T), sizeof(T));
        return value;
    }
};

// An array of a graph: four axes, row by row in its strides.
struct GraphTensor {
    int64_t id = 0;
    cudnnDataType_t type = CUDNN_DATA_FLOAT;
    std::vector<int64_t> extents, strides;
    int64_t alignment = 1;
    bool is_virtual = false, by_value = false;

    int64_t count() const;
    size_t element_bytes() const;
    // The bytes of memory from its first element to its last.
    size_t bytes() const;
    // Where element number `index`, counted row by row, lies.
    int64_t offset(int64_t index) const;
    bool has_extents(int64_t a, int64_t b, int64_t c, int64_t d) const;
    bool is_same_as(const GraphTensor &other) const;
};

// The kinds of operations, each with what it does: y of x, b and t.
struct Operation {
    cudnnBackendDescriptorType_t kind = CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR;
    cudnnPointwiseMode_t mode = CUDNN_POINTWISE_IDENTITY;
    int64_t axis = -1;  // of CUDNN_POINTWISE_GEN_INDEX
    cudnnReduceTensorOp_t reduction = CUDNN_REDUCE_TENSOR_ADD;
    cudnnDataType_t computes = CUDNN_DATA_FLOAT;
    int64_t first_term = 0;  // of a product's sums, where an engine adds up in any order
    std::vector<GraphTensor> inputs;
    GraphTensor output;
};

// By the tensors' numbers: the elements row by row, as f64 that hold numbers of the tensor's type.
using GraphValues = std::map<int64_t, std::vector<double>>;

// Elements of a type in memory: from them, and to them, rounded to the nearest.
double load_element(const void *address, cudnnDataType_t type, int64_t index);
void store_element(void *address, cudnnDataType_t type, int64_t index, double value);
double rounded_to(cudnnDataType_t type, double value);

// Whether an operation can be carried out on its operands; else what is wrong in `words`.
bool is_well_formed(const Operation &operation, std::string &words);
// Computes an operation's output.
void carry_out(const Operation &operation, GraphValues &values);

// What an engine says of a graph.
struct Engine {
    bool deterministic = true;
    size_t workspace = 0;
};

// The engines for a graph, the preferred one first; none where no fused kernel exists, with the reason in `words`.
std::vector<Engine> engines_for(const std::vector<Operation> &operations, std::string &words);

}  // namespace emulator

// Any descriptor of this interface; `set` once it is finalized.
struct cudnnBackendStruct : emulator::Object {
    cudnnBackendDescriptorType_t type = CUDNN_BACKEND_TENSOR_DESCRIPTOR;
    std::map<int, emulator::Attribute> attributes;
    emulator::GraphTensor tensor;
    emulator::Operation operation;
    std::vector<emulator::Operation> operations;  // of a graph, and of all that is made of it
    std::vector<emulator::Engine> engines;  // of heuristics: all; of a configuration, engine or plan: its one
};

#endif
