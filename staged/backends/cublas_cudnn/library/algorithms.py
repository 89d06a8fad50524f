"""The choice of an algorithm for a convolution, as C functions of the program.

Tested by `tests/backends/cublas_cudnn/test_libraries.py` and `tests/backends/cublas_cudnn/test_sized_libraries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from staged.code.writer import Writer
from staged.ir.options import DeviceOptions

WORKSPACE_LIMIT = 1 << 30
"""Bytes: algorithms that need more are passed over."""


@dataclass(frozen=True, slots=True)
class Routine:
    """One of the three: what cuDNN calls it, and the descriptors of its functions, in their order."""

    word: str
    algorithm: str
    """The type of its algorithms, and the prefix of what belongs to them."""
    count: str
    find: str
    size: str
    measure: str
    first: str
    second: str
    third: str
    """Of `x`, `w` and `y`: what is described by the two operands, in the functions' order, and by the result."""


ROUTINES = {
    "conv2d": Routine(
        "forward", "cudnnConvolutionFwdAlgo", "CUDNN_CONVOLUTION_FWD_ALGO_COUNT",
        "cudnnGetConvolutionForwardAlgorithm_v7", "cudnnGetConvolutionForwardWorkspaceSize",
        "cudnnFindConvolutionForwardAlgorithm", "x", "w", "y",
    ),
    "conv2d_backward_input": Routine(
        "backward_data", "cudnnConvolutionBwdDataAlgo", "CUDNN_CONVOLUTION_BWD_DATA_ALGO_COUNT",
        "cudnnGetConvolutionBackwardDataAlgorithm_v7", "cudnnGetConvolutionBackwardDataWorkspaceSize",
        "cudnnFindConvolutionBackwardDataAlgorithm", "w", "y", "x",
    ),
    "conv2d_backward_weight": Routine(
        "backward_filter", "cudnnConvolutionBwdFilterAlgo", "CUDNN_CONVOLUTION_BWD_FILTER_ALGO_COUNT",
        "cudnnGetConvolutionBackwardFilterAlgorithm_v7", "cudnnGetConvolutionBackwardFilterWorkspaceSize",
        "cudnnFindConvolutionBackwardFilterAlgorithm", "x", "y", "w",
    ),
}  # fmt: skip
_C_TYPES = {"x": "cudnnTensorDescriptor_t", "w": "cudnnFilterDescriptor_t", "y": "cudnnTensorDescriptor_t"}
WITH_BIAS = "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM"
"""The only algorithm that cuDNN allows with a bias and without an activation."""
INSTEAD = "a kernel runs instead"


def fixed_choice_text() -> str:
    """The C function that asks for the algorithm of a convolution with a bias."""
    r = ROUTINES["conv2d"]
    return f"""\
// The workspace of the algorithm that cuDNN has for a convolution with a bias, if it has it here.
static int choose_with_bias(Device *gpu, st_host *host, int site, const char *what, cudnnTensorDescriptor_t x,
        cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t window, cudnnTensorDescriptor_t y, bool *is_missing) {{
    size_t bytes = 0;
    const cudnnStatus_t status = {r.size}(
            gpu->cudnn, x, w, window, y, {WITH_BIAS}, &bytes);
    *is_missing = is_unsupported(status);
    if (*is_missing) {{
        st_note(host, site, "cuDNN has no algorithm with a bias for %s (%s): {INSTEAD}", what,
                cudnnGetErrorString(status));
        return ST_OK;
    }}
    if (status != CUDNN_STATUS_SUCCESS) {{
        return st_fail(host, ST_RUNTIME_ERROR, site, "{r.size}: %s",
                       cudnnGetErrorString(status));
    }}
    if (bytes > gpu->cudnn_workspace_bytes) {{
        gpu->cudnn_workspace_bytes = bytes;
    }}
    return ST_OK;
}}
"""


def choice_text(r: Routine, options: DeviceOptions) -> str:
    """The C function that chooses an algorithm."""
    is_timed = options.algorithms == "timed"
    ask = r.measure if is_timed else r.find
    w = Writer()
    order = "The fastest algorithm, as measured now," if is_timed else "The first algorithm that the heuristics name"
    which = " that gives the same bits every time" if options.deterministic else ""
    w.comment(f"{order}{which} and needs no more than {WORKSPACE_LIMIT >> 20} MiB. `what` describes the convolution.")
    described = ", ".join(
        [
            f"{_C_TYPES[r.first]} {r.first}",
            f"{_C_TYPES[r.second]} {r.second}",
            "cudnnConvolutionDescriptor_t window",
            f"{_C_TYPES[r.third]} {r.third}",
        ]
    )
    given = f"{r.first}, {r.second}, window, {r.third}"
    head = "Device *gpu, st_host *host, int site, const char *what"
    with w.block(f"static int choose_{r.word}({head}, {described}, {r.algorithm}_t *algorithm, bool *is_missing)"):
        w.line(f"{r.algorithm}Perf_t found[{r.count}];")
        w.line("int count = 0;")
        w.statement(f"const cudnnStatus_t status = {ask}(gpu->cudnn, {given}, {r.count}, &count, found);")
        with w.block("if (status != CUDNN_STATUS_SUCCESS && !is_unsupported(status))"):
            w.statement(f'return st_fail(host, ST_RUNTIME_ERROR, site, "{ask}: %s", cudnnGetErrorString(status));')
        with w.block("for (int number = 0; status == CUDNN_STATUS_SUCCESS && number < count; ++number)"):
            w.line("size_t bytes = 0;")
            w.line("const int is_fit = found[number].status == CUDNN_STATUS_SUCCESS")
            if options.deterministic:
                w.line("        && found[number].determinism == CUDNN_DETERMINISTIC")
            w.line(f"        && found[number].memory <= {WORKSPACE_LIMIT}")
            size = f"{r.size}(gpu->cudnn, {given}, found[number].algo, &bytes)"
            w.statement(f"        && {size} == CUDNN_STATUS_SUCCESS;")
            with w.block("if (is_fit)"):
                w.line("*algorithm = found[number].algo;")
                with w.block("if (bytes > gpu->cudnn_workspace_bytes)"):
                    w.line("gpu->cudnn_workspace_bytes = bytes;")
                w.line("return ST_OK;")
        w.line("*is_missing = true;")
        words = f"cuDNN has no {'deterministic ' if options.deterministic else ''}algorithm for %s (%s): {INSTEAD}"
        w.line('const char *const why = status == CUDNN_STATUS_SUCCESS ? "none fits" : cudnnGetErrorString(status);')
        w.statement(f'st_note(host, site, "{words}", what, why);')
        w.line("return ST_OK;")
    return str(w)


def sized_choice_text(r: Routine, options: DeviceOptions, has_bias: bool) -> str:
    """The C function that finds the plan of a convolution for its present sizes, and chooses its algorithm."""
    is_timed = options.algorithms == "timed" and not has_bias
    ask = r.measure if is_timed else r.find
    w = Writer()
    if has_bias:
        w.comment("The plan for an x of these sizes, with the algorithm that cuDNN has for a convolution with a bias.")
    else:
        order = "fastest algorithm, as measured now," if is_timed else "first algorithm that the heuristics name"
        w.comment(f"The plan for an x of these sizes, with the {order}")
        w.comment(
            f"that {'gives the same bits every time and ' if options.deterministic else ''}fits into the workspace."
        )
    described = {"x": "plan->x", "y": "plan->y", "w": "w"}
    given = f"{described[r.first]}, {described[r.second]}, window, {described[r.third]}"
    head = "const Device *gpu, st_host *host, int site, const char *what, CudnnPlans *plans, cudnnDataType_t type"
    head += ", const int *x, const int *y, cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t window"
    with w.block(f"static const CudnnPlan *{plan_word(r, has_bias)}({head})"):
        w.line("CudnnPlan *const plan = find_plan(host, site, plans, type, x, y);")
        with w.block("if (plan == NULL || plan->is_made)"):
            w.line("return plan;")
        w.line(f"const size_t most = gpu->is_open ? gpu->cudnn_workspace_bytes : {WORKSPACE_LIMIT};")
        if has_bias:
            size = f"{r.size}(gpu->cudnn, {given}, {WITH_BIAS}, &plan->workspace_bytes)"
            w.statement(f"const cudnnStatus_t status = {size};")
            w.line("plan->is_missing = status != CUDNN_STATUS_SUCCESS || plan->workspace_bytes > most;")
        else:
            w.line(f"{r.algorithm}Perf_t found[{r.count}];")
            w.line("int count = 0;")
            w.statement(f"const cudnnStatus_t status = {ask}(gpu->cudnn, {given}, {r.count}, &count, found);")
            w.line("plan->is_missing = true;")
            with w.block(
                "for (int number = 0; status == CUDNN_STATUS_SUCCESS && plan->is_missing && number < count; ++number)"
            ):
                w.line("plan->algorithm = (int)found[number].algo;")
                w.line("plan->is_missing = found[number].status != CUDNN_STATUS_SUCCESS")
                if options.deterministic:
                    w.line("        || found[number].determinism != CUDNN_DETERMINISTIC")
                size = f"{r.size}(gpu->cudnn, {given}, found[number].algo, &plan->workspace_bytes)"
                w.statement(f"        || {size} != CUDNN_STATUS_SUCCESS")
                w.line("        || plan->workspace_bytes > most;")
        w.line("return settle_plan(host, site, plan, status, what);")
    return str(w)


def plan_word(r: Routine, has_bias: bool) -> str:
    """The name of that function."""
    return f"plan_{r.word}{'_with_bias' if has_bias else ''}"
