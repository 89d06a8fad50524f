"""Convolutions and their two gradients by cuDNN.

    c = alpha * convolution + beta * c
    c = alpha * convolution + bias      forward, f32

Which algorithm runs is chosen once per distinct shape, when the device is opened: the first that cuDNN's heuristics
name (or its measurements, `algorithms="timed"`) and that gives the same bits in every run (or any,
`deterministic=False`). Products of f32 are made in f32 (`CUDNN_FMA_MATH`) unless the program allows TF32, which is
cuDNN's default.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from staged.backends.c_family.writer import Writer
from staged.backends.cublas_cudnn.device import DevicePart, Field, check
from staged.backends.cublas_cudnn.library.call import (
    LibraryCall,
    library_call,
    scale_of,
    unused,
    write_call,
    write_zeros,
)
from staged.backends.cublas_cudnn.library.cudnn import (
    DATA_TYPES,
    MOST_ELEMENTS,
    by,
    descriptor_part,
    filter_part,
    handle_part,
    math_type,
    tensor_part,
    workspace_part,
)
from staged.backends.cublas_cudnn.library.form import Form
from staged.errors import UnsupportedError
from staged.ir.nodes import Op
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


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution, or a gradient of it: y (N, O, OH, OW) from x (N, C, H, W) and w (O, C / groups, kH, kW)."""

    kind: str
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
        if form.bias is not None:
            # The only algorithm that cuDNN allows there.
            fields["plan"] = "CUDNN_CONVOLUTION_FWD_ALGO_IMPLICIT_PRECOMP_GEMM"
            plan_part = self.fixed_part(site, fields)
        else:
            fields["plan"] = f"gpu->{self.plan}"
            plan_part = self.plan_part(site, fields, options)
        return fields, [*parts, plan_part, workspace_part(site)]

    def fixed_part(self, site: int, fields: dict[str, str]) -> DevicePart:
        """The workspace of an algorithm that is given."""
        r = self.routine
        named = ", ".join(f"gpu->{fields[name]}" for name in (r.first, r.second, "window", r.third))
        size = check("CUDNN_CHECK", site, f"{r.size}(gpu->cudnn, {named}, {fields['plan']}, &gpu->{self.plan}_bytes)")
        return DevicePart(
            (Field(f"size_t {self.plan}_bytes;"),),
            (
                size,
                f"if (gpu->{self.plan}_bytes > gpu->cudnn_workspace_bytes) {{",
                f"    gpu->cudnn_workspace_bytes = gpu->{self.plan}_bytes;",
                "}",
            ),
            (),
            order=1,
        )

    def plan_part(self, site: int, fields: dict[str, str], options: DeviceOptions) -> DevicePart:
        """The algorithm."""
        r = self.routine
        named = ", ".join(f"gpu->{fields[name]}" for name in (r.first, r.second, "window", r.third))
        function = f"choose_{r.word}"
        return DevicePart(
            (Field(f"{r.algorithm}_t {self.plan};"),),
            (
                f"if ({function}(gpu, host, {site}, {named}, &gpu->{self.plan}) != ST_OK) {{",
                "    return host->error_kind;",
                "}",
            ),
            (),
            helpers=(choice_text(r, options),),
            order=1,
        )


def identity_descriptor(site: int) -> tuple[str, DevicePart]:
    """The descriptor of the activation after the bias: none. A kernel computes relu, because cuDNN's relu returns 0 for
    NaN here.

    Source: NVIDIA, cuDNN API, `cudnnConvolutionBiasActivationForward`: it requires `CUDNN_NOT_PROPAGATE_NAN`.
    """
    name = "activation_identity"
    setting = f"cudnnSetActivationDescriptor(gpu->{name}, CUDNN_ACTIVATION_IDENTITY, CUDNN_NOT_PROPAGATE_NAN, 0.0)"
    return name, descriptor_part(site, name, "Activation", setting)


def choice_text(r: Routine, options: DeviceOptions) -> str:
    """The C function that chooses an algorithm."""
    is_timed = options.algorithms == "timed"
    names = {"x": "x", "w": "w", "y": "y"}
    w = Writer()
    order = "The fastest algorithm, as measured now," if is_timed else "The first algorithm that the heuristics name"
    which = " that gives the same bits every time" if options.deterministic else ""
    w.comment(f"{order}{which} and needs no more than {WORKSPACE_LIMIT >> 20} MiB.")
    described = ", ".join(
        [
            f"{_C_TYPES[r.first]} {names[r.first]}",
            f"{_C_TYPES[r.second]} {names[r.second]}",
            "cudnnConvolutionDescriptor_t window",
            f"{_C_TYPES[r.third]} {names[r.third]}",
        ]
    )
    given = f"{r.first}, {r.second}, window, {r.third}"
    head = f"static int choose_{r.word}(Device *gpu, st_host *host, int site, {described}, {r.algorithm}_t *algorithm)"
    with w.block(head):
        w.line(f"{r.algorithm}Perf_t found[{r.count}];")
        w.line("int count = 0;")
        w.statement(
            f"CUDNN_CHECK(site, {r.measure if is_timed else r.find}(gpu->cudnn, {given}, {r.count}, &count, found));"
        )
        with w.block("for (int number = 0; number < count; ++number)"):
            w.line("const int is_fit = found[number].status == CUDNN_STATUS_SUCCESS")
            if options.deterministic:
                w.line("        && found[number].determinism == CUDNN_DETERMINISTIC")
            w.line(f"        && found[number].memory <= {WORKSPACE_LIMIT};")
            with w.block("if (is_fit)"):
                w.line("size_t bytes = 0;")
                w.line("*algorithm = found[number].algo;")
                w.statement(f"CUDNN_CHECK(site, {r.size}(gpu->cudnn, {given}, *algorithm, &bytes));")
                with w.block("if (bytes > gpu->cudnn_workspace_bytes)"):
                    w.line("gpu->cudnn_workspace_bytes = bytes;")
                w.line("return ST_OK;")
        words = f"cuDNN has no {'deterministic ' if options.deterministic else ''}algorithm for this convolution"
        w.line(f'return st_fail(host, ST_RUNTIME_ERROR, site, "{words}");')
    return str(w)


def emit_convolution(op: Op, name: str, site: int, form: Form, options: DeviceOptions) -> LibraryCall:
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

    def with_bias(w: Writer) -> None:
        w.line(f"const float alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line("const float beta = 0.0f;  // nothing is added but the bias")
        arguments = [
            "&alpha", f"gpu->{fields['x']}", "a", f"gpu->{fields['w']}", "b", f"gpu->{fields['window']}",
            fields["plan"], "gpu->cudnn_workspace", "gpu->cudnn_workspace_bytes", "&beta", f"gpu->{fields['y']}", "c",
            f"gpu->{fields['bias']}", "bias", f"gpu->{fields['activation']}", f"gpu->{fields['y']}", "c",
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnConvolutionBiasActivationForward(gpu->cudnn", arguments)

    def body(w: Writer) -> None:
        w.line(f"const {c_type} alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line(f"const {c_type} beta = {scale_of(form.beta, convolution.dtype)};")
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
    return library_call(op, name, form, [str(convolution)], write, parts)
