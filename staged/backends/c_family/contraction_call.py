"""Matrix products and convolutions as kernels of a program: the contraction generator's functions behind one signature,
and what happens to each finished piece (the epilogue) as an inline function.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Literal

from staged.backends.c_family.contraction.conv2d import emit_conv2d
from staged.backends.c_family.contraction.matmul import emit_matmul
from staged.backends.c_family.contraction.spec import ContractionKernel, Conv2dSpec, Epilogue, MatmulSpec
from staged.backends.c_family.expr import Index, Infix, Name, address
from staged.backends.c_family.kernel_text import KernelText, Site, kernel_comments
from staged.backends.c_family.loops import LoopEmitter
from staged.backends.c_family.nest_uses import used_sources
from staged.backends.c_family.support.vectors import width_snippet
from staged.backends.c_family.vectors import Vec
from staged.backends.c_family.writer import Writer, c_identifier, safe_comment
from staged.ir.loops import ArrayRef, Axis, Load, Local, Loop, Nest, indices_of, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Op, Value
from staged.ir.types import DType, bound, row_major

_CONVOLUTIONS: dict[str, Literal["forward", "backward_input", "backward_weight"]] = {
    "conv2d": "forward",
    "conv2d_backward_input": "backward_input",
    "conv2d_backward_weight": "backward_weight",
}


def emit_contraction(op: Op, name: str, machine: Machine, site: Site) -> KernelText:
    """The C function for a `contraction` op: operands (a, b, *epilogue inputs), results from the epilogue or the product."""
    nest: Nest | None = op.attrs.get("nest")
    epilogue, inline, snippets = None, "", frozenset[str]()
    if nest is not None:
        emitter = EpilogueEmitter(nest, op.attrs["schedule"], machine, site)
        inline, parameters = emitter.inline_function(f"{name}_epilogue")
        epilogue = Epilogue(f"{name}_epilogue", parameters)
        snippets = frozenset(emitter.snippets | emitter.types.snippets)
    product = emit_product(op, f"{name}_product", machine, epilogue)
    return _wrap(op, name, product, inline, snippets, nest, machine)


def extents(value: Value) -> tuple[int, ...]:
    """The room along each axis: the shape, with the bound of a dimension whose size the program finds."""
    return tuple(bound(extent) for extent in value.tensor.shape)


def emit_product(op: Op, name: str, machine: Machine, epilogue: Epilogue | None) -> ContractionKernel:
    """The kernel's own text: matrix product or convolution with an optional epilogue."""
    dtype = op.operands[0].tensor.dtype
    if op.attrs["kind"] == "matmul":
        return emit_matmul(matmul_spec(op, name, dtype, epilogue), machine)
    return emit_conv2d(conv2d_spec(op, name, dtype, epilogue), machine)


def matmul_spec(op: Op, name: str, dtype: DType, epilogue: Epilogue | None) -> MatmulSpec:
    a, b = (extents(operand) for operand in op.operands[:2])
    strides = []
    for shape, turned in ((a, op.attrs.get("transpose_a", False)), (b, op.attrs.get("transpose_b", False))):
        steps = row_major(*shape)
        strides.append((*steps[:-2], steps[-1], steps[-2]) if turned else steps)
    m, k = (a[-1], a[-2]) if op.attrs.get("transpose_a", False) else (a[-2], a[-1])
    n = b[-2] if op.attrs.get("transpose_b", False) else b[-1]
    batch = a[:-2]
    c = row_major(*batch, m, n)
    counted = counted_extent(op)
    return MatmulSpec(name, m, n, k, dtype, batch, strides[0], strides[1], c, epilogue, counted=counted)


def counted_extent(op: Op) -> Literal["", "m", "k", "batch"]:
    """Which extent of a product is a dimension whose size the program finds: it is the first axis of its operands."""
    a = op.operands[0].tensor
    if not op.attrs.get("dims"):
        return ""
    return "batch" if a.ndim > 2 else "k" if op.attrs.get("transpose_a", False) else "m"


def conv2d_spec(op: Op, name: str, dtype: DType, epilogue: Epilogue | None) -> Conv2dSpec:
    first, second = (extents(operand) for operand in op.operands[:2])
    kind = op.attrs["kind"]
    if kind == "conv2d":
        x, weight = first, second
    elif kind == "conv2d_backward_input":
        x, weight = tuple(op.attrs["input_shape"]), second
    else:
        x, weight = first, tuple(op.attrs["weight_shape"])
    n, c, h, w = x
    oc, _, kh, kw = weight
    return Conv2dSpec(
        name, n, c, h, w, oc, kh, kw,
        stride=tuple(op.attrs.get("stride", (1, 1))),
        padding=tuple(op.attrs.get("padding", (0, 0))),
        dilation=tuple(op.attrs.get("dilation", (1, 1))),
        groups=op.attrs.get("groups", 1),
        dtype=dtype,
        kind=_CONVOLUTIONS[kind],
        epilogue=epilogue,
    )  # fmt: skip


def _wrap(
    op: Op,
    name: str,
    product: ContractionKernel,
    inline: str,
    snippets: frozenset[str],
    nest: Nest | None,
    machine: Machine,
) -> KernelText:
    """One function with the program's signature around the product's."""
    inputs = [_parameter(v.tensor.dtype, v.tensor.shape, f"input_{n}", True) for n, v in enumerate(op.operands)]
    outputs = [_parameter(v.tensor.dtype, v.tensor.shape, f"output_{n}", False) for n, v in enumerate(op.results)]
    inputs[0], inputs[1] = (inputs[0][0], "a"), (inputs[1][0], "b")
    if op.attrs.get("dims"):
        inputs[-1] = ("int64_t ", "count")
    if nest is None:
        outputs[0] = (outputs[0][0], "c")
    else:
        for number, source in enumerate(nest.inputs[1:], 1):
            inputs[number + 1] = (inputs[number + 1][0], input_name(number, source))
        for number, output in enumerate(nest.outputs):
            outputs[number] = (outputs[number][0], output_name(number, output))
    types = {parameter: type.replace("restrict", "").strip() for type, parameter in product.parameters}
    w = Writer()
    comments = kernel_comments(op)[:7]
    for comment in dict.fromkeys(comments):
        w.line("// " + safe_comment(comment))
    parameters = [*inputs, *outputs]
    if product.scratch_bytes:
        parameters.append(("unsigned char *", "scratch"))
    parameters += [("int64_t ", "begin"), ("int64_t ", "end")]
    with w.block(f"static void {name}({_head(parameters)})"):
        if op.attrs.get("dims") and "count" not in types:
            w.line("(void)count;")
        arguments = {"scratch": f"({types['scratch']})(void *)scratch"} if "scratch" in types else {}
        w.statement(product.call(arguments) + ";")
    text = "\n".join(part for part in (inline, product.text, str(w)) if part)
    items = product.work_items
    work = _multiply_adds(op) / 20.0  # nanoseconds at a modest rate
    chunk = max(1, min(items // 2, int(items * 10_000 / work))) if items > 1 and work > 20_000 else 0
    return KernelText(
        name,
        text,
        tuple(parameters),
        items,
        snippets | product.snippets | {width_snippet(machine.vector_bytes)},
        product.scratch_bytes,
        False,
        chunk,
        () if nest is None else tuple((o, i + 1) for o, i in nest.in_place),
        items_text=product.items_text.replace("{count}", f"{{{len(op.operands) - 1}}}"),
        support=product.support,
    )


def _head(parameters: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{type}{parameter}" for type, parameter in parameters)


def input_name(number: int, source: ArrayRef | Local) -> str:
    """The name of an epilogue's input, the same inside the product's function and around it."""
    return c_identifier(f"{source.name}_{number}")


def output_name(number: int, output: ArrayRef) -> str:
    return c_identifier(f"{output.name}_out" if number == 0 else f"{output.name}_out_{number}")


def _parameter(dtype: DType, shape: Sequence[object], name: str, is_input: bool) -> tuple[str, str]:
    if not shape and is_input:
        return f"{dtype.c_name} ", name
    return f"{'const ' if is_input else ''}{dtype.c_name} *", name


def _multiply_adds(op: Op) -> float:
    a = op.operands[0]
    if op.attrs["kind"] == "matmul":
        k = extents(a)[-2 if op.attrs.get("transpose_a", False) else -1]
        return float(prod(extents(op.blocks[0].params[0])) * k)
    spec = conv2d_spec(op, "", a.tensor.dtype, None)
    return float(spec.multiply_adds)


class EpilogueEmitter(LoopEmitter):
    """Writes an epilogue nest as the inline function that a product calls with its finished tiles."""

    def inline_function(self, name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        """The text, and the parameters that it has besides the tile's."""
        nest = self.nest
        tile = nest.inputs[0]
        assert isinstance(tile, ArrayRef)
        parameters: list[tuple[str, str]] = []
        for number, source in enumerate(nest.inputs[1:], 1):
            parameter = input_name(number, source)
            if isinstance(source, Local):
                parameters.append((f"{source.dtype.c_name} ", parameter))
                self.values[source] = Vec(Name(parameter), source.dtype, False)
            else:
                parameters.append((f"const {source.dtype.c_name} *", parameter))
                self.arrays[source] = Name(parameter)
        for number, output in enumerate(nest.outputs):
            parameter = output_name(number, output)
            parameters.append((f"{output.dtype.c_name} *", parameter))
            self.arrays[output] = Name(parameter)
        self.names.used |= {"batch", "row", "col", "rows", "cols", "tile", "ld", "r", *(p for _, p in parameters)}
        self.arrays[tile] = Name("tile")
        self.finished = tile
        batch, row, column = (s for s in walk(nest.body) if isinstance(s, Loop))
        head = [("int64_t ", n) for n in ("batch", "row", "col", "rows", "cols")]
        head += [(f"const {tile.dtype.c_name} *", "tile"), ("int64_t ", "ld"), *parameters]
        w = self.w
        with w.block(f"static inline __attribute__((always_inline)) void {name}({_head(head)})"):
            indices = [
                i for s in walk(nest.body) if not (isinstance(s, Load) and s.array is tile) for i in indices_of(s)
            ]
            for loop in (batch, row, column):
                if not any(index.stride(loop.axis) for index in indices):
                    w.line(f"(void){loop.axis.name};")
            read = used_sources(nest)
            for source in nest.inputs[1:]:
                if source not in read:
                    w.line(f"(void){self.arrays[source] if isinstance(source, ArrayRef) else self.values[source].expr};")
            self.axes[batch.axis] = Name("batch")
            with self.block("for (int64_t r = 0; r < rows; ++r)"):
                self.axes[row.axis] = Infix("+", Name("row"), Name("r"))
                self.ranges[column.axis] = ("0", "cols")
                self.origins[column.axis] = "col"
                self.loop_names.append("r")
                self.body(row.body)
        return str(w), tuple(parameters)

    def scoped(self, axis: Axis) -> str:
        name = self.names.fresh("s")
        self.column = Name(name)
        self.axes[axis] = Infix("+", Name("col"), Name(name))
        self.loop_names.append(name)
        return name

    def load(self, s: Load, inline: bool) -> None:
        if s.array is not self.finished:
            super().load(s, inline)
            return
        varies = self.vector_axis is not None
        index = Infix("+", Infix("*", Name("r"), Name("ld")), self.column)
        if varies:
            self.bind(s.target, self.speller.load(s.array.dtype, address(Name("tile"), index)), True, inline, False)
        else:
            self.bind(s.target, Index(Name("tile"), index), False, inline, False)
