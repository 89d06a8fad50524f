"""Convolutions and their two gradients by cuDNN.

    c = alpha * convolution + beta * c
    c = alpha * convolution + bias      forward, f32

Which algorithm runs is chosen once per distinct shape, when the device is opened: the first that cuDNN's heuristics
name (or its measurements, `algorithms="timed"`) and that gives the same bits in every run (or any,
`deterministic=False`). If there is none, a kernel of the program runs. Products of f32 are made in f32
(`CUDNN_FMA_MATH`) unless the program allows TF32, which is cuDNN's default.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from staged.backends.cublas_cudnn.device import DevicePart, Field
from staged.backends.cublas_cudnn.library.call import (
    LibraryCall,
    library_call,
    operand_of,
    scale_of,
    unused,
    write_call,
    write_zeros,
)
from staged.backends.cublas_cudnn.library.cudnn import (
    DATA_TYPES,
    IS_UNSUPPORTED,
    MOST_ELEMENTS,
    by,
    descriptor_part,
    filter_part,
    handle_part,
    math_type,
    tensor_part,
    workspace_part,
)
from staged.backends.cublas_cudnn.library.form import Form, Scale
from staged.backends.cublas_cudnn.library.instead import IS_MISSING, KernelsInstead, computed, where_missing
from staged.code.writer import Writer, c_string
from staged.errors import UnsupportedError
from staged.ir.convolutions import contraction_nest, convolution_of
from staged.ir.declaration import prims
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Constant,
    Load,
    Local,
    Loop,
    Nest,
    Operand,
    Statement,
    Store,
    walk,
)
from staged.ir.named_loops import with_body
from staged.ir.nodes import Op, Value
from staged.ir.options import DeviceOptions
from staged.ir.types import DType, bound

WORKSPACE_LIMIT = 1 << 30
"""Bytes: algorithms that need more are passed over."""


@dataclass(frozen=True, slots=True)
class Routine:
    """One of the three: what cuDNN calls it, and the descriptors that its functions take, in their order."""

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
_CALLS = {
    "conv2d": "cudnnConvolutionForward",
    "conv2d_backward_input": "cudnnConvolutionBackwardData",
    "conv2d_backward_weight": "cudnnConvolutionBackwardFilter",
}
_C_TYPES = {"x": "cudnnTensorDescriptor_t", "w": "cudnnFilterDescriptor_t", "y": "cudnnTensorDescriptor_t"}


ConvolutionKind = Literal["conv2d", "conv2d_backward_input", "conv2d_backward_weight"]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution, or a gradient of it: y (N, O, OH, OW) from x (N, C, H, W) and w (O, C / groups, kH, kW)."""

    kind: ConvolutionKind
    dtype: DType
    x: tuple[int, ...]
    w: tuple[int, ...]
    y: tuple[int, ...]
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @staticmethod
    def of(op: Op) -> Convolution:
        """The convolution of a contraction op. Raises UnsupportedError for more elements than a descriptor takes."""
        first, second = (tuple(bound(extent) for extent in operand.tensor.shape) for operand in op.operands[:2])
        result = tuple(bound(extent) for extent in op.results[0].tensor.shape)
        kind = op.attrs["kind"]
        x, w, y = {
            "conv2d": (first, second, result),
            "conv2d_backward_input": (result, second, first),
            "conv2d_backward_weight": (first, result, second),
        }[kind]
        if max(map(prod, (x, w, y))) >= MOST_ELEMENTS:
            raise UnsupportedError(
                f"cuDNN takes arrays of fewer than {MOST_ELEMENTS:,} elements, got x {x}, w {w}, y {y}",
                where=op.where,
                hint="take the batch in several pieces",
            )
        padding, stride, dilation = (tuple(op.attrs[name]) for name in ("padding", "stride", "dilation"))
        return Convolution(
            kind, op.operands[0].tensor.dtype, x, w, y, padding, stride, dilation, int(op.attrs["groups"])
        )

    @property
    def routine(self) -> Routine:
        return ROUTINES[self.kind]

    @property
    def descriptor(self) -> str:
        """The field with the descriptor of the convolution alone: how the window moves."""
        words = [f"convolution_{self.dtype}_padding{by(self.padding)}_stride{by(self.stride)}"]
        words += [f"dilation{by(self.dilation)}"] if self.dilation != (1, 1) else []
        words += [f"groups{self.groups}"] if self.groups != 1 else []
        return "_".join(words)

    @property
    def plan(self) -> str:
        """The field with the algorithm: one per routine and distinct shape."""
        return f"{self.routine.word}_{by(self.x)}_{by(self.w)}_{self.descriptor.removeprefix('convolution_')}"

    def __str__(self) -> str:
        return f"x {self.x}, w {self.w}, y {self.y}: {self.routine.word.replace('_', ' ')}"

    # ---- what has to be there before the call ----

    def parts(self, site: int, form: Form, options: DeviceOptions) -> tuple[dict[str, str], list[DevicePart]]:
        """The fields of x, w, y, the convolution and its algorithm, by these names, and all parts."""
        x, x_part = tensor_part(site, self.dtype, self.x)
        w, w_part = filter_part(site, self.dtype, self.w)
        y, y_part = tensor_part(site, self.dtype, self.y)
        window = ", ".join(map(str, (*self.padding, *self.stride, *self.dilation)))
        settings = [
            f"cudnnSetConvolution2dDescriptor(gpu->{self.descriptor}, {window}, CUDNN_CROSS_CORRELATION, "
            f"{DATA_TYPES[self.dtype.name]})",
            # With the default, products of f32 may be made of factors that were rounded to 10 bits.
            f"cudnnSetConvolutionMathType(gpu->{self.descriptor}, {math_type(options)})",
        ]
        if self.groups != 1:
            settings.append(f"cudnnSetConvolutionGroupCount(gpu->{self.descriptor}, {self.groups})")
        window_part = descriptor_part(site, self.descriptor, "Convolution", *settings)
        fields = {"x": x, "w": w, "y": y, "window": self.descriptor, "plan": self.plan}
        parts = [handle_part(site), x_part, w_part, y_part, window_part]
        if form.bias is not None:
            fields["bias"], bias_part = tensor_part(site, self.dtype, (1, self.w[0], 1, 1))
            fields["activation"], activation_part = identity_descriptor(site)
            parts += [bias_part, activation_part]
        fields["plan"] = f"gpu->{self.plan}" if form.bias is None else _WITH_BIAS
        return fields, [*parts, self.plan_part(site, fields, options, form.bias is not None), workspace_part(site)]

    def plan_part(self, site: int, fields: dict[str, str], options: DeviceOptions, is_fixed: bool) -> DevicePart:
        """The algorithm, and its share of the workspace. With `is_fixed` it is the only one that a bias allows."""
        r, kind = self.routine, "choose_with_bias" if is_fixed else f"choose_{self.routine.word}"
        named = ", ".join(f"gpu->{fields[name]}" for name in (r.first, r.second, "window", r.third))
        algorithm = "" if is_fixed else f", &gpu->{self.plan}"
        missing = Field(f"bool {self.missing(is_fixed)};")
        choose = f"{kind}(gpu, host, {site}, {c_string(str(self))}, {named}{algorithm}, &gpu->{self.missing(is_fixed)})"
        return DevicePart(
            (missing,) if is_fixed else (Field(f"{r.algorithm}_t {self.plan};"), missing),
            (f"if ({choose} != ST_OK) {{", "    return host->error_kind;", "}"),
            (),
            helpers=(IS_UNSUPPORTED, fixed_choice_text() if is_fixed else choice_text(r, options)),
            order=1,
        )

    def missing(self, is_fixed: bool) -> str:
        """The field with whether cuDNN does not have an algorithm."""
        return f"{self.plan}{'_with_bias' if is_fixed else ''}_{IS_MISSING}"


def identity_descriptor(site: int) -> tuple[str, DevicePart]:
    """The descriptor of the activation after the bias: none. A kernel computes relu, because cuDNN's relu returns 0 for
    NaN here.

    Source: NVIDIA, cuDNN API, `cudnnConvolutionBiasActivationForward`: it requires `CUDNN_NOT_PROPAGATE_NAN`.
    """
    name = "activation_identity"
    setting = f"cudnnSetActivationDescriptor(gpu->{name}, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0.0)"
    return name, descriptor_part(site, name, "Activation", setting)


_WITH_BIAS = "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM"
"""The only algorithm that cuDNN allows with a bias and without an activation."""
_INSTEAD = "a kernel runs instead"


def fixed_choice_text() -> str:
    """The C function that asks for the algorithm of a convolution with a bias."""
    r = ROUTINES["conv2d"]
    return f"""\
// The workspace of the algorithm that cuDNN has for a convolution with a bias, if it has it here.
static int choose_with_bias(Device *gpu, st_host *host, int site, const char *what, cudnnTensorDescriptor_t x,
        cudnnFilterDescriptor_t w, cudnnConvolutionDescriptor_t window, cudnnTensorDescriptor_t y, bool *is_missing) {{
    size_t bytes = 0;
    const cudnnStatus_t status = {r.size}(
            gpu->cudnn, x, w, window, y, {_WITH_BIAS}, &bytes);
    *is_missing = is_unsupported(status);
    if (*is_missing) {{
        st_note(host, site, "cuDNN has no algorithm with a bias for %s (%s): {_INSTEAD}", what,
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
        words = f"cuDNN has no {'deterministic ' if options.deterministic else ''}algorithm for %s (%s): {_INSTEAD}"
        w.line('const char *const why = status == CUDNN_STATUS_SUCCESS ? "none fits" : cudnnGetErrorString(status);')
        w.statement(f'st_note(host, site, "{words}", what, why);')
        w.line("return ST_OK;")
    return str(w)


def convolution_kernel_nest(op: Op, form: Form) -> tuple[Nest, list[str], list[Value]]:
    """The loops of a convolution with its epilogue, the names of its inputs in the call, and these operands of `op`."""
    conv, dtype = convolution_of(op), op.operands[0].tensor.dtype
    nest = contraction_nest(op, "convolution")
    axes = {s.axis.name: s.axis for s in walk(nest.body) if isinstance(s, Loop)}
    (c,) = nest.outputs
    inputs: list[ArrayRef | Local] = list(nest.inputs)
    names, operands = ["a", "b"], list(op.operands[:2])

    def factor(scale: Scale, name: str) -> Operand:
        if not scale.params:
            return Constant(scale.number, dtype)
        found = Local(name, dtype)
        inputs.append(found)
        names.append(name)
        operands.append(op.operands[operand_of(scale.params[0])])
        return found

    alpha = factor(form.alpha, "alpha")
    beta = factor(form.beta, "beta")
    bias = ArrayRef("bias", dtype, conv.oc, "input")
    if form.bias is not None:
        inputs.append(bias)
        names.append("bias")
        operands.append(op.operands[operand_of(form.bias)])

    def finished(store: Store) -> list[Statement]:
        body: list[Statement] = []
        value = scaled(body, alpha, store.value)
        if form.addend is not None:
            old = Local("old", dtype)
            body.append(Load(old, c, store.index))
            value = computed(body, prims.ADD, value, scaled(body, beta, old))
        if form.bias is not None:
            added = Local("added", dtype)
            body.append(Load(added, bias, Affine.of(axes["group"], conv.oc // conv.groups) + Affine.of(axes["o"])))
            value = computed(body, prims.ADD, value, added)
        return [*body, Store(c, store.index, value)]

    def changed(body: tuple[Statement, ...]) -> tuple[Statement, ...]:
        found: list[Statement] = []
        for s in body:
            found += finished(s) if isinstance(s, Store) else [with_body(s, changed)]
        return tuple(found)

    name = str(op.attrs.get("name") or op.attrs["kind"])
    return replace(nest, name=name, inputs=tuple(inputs), body=changed(nest.body)), names, operands


def scaled(body: list[Statement], factor: Operand, value: Operand) -> Operand:
    """A number times a factor, unless that is 1."""
    return value if factor == Constant(1.0, value.dtype) else computed(body, prims.MULTIPLY, factor, value)


def emit_convolution(
    op: Op, name: str, site: int, form: Form, options: DeviceOptions, kernels: KernelsInstead
) -> LibraryCall:
    """The call for a convolution, or a gradient of one, with an epilogue that cuDNN has."""
    convolution = Convolution.of(op)
    r, c_type = convolution.routine, convolution.dtype.c_name
    if 0 in (*convolution.x, *convolution.w, *convolution.y):
        # Descriptors have no empty shapes: there is nothing to sum, or no sum.
        def empty(w: Writer) -> None:
            unused(w, "a", "b")
            write_zeros(w, op)

        return library_call(op, name, form, [str(convolution)], empty, [])
    fields, parts = convolution.parts(site, form, options)

    def kernel_instead(w: Writer) -> None:
        with where_missing(w, f"gpu->{convolution.missing(form.bias is not None)}", "cuDNN"):
            nest, names, operands = convolution_kernel_nest(op, form)
            kernels.launch_nest(w, op, nest, operands, [*names, "c"], op.results[0].tensor)

    def with_bias(w: Writer) -> None:
        w.line(f"const float alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line("const float beta = 0.0f;  // nothing is added but the bias")
        kernel_instead(w)
        arguments = [
            "&alpha", f"gpu->{fields['x']}", "a", f"gpu->{fields['w']}", "b", f"gpu->{fields['window']}",
            fields["plan"], "gpu->cudnn_workspace", "gpu->cudnn_workspace_bytes", "&beta", f"gpu->{fields['y']}", "c",
            f"gpu->{fields['bias']}", "bias", f"gpu->{fields['activation']}", f"gpu->{fields['y']}", "c",
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnConvolutionBiasActivationForward(gpu->cudnn", arguments)

    def body(w: Writer) -> None:
        w.line(f"const {c_type} alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line(f"const {c_type} beta = {scale_of(form.beta, convolution.dtype)};")
        kernel_instead(w)
        # Of the operands, the gradient of x has y first.
        pointers = {"conv2d_backward_input": {"w": "b", "y": "a", "x": "c"}}.get(
            convolution.kind, {r.first: "a", r.second: "b", r.third: "c"}
        )
        arguments = [
            "&alpha", f"gpu->{fields[r.first]}", pointers[r.first], f"gpu->{fields[r.second]}", pointers[r.second],
            f"gpu->{fields['window']}", fields["plan"], "gpu->cudnn_workspace", "gpu->cudnn_workspace_bytes",
            "&beta", f"gpu->{fields[r.third]}", pointers[r.third],
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", f"{_CALLS[convolution.kind]}(gpu->cudnn", arguments)

    write = body if form.bias is None else with_bias
    return replace(library_call(op, name, form, [str(convolution)], write, parts), kernels=kernels.taken())
