"""Plans of calls of cuDNN whose sizes the program finds: descriptors of two arrays, and a convolution's algorithm.

    static int conv1(const Device *gpu, st_host *host, int site, const float *a, const float *b, int64_t N_size, ...) {
        const CudnnPlan *const plan = cudnn_plan_conv1(gpu, host, site, N_size);

A call has a plan for each of its sizes. The plan of the largest sizes is built when the
device is opened: its workspace is the one that there is, and other sizes have algorithms that need no more.

Tested by `tests/backends/cublas_cudnn/test_sized_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from staged.backends.cublas_cudnn.device import DevicePart, Field
from staged.backends.cublas_cudnn.library.algorithms import INSTEAD, ROUTINES, plan_word
from staged.backends.cublas_cudnn.library.call import size_name, size_text
from staged.backends.cublas_cudnn.library.cudnn import DATA_TYPES
from staged.code.writer import Writer, c_string
from staged.ir.sizes import Dim, Extent, at_bounds
from staged.ir.types import DType, Shape

MOST_PLANS = 64
"""Plans of one call. A CUDA graph is captured at the second use of its sizes, of which there are fewer: the plan that
the first use leaves is there.
"""

NAMES = {
    "CudnnPlan", "CudnnPlans", "forget_plan", "open_plans", "close_plans", "describe", "find_plan", "plan_arrays",
    "settle_plan", "reserve_workspace",
    *(plan_word(r, has_bias) for r in ROUTINES.values() for has_bias in (False, True)),
}  # fmt: skip
"""The functions and types that are defined below."""

TYPES = f"""\
// The descriptors of a call of cuDNN with an x of one size, and the algorithm if the call is a convolution.
typedef struct {{
    int x_sizes[4];
    cudnnTensorDescriptor_t x;
    cudnnTensorDescriptor_t y;
    int algorithm;           // of the type that belongs to the call
    size_t workspace_bytes;  // of the algorithm
    bool is_missing;         // a kernel runs instead, without elements or without an algorithm
    bool is_made;
}} CudnnPlan;

// The plans of one call. A further one replaces the oldest.
typedef struct {{
    CudnnPlan plans[{MOST_PLANS}];
    int next;
}} CudnnPlans;
"""

FIND = f"""\
static void forget_plan(CudnnPlan *plan) {{
    if (plan->x != NULL) {{
        (void)cudnnDestroyTensorDescriptor(plan->x);
    }}
    if (plan->y != NULL) {{
        (void)cudnnDestroyTensorDescriptor(plan->y);
    }}
    memset(plan, 0, sizeof *plan);
}}

static int open_plans(st_host *host, int site, CudnnPlans **all) {{
    *all = (CudnnPlans *)calloc(1, sizeof **all);
    return *all != NULL ? ST_OK : st_fail(host, ST_MEMORY_ERROR, site, "no memory for the plans of cuDNN");
}}

static void close_plans(CudnnPlans *all) {{
    for (int number = 0; all != NULL && number < {MOST_PLANS}; ++number) {{
        forget_plan(&all->plans[number]);
    }}
    free(all);
}}

// A descriptor of a row-major (n, c, h, w) array.
static int describe(st_host *host, int site, cudnnTensorDescriptor_t *tensor, cudnnDataType_t type, const int *sizes) {{
    CUDNN_CHECK(site, cudnnCreateTensorDescriptor(tensor));
    CUDNN_CHECK(site, cudnnSetTensor4dDescriptor(*tensor, CUDNN_TENSOR_NCHW, type, sizes[0], sizes[1], sizes[2],
                                                 sizes[3]));
    return ST_OK;
}}

// The plan for an x of these sizes. If it is new and has elements, it has descriptors, and the caller
// completes it. NULL after an error.
static CudnnPlan *find_plan(st_host *host, int site, CudnnPlans *all, cudnnDataType_t type, const int *x,
                            const int *y) {{
    for (int number = 0; number < {MOST_PLANS}; ++number) {{
        CudnnPlan *const plan = &all->plans[number];
        if (plan->is_made && memcmp(plan->x_sizes, x, sizeof plan->x_sizes) == 0) {{
            return plan;
        }}
    }}
    CudnnPlan *const plan = &all->plans[all->next];
    all->next = (all->next + 1) % {MOST_PLANS};
    forget_plan(plan);
    memcpy(plan->x_sizes, x, sizeof plan->x_sizes);
    for (int axis = 0; axis < 4; ++axis) {{
        plan->is_missing = plan->is_missing || x[axis] <= 0 || y[axis] <= 0;
    }}
    plan->is_made = plan->is_missing;
    if (!plan->is_made && (describe(host, site, &plan->x, type, x) != ST_OK ||
                           describe(host, site, &plan->y, type, y) != ST_OK)) {{
        return NULL;
    }}
    return plan;
}}
"""

FIND_ARRAYS = """\
// The same for a call without an algorithm.
static const CudnnPlan *plan_arrays(st_host *host, int site, CudnnPlans *all, cudnnDataType_t type, const int *x,
                                    const int *y) {
    CudnnPlan *const plan = find_plan(host, site, all, type, x, y);
    if (plan != NULL) {
        plan->is_made = true;
    }
    return plan;
}
"""

SETTLE = f"""\
// The plan after the choice of its algorithm; NULL if cuDNN has failed.
static const CudnnPlan *settle_plan(st_host *host, int site, CudnnPlan *plan, cudnnStatus_t status, const char *what) {{
    if (status != CUDNN_STATUS_SUCCESS && !is_unsupported(status)) {{
        (void)st_fail(host, ST_RUNTIME_ERROR, site, "cuDNN cannot plan %s: %s", what, cudnnGetErrorString(status));
        return NULL;
    }}
    if (plan->is_missing) {{
        plan->workspace_bytes = 0;
        st_note(host, site, "cuDNN does not have an algorithm for %s (%s): {INSTEAD}", what,
                status == CUDNN_STATUS_SUCCESS ? "none fits" : cudnnGetErrorString(status));
    }}
    plan->is_made = true;
    return plan;
}}

// Lets the workspace be enough for a plan.
static int reserve_workspace(Device *gpu, st_host *host, const CudnnPlan *plan) {{
    if (plan == NULL) {{
        return host->error_kind;
    }}
    if (plan->workspace_bytes > gpu->cudnn_workspace_bytes) {{
        gpu->cudnn_workspace_bytes = plan->workspace_bytes;
    }}
    return ST_OK;
}}
"""


def plans_field(name: str) -> str:
    """The field of `Device` with the plans of the call of this name."""
    return f"{name}_plans"


def plans_part(site: int, name: str, dims: Sequence[Dim], has_algorithm: bool) -> DevicePart:
    """The plans of a call. If these have algorithms, the first is that for the largest sizes, whose workspace the
    others share.
    """
    field = f"gpu->{plans_field(name)}"
    largest = "".join(f", {at_bounds(dim)}" for dim in dims)
    plan = f"{plan_function(name)}(gpu, host, {site}{largest})"
    opened = f"open_plans(host, {site}, &{field}) != ST_OK"
    reserve = (f"if ({opened}", f"        || reserve_workspace(gpu, host, {plan}) != ST_OK) {{")
    opens = (*(reserve if has_algorithm else (f"if ({opened}) {{",)), "    return host->error_kind;", "}")
    fields = (Field(f"CudnnPlans *{plans_field(name)};"),)
    return DevicePart(fields, opens, (f"close_plans({field});",), ("stdlib.h",), types=(TYPES,), order=1)


def plan_function(name: str) -> str:
    """The function that finds the plan of a call for its present sizes."""
    return f"cudnn_plan_{name}"


def write_plan_function(
    name: str, dtype: DType, arrays: Mapping[str, Shape], dims: Sequence[Dim], find: str, more: Sequence[str] = (),
    described: str = "",
) -> str:  # fmt: skip
    """The text of that function. It calls `find`, with `more` arguments; `described`: a call with an algorithm, for
    messages.
    """
    w = Writer()
    parameters = "".join(f", int64_t {size_name(dim)}" for dim in dims)
    with w.block(
        f"static const CudnnPlan *{plan_function(name)}(const Device *gpu, st_host *host, int site{parameters})"
    ):
        for array, shape in arrays.items():
            extents = ", ".join(int_text(extent) for extent in shape)
            w.line(f"const int {array}[4] = {{{extents}}};")
        first = ["gpu", "host", "site", c_string(described)] if described else ["host", "site"]
        given = [*first, f"gpu->{plans_field(name)}", DATA_TYPES[dtype.name], *arrays, *more]
        w.statement(f"return {find}({', '.join(given)});")
    return str(w)


def int_text(extent: Extent) -> str:
    """A size as a C `int`."""
    text = size_text(extent)
    return text if isinstance(extent, int) else f"(int){text}" if isinstance(extent, Dim) else f"(int)({text})"


def write_plan(w: Writer, name: str, dims: Sequence[Dim]) -> None:
    """The lines of a call that find its plan."""
    sizes = "".join(f", {size_name(dim)}" for dim in dims)
    w.statement(f"const CudnnPlan *const plan = {plan_function(name)}(gpu, host, site{sizes});")
    with w.block("if (plan == NULL)"):
        w.line("return host->error_kind;")
