"""Matrix products and convolutions as kernels of a program: the contraction generator's functions behind one signature,
and what happens to each finished piece (the epilogue) as an inline function.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from staged.backends.c_family.expr import Index, Infix, Literal, Name
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.loops import LoopEmitter, Site, kernel_comments, wrapped
from staged.backends.c_family.vectors import Vec
from staged.backends.c_family.writer import Writer, safe_comment
from staged.backends.native.contraction.conv2d import emit_conv2d
from staged.backends.native.contraction.matmul import emit_matmul
from staged.backends.native.contraction.spec import Conv2dSpec, Epilogue, MatmulSpec, row_major
from staged.backends.native.contraction.spec import KernelText as ContractionText
from staged.ir.loops import Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Schedule, Store, walk
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.types import DType


def emit_contraction(op: Op, name: str, machine: Machine, site: Site) -> KernelText:
    """The C function for a `contraction` op: operands (a, b, *epilogue inputs), results from the epilogue or the product."""
    nest: Nest | None = op.attrs.get("nest")
    epilogue, inline, snippets = None, "", frozenset[str]()
    if nest is not None:
        emitter = EpilogueEmitter(nest, machine, site)
        inline, parameters = emitter.inline_function(f"{name}_epilogue")
        epilogue = Epilogue(f"{name}_epilogue", parameters)
        snippets = frozenset(emitter.snippets | emitter.types.snippets)
    product = emit_product(op, f"{name}_product", machine, epilogue)
    return _wrap(op, name, product, inline, snippets, nest)


def emit_product(op: Op, name: str, machine: Machine, epilogue: Epilogue | None) -> ContractionText:
    """The kernel's own text: matrix product or convolution with an optional epilogue."""
    a, b = op.operands[:2]
    dtype = a.tensor.dtype.name
    if op.attrs["kind"] == "matmul":
        return emit_matmul(matmul_spec(op, name, dtype, epilogue), machine)
    return emit_conv2d(conv2d_spec(op, name, dtype, epilogue), machine)


def matmul_spec(op: Op, name: str, dtype: str, epilogue: Epilogue | None) -> MatmulSpec:
    a, b = (tuple(int(n) for n in operand.tensor.shape) for operand in op.operands[:2])  # type: ignore[call-overload]
    strides = []
    for shape, turned in ((a, op.attrs.get("transpose_a", False)), (b, op.attrs.get("transpose_b", False))):
        steps = row_major(*shape)
        strides.append((*steps[:-2], steps[-1], steps[-2]) if turned else steps)
    m, k = (a[-1], a[-2]) if op.attrs.get("transpose_a", False) else (a[-2], a[-1])
    n = b[-2] if op.attrs.get("transpose_b", False) else b[-1]
    batch = a[:-2]
    c = row_major(*batch, m, n)
    return MatmulSpec(name, m, n, k, dtype, batch, strides[0], strides[1], c, epilogue)


def conv2d_spec(op: Op, name: str, dtype: str, epilogue: Epilogue | None) -> Conv2dSpec:
    first, second = (tuple(operand.tensor.shape) for operand in op.operands[:2])
    kind = op.attrs["kind"]
    if kind == "conv2d":
        x, weight = first, second
    elif kind == "conv2d_backward_input":
        x, weight = tuple(op.attrs["input_shape"]), second
    else:
        x, weight = first, tuple(op.attrs["weight_shape"])
    n, c, h, w = (int(size) for size in x)  # type: ignore[call-overload]
    oc, _, kh, kw = (int(size) for size in weight)  # type: ignore[call-overload]
    return Conv2dSpec(
        name, n, c, h, w, oc, kh, kw,
        stride=tuple(op.attrs.get("stride", (1, 1))),
        padding=tuple(op.attrs.get("padding", (0, 0))),
        dilation=tuple(op.attrs.get("dilation", (1, 1))),
        groups=op.attrs.get("groups", 1),
        dtype=dtype,
        kind={"conv2d": "forward", "conv2d_backward_input": "backward_input", "conv2d_backward_weight": "backward_weight"}[kind],
        epilogue=epilogue,
    )  # fmt: skip


def _wrap(
    op: Op, name: str, product: ContractionText, inline: str, snippets: frozenset[str], nest: Nest | None
) -> KernelText:
    """One function with the program's signature around the product's phases; all but the last go into `prepare`."""
    inputs = [_parameter(value.tensor.dtype, value.tensor.shape, f"input_{n}", True) for n, value in enumerate(op.operands)]
    outputs = [_parameter(value.tensor.dtype, value.tensor.shape, f"output_{n}", False) for n, value in enumerate(op.results)]
    inputs[0], inputs[1] = (inputs[0][0], "a"), (inputs[1][0], "b")
    arguments: dict[str, str] = {}
    if nest is not None:
        for source, (_, parameter) in zip(nest.inputs[1:], inputs[2:], strict=True):
            arguments[EpilogueEmitter.input_name(nest, source)] = parameter
        for number, (_, parameter) in enumerate(outputs):
            arguments[EpilogueEmitter.output_name(nest, number)] = parameter
    else:
        outputs[0] = (outputs[0][0], "c")
    types = {parameter: type for type, parameter in product.parameters}
    shared, scratch = product.shared_bytes, product.scratch_bytes
    *before, last = product.phases
    w = Writer()
    support = "\n".join(s.text for s in product.support)
    for comment in kernel_comments(op) or [str(op.attrs.get("fused", ""))]:
        w.line("// " + safe_comment(comment))
    prepare = ""
    workspace = -(-shared // 64) * 64
    if before:
        prepare = f"{name}_prepare"
        head = ", ".join(f"{type}{parameter}" for type, parameter in [*inputs, ("unsigned char *", "shared")])
        with w.block(wrapped(f"static void {prepare}({head})")):
            for type, parameter in outputs:
                w.line(f"{type}const {parameter} = NULL;  // not touched before the last phase")
            for phase in before:
                more = {"begin": "0", "end": str(phase.work_items)}
                if shared:
                    more["shared"] = f"({types['shared'].replace('restrict', '').strip()})(void *)shared"
                if scratch:
                    more["scratch"] = f"({types['scratch'].replace('restrict', '').strip()})(void *)(shared + {workspace})"
                w.line(product.call(phase, {**arguments, **more}) + ";")
        w.line()
        shared = workspace + scratch
    parameters = [*inputs, *outputs]
    if shared:
        parameters.append(("unsigned char *", "shared"))
    if scratch:
        parameters.append(("unsigned char *", "scratch"))
    parameters += [("int64_t ", "begin"), ("int64_t ", "end")]
    head = ", ".join(f"{type}{parameter}" for type, parameter in parameters)
    with w.block(wrapped(f"static void {name}({head})")):
        more = {}
        if "shared" in types:
            more["shared"] = f"({types['shared'].replace('restrict', '').strip()})(void *)shared"
        elif shared:
            w.line("(void)shared;")
        if scratch:
            more["scratch"] = f"({types['scratch'].replace('restrict', '').strip()})(void *)scratch"
        w.line(product.call(last, {**arguments, **more}) + ";")
    text = "\n".join(part for part in (inline, product.text, str(w)) if part)
    items = last.work_items
    work = _multiply_adds(op) / 20.0  # nanoseconds at a modest rate
    chunk = 0
    if items > 1 and work > 20_000:
        chunk = max(1, min(items // 2, int(items * 10_000 / work)))
    aliases = () if nest is None else tuple((o, i + 1) for o, i in nest.in_place)
    return KernelText(
        name, support + "\n" + text if False else text, tuple(parameters), items, snippets, scratch, False, chunk, aliases,
        prepare, shared, product.support,
    )  # fmt: skip


def _parameter(dtype: DType, shape: Sequence[object], name: str, is_input: bool) -> tuple[str, str]:
    if not shape and is_input:
        return f"{dtype.c_name} ", name
    return f"{'const ' if is_input else ''}{dtype.c_name} *", name


def _multiply_adds(op: Op) -> float:
    a, b = op.operands[:2]
    if op.attrs["kind"] == "matmul":
        k = a.tensor.shape[-2 if op.attrs.get("transpose_a", False) else -1]
        return float(prod(op.blocks[0].params[0].tensor.shape) * k)  # type: ignore[arg-type,operator]
    spec = conv2d_spec(op, "", a.tensor.dtype.name, None)
    return float(spec.multiply_adds)


class EpilogueEmitter(LoopEmitter):
    """Writes an epilogue nest as the inline function that a product calls with its finished tiles."""

    def __init__(self, nest: Nest, machine: Machine, site: Site) -> None:
        super().__init__(nest, epilogue_schedule(nest, machine), machine, site)

    @staticmethod
    def input_name(nest: Nest, source: ArrayRef | Local) -> str:
        return f"in_{nest.inputs.index(source)}_{source.name}"

    @staticmethod
    def output_name(nest: Nest, number: int) -> str:
        return f"out_{number}_{nest.outputs[number].name}"

    def inline_function(self, name: str) -> tuple[str, tuple[tuple[str, str], ...]]:
        nest = self.nest
        tile = nest.inputs[0]
        assert isinstance(tile, ArrayRef)
        parameters: list[tuple[str, str]] = []
        for source in nest.inputs[1:]:
            parameter = self.input_name(nest, source)
            if isinstance(source, Local):
                parameters.append((f"{source.dtype.c_name} ", parameter))
                self.values[source] = Vec(Name(parameter), source.dtype, False)
            else:
                parameters.append((f"const {source.dtype.c_name} *", parameter))
                self.arrays[source] = Name(parameter)
        for number, output in enumerate(nest.outputs):
            parameter = self.output_name(nest, number)
            parameters.append((f"{output.dtype.c_name} *", parameter))
            self.arrays[output] = Name(parameter)
        self.names.used |= {"batch", "row", "col", "rows", "cols", "tile", "ld", *(p for _, p in parameters)}
        self.arrays[tile] = Name("tile")
        self.tile_array = tile
        batch, row, col = (s.axis for s in walk(nest.body) if isinstance(s, Loop))
        head = ["int64_t batch", "int64_t row", "int64_t col", "int64_t rows", "int64_t cols"]
        head += [f"const {tile.dtype.c_name} *tile", "int64_t ld", *(f"{type}{parameter}" for type, parameter in parameters)]
        w = self.w
        signature = f"static inline __attribute__((always_inline)) void {name}({', '.join(head)})"
        inner = next(s for s in walk(nest.body) if isinstance(s, Loop) and s.axis is col)
        with w.block(wrapped(signature)):
            if not any(i.stride(batch) for s in walk(nest.body) for i in _memory(s, tile)):
                w.line("(void)batch;")
            self.axes[batch] = Name("batch")
            with w.block("for (int64_t r = 0; r < rows; ++r)"):
                self.names.used.add("r")
                self.axes[row] = Infix("+", Name("row"), Name("r"))
                self.ranges[col] = ("0", "cols")
                self.tile_index = Infix("*", Name("r"), Name("ld"))
                self.loop(inner)
        return str(w), tuple(parameters)

    def scoped(self, axis: Axis) -> str:
        name = self.names.fresh("s")
        self.column = Name(name)
        self.axes[axis] = Infix("+", Name("col"), Name(name))
        return name

    def load(self, s: Load, inline: bool) -> None:
        if s.array is not self.tile_array:
            super().load(s, inline)
            return
        varies = self.vector_axis is not None
        index = Infix("+", self.tile_index, self.column)
        if varies:
            self.bind(s.target, self.speller.load(s.array.dtype, Infix("+", Name("tile"), index)), True, inline, False)
        else:
            self.bind(s.target, Index(Name("tile"), index), False, inline, False)


def _memory(s: object, tile: ArrayRef) -> list[Affine]:
    if isinstance(s, Load) and s.array is tile:
        return []
    return [s.index] if isinstance(s, Load | Store) else []


def epilogue_schedule(nest: Nest, machine: Machine) -> Schedule:
    """Vectors along the columns where neighbours are neighbours in every array."""
    return nest.schedule if nest.schedule is not None else Schedule()


__all__ = ["Literal", "emit_contraction"]
