"""Convolutions and their two gradients by cuDNN.

    c = alpha * convolution + beta * c
    c = alpha * convolution + bias      forward, f32

Which algorithm runs is chosen once per distinct shape, when the device is opened: the first that cuDNN's heuristics
name (or its measurements, `algorithms="timed"`) and that gives the same bits in every run (or any,
`deterministic=False`). If there is none, a kernel of the program runs. If the program finds a size, each size has a
plan (`plans.py`). Products of f32 are made in f32
(`CUDNN_FMA_MATH`) unless the program allows TF32, which is cuDNN's default.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Literal

from staged.backends.cublas_cudnn.device import DevicePart, Field
from staged.backends.cublas_cudnn.library.algorithms import (
    ROUTINES,
    WITH_BIAS,
    Routine,
    choice_text,
    fixed_choice_text,
    plan_word,
    sized_choice_text,
)
from staged.backends.cublas_cudnn.library.call import (
    LibraryCall,
    library_call,
    operand_of,
    scale_of,
    size_name,
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
from staged.backends.cublas_cudnn.library.plans import (
    FIND,
    SETTLE,
    plans_part,
    write_plan,
    write_plan_function,
)
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
from staged.ir.sizes import Dim
from staged.ir.types import DType, Shape, bound

_CALLS = {
    "conv2d": "cudnnConvolutionForward",
    "conv2d_backward_input": "cudnnConvolutionBackwardData",
    "conv2d_backward_weight": "cudnnConvolutionBackwardFilter",
}


ConvolutionKind = Literal["conv2d", "conv2d_backward_input", "conv2d_backward_weight"]


@dataclass(frozen=True, slots=True)
class Convolution:
    """One convolution, or a gradient of it: y (N, O, OH, OW) from x (N, C, H, W) and w (O, C / groups, kH, kW)."""

    kind: ConvolutionKind
    dtype: DType
    x: Shape
    w: tuple[int, ...]
    y: Shape
    padding: tuple[int, int]
    stride: tuple[int, int]
    dilation: tuple[int, int]
    groups: int

    @staticmethod
    def of(op: Op) -> Convolution:
        """The convolution of a contraction op. Raises UnsupportedError for more elements than a descriptor takes."""
        first, second, result = (value.tensor for value in (*op.operands[:2], op.results[0]))
        kind = op.attrs["kind"]
        arrays = {
            "conv2d": (first, second, result),
            "conv2d_backward_input": (result, second, first),
            "conv2d_backward_weight": (first, result, second),
        }[kind]
        x, w, y = (array.shape for array in arrays)
        if any(prod(map(bound, array.shape)) >= MOST_ELEMENTS for array in arrays):
            raise UnsupportedError(
                f"cuDNN takes arrays of fewer than {MOST_ELEMENTS:,} elements, got x {x}, w {w}, y {y}",
                where=op.where,
                hint="take the batch in several pieces",
            )
        padding, stride, dilation = (tuple(op.attrs[name]) for name in ("padding", "stride", "dilation"))
        return Convolution(
            kind, first.dtype, x, tuple(map(bound, w)), y, padding, stride, dilation, int(op.attrs["groups"])
        )

    @property
    def is_static(self) -> bool:
        """Return whether all of its sizes are numbers."""
        return all(isinstance(extent, int) for extent in (*self.x, *self.y))

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
        window = self.descriptor.removeprefix("convolution_")
        return f"{self.routine.word}_{by(list(map(bound, self.x)))}_{by(self.w)}_{window}"

    def __str__(self) -> str:
        return f"x {self.x}, w {self.w}, y {self.y}: {self.routine.word.replace('_', ' ')}"

    # ---- what has to be there before the call ----

    def parts(self, site: int, form: Form, options: DeviceOptions) -> tuple[dict[str, str], list[DevicePart]]:
        """The fields of x, w, y, the convolution and its algorithm, by these names, and all parts."""
        w, w_part = filter_part(site, self.dtype, self.w)
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
        fields = {"w": f"gpu->{w}", "window": f"gpu->{self.descriptor}"}
        parts = [handle_part(site), w_part, window_part]
        if form.bias is not None:
            bias, bias_part = tensor_part(site, self.dtype, (1, self.w[0], 1, 1))
            activation, activation_part = identity_descriptor(site)
            fields |= {"bias": f"gpu->{bias}", "activation": f"gpu->{activation}"}
            parts += [bias_part, activation_part]
        if not self.is_static:
            algorithm = f"({self.routine.algorithm}_t)plan->algorithm"
            fields |= {"x": "plan->x", "y": "plan->y", "missing": "plan->is_missing"}
            fields["plan"] = algorithm if form.bias is None else WITH_BIAS
            return fields, [*parts, workspace_part(site)]
        x, x_part = tensor_part(site, self.dtype, [bound(extent) for extent in self.x])
        y, y_part = tensor_part(site, self.dtype, [bound(extent) for extent in self.y])
        parts[1:2] = [x_part, w_part, y_part]
        fields |= {"x": f"gpu->{x}", "y": f"gpu->{y}", "missing": f"gpu->{self.missing(form.bias is not None)}"}
        fields["plan"] = f"gpu->{self.plan}" if form.bias is None else WITH_BIAS
        return fields, [*parts, self.plan_part(site, fields, options, form.bias is not None), workspace_part(site)]

    def plan_part(self, site: int, fields: dict[str, str], options: DeviceOptions, is_fixed: bool) -> DevicePart:
        """The algorithm, and its share of the workspace. With `is_fixed` it is the only one that a bias allows."""
        r, kind = self.routine, "choose_with_bias" if is_fixed else f"choose_{self.routine.word}"
        named = ", ".join(fields[name] for name in (r.first, r.second, "window", r.third))
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

    def plan_helpers(
        self, name: str, fields: dict[str, str], form: Form, options: DeviceOptions, dims: Sequence[Dim]
    ) -> tuple[tuple[str, ...], str]:
        """The functions that find plans, and the one for the call `name`."""
        has_bias = form.bias is not None
        choose = sized_choice_text(self.routine, options, has_bias)
        find = plan_word(self.routine, has_bias)
        arrays = {"x": self.x, "y": self.y}
        own = write_plan_function(name, self.dtype, arrays, dims, find, (fields["w"], fields["window"]), str(self))
        return (FIND, IS_UNSUPPORTED, SETTLE, choose), own

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


def convolution_kernel_nest(op: Op, form: Form) -> tuple[Nest, list[str], list[Value]]:
    """The loops of a convolution with its epilogue, the names of its inputs in the call, and these operands of `op`."""
    conv, dtype = convolution_of(op), op.operands[0].tensor.dtype
    sizes = op.attrs.get("dims", ())
    nest = contraction_nest(op, "convolution")
    nest = replace(nest, inputs=nest.inputs[:2])
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

    inputs += nest.counts.values()
    names += map(size_name, sizes)
    operands += op.operands[len(op.operands) - len(sizes) :]
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
    dims = op.attrs.get("dims", ())
    helpers: tuple[str, ...] = ()
    own = ""
    if not convolution.is_static:
        parts.append(plans_part(site, name, dims, has_algorithm=True))
        helpers, own = convolution.plan_helpers(name, fields, form, options, dims)

    def kernel_instead(w: Writer) -> None:
        otherwise = "" if convolution.is_static else ", or there are no elements"
        with where_missing(w, fields["missing"], "cuDNN", otherwise):
            nest, names, operands = convolution_kernel_nest(op, form)
            kernels.launch_nest(w, op, nest, operands, [*names, "c"], op.results[0].tensor)

    def with_bias(w: Writer) -> None:
        find_plan(w)
        w.line(f"const float alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line("const float beta = 0.0f;  // nothing is added but the bias")
        kernel_instead(w)
        arguments = [
            "&alpha", fields["x"], "a", fields["w"], "b", fields["window"], fields["plan"], "gpu->cudnn_workspace",
            "gpu->cudnn_workspace_bytes", "&beta", fields["y"], "c", fields["bias"], "bias", fields["activation"],
            fields["y"], "c",
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", "cudnnConvolutionBiasActivationForward(gpu->cudnn", arguments)

    def find_plan(w: Writer) -> None:
        if not convolution.is_static:
            write_plan(w, name, dims)

    def body(w: Writer) -> None:
        find_plan(w)
        w.line(f"const {c_type} alpha = {scale_of(form.alpha, convolution.dtype)};")
        w.line(f"const {c_type} beta = {scale_of(form.beta, convolution.dtype)};")
        kernel_instead(w)
        # Of the operands, the gradient of x has y first.
        pointers = {"conv2d_backward_input": {"w": "b", "y": "a", "x": "c"}}.get(
            convolution.kind, {r.first: "a", r.second: "b", r.third: "c"}
        )
        arguments = [
            "&alpha", fields[r.first], pointers[r.first], fields[r.second], pointers[r.second], fields["window"],
            fields["plan"], "gpu->cudnn_workspace", "gpu->cudnn_workspace_bytes", "&beta", fields[r.third],
            pointers[r.third],
        ]  # fmt: skip
        write_call(w, "CUDNN_CHECK", f"{_CALLS[convolution.kind]}(gpu->cudnn", arguments)

    write = body if form.bias is None else with_bias
    call = library_call(op, name, form, [str(convolution)], write, parts)
    text = f"{own}\n{call.text}" if own else call.text
    return replace(call, text=text, kernels=kernels.taken(), helpers=helpers)
