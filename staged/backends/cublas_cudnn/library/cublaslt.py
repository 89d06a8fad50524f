"""Matrix products with a bias, gelu or both at their end by cublasLt.

    c = activation(alpha * product + bias)

Everything that describes such a product is made once per distinct shape, when the device is opened: the layouts of its
matrices, what to do with them, and which algorithm does it. As for cuBLAS, the row-major operands change places, so
that the bias has an element per row of what cublasLt sees. If cublasLt does not have an algorithm, cuBLAS computes the
product, and a kernel the rest.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from dataclasses import replace

from staged.backends.cublas_cudnn.device import WORD, DevicePart, Field, check, check_macro, destroy
from staged.backends.cublas_cudnn.library import cublas
from staged.backends.cublas_cudnn.library.call import LibraryCall, library_call, operand_of, scale_of, write_call
from staged.backends.cublas_cudnn.library.cublas import WORKSPACE_BYTES, Product, workspace_part, write_product
from staged.backends.cublas_cudnn.library.form import GELU_CUBE, GELU_SCALE, Form
from staged.backends.cublas_cudnn.library.instead import IS_MISSING, KernelsInstead, computed, where_missing
from staged.backends.gpu.alignment import ALIGNED
from staged.code.writer import Writer, c_string
from staged.ir.declaration import prims
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    Constant,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    Statement,
    Store,
)
from staged.ir.nodes import Op
from staged.ir.options import DeviceOptions
from staged.ir.types import bound

CHECK = check_macro(
    "The same for calls of cublasLt.", "cublasLt", "cublasStatus_t", "CUBLAS_STATUS_SUCCESS", "cublasLtGetStatusString"
)

_CHOOSE = f"""\
// What the heuristics hold to be fastest for a product of these layouts, within the workspace. The addresses of its
// matrices are multiples of `alignment` bytes; cublasLt would count on 256. `what` describes the product.
static int choose_product(Device *gpu, st_host *host, int site, const char *what, cublasLtMatmulDesc_t product,
        cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, uint32_t alignment,
        cublasLtMatmulAlgo_t *algorithm, bool *is_missing) {{
    const uint64_t workspace = {WORKSPACE_BYTES};
    const cublasLtMatmulPreferenceAttributes_t aligned[] = {{
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
        CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES}};
    cublasLtMatmulHeuristicResult_t found;
    int count = 0;
    CUBLASLT_CHECK(site, cublasLtMatmulPreferenceSetAttribute(
            gpu->cublas_lt_preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace, sizeof workspace));
    for (int number = 0; number < 4; ++number) {{
        CUBLASLT_CHECK(site, cublasLtMatmulPreferenceSetAttribute(
                gpu->cublas_lt_preference, aligned[number], &alignment, sizeof alignment));
    }}
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
            gpu->cublas_lt, product, a, b, c, c, gpu->cublas_lt_preference, 1, &found, &count);
    if (status != CUBLAS_STATUS_SUCCESS && status != CUBLAS_STATUS_NOT_SUPPORTED) {{
        return st_fail(host, ST_RUNTIME_ERROR, site, "cublasLtMatmulAlgoGetHeuristic: %s",
                       cublasLtGetStatusString(status));
    }}
    *is_missing = status != CUBLAS_STATUS_SUCCESS || count == 0 || found.state != CUBLAS_STATUS_SUCCESS;
    if (*is_missing) {{
        st_note(host, site, "cublasLt has no algorithm for %s (%s): cuBLAS and a kernel run instead", what,
                status == CUBLAS_STATUS_SUCCESS ? "none fits" : cublasLtGetStatusString(status));
    }} else {{
        *algorithm = found.algo;
    }}
    return ST_OK;
}}
"""

_EPILOGUES = {
    (True, ""): "BIAS",
    (True, "gelu"): "GELU_BIAS",
    (False, "gelu"): "GELU",
}


def handle_part(site: int) -> DevicePart:
    """The handle of cublasLt, and what its heuristics are asked with."""
    return DevicePart(
        (Field("cublasLtHandle_t cublas_lt;"), Field("cublasLtMatmulPreference_t cublas_lt_preference;")),
        (
            check("CUBLASLT_CHECK", site, "cublasLtCreate(&gpu->cublas_lt)"),
            check("CUBLASLT_CHECK", site, "cublasLtMatmulPreferenceCreate(&gpu->cublas_lt_preference)"),
        ),
        (
            *destroy("gpu->cublas_lt_preference", "cublasLtMatmulPreferenceDestroy(gpu->cublas_lt_preference)"),
            *destroy("gpu->cublas_lt", "cublasLtDestroy(gpu->cublas_lt)"),
        ),
        ("cublasLt.h",),
        ("cublasLt",),
        checks=(CHECK,),
        helpers=(_CHOOSE,),
    )


def layout_part(site: int, rows: int, columns: int) -> tuple[str, DevicePart]:
    """The layout of a column-major matrix of f32 without gaps: the field's name, and the part."""
    name = f"matrix_f32_{rows}x{columns}"
    create = f"cublasLtMatrixLayoutCreate(&gpu->{name}, CUDA_R_32F, {rows}, {columns}, {rows})"
    return name, DevicePart(
        (Field(f"cublasLtMatrixLayout_t {name};", "by columns"),),
        (check("CUBLASLT_CHECK", site, create),),
        destroy(f"gpu->{name}", f"cublasLtMatrixLayoutDestroy(gpu->{name})"),
    )


def layouts_of(site: int, product: Product) -> tuple[tuple[str, str, str], list[DevicePart]]:
    """The fields of the layouts of b, a and the result, which is the order that cublasLt takes them in, and their
    parts.
    """
    # As columns go, b is (n, k) and a is (k, m), and stored the other way round where a flag says so.
    m, n, k = map(bound, (product.m, product.n, product.k))
    b, b_part = layout_part(site, *((k, n) if product.transpose_b else (n, k)))
    a, a_part = layout_part(site, *((m, k) if product.transpose_a else (k, m)))
    c, c_part = layout_part(site, n, m)
    return (b, a, c), [b_part, a_part, c_part]


def alignment_of(op: Op) -> int:
    """Bytes that the addresses of the factors and of the result of an op are multiples of (see `alignment.py`)."""
    known: int = op.attrs.get("alignment", ALIGNED)
    return known


def product_part(
    site: int, product: Product, epilogue: str, layouts: tuple[str, str, str], alignment: int, options: DeviceOptions
) -> tuple[str, DevicePart]:
    """(field, part) that describe a product and its algorithm.

    The addresses of all three matrices are multiples of `alignment` bytes.
    """
    compute = "CUBLAS_COMPUTE_32F_FAST_TF32" if options.tf32 else "CUBLAS_COMPUTE_32F"
    turned = "".join("T" if flag else "N" for flag in (product.transpose_b, product.transpose_a))
    name = f"product_{product.n}x{product.m}x{product.k}_{turned}_{epilogue.lower()}"
    name += f"_aligned_{alignment}" if alignment != ALIGNED else ""

    def set_attribute(attribute: str, value: str) -> str:
        call = (
            f"cublasLtMatmulDescSetAttribute(gpu->{name}, CUBLASLT_MATMUL_DESC_{attribute}, &{value}, sizeof {value})"
        )
        return check("CUBLASLT_CHECK", site, call)

    named = ", ".join(f"gpu->{field}" for field in (name, *layouts))
    what = c_string(f"{product} with the epilogue {epilogue}")
    return name, DevicePart(
        (
            Field(f"cublasLtMatmulDesc_t {name};"),
            Field(f"cublasLtMatmulAlgo_t {name}_algorithm;", "", 8 * WORD),
            Field(f"bool {name}_{IS_MISSING};"),
        ),
        (
            check("CUBLASLT_CHECK", site, f"cublasLtMatmulDescCreate(&gpu->{name}, {compute}, CUDA_R_32F)"),
            "{",
            f"    const cublasOperation_t left = {product.flag(product.transpose_b)};",
            f"    const cublasOperation_t right = {product.flag(product.transpose_a)};",
            f"    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_{epilogue};",
            f"    {set_attribute('TRANSA', 'left')}",
            f"    {set_attribute('TRANSB', 'right')}",
            f"    {set_attribute('EPILOGUE', 'epilogue')}",
            "}",
            f"if (choose_product(gpu, host, {site}, {what}, {named}, {alignment}, &gpu->{name}_algorithm, "
            f"&gpu->{name}_{IS_MISSING}) != ST_OK) {{",
            "    return host->error_kind;",
            "}",
        ),
        destroy(f"gpu->{name}", f"cublasLtMatmulDescDestroy(gpu->{name})"),
    )


def write_bias_pointer(w: Writer, plan: str, pointer: str) -> None:
    """Say where the vector of a product's epilogue is: what it adds, or where its sums go."""
    arguments = ["CUBLASLT_MATMUL_DESC_BIAS_POINTER", f"&{pointer}", f"sizeof {pointer}"]
    write_call(w, "CUBLASLT_CHECK", f"cublasLtMatmulDescSetAttribute(gpu->{plan}", arguments)


def write_matmul(w: Writer, plan: str, layouts: tuple[str, str, str]) -> None:
    """The product of `b` and `a`, in this order, into `c`, times `alpha`, with the layouts of b, a and c."""
    b, a, c = layouts
    arguments = [
        f"gpu->{plan}", "&alpha", "b", f"gpu->{b}", "a", f"gpu->{a}", "&beta", "c", f"gpu->{c}", "c", f"gpu->{c}",
        f"&gpu->{plan}_algorithm", "gpu->cublas_workspace", WORKSPACE_BYTES, "gpu->stream",
    ]  # fmt: skip
    write_call(w, "CUBLASLT_CHECK", "cublasLtMatmul(gpu->cublas_lt", arguments)


def emit_epilogue_product(
    op: Op, name: str, site: int, form: Form, options: DeviceOptions, kernels: KernelsInstead
) -> LibraryCall:
    """The call for a product of f32 matrices with a bias, an activation, or both."""
    product = Product.of(op)
    epilogue = _EPILOGUES[form.bias is not None, form.activation]
    (b, a, c), layouts = layouts_of(site, product)
    plan, plan_part = product_part(site, product, epilogue, (b, a, c), alignment_of(op), options)
    dtype = op.operands[0].tensor.dtype

    def body(w: Writer) -> None:
        w.line(f"const float alpha = {scale_of(form.alpha, dtype)};")
        w.line("const float beta = 0.0f;")
        with where_missing(w, f"gpu->{plan}_{IS_MISSING}", "cublasLt"):
            write_product(w, product)
            biases = [] if form.bias is None else [op.operands[operand_of(form.bias)]]
            nest, given = epilogue_nest(op, bound(product.m), bound(product.n), form), ["bias"] if biases else []
            kernels.launch_nest(w, op, nest, biases, [*given, "c"], op.results[0].tensor)
        if form.bias is not None:
            write_bias_pointer(w, plan, "bias")
        write_matmul(w, plan, (b, a, c))

    parts = [workspace_part(site), cublas.handle_part(site, options), handle_part(site), *layouts, plan_part]
    call = library_call(op, name, form, [f"{product}, by cublasLt: {epilogue}"], body, parts)
    return replace(call, kernels=kernels.taken())


def epilogue_nest(op: Op, rows: int, columns: int, form: Form) -> Nest:
    """The loops of a bias and an activation in the place of the product."""
    dtype = op.results[0].tensor.dtype
    row, column = Axis("row", rows), Axis("column", columns)
    c, bias = ArrayRef("c", dtype, rows * columns, "output"), ArrayRef("bias", dtype, columns, "input")
    at = Affine.of(row, columns) + Affine.of(column)
    body: list[Statement] = []
    product = Local("product", dtype)
    body.append(Load(product, c, at))
    x: Operand = product
    if form.bias is not None:
        added = Local("added", dtype)
        body.append(Load(added, bias, Affine.of(column)))
        x = computed(body, prims.ADD, x, added)
    if form.activation:
        x = gelu_of(body, x)
    body.append(Store(c, at, x))
    name = f"{op.attrs.get('name') or 'product'}_epilogue"
    return Nest(
        name, (bias,) if form.bias is not None else (), (c,), (), (Loop(row, (Loop(column, tuple(body)),)),), rows
    )


def gelu_of(body: list[Statement], x: Operand) -> Local:
    """The tanh formula: 0.5 x (1 + tanh(s (x + c x^3)))."""

    def number(value: float) -> Constant:
        return Constant(value, x.dtype)

    cube = computed(body, prims.MULTIPLY, computed(body, prims.MULTIPLY, x, x), x)
    inner = computed(body, prims.ADD, x, computed(body, prims.MULTIPLY, number(GELU_CUBE), cube))
    tanh = computed(body, prims.TANH, computed(body, prims.MULTIPLY, number(GELU_SCALE), inner))
    half = computed(body, prims.MULTIPLY, number(0.5), x)
    return computed(body, prims.MULTIPLY, half, computed(body, prims.ADD, tanh, number(1.0)))
