// cuDNN's interface of operation graphs on the emulated device: descriptors with attributes, from tensors to a plan.
//
// An attribute that a kind does not have, of another type or number of elements, or set after finalizing, is refused;
// so is a descriptor that lacks one. Tensors that a plan reads and writes are checked when it is executed: all of them
// are there, once, in live memory of their size and alignment, and none that it writes overlaps another.

#include "graph.h"

#include <algorithm>
#include <cstring>
#include <set>
#include <string>

using namespace emulator;

namespace {

enum Need { OPTIONAL, REQUIRED, READ_ONLY };

struct Rule {
    cudnnBackendDescriptorType_t kind;
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t most;
    Need need;
};

const int64_t ANY = 1 << 20;

const Rule RULES[] = {
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, REQUIRED},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, REQUIRED},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, CUDNN_DIM_MAX, REQUIRED},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, CUDNN_DIM_MAX, REQUIRED},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, REQUIRED},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, OPTIONAL},
    {CUDNN_BACKEND_TENSOR_DESCRIPTOR, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, OPTIONAL},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, REQUIRED},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, REQUIRED},
    {CUDNN_BACKEND_POINTWISE_DESCRIPTOR, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, OPTIONAL},
    {CUDNN_BACKEND_MATMUL_DESCRIPTOR, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, REQUIRED},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1,
     REQUIRED},
    {CUDNN_BACKEND_REDUCTION_DESCRIPTOR, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_BDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, OPTIONAL},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_TDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, OPTIONAL},
    {CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, CUDNN_ATTR_OPERATION_POINTWISE_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_ADESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_BDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, CUDNN_ATTR_OPERATION_MATMUL_CDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_DESC, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_XDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR, CUDNN_ATTR_OPERATION_REDUCTION_YDESC,
     CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, REQUIRED},
    {CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ANY,
     REQUIRED},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
     REQUIRED},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, REQUIRED},
    {CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, ANY,
     READ_ONLY},
    {CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, READ_ONLY},
    {CUDNN_BACKEND_ENGINE_DESCRIPTOR, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
     CUDNN_NUMERICAL_NOTE_TYPE_COUNT, READ_ONLY},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1, REQUIRED},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR,
     1, REQUIRED},
    {CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
     READ_ONLY},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, ANY, REQUIRED},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, ANY, REQUIRED},
    {CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, REQUIRED},
};

const Rule *rule_of(const cudnnBackendStruct &descriptor, int name) {
    for (const Rule &rule : RULES) {
        if (rule.kind == descriptor.type && rule.name == name) {
            return &rule;
        }
    }
    return nullptr;
}

size_t bytes_of(cudnnBackendAttributeType_t type) {
    switch (type) {
    case CUDNN_TYPE_BOOLEAN:
        return sizeof(bool);
    case CUDNN_TYPE_INT64:
        return sizeof(int64_t);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR:
        return sizeof(void *);
    default:
        return sizeof(int);  // enumerators
    }
}

cudnnBackendStruct *descriptor_at(cudnnBackendDescriptor_t address) {
    return static_cast<cudnnBackendStruct *>(address);
}

template <class T> T value_of(const cudnnBackendStruct &descriptor, int name, T otherwise = T()) {
    const auto found = descriptor.attributes.find(name);
    return found == descriptor.attributes.end() ? otherwise : found->second.at<T>();
}

std::vector<int64_t> integers_of(const cudnnBackendStruct &descriptor, int name) {
    std::vector<int64_t> found;
    const Attribute &attribute = descriptor.attributes.at(name);
    for (int64_t index = 0; index < attribute.count; ++index) {
        found.push_back(attribute.at<int64_t>(index));
    }
    return found;
}

// The descriptor that an attribute names, of this kind and finalized.
const cudnnBackendStruct *
named(CudnnCall &call, const cudnnBackendStruct &descriptor, int name, cudnnBackendDescriptorType_t kind) {
    const auto *found = descriptor_at(value_of<void *>(descriptor, name));
    call.usable(found, "a descriptor that an attribute names");
    call.require(!call.ok() || found->type == kind, "attribute %d names a descriptor of another kind", name);
    return call.ok() ? found : nullptr;
}

// ---- finalizing ----

void finalize_tensor(CudnnCall &call, cudnnBackendStruct &descriptor) {
    GraphTensor &tensor = descriptor.tensor;
    tensor.id = value_of<int64_t>(descriptor, CUDNN_ATTR_TENSOR_UNIQUE_ID);
    tensor.type = value_of<cudnnDataType_t>(descriptor, CUDNN_ATTR_TENSOR_DATA_TYPE);
    tensor.extents = integers_of(descriptor, CUDNN_ATTR_TENSOR_DIMENSIONS);
    tensor.strides = integers_of(descriptor, CUDNN_ATTR_TENSOR_STRIDES);
    tensor.alignment = value_of<int64_t>(descriptor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
    tensor.is_virtual = value_of<bool>(descriptor, CUDNN_ATTR_TENSOR_IS_VIRTUAL);
    tensor.by_value = value_of<bool>(descriptor, CUDNN_ATTR_TENSOR_IS_BY_VALUE);
    call.require(tensor.type != CUDNN_DATA_DOUBLE, "the emulated device has no graphs of f64");
    call.require(tensor.extents.size() == tensor.strides.size(), "as many strides as extents");
    call.require(!tensor.is_virtual || !tensor.by_value, "a tensor is virtual, or passed by value");
    call.require(!tensor.by_value || tensor.count() == 1, "one number is passed by value");
    call.require(
        tensor.alignment > 0 && (tensor.alignment & (tensor.alignment - 1)) == 0, "an alignment of %d bytes",
        int(tensor.alignment));
    for (size_t axis = 0; axis < tensor.extents.size() && call.ok(); ++axis) {
        call.require(
            tensor.extents[axis] > 0 && tensor.strides[axis] > 0, "axis %d has the extent %d and the stride %d",
            int(axis), int(tensor.extents[axis]), int(tensor.strides[axis]));
    }
}

void take_tensor(CudnnCall &call, const cudnnBackendStruct &descriptor, int name, std::vector<GraphTensor> &into) {
    if (descriptor.attributes.count(name) == 0) {
        return;
    }
    if (const auto *found = named(call, descriptor, name, CUDNN_BACKEND_TENSOR_DESCRIPTOR)) {
        into.push_back(found->tensor);
    }
}

void finalize_operation(CudnnCall &call, cudnnBackendStruct &descriptor) {
    Operation &operation = descriptor.operation;
    operation.kind = descriptor.type;
    std::vector<GraphTensor> output;
    if (descriptor.type == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR) {
        const int name = CUDNN_ATTR_OPERATION_MATMUL_DESC;
        if (const auto *how = named(call, descriptor, name, CUDNN_BACKEND_MATMUL_DESCRIPTOR)) {
            operation.computes = value_of<cudnnDataType_t>(*how, CUDNN_ATTR_MATMUL_COMP_TYPE);
        }
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_MATMUL_ADESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_MATMUL_BDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_MATMUL_CDESC, output);
    } else if (descriptor.type == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR) {
        const int name = CUDNN_ATTR_OPERATION_REDUCTION_DESC;
        if (const auto *how = named(call, descriptor, name, CUDNN_BACKEND_REDUCTION_DESCRIPTOR)) {
            operation.reduction = value_of<cudnnReduceTensorOp_t>(*how, CUDNN_ATTR_REDUCTION_OPERATOR);
            operation.computes = value_of<cudnnDataType_t>(*how, CUDNN_ATTR_REDUCTION_COMP_TYPE);
        }
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, output);
    } else if (descriptor.type == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR) {
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, output);
    } else {
        const int name = CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR;
        if (const auto *how = named(call, descriptor, name, CUDNN_BACKEND_POINTWISE_DESCRIPTOR)) {
            operation.mode = value_of<cudnnPointwiseMode_t>(*how, CUDNN_ATTR_POINTWISE_MODE);
            operation.computes = value_of<cudnnDataType_t>(*how, CUDNN_ATTR_POINTWISE_MATH_PREC);
            operation.axis = value_of<int64_t>(*how, CUDNN_ATTR_POINTWISE_AXIS, -1);
        }
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, operation.inputs);
        take_tensor(call, descriptor, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, output);
    }
    if (call.ok()) {
        operation.output = output[0];
        std::string words;
        const bool right = is_well_formed(operation, words);
        call.require(right, "%s", words.c_str());
    }
}

// Each number stands for one tensor, which one operation at most makes; virtual ones are made before they are read.
void check_graph(CudnnCall &call, const std::vector<Operation> &operations) {
    std::map<int64_t, GraphTensor> known;
    std::set<int64_t> made;
    for (const Operation &operation : operations) {
        std::vector<GraphTensor> tensors = operation.inputs;
        tensors.push_back(operation.output);
        for (const GraphTensor &tensor : tensors) {
            const auto at = known.emplace(tensor.id, tensor).first;
            call.require(at->second.is_same_as(tensor), "two tensors have the number %d", int(tensor.id));
        }
        for (const GraphTensor &input : operation.inputs) {
            const bool is_there = !input.is_virtual || made.count(input.id);
            call.require(is_there, "tensor %d is virtual, and read before it is made", int(input.id));
        }
        call.require(made.insert(operation.output.id).second, "tensor %d is made twice", int(operation.output.id));
    }
}

void finalize_graph(CudnnCall &call, cudnnBackendStruct &descriptor) {
    call.usable(value_of<cudnnHandle_t>(descriptor, CUDNN_ATTR_OPERATIONGRAPH_HANDLE), "the graph's handle");
    const Attribute &listed = descriptor.attributes.at(CUDNN_ATTR_OPERATIONGRAPH_OPS);
    for (int64_t index = 0; index < listed.count && call.ok(); ++index) {
        const auto *operation = descriptor_at(listed.at<void *>(index));
        call.usable(operation, "an operation of the graph");
        call.require(!call.ok() || !operation->operation.inputs.empty(), "descriptor %d is no operation", int(index));
        if (call.ok()) {
            descriptor.operations.push_back(operation->operation);
        }
    }
    if (call.ok()) {
        check_graph(call, descriptor.operations);
    }
}

void finalize_heuristics(CudnnCall &call, cudnnBackendStruct &descriptor) {
    const int name = CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH;
    const auto *graph = named(call, descriptor, name, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    const auto mode = value_of<cudnnBackendHeurMode_t>(descriptor, CUDNN_ATTR_ENGINEHEUR_MODE);
    if (graph != nullptr) {
        std::string words;
        descriptor.operations = graph->operations;
        if (mode != CUDNN_HEUR_MODE_FALLBACK && settings().engines) {
            descriptor.engines = engines_for(graph->operations, words);
        }
    }
}

void finalize_plan(CudnnCall &call, cudnnBackendStruct &descriptor) {
    call.usable(value_of<cudnnHandle_t>(descriptor, CUDNN_ATTR_EXECUTION_PLAN_HANDLE), "the plan's handle");
    const int name = CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG;
    if (const auto *config = named(call, descriptor, name, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR)) {
        descriptor.operations = config->operations;
        descriptor.engines = config->engines;
    }
}

void finalize_pack(CudnnCall &call, const cudnnBackendStruct &descriptor) {
    const int64_t ids = descriptor.attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS).count;
    const int64_t pointers = descriptor.attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS).count;
    call.require(ids == pointers, "%d numbers of tensors, and %d addresses", int(ids), int(pointers));
}

// ---- executing ----

// The tensors of a graph that are in memory, by number, and which of them it writes.
std::map<int64_t, GraphTensor> outside(const std::vector<Operation> &operations, std::set<int64_t> &written) {
    std::map<int64_t, GraphTensor> found;
    for (const Operation &operation : operations) {
        for (const GraphTensor &input : operation.inputs) {
            if (!input.is_virtual) {
                found.emplace(input.id, input);
            }
        }
        if (!operation.output.is_virtual) {
            found.emplace(operation.output.id, operation.output);
            written.insert(operation.output.id);
        }
    }
    return found;
}

void compute(
    const std::vector<Operation> &operations, const std::map<int64_t, GraphTensor> &tensors,
    const std::map<int64_t, void *> &places, const std::set<int64_t> &written, GraphValues values) {
    for (const auto &[id, tensor] : tensors) {
        if (written.count(id) || tensor.by_value) {
            continue;
        }
        std::vector<double> &into = values[id];
        for (int64_t index = 0; index < tensor.count(); ++index) {
            into.push_back(load_element(places.at(id), tensor.type, tensor.offset(index)));
        }
    }
    for (const Operation &operation : operations) {
        carry_out(operation, values);
    }
    for (const int64_t id : written) {
        const GraphTensor &tensor = tensors.at(id);
        for (int64_t index = 0; index < tensor.count(); ++index) {
            store_element(places.at(id), tensor.type, tensor.offset(index), values[id][size_t(index)]);
        }
    }
}

}  // namespace

extern "C" {

cudnnStatus_t
cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *descriptor) {
    CudnnCall call("cudnnBackendCreateDescriptor");
    const bool is_known =
        std::any_of(std::begin(RULES), std::end(RULES), [&](const Rule &rule) { return rule.kind == type; });
    call.host(descriptor, "the place for the descriptor");
    call.supported(is_known, "descriptors of this kind");
    if (call.ok()) {
        auto *made = create_descriptor<cudnnBackendStruct>("cudnnBackendDescriptor");
        made->type = type;
        *descriptor = made;
    }
    return call.status();
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
    return destroy("cudnnBackendDestroyDescriptor", descriptor_at(descriptor));
}

cudnnStatus_t cudnnBackendSetAttribute(
    cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
    int64_t count, const void *elements) {
    CudnnCall call("cudnnBackendSetAttribute");
    cudnnBackendStruct *to = descriptor_at(descriptor);
    call.live(to, "the descriptor").host(elements, "the elements");
    call.require(!call.ok() || !to->set, "attribute %d is set after the descriptor was finalized", int(name));
    const Rule *rule = call.ok() ? rule_of(*to, name) : nullptr;
    call.require(rule != nullptr && rule->need != READ_ONLY, "attribute %d of this kind cannot be set", int(name));
    call.require(!call.ok() || rule->type == type, "attribute %d is not of type %d", int(name), int(type));
    call.require(
        !call.ok() || (count > 0 && count <= rule->most), "attribute %d with %d elements", int(name), int(count));
    if (call.ok()) {
        const auto *bytes = static_cast<const unsigned char *>(elements);
        to->attributes[name] = {count, {bytes, bytes + size_t(count) * bytes_of(type)}};
    }
    return call.status();
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    CudnnCall call("cudnnBackendFinalize");
    cudnnBackendStruct *made = descriptor_at(descriptor);
    call.live(made, "the descriptor");
    call.require(!call.ok() || !made->set, "the descriptor was finalized before");
    for (const Rule &rule : RULES) {
        const bool lacks = call.ok() && rule.kind == made->type && rule.need == REQUIRED &&
                           made->attributes.count(rule.name) == 0;
        call.require(!lacks, "attribute %d was not set", int(rule.name));
    }
    if (!call.ok()) {
        return call.status();
    }
    switch (made->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR:
        finalize_tensor(call, *made);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        finalize_operation(call, *made);
        break;
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR:
        finalize_graph(call, *made);
        break;
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR:
        finalize_heuristics(call, *made);
        break;
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR:
        finalize_plan(call, *made);
        break;
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR:
        finalize_pack(call, *made);
        break;
    default:
        break;
    }
    made->set = call.ok();
    return call.status();
}

cudnnStatus_t cudnnBackendGetAttribute(
    cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
    int64_t requested, int64_t *count, void *elements) {
    CudnnCall call("cudnnBackendGetAttribute");
    const cudnnBackendStruct *from = descriptor_at(descriptor);
    call.usable(from, "the descriptor");
    const Rule *rule = call.ok() ? rule_of(*from, name) : nullptr;
    call.require(rule != nullptr && rule->need == READ_ONLY, "attribute %d of this kind is not read", int(name));
    call.require(!call.ok() || rule->type == type, "attribute %d is not of type %d", int(name), int(type));
    call.require(requested >= 0 && (requested == 0 || elements != nullptr), "%d elements asked for", int(requested));
    if (!call.ok()) {
        return call.status();
    }
    int64_t there = 1;
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
        // The caller has made descriptors, which get their contents now.
        const bool lists = name == CUDNN_ATTR_ENGINEHEUR_RESULTS;
        there = lists ? int64_t(from->engines.size()) : 1;
        for (int64_t index = 0; index < std::min(requested, there) && call.ok(); ++index) {
            auto *into = descriptor_at(static_cast<void **>(elements)[index]);
            const auto kind = lists ? CUDNN_BACKEND_ENGINECFG_DESCRIPTOR : CUDNN_BACKEND_ENGINE_DESCRIPTOR;
            call.live(into, "a descriptor to be filled");
            call.require(!call.ok() || into->type == kind, "a descriptor to be filled is of another kind");
            if (call.ok()) {
                into->operations = from->operations;
                into->engines = {from->engines[size_t(index)]};
                into->set = true;
            }
        }
    } else if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) {
        std::vector<cudnnBackendNumericalNote_t> notes{CUDNN_NUMERICAL_NOTE_TENSOR_CORE};
        if (!from->engines[0].deterministic) {
            notes.push_back(CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
        }
        there = int64_t(notes.size());
        const size_t given = size_t(std::min(requested, there));
        if (given > 0) {
            memcpy(elements, notes.data(), given * sizeof notes[0]);
        }
    } else if (requested > 0) {
        *static_cast<int64_t *>(elements) = int64_t(from->engines[0].workspace);
    }
    if (count != nullptr) {
        *count = there;
    }
    return call.status();
}

cudnnStatus_t cudnnBackendExecute(
    cudnnHandle_t handle, cudnnBackendDescriptor_t execution_plan, cudnnBackendDescriptor_t variant_pack) {
    CudnnCall call("cudnnBackendExecute", handle);
    const cudnnBackendStruct *plan = descriptor_at(execution_plan), *pack = descriptor_at(variant_pack);
    call.usable(plan, "the plan").usable(pack, "the variant pack");
    call.require(
        !call.ok() || (plan->type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR &&
                       pack->type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR),
        "the descriptors are not a plan and a variant pack");
    if (!call.ok()) {
        return call.status();
    }
    std::set<int64_t> written;
    const std::map<int64_t, GraphTensor> tensors = outside(plan->operations, written);
    const Attribute &ids = pack->attributes.at(CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    const Attribute &pointers = pack->attributes.at(CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
    std::map<int64_t, void *> places;
    GraphValues values;
    for (int64_t index = 0; index < ids.count && call.ok(); ++index) {
        const int64_t id = ids.at<int64_t>(index);
        void *address = pointers.at<void *>(index);
        const auto at = tensors.find(id);
        call.require(at != tensors.end(), "the graph has no tensor %d in memory", int(id));
        call.require(places.emplace(id, address).second, "tensor %d is given twice", int(id));
        if (!call.ok()) {
            break;
        }
        const std::string what = "tensor " + std::to_string(id);
        if (at->second.by_value) {
            call.host(address, what.c_str());
            if (call.ok()) {
                values[id] = {load_element(address, at->second.type, 0)};
            }
        } else {
            call.device(address, at->second.bytes(), what.c_str(), size_t(at->second.alignment));
        }
    }
    const int given = int(places.size());
    call.require(places.size() == tensors.size(), "%d tensors are given, of %d", given, int(tensors.size()));
    void *workspace = value_of<void *>(*pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    const size_t needed = plan->engines[0].workspace;
    call.device(workspace, needed, "the workspace");
    for (const int64_t id : written) {
        for (const auto &[other, tensor] : tensors) {
            if (call.ok() && other != id && !tensor.by_value) {
                call.apart(places[id], tensors.at(id).bytes(), places[other], tensor.bytes(), "two tensors");
            }
        }
        if (call.ok()) {
            call.apart(places[id], tensors.at(id).bytes(), workspace, needed, "a tensor and the workspace");
        }
    }
    std::vector<Operation> operations = plan->operations;
    static int64_t calls = 0;
    for (Operation &operation : operations) {
        operation.first_term = plan->engines[0].deterministic ? 0 : calls;
    }
    ++calls;
    call.run([=] {
        spoil(workspace, needed);
        compute(operations, tensors, places, written, values);
    });
    return call.status();
}

}  // extern "C"
