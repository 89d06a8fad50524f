"""C text of the operation graphs of cuDNN's attention, and of its gradient.

cuDNN has its fused attention as a graph of single operations, which it recognises as a whole. So operations, their
order, types and strides are those that cuDNN's kernels are known by: those of its own C++ interface (NVIDIA,
cudnn-frontend, whose graphs are read for it).

Tested by `tests/backends/cublas_cudnn/test_attention.py`.
"""

from __future__ import annotations

NAMES = frozenset(
    """AttentionSizes of_scores of_rows seen_scores turned_scores no_attention plan_attention plan_attention_backward
    graph_viewed graph_gradient""".split()
)
"""The names of types and functions in these texts, which nothing else of a program has."""

ATTENTION_NUMBERS = """\
// The arrays of attention's graphs, by the numbers that these know them by.
enum {
    ATTENTION_Q = 1, ATTENTION_K, ATTENTION_V, ATTENTION_OUT, ATTENTION_LSE, ATTENTION_D_OUT, ATTENTION_D_Q,
    ATTENTION_D_K, ATTENTION_D_V, ATTENTION_OFFSET, ATTENTION_D_Q_SUMS, ATTENTION_SCALE, ATTENTION_HIDDEN,
    ATTENTION_ONE
};
"""

ATTENTION = """\
// The sizes of an attention: q is (batch, heads, rows, width), k (batch, k_heads, columns, width), v (batch, v_heads,
// columns, v_width); with `causal`, row i sees columns 0 to i.
typedef struct {
    cudnnDataType_t type;
    int64_t batch, heads, rows, width, columns, k_heads, v_heads, v_width;
    bool causal;
} AttentionSizes;

// An array of f32 of an attention's graph: one number for each score, or for each row.
static cudnnBackendDescriptor_t of_scores(OperationGraph *graph, const AttentionSizes *s) {
    return graph_inner(graph, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, s->columns);
}

static cudnnBackendDescriptor_t of_rows(OperationGraph *graph, const AttentionSizes *s) {
    return graph_inner(graph, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, 1);
}

// Scores, with -inf where a row does not see a column.
static cudnnBackendDescriptor_t seen_scores(OperationGraph *graph, const AttentionSizes *s,
        cudnnBackendDescriptor_t scores) {
    if (!s->causal) {
        return scores;
    }
    const cudnnBackendDescriptor_t hidden = graph_number(graph, ATTENTION_HIDDEN);
    const cudnnBackendDescriptor_t row =
        graph_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 2, scores, NULL, NULL,
                        graph_inner(graph, CUDNN_DATA_INT32, s->batch, s->heads, s->rows, s->columns));
    const cudnnBackendDescriptor_t column =
        graph_pointwise(graph, CUDNN_POINTWISE_GEN_INDEX, CUDNN_DATA_FLOAT, 3, scores, NULL, NULL,
                        graph_inner(graph, CUDNN_DATA_INT32, s->batch, s->heads, s->rows, s->columns));
    const cudnnBackendDescriptor_t is_seen =
        graph_pointwise(graph, CUDNN_POINTWISE_CMP_GE, CUDNN_DATA_BOOLEAN, -1, row, column, NULL,
                        graph_inner(graph, CUDNN_DATA_BOOLEAN, s->batch, s->heads, s->rows, s->columns));
    return graph_pointwise(graph, CUDNN_POINTWISE_BINARY_SELECT, CUDNN_DATA_FLOAT, -1, scores, hidden, is_seen,
                           of_scores(graph, s));
}

// Before this version, gradients were wrong where keys do not come by 128.
#define ATTENTION_OLDEST 91600

// Tells the caller that there is no plan, and why.
static void no_attention(st_host *host, int site, const AttentionSizes *s, const char *what, const char *why) {
    st_note(host, site,
            "cuDNN %d.%d.%d has no %s for %s (%lld, %lld, %lld, %lld) with %lld keys%s (%s): kernels run instead",
            (int)(cudnnGetVersion() / 10000), (int)(cudnnGetVersion() / 100 % 100), (int)(cudnnGetVersion() % 100),
            what, s->type == CUDNN_DATA_HALF ? "f16" : "bf16", (long long)s->batch, (long long)s->heads,
            (long long)s->rows, (long long)s->width, (long long)s->columns, s->causal ? ", causal" : "", why);
}
"""

FORWARD = """\
// softmax(q @ k.T * scale) @ v, and for each row the logarithm of the sum of the exponentials of its scores. `ordered`:
// all sums have one order.
static void plan_attention(const Device *gpu, st_host *host, int site, const AttentionSizes *s, bool ordered,
        GraphPlan *made) {
    OperationGraph begun;
    OperationGraph *const graph = &begun;
    memset(graph, 0, sizeof *graph);
    if (cudnnGetVersion() < ATTENTION_OLDEST) {
        no_attention(host, site, s, "attention", "it needs cuDNN 9.16 or a later one");
        return;
    }
    const cudnnBackendDescriptor_t q =
        graph_array(graph, ATTENTION_Q, s->type, s->batch, s->heads, s->rows, s->width);
    const cudnnBackendDescriptor_t k_transposed =
        graph_transposed(graph, ATTENTION_K, s->type, s->batch, s->k_heads, s->columns, s->width);
    const cudnnBackendDescriptor_t v =
        graph_array(graph, ATTENTION_V, s->type, s->batch, s->v_heads, s->columns, s->v_width);
    const cudnnBackendDescriptor_t out =
        graph_array(graph, ATTENTION_OUT, s->type, s->batch, s->heads, s->rows, s->v_width);
    const cudnnBackendDescriptor_t lse =
        graph_array(graph, ATTENTION_LSE, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, 1);
    const cudnnBackendDescriptor_t scale = graph_number(graph, ATTENTION_SCALE);

    const cudnnBackendDescriptor_t products = graph_product(graph, q, k_transposed, of_scores(graph, s));
    const cudnnBackendDescriptor_t scaled =
        graph_each(graph, CUDNN_POINTWISE_MUL, products, scale, of_scores(graph, s));
    const cudnnBackendDescriptor_t scores = seen_scores(graph, s, scaled);
    const cudnnBackendDescriptor_t top = graph_reduced(graph, CUDNN_REDUCE_TENSOR_MAX, scores, of_rows(graph, s));
    const cudnnBackendDescriptor_t below =
        graph_each(graph, CUDNN_POINTWISE_SUB, scores, top, of_scores(graph, s));
    const cudnnBackendDescriptor_t powers = graph_each(graph, CUDNN_POINTWISE_EXP, below, NULL, of_scores(graph, s));
    const cudnnBackendDescriptor_t total =
        graph_reduced(graph, CUDNN_REDUCE_TENSOR_ADD, powers, of_rows(graph, s));
    const cudnnBackendDescriptor_t log_total =
        graph_each(graph, CUDNN_POINTWISE_LOG, total, NULL, of_rows(graph, s));
    (void)graph_each(graph, CUDNN_POINTWISE_ADD, top, log_total, lse);
    const cudnnBackendDescriptor_t shares =
        graph_each(graph, CUDNN_POINTWISE_DIV, powers, total,
                   graph_inner(graph, s->type, s->batch, s->heads, s->rows, s->columns));
    (void)graph_product(graph, shares, v, out);
    if (!graph_ended(graph, gpu->cudnn, ordered, made)) {
        no_attention(host, site, s, "attention", graph_reason(graph));
    }
}
"""

BACKWARD = """\
// The elements of x as y has them: the same memory, in other strides.
static cudnnBackendDescriptor_t graph_viewed(OperationGraph *graph, cudnnBackendDescriptor_t x,
        cudnnBackendDescriptor_t y) {
    const cudnnBackendDescriptor_t made = graph_make(graph, CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_XDESC, x);
    graph_name(graph, made, CUDNN_ATTR_OPERATION_RESHAPE_YDESC, y);
    graph_add(graph, made);
    return y;
}

// Scores, rounded, with their last two axes swapped.
static cudnnBackendDescriptor_t turned_scores(OperationGraph *graph, const AttentionSizes *s,
        cudnnBackendDescriptor_t scores) {
    const int64_t extents[4] = {s->batch, s->heads, s->columns, s->rows};
    const int64_t strides[4] = {s->heads * s->rows * s->columns, s->rows * s->columns, 1, s->columns};
    return graph_viewed(graph, scores,
                        graph_tensor(graph, 1000 + graph->inner_count++, s->type, extents, strides, true, false));
}

// The gradient of keys or values: that of each of the queries' heads, added up over those that share one.
static void graph_gradient(OperationGraph *graph, const AttentionSizes *s, cudnnBackendDescriptor_t a,
        cudnnBackendDescriptor_t b, int64_t id, int64_t heads, int64_t width) {
    const cudnnBackendDescriptor_t whole =
        graph_array(graph, id, s->type, s->batch, heads, s->columns, width);
    if (heads == s->heads) {
        (void)graph_product(graph, a, b, whole);
        return;
    }
    const cudnnBackendDescriptor_t of_each =
        graph_product(graph, a, b, graph_inner(graph, s->type, s->batch, s->heads, s->columns, width));
    (void)graph_reduced(graph, CUDNN_REDUCE_TENSOR_ADD, of_each, whole);
}

// The gradients of q, k and v. `ordered`: all sums have one order; else that of q is added up by atomics, in f32.
static void plan_attention_backward(const Device *gpu, st_host *host, int site, const AttentionSizes *s, bool ordered,
        GraphPlan *made) {
    OperationGraph begun;
    OperationGraph *const graph = &begun;
    memset(graph, 0, sizeof *graph);
    if (cudnnGetVersion() < ATTENTION_OLDEST) {
        no_attention(host, site, s, "attention", "it needs cuDNN 9.16 or a later one");
        return;
    }
    const cudnnBackendDescriptor_t q =
        graph_array(graph, ATTENTION_Q, s->type, s->batch, s->heads, s->rows, s->width);
    const cudnnBackendDescriptor_t k_transposed =
        graph_transposed(graph, ATTENTION_K, s->type, s->batch, s->k_heads, s->columns, s->width);
    const cudnnBackendDescriptor_t v_transposed =
        graph_transposed(graph, ATTENTION_V, s->type, s->batch, s->v_heads, s->columns, s->v_width);
    const cudnnBackendDescriptor_t out =
        graph_array(graph, ATTENTION_OUT, s->type, s->batch, s->heads, s->rows, s->v_width);
    const cudnnBackendDescriptor_t lse =
        graph_array(graph, ATTENTION_LSE, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, 1);
    const cudnnBackendDescriptor_t d_out =
        graph_array(graph, ATTENTION_D_OUT, s->type, s->batch, s->heads, s->rows, s->v_width);
    const cudnnBackendDescriptor_t d_q =
        graph_array(graph, ATTENTION_D_Q, s->type, s->batch, s->heads, s->rows, s->width);
    const cudnnBackendDescriptor_t offset =
        graph_array(graph, ATTENTION_OFFSET, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, 1);
    const cudnnBackendDescriptor_t scale = graph_number(graph, ATTENTION_SCALE);
    const cudnnBackendDescriptor_t one = graph_number(graph, ATTENTION_ONE);

    const cudnnBackendDescriptor_t terms =
        graph_each(graph, CUDNN_POINTWISE_MUL, d_out, out,
                   graph_inner(graph, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, s->v_width));
    const cudnnBackendDescriptor_t sums = graph_reduced(graph, CUDNN_REDUCE_TENSOR_ADD, terms, of_rows(graph, s));
    (void)graph_each(graph, CUDNN_POINTWISE_MUL, sums, one, offset);  // in the place of dropout's factor

    const cudnnBackendDescriptor_t products = graph_product(graph, q, k_transposed, of_scores(graph, s));
    const cudnnBackendDescriptor_t scaled =
        graph_each(graph, CUDNN_POINTWISE_MUL, products, scale, of_scores(graph, s));
    const cudnnBackendDescriptor_t logs = graph_each(graph, CUDNN_POINTWISE_SUB, scaled, lse, of_scores(graph, s));
    const cudnnBackendDescriptor_t shares =
        graph_each(graph, CUDNN_POINTWISE_EXP, seen_scores(graph, s, logs), NULL, of_scores(graph, s));
    const cudnnBackendDescriptor_t turned_shares = turned_scores(graph, s, shares);
    graph_gradient(graph, s, turned_shares, d_out, ATTENTION_D_V, s->v_heads, s->v_width);

    const cudnnBackendDescriptor_t d_shares = graph_product(graph, d_out, v_transposed, of_scores(graph, s));
    const cudnnBackendDescriptor_t centred =
        graph_each(graph, CUDNN_POINTWISE_SUB, d_shares, offset, of_scores(graph, s));
    const cudnnBackendDescriptor_t d_scores =
        graph_each(graph, CUDNN_POINTWISE_MUL, centred, shares, of_scores(graph, s));
    const cudnnBackendDescriptor_t d_products =
        graph_each(graph, CUDNN_POINTWISE_MUL, d_scores, scale, of_scores(graph, s));
    const cudnnBackendDescriptor_t turned_d_products = turned_scores(graph, s, d_products);
    graph_gradient(graph, s, turned_d_products, q, ATTENTION_D_K, s->k_heads, s->width);

    const cudnnBackendDescriptor_t k =
        graph_viewed(graph, k_transposed,
                     graph_inner(graph, s->type, s->batch, s->k_heads, s->columns, s->width));
    if (ordered) {
        (void)graph_product(graph, d_products, k, d_q);
    } else {
        const cudnnBackendDescriptor_t added_up =
            graph_array(graph, ATTENTION_D_Q_SUMS, CUDNN_DATA_FLOAT, s->batch, s->heads, s->rows, s->width);
        (void)graph_product(graph, d_products, k, added_up);
        (void)graph_each(graph, CUDNN_POINTWISE_IDENTITY, added_up, NULL, d_q);
    }
    if (!graph_ended(graph, gpu->cudnn, ordered, made)) {
        no_attention(host, site, s,
                     ordered ? "gradient of attention with one order of sums" : "gradient of attention",
                     graph_reason(graph));
    }
}
"""
