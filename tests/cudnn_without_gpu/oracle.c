// What stands between a generated program that opens its device and NVIDIA's cuDNN: the program's calls are its own, and the
// device that cuDNN plans for is only described.
//
// The linker lets `__wrap_NAME` answer a program's call of NAME (`--wrap`). Calls of the graph interface go on to cuDNN, with
// the device's description in the place of the handle. A convolution's descriptors are read back and put as a graph of one
// operation. Each graph, with what cuDNN answered, becomes a line of JSON on standard output.
#include <cudnn.h>
#include <dlfcn.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

cudnnStatus_t __real_cudnnBackendSetAttribute(cudnnBackendDescriptor_t, cudnnBackendAttributeName_t,
        cudnnBackendAttributeType_t, int64_t, const void *);
cudnnStatus_t __real_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const, cudnnBackendAttributeName_t,
        cudnnBackendAttributeType_t, int64_t, int64_t *, void *);
cudnnStatus_t __real_cudnnBackendFinalize(cudnnBackendDescriptor_t);

static cudnnBackendDescriptor_t device;  // the description
static cudnnHandle_t real_handle;        // of the device of this machine, if it is asked too

static void stop(const char *what, cudnnStatus_t status) {
    char words[2048] = "";
    cudnnGetLastErrorString(words, sizeof words);
    fprintf(stderr, "%s: %s %s\n", what, cudnnGetErrorString(status), words);
    exit(3);
}

static void must(const char *what, cudnnStatus_t status) {
    if (status != CUDNN_STATUS_SUCCESS) {
        stop(what, status);
    }
}

static cudnnBackendDescriptor_t made(cudnnBackendDescriptorType_t kind) {
    cudnnBackendDescriptor_t descriptor = NULL;
    must("cudnnBackendCreateDescriptor", cudnnBackendCreateDescriptor(kind, &descriptor));
    return descriptor;
}

static void set(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
        int64_t count, const void *values) {
    must("cudnnBackendSetAttribute", __real_cudnnBackendSetAttribute(descriptor, name, type, count, values));
}

static void set_other(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name, cudnnBackendDescriptor_t other) {
    set(descriptor, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&other);
}

static void describe_device(const char *path) {
    static char text[1 << 14];
    FILE *file = fopen(path, "r");
    const size_t length = file == NULL ? 0 : fread(text, 1, sizeof text - 1, file);
    if (length == 0) {
        fprintf(stderr, "no description of a device in %s\n", path);
        exit(3);
    }
    fclose(file);
    device = made(CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR);
    set(device, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION, CUDNN_TYPE_CHAR, (int64_t)length, text);
    must("the description of the device", __real_cudnnBackendFinalize(device));
}

// A handle of cuDNN's own: the program's `cudnnCreate` is another function.
static void open_real_handle(void) {
    void *const library = dlopen("libcudnn.so.9", RTLD_NOW | RTLD_NOLOAD);
    cudnnStatus_t (*create)(cudnnHandle_t *) = NULL;
    *(void **)&create = library == NULL ? NULL : dlsym(library, "cudnnCreate");
    if (create == NULL) {
        fprintf(stderr, "cuDNN has no function cudnnCreate\n");
        exit(3);
    }
    must("cudnnCreate", create(&real_handle));
}

// ---- engines ------------------------------------------------------------------------------------

typedef struct {
    int64_t number;        // the engine's, among all of cuDNN's for such a graph
    bool is_exact;         // no tensor core, no rounded operands, no transforms that round (FFT, Winograd)
    bool is_ordered;       // the same bits in every run
} Engine;

static Engine engine_of(cudnnBackendDescriptor_t config) {
    Engine found = {-1, true, true};
    int64_t count = 0;
    cudnnBackendNumericalNote_t notes[CUDNN_NUMERICAL_NOTE_TYPE_COUNT];
    cudnnBackendDescriptor_t engine = made(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    must("the engine of a configuration", __real_cudnnBackendGetAttribute(
            config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &count, (void *)&engine));
    must("the number of an engine", __real_cudnnBackendGetAttribute(
            engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &count, &found.number));
    must("the notes of an engine", __real_cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
            CUDNN_TYPE_NUMERICAL_NOTE, CUDNN_NUMERICAL_NOTE_TYPE_COUNT, &count, notes));
    for (int64_t number = 0; number < count; ++number) {
        if (notes[number] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) {
            found.is_ordered = false;
        } else if (notes[number] != CUDNN_NUMERICAL_NOTE_STRICT_NAN_PROP) {
            found.is_exact = false;
        }
    }
    (void)cudnnBackendDestroyDescriptor(engine);
    return found;
}

// ---- convolutions -------------------------------------------------------------------------------

typedef struct {
    const char *routine;
    int x[4], w[4], y[4];
    int pad[2], stride[2], dilation[2];
    int groups;
    cudnnDataType_t type;
    bool may_round;  // TF32 is allowed
} Convolution;

static cudnnBackendDescriptor_t tensor_of(int64_t id, const int *extents, cudnnDataType_t type) {
    const int64_t alignment = 16;
    int64_t wide[4];
    int64_t strides[4];
    int64_t step = 1;
    for (int axis = 3; axis >= 0; --axis) {
        wide[axis] = extents[axis];
        strides[axis] = step;
        step *= extents[axis];
    }
    const cudnnBackendDescriptor_t tensor = made(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    set(tensor, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id);
    set(tensor, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type);
    set(tensor, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, wide);
    set(tensor, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides);
    set(tensor, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
    must("a tensor", __real_cudnnBackendFinalize(tensor));
    return tensor;
}

static cudnnBackendDescriptor_t graph_of(const Convolution *c) {
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t spatial = 2;
    const int64_t pad[2] = {c->pad[0], c->pad[1]};
    const int64_t stride[2] = {c->stride[0], c->stride[1]};
    const int64_t dilation[2] = {c->dilation[0], c->dilation[1]};
    const cudnnBackendDescriptor_t window = made(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    set(window, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &c->type);
    set(window, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode);
    set(window, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &spatial);
    set(window, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(window, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pad);
    set(window, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, stride);
    set(window, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, dilation);
    must("a window", __real_cudnnBackendFinalize(window));
    const cudnnBackendDescriptor_t x = tensor_of(1, c->x, c->type);
    const cudnnBackendDescriptor_t w = tensor_of(2, c->w, c->type);
    const cudnnBackendDescriptor_t y = tensor_of(3, c->y, c->type);
    static const struct {
        const char *routine;
        cudnnBackendDescriptorType_t kind;
        cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
    } FORMS[] = {
        {"forward", CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
         CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
        {"backward data", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
        {"backward filter", CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
         CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
    };
    cudnnBackendDescriptor_t operation = NULL;
    for (int number = 0; number < 3; ++number) {
        if (strcmp(FORMS[number].routine, c->routine) == 0) {
            const double factors[2] = {1.0, 0.0};
            operation = made(FORMS[number].kind);
            set_other(operation, FORMS[number].window, window);
            set_other(operation, FORMS[number].x, x);
            set_other(operation, FORMS[number].w, w);
            set_other(operation, FORMS[number].y, y);
            set(operation, FORMS[number].alpha, CUDNN_TYPE_DOUBLE, 1, &factors[0]);
            set(operation, FORMS[number].beta, CUDNN_TYPE_DOUBLE, 1, &factors[1]);
        }
    }
    must("an operation", __real_cudnnBackendFinalize(operation));
    const cudnnBackendDescriptor_t graph = made(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    set_other(graph, CUDNN_ATTR_OPERATIONGRAPH_OPS, operation);
    must("a graph", __real_cudnnBackendFinalize(graph));
    return graph;
}

enum { MOST_OFFERED = 128 };

// The configurations that cuDNN offers for a graph in one mode.
static int64_t offered(cudnnBackendDescriptor_t graph, cudnnBackendHeurMode_t mode, cudnnBackendDescriptor_t *configs) {
    const cudnnBackendDescriptor_t offers = made(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    int64_t count = 0;
    set_other(offers, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph);
    set_other(offers, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
    set(offers, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode);
    if (__real_cudnnBackendFinalize(offers) == CUDNN_STATUS_SUCCESS) {
        for (int number = 0; number < MOST_OFFERED; ++number) {
            configs[number] = made(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
        }
        if (__real_cudnnBackendGetAttribute(offers, CUDNN_ATTR_ENGINEHEUR_RESULTS, CUDNN_TYPE_BACKEND_DESCRIPTOR, MOST_OFFERED,
                                            &count, (void *)configs) != CUDNN_STATUS_SUCCESS) {
            count = 0;
        }
    }
    return count;
}

static int64_t workspace_of_plan(cudnnBackendDescriptor_t config) {
    const cudnnBackendDescriptor_t plan = made(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t count = 0;
    int64_t bytes = -1;
    set_other(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP, device);
    set_other(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, config);
    if (__real_cudnnBackendFinalize(plan) != CUDNN_STATUS_SUCCESS ||
        __real_cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1, &count, &bytes) !=
            CUDNN_STATUS_SUCCESS) {
        bytes = -1;
    }
    (void)cudnnBackendDestroyDescriptor(plan);
    return bytes;
}

static void print_extents(const char *name, const int *extents, int count) {
    printf(", \"%s\": [", name);
    for (int axis = 0; axis < count; ++axis) {
        printf("%s%d", axis == 0 ? "" : ", ", extents[axis]);
    }
    printf("]");
}

static const char *type_name(cudnnDataType_t type) {
    switch (type) {
        case CUDNN_DATA_FLOAT: return "f32";
        case CUDNN_DATA_DOUBLE: return "f64";
        case CUDNN_DATA_HALF: return "f16";
        case CUDNN_DATA_BFLOAT16: return "bf16";
        default: return "another";
    }
}

// Asks for a convolution's engines and for a plan. Returns whether there is one, and its workspace.
static bool ask(const Convolution *c, int64_t *bytes) {
    cudnnBackendDescriptor_t configs[MOST_OFFERED];
    const cudnnBackendDescriptor_t graph = graph_of(c);
    const cudnnBackendHeurMode_t modes[] = {CUDNN_HEUR_MODE_A, CUDNN_HEUR_MODE_FALLBACK};
    int64_t counts[2] = {0, 0};
    int64_t fit = 0;
    int64_t engine = -1;
    *bytes = -1;
    for (int mode = 0; mode < 2 && *bytes < 0; ++mode) {
        counts[mode] = offered(graph, modes[mode], configs);
        for (int64_t number = 0; number < counts[mode]; ++number) {
            const Engine found = engine_of(configs[number]);
            if (found.is_ordered && (found.is_exact || c->may_round)) {
                fit += mode == 0 ? 1 : 0;
                if (*bytes < 0) {
                    *bytes = workspace_of_plan(configs[number]);
                    engine = *bytes < 0 ? -1 : found.number;
                }
            }
        }
    }
    printf("{\"graph\": \"convolution\", \"routine\": \"%s\", \"dtype\": \"%s\"", c->routine, type_name(c->type));
    print_extents("x", c->x, 4);
    print_extents("w", c->w, 4);
    print_extents("y", c->y, 4);
    print_extents("padding", c->pad, 2);
    print_extents("stride", c->stride, 2);
    print_extents("dilation", c->dilation, 2);
    printf(", \"groups\": %d, \"may_round\": %s", c->groups, c->may_round ? "true" : "false");
    printf(", \"offered\": %" PRId64 ", \"fit\": %" PRId64 ", \"mode\": \"%s\", \"engine\": %" PRId64 ", \"workspace\": %" PRId64,
           counts[0], fit, counts[1] > 0 ? "fallback" : "A", engine, *bytes);
    return *bytes >= 0;
}

static Convolution convolution_of(const char *routine, cudnnTensorDescriptor_t x, cudnnFilterDescriptor_t w,
        cudnnConvolutionDescriptor_t window, cudnnTensorDescriptor_t y) {
    Convolution c;
    cudnnDataType_t type;
    cudnnTensorFormat_t format;
    cudnnConvolutionMode_t mode;
    cudnnMathType_t math;
    int steps[4];
    int extents[4];
    memset(&c, 0, sizeof c);
    c.routine = routine;
    must("cudnnGetTensor4dDescriptor", cudnnGetTensor4dDescriptor(x, &c.type, &c.x[0], &c.x[1], &c.x[2], &c.x[3], &steps[0],
                                                                  &steps[1], &steps[2], &steps[3]));
    must("cudnnGetTensor4dDescriptor", cudnnGetTensor4dDescriptor(y, &type, &c.y[0], &c.y[1], &c.y[2], &c.y[3], &steps[0],
                                                                  &steps[1], &steps[2], &steps[3]));
    must("cudnnGetFilter4dDescriptor",
         cudnnGetFilter4dDescriptor(w, &type, &format, &c.w[0], &c.w[1], &c.w[2], &c.w[3]));
    must("cudnnGetConvolution2dDescriptor",
         cudnnGetConvolution2dDescriptor(window, &c.pad[0], &c.pad[1], &c.stride[0], &c.stride[1], &c.dilation[0],
                                         &c.dilation[1], &mode, &type));
    must("cudnnGetConvolutionGroupCount", cudnnGetConvolutionGroupCount(window, &c.groups));
    must("cudnnGetConvolutionMathType", cudnnGetConvolutionMathType(window, &math));
    c.may_round = math != CUDNN_FMA_MATH;
    must("cudnnGetConvolution2dForwardOutputDim",
         cudnnGetConvolution2dForwardOutputDim(window, x, w, &extents[0], &extents[1], &extents[2], &extents[3]));
    if (memcmp(extents, c.y, sizeof extents) != 0 || mode != CUDNN_CROSS_CORRELATION || format != CUDNN_TENSOR_NCHW) {
        fprintf(stderr, "the result of a convolution has extents that cuDNN would not give it\n");
        exit(3);
    }
    return c;
}

static Convolution last_asked;  // a program asks for the workspace of what it has just chosen

#define ARGUMENTS_Forward x, w, window, y
#define ARGUMENTS_BackwardData w, y, window, x
#define ARGUMENTS_BackwardFilter x, y, window, w

// The legacy interface's own list, which needs a handle: it is printed if there is a device.
#define PRINT_LIST(NAME, ALGORITHM, ...) \
    do { \
        ALGORITHM##Perf_t each[16]; \
        int listed = 0; \
        if (real_handle != NULL && __real_cudnnGetConvolution##NAME##Algorithm_v7(real_handle, __VA_ARGS__, 16, &listed, each) == \
                                       CUDNN_STATUS_SUCCESS) { \
            printf(", \"v7\": ["); \
            for (int number = 0; number < listed; ++number) { \
                printf("%s{\"algorithm\": %d, \"status\": %d, \"workspace\": %zu, \"ordered\": %s, \"math\": %d}", \
                       number == 0 ? "" : ", ", (int)each[number].algo, (int)each[number].status, each[number].memory, \
                       each[number].determinism == CUDNN_DETERMINISTIC ? "true" : "false", (int)each[number].mathType); \
            } \
            printf("]"); \
        } \
        printf("}\n"); \
    } while (0)

#define ANSWERS(NAME, ROUTINE, FIRST, SECOND, THIRD, ALGORITHM, X, W, Y) \
    cudnnStatus_t __real_cudnnGetConvolution##NAME##Algorithm_v7(cudnnHandle_t, FIRST, SECOND, \
            const cudnnConvolutionDescriptor_t window, THIRD, const int, int *, ALGORITHM##Perf_t *); \
    cudnnStatus_t __wrap_cudnnGetConvolution##NAME##Algorithm_v7(cudnnHandle_t handle, FIRST, SECOND, \
            cudnnConvolutionDescriptor_t window, THIRD, const int most, int *count, ALGORITHM##Perf_t *found) { \
        int64_t bytes = 0; \
        (void)handle; \
        (void)most; \
        last_asked = convolution_of(ROUTINE, X, W, window, Y); \
        *count = ask(&last_asked, &bytes) ? 1 : 0; \
        PRINT_LIST(NAME, ALGORITHM, ARGUMENTS_##NAME); \
        memset(found, 0, sizeof *found); \
        found->status = CUDNN_STATUS_SUCCESS; \
        found->determinism = CUDNN_DETERMINISTIC; \
        return CUDNN_STATUS_SUCCESS; \
    } \
    cudnnStatus_t __wrap_cudnnFindConvolution##NAME##Algorithm(cudnnHandle_t handle, FIRST, SECOND, \
            cudnnConvolutionDescriptor_t window, THIRD, const int most, int *count, ALGORITHM##Perf_t *found) { \
        (void)handle; \
        return __wrap_cudnnGetConvolution##NAME##Algorithm_v7(NULL, ARGUMENTS_##NAME, most, count, found); \
    } \
    cudnnStatus_t __wrap_cudnnGetConvolution##NAME##WorkspaceSize(cudnnHandle_t handle, FIRST, SECOND, \
            cudnnConvolutionDescriptor_t window, THIRD, ALGORITHM##_t algorithm, size_t *size) { \
        const Convolution c = convolution_of(ROUTINE, X, W, window, Y); \
        int64_t bytes = 0; \
        (void)handle; \
        (void)algorithm; \
        *size = 0; \
        if (memcmp(&c, &last_asked, offsetof(Convolution, may_round)) != 0) { /* an algorithm that was not chosen before */ \
            const bool is_fit = ask(&c, &bytes); \
            last_asked = c; \
            PRINT_LIST(NAME, ALGORITHM, ARGUMENTS_##NAME); \
            return is_fit ? CUDNN_STATUS_SUCCESS : CUDNN_STATUS_NOT_SUPPORTED; \
        } \
        return CUDNN_STATUS_SUCCESS; \
    }

ANSWERS(Forward, "forward", const cudnnTensorDescriptor_t x, const cudnnFilterDescriptor_t w,
        const cudnnTensorDescriptor_t y, cudnnConvolutionFwdAlgo, x, w, y)
ANSWERS(BackwardData, "backward data", const cudnnFilterDescriptor_t w, const cudnnTensorDescriptor_t y,
        const cudnnTensorDescriptor_t x, cudnnConvolutionBwdDataAlgo, x, w, y)
ANSWERS(BackwardFilter, "backward filter", const cudnnTensorDescriptor_t x, const cudnnTensorDescriptor_t y,
        const cudnnFilterDescriptor_t w, cudnnConvolutionBwdFilterAlgo, x, w, y)

// ---- graphs that the program makes --------------------------------------------------------------

typedef struct {
    cudnnBackendDescriptor_t descriptor;
    int64_t id;
    cudnnDataType_t type;
    int64_t extents[4];
    int64_t strides[4];
    bool is_inner, is_number;
} Tensor;

enum { MOST_TENSORS = 256 };

// The graph that is being made. Its record is printed when the next one begins, or at the end.
static struct {
    Tensor tensors[MOST_TENSORS];
    int tensor_count;
    int64_t operation_count;
    bool has_index;
    bool is_asked;
    cudnnBackendHeurMode_t mode;
    int64_t offered_in_a, offered_in_fallback;
    cudnnBackendDescriptor_t plan, config;
    bool has_plan;
    Engine engine;
    int64_t workspace;
    cudnnStatus_t failed;  // the last status that was no success
} graph;

static void flush_graph(void) {
    if (graph.is_asked) {
        printf("{\"graph\": \"operations\", \"operations\": %" PRId64 ", \"causal\": %s, \"arrays\": {", graph.operation_count,
               graph.has_index ? "true" : "false");
        bool first = true;
        for (int number = 0; number < graph.tensor_count; ++number) {
            const Tensor *t = &graph.tensors[number];
            if (!t->is_inner && !t->is_number) {
                printf("%s\"%" PRId64 "\": [\"%s\", [%" PRId64 ", %" PRId64 ", %" PRId64 ", %" PRId64 "], [%" PRId64 ", %" PRId64
                       ", %" PRId64 ", %" PRId64 "]]", first ? "" : ", ", t->id, type_name(t->type), t->extents[0], t->extents[1],
                       t->extents[2], t->extents[3], t->strides[0], t->strides[1], t->strides[2], t->strides[3]);
                first = false;
            }
        }
        printf("}, \"offered\": %" PRId64 ", \"mode\": \"%s\", \"engine\": %" PRId64 ", \"ordered\": %s, \"workspace\": %" PRId64
               ", \"status\": \"%s\"}\n", graph.offered_in_a, graph.mode == CUDNN_HEUR_MODE_A ? "A" : "fallback",
               graph.has_plan ? graph.engine.number : -1, graph.engine.is_ordered ? "true" : "false",
               graph.has_plan ? graph.workspace : -1, graph.has_plan ? "" : cudnnGetErrorString(graph.failed));
    }
    memset(&graph, 0, sizeof graph);
}

static Tensor *tensor_at(cudnnBackendDescriptor_t descriptor) {
    for (int number = graph.tensor_count - 1; number >= 0; --number) {
        if (graph.tensors[number].descriptor == descriptor) {
            return &graph.tensors[number];
        }
    }
    if (graph.tensor_count == MOST_TENSORS) {
        fprintf(stderr, "a graph of more than %d tensors\n", MOST_TENSORS);
        exit(3);
    }
    graph.tensors[graph.tensor_count].descriptor = descriptor;
    return &graph.tensors[graph.tensor_count++];
}

cudnnStatus_t __wrap_cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    if (graph.is_asked && name == CUDNN_ATTR_TENSOR_UNIQUE_ID) {
        flush_graph();  // the next one begins
    }
    switch ((int)name) {
        case CUDNN_ATTR_OPERATIONGRAPH_HANDLE:
            return CUDNN_STATUS_SUCCESS;  // there is none: the description is passed where a device is needed
        case CUDNN_ATTR_EXECUTION_PLAN_HANDLE:
            graph.plan = descriptor;
            return __real_cudnnBackendSetAttribute(descriptor, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP,
                                                   CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, (const void *)&device);
        case CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG:
            graph.config = *(const cudnnBackendDescriptor_t *)values;
            break;
        case CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH:
            graph.is_asked = true;
            set_other(descriptor, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP, device);
            break;
        case CUDNN_ATTR_ENGINEHEUR_MODE:
            graph.mode = *(const cudnnBackendHeurMode_t *)values;
            break;
        case CUDNN_ATTR_TENSOR_UNIQUE_ID:
            tensor_at(descriptor)->id = *(const int64_t *)values;
            break;
        case CUDNN_ATTR_TENSOR_DATA_TYPE:
            tensor_at(descriptor)->type = *(const cudnnDataType_t *)values;
            break;
        case CUDNN_ATTR_TENSOR_DIMENSIONS:
            memcpy(tensor_at(descriptor)->extents, values, (size_t)count * sizeof(int64_t));
            break;
        case CUDNN_ATTR_TENSOR_STRIDES:
            memcpy(tensor_at(descriptor)->strides, values, (size_t)count * sizeof(int64_t));
            break;
        case CUDNN_ATTR_TENSOR_IS_VIRTUAL:
            tensor_at(descriptor)->is_inner = *(const bool *)values;
            break;
        case CUDNN_ATTR_TENSOR_IS_BY_VALUE:
            tensor_at(descriptor)->is_number = *(const bool *)values;
            break;
        case CUDNN_ATTR_POINTWISE_MODE:
            graph.has_index |= *(const cudnnPointwiseMode_t *)values == CUDNN_POINTWISE_GEN_INDEX;
            break;
        case CUDNN_ATTR_OPERATIONGRAPH_OPS:
            graph.operation_count = count;
            break;
        default:
            break;
    }
    return __real_cudnnBackendSetAttribute(descriptor, name, type, count, values);
}

cudnnStatus_t __wrap_cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
    const cudnnStatus_t status = __real_cudnnBackendFinalize(descriptor);
    if (status != CUDNN_STATUS_SUCCESS) {
        graph.failed = status;
        graph.is_asked = true;
    } else if (descriptor == graph.plan) {
        graph.has_plan = true;
        graph.engine = engine_of(graph.config);
    }
    return status;
}

cudnnStatus_t __wrap_cudnnBackendGetAttribute(cudnnBackendDescriptor_t const descriptor, cudnnBackendAttributeName_t name,
        cudnnBackendAttributeType_t type, int64_t requested, int64_t *count, void *values) {
    const cudnnStatus_t status = __real_cudnnBackendGetAttribute(descriptor, name, type, requested, count, values);
    if (name == CUDNN_ATTR_ENGINEHEUR_RESULTS && status == CUDNN_STATUS_SUCCESS) {
        *(graph.mode == CUDNN_HEUR_MODE_A ? &graph.offered_in_a : &graph.offered_in_fallback) = *count;
    } else if (name == CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE && status == CUDNN_STATUS_SUCCESS) {
        graph.workspace = *(const int64_t *)values;
    }
    return status;
}

// ---- the program --------------------------------------------------------------------------------

int opened(char *message, size_t length);  // of `program.c`

int main(int count, char **words) {
    char message[512] = "";
    if (count != 2 && !(count == 3 && strcmp(words[2], "--handle") == 0)) {
        fprintf(stderr, "usage: %s DESCRIPTION [--handle]\n", words[0]);
        return 2;
    }
    describe_device(words[1]);
    if (count == 3) {
        open_real_handle();
    }
    const int status = opened(message, sizeof message);
    flush_graph();
    if (status != 0) {
        fprintf(stderr, "the program does not open the device: %s\n", message);
    }
    return status == 0 ? 0 : 4;
}
