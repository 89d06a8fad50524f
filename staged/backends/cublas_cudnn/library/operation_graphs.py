"""C text of cuDNN's operation graphs: how one is put together and becomes a plan.

A plan is made when the device is opened. `run_plan` is all that a call does.

Tested by `tests/backends/cublas_cudnn/test_attention.py`.
"""

from __future__ import annotations

NAMES = frozenset(
    """GraphPlan OperationGraph run_plan graph_make graph_set graph_name graph_finalize graph_tensor graph_array
    graph_transposed graph_number graph_inner graph_add graph_pointwise graph_each graph_product graph_reduced
    graph_ended graph_reason engine_is_unordered plan_made plan_found""".split()
)
"""The names of types and functions in these texts, which nothing else of a program has."""
PLAN_BYTES = 24
"""Of a `GraphPlan`."""

RUN_PLAN = """\
// What stays of a graph: its plan, and the engine that this is of.
typedef struct {
    cudnnBackendDescriptor_t plan;
    cudnnBackendDescriptor_t config;
    size_t bytes;  // of its workspace, by 256
} GraphPlan;

// A plan of cuDNN, on arrays that its graph knows by these numbers.
static cudnnStatus_t run_plan(cudnnHandle_t cudnn, cudnnBackendDescriptor_t plan, int64_t count, const int64_t *ids,
        const void *const *arrays, void *workspace) {
    cudnnBackendDescriptor_t pack = NULL;
    cudnnStatus_t status = cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack);
    if (status != CUDNN_STATUS_SUCCESS) {
        return status;
    }
    status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, ids);
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                                          (const void *)arrays);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnnBackendSetAttribute(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                                          (const void *)&workspace);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnnBackendFinalize(pack);
    }
    if (status == CUDNN_STATUS_SUCCESS) {
        status = cudnnBackendExecute(cudnn, plan, pack);
    }
    (void)cudnnBackendDestroyDescriptor(pack);
    return status;
}
"""

GRAPH = """\
// A graph of cuDNN's operations while it is put together: all descriptors made for it, its operations among them, and
// the first status that was no success, after which nothing more is done.
typedef struct {
    cudnnBackendDescriptor_t made[160];
    cudnnBackendDescriptor_t operations[32];
    int made_count;
    int operation_count;
    int64_t inner_count;
    cudnnStatus_t status;
} OperationGraph;

static cudnnBackendDescriptor_t graph_make(OperationGraph *graph, cudnnBackendDescriptorType_t kind) {
    cudnnBackendDescriptor_t made = NULL;
    if (graph->status == CUDNN_STATUS_SUCCESS) {
        graph->status = cudnnBackendCreateDescriptor(kind, &made);
    }
    if (graph->status == CUDNN_STATUS_SUCCESS) {
        graph->made[graph->made_count++] = made;
    }
    return made;
}

static void graph_set(OperationGraph *graph, cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (graph->status == CUDNN_STATUS_SUCCESS) {
        graph->status = cudnnBackendSetAttribute(made, name, type, count, values);
    }
}

static void graph_name(OperationGraph *graph, cudnnBackendDescriptor_t made, cudnnBackendAttributeName_t name,
        cudnnBackendDescriptor_t other) {
    graph_set(graph, made, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&other);
}

static void graph_finalize(OperationGraph *graph, cudnnBackendDescriptor_t made) {
    if (graph->status == CUDNN_STATUS_SUCCESS) {
        graph->status = cudnnBackendFinalize(made);
    }
}

static cudnnBackendDescriptor_t graph_tensor(OperationGraph *graph, int64_t id, cudnnDataType_t type,
        const int64_t *extents, const int64_t *strides, bool is_inner, bool is_number) {
    const int64_t alignment = 16;
    const cudnnBackendDescriptor_t made = graph_make(graph, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, extents);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &is_inner);
    graph_set(graph, made, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &is_number);
    graph_finalize(graph, made);
    return made;
}

// An array in memory, row by row.
static cudnnBackendDescriptor_t graph_array(OperationGraph *graph, int64_t id, cudnnDataType_t type, int64_t batch,
        int64_t heads, int64_t rows, int64_t columns) {
    const int64_t extents[4] = {batch, heads, rows, columns};
    const int64_t strides[4] = {heads * rows * columns, rows * columns, columns, 1};
    return graph_tensor(graph, id, type, extents, strides, false, false);
}

// The same array with its last two axes swapped.
static cudnnBackendDescriptor_t graph_transposed(OperationGraph *graph, int64_t id, cudnnDataType_t type,
        int64_t batch, int64_t heads, int64_t rows, int64_t columns) {
    const int64_t extents[4] = {batch, heads, columns, rows};
    const int64_t strides[4] = {heads * rows * columns, rows * columns, 1, columns};
    return graph_tensor(graph, id, type, extents, strides, false, false);
}

// A number of f32 that is given by its address on the host.
static cudnnBackendDescriptor_t graph_number(OperationGraph *graph, int64_t id) {
    const int64_t ones[4] = {1, 1, 1, 1};
    return graph_tensor(graph, id, CUDNN_DATA_FLOAT, ones, ones, false, true);
}

// What one operation hands to another, and is never in memory.
static cudnnBackendDescriptor_t graph_inner(OperationGraph *graph, cudnnDataType_t type, int64_t batch, int64_t heads,
        int64_t rows, int64_t columns) {
    const int64_t extents[4] = {batch, heads, rows, columns};
    const int64_t strides[4] = {heads * rows * columns, rows * columns, columns, 1};
    return graph_tensor(graph, 1000 + graph->inner_count++, type, extents, strides, true, false);
}

static void graph_add(OperationGraph *graph, cudnnBackendDescriptor_t operation) {
    graph_finalize(graph, operation);
    graph->operations[graph->operation_count++] = operation;
}

// y = mode(x, b) or mode(x, b, t), element by element; b and t may be NULL, `axis` is that of an index.
static cudnnBackendDescriptor_t graph_pointwise(OperationGraph *graph, cudnnPointwiseMode_t mode,
        cudnnDataType_t computes, int64_t axis, cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b,
        cudnnBackendDescriptor_t t, cudnnBackendDescriptor_t y) {
    const cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_POINTWISE_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode);
    graph_set(graph, how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &computes);
    if (mode == CUDNN_POINTWISE_GEN_INDEX) {
        graph_set(graph, how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &axis);
    }
    graph_finalize(graph, how);
    const cudnnBackendDescriptor_t made = graph_make(graph, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x);
    if (b != NULL) {
        graph_name(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b);
    }
    if (t != NULL) {
        graph_name(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, t);
    }
    graph_name(graph, made, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y);
    graph_add(graph, made);
    return y;
}

// The same in f32, of one operand or two.
static cudnnBackendDescriptor_t graph_each(OperationGraph *graph, cudnnPointwiseMode_t mode,
        cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t y) {
    return graph_pointwise(graph, mode, CUDNN_DATA_FLOAT, -1, x, b, NULL, y);
}

// c = a @ b, added up in f32.
static cudnnBackendDescriptor_t graph_product(OperationGraph *graph, cudnnBackendDescriptor_t a,
        cudnnBackendDescriptor_t b, cudnnBackendDescriptor_t c) {
    const cudnnDataType_t computes = CUDNN_DATA_FLOAT;
    const cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_MATMUL_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computes);
    graph_finalize(graph, how);
    const cudnnBackendDescriptor_t made = graph_make(graph, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_MATMUL_DESC, how);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_MATMUL_CDESC, c);
    graph_add(graph, made);
    return c;
}

// y = x reduced to the extents of y, in f32.
static cudnnBackendDescriptor_t graph_reduced(OperationGraph *graph, cudnnReduceTensorOp_t what,
        cudnnBackendDescriptor_t x, cudnnBackendDescriptor_t y) {
    const cudnnDataType_t computes = CUDNN_DATA_FLOAT;
    const cudnnBackendDescriptor_t how = graph_make(graph, CUDNN_BACKEND_REDUCTION_DESCRIPTOR);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_OPERATOR, CUDNN_TYPE_REDUCTION_OPERATOR_TYPE, 1, &what);
    graph_set(graph, how, CUDNN_ATTR_REDUCTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &computes);
    graph_finalize(graph, how);
    const cudnnBackendDescriptor_t made = graph_make(graph, CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_DESC, how);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_XDESC, x);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_REDUCTION_YDESC, y);
    graph_add(graph, made);
    return y;
}

// Whether an engine adds up in an order that may differ from run to run.
static bool engine_is_unordered(cudnnBackendDescriptor_t config) {
    cudnnBackendDescriptor_t engine = NULL;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    int64_t count = 0;
    bool found = true;  // until cuDNN says otherwise
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) != CUDNN_STATUS_SUCCESS) {
        return found;
    }
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count,
                                 (void *)&engine) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                 CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes) == CUDNN_STATUS_SUCCESS) {
        found = false;
        for (int64_t number = 0; number < count; ++number) {
            found = found || notes[number] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
        }
    }
    (void)cudnnBackendDestroyDescriptor(engine);
    return found;
}

// The plan of an engine, if cuDNN can make it.
static bool plan_made(cudnnHandle_t cudnn, cudnnBackendDescriptor_t config, GraphPlan *made) {
    cudnnBackendDescriptor_t plan = NULL;
    int64_t bytes = 0;
    int64_t count = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    if (cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 (const void *)&cudnn) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 (const void *)&config) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count,
                                 &bytes) != CUDNN_STATUS_SUCCESS) {
        (void)cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    made->plan = plan;
    made->config = config;
    made->bytes = ((size_t)bytes + 255) / 256 * 256;
    return true;
}

// The first plan of the engines that cuDNN offers for a graph in one mode of its heuristic; with `ordered`, of those
// that add up in one order.
static bool plan_found(cudnnHandle_t cudnn, cudnnBackendDescriptor_t operations, cudnnBackendHeurMode_t mode,
        bool ordered, GraphPlan *made) {
    cudnnBackendDescriptor_t offers = NULL;
    cudnnBackendDescriptor_t configs[32];
    int64_t count = 0;
    int created = 0;
    bool found = false;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &offers) != CUDNN_STATUS_SUCCESS) {
        return false;
    }
    if (cudnnBackendSetAttribute(offers, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 (const void *)&operations) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(offers, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1,
                                 &mode) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(offers) == CUDNN_STATUS_SUCCESS) {
        while (created < 32 && cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &configs[created]) ==
                                   CUDNN_STATUS_SUCCESS) {
            ++created;
        }
        if (cudnnBackendGetAttribute(offers, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, created,
                                     &count, (void *)configs) != CUDNN_STATUS_SUCCESS) {
            count = 0;
        }
    }
    for (int number = 0; number < created; ++number) {
        if (!found && number < count && !(ordered && engine_is_unordered(configs[number])) &&
            plan_made(cudnn, configs[number], made)) {
            found = true;  // the plan keeps this one
        } else {
            (void)cudnnBackendDestroyDescriptor(configs[number]);
        }
    }
    (void)cudnnBackendDestroyDescriptor(offers);
    return found;
}

// Ends a graph: its plan, after which nothing else of it stays. False if cuDNN has none for it on this device.
static bool graph_ended(OperationGraph *graph, cudnnHandle_t cudnn, bool ordered, GraphPlan *made) {
    const cudnnBackendDescriptor_t all = graph_make(graph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    graph_set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, (const void *)&cudnn);
    graph_set(graph, all, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, graph->operation_count,
              (const void *)graph->operations);
    graph_finalize(graph, all);
    const bool found = graph->status == CUDNN_STATUS_SUCCESS &&
                       (plan_found(cudnn, all, CUDNN_HEUR_MODE_A, ordered, made) ||
                        plan_found(cudnn, all, CUDNN_HEUR_MODE_FALLBACK, ordered, made));
    while (graph->made_count > 0) {
        (void)cudnnBackendDestroyDescriptor(graph->made[--graph->made_count]);
    }
    return found;
}

// Why a graph has no plan.
static const char *graph_reason(const OperationGraph *graph) {
    return graph->status == CUDNN_STATUS_SUCCESS ? "no engine" : cudnnGetErrorString(graph->status);
}
"""
