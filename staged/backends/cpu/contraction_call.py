"""Matrix products and convolutions as kernels of a program: the contraction generator's functions behind one signature,
and what happens to each finished piece (the epilogue) as an inline function.

Tested by `tests/kernels/test_contractions.py` and `tests/backends/host/test_contraction_counted.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import prod
from typing import Literal

from staged.backends.cpu.contraction.blas import emit_blas, goes_to_blas
from staged.backends.cpu.contraction.bytes import emit_bytes
from staged.backends.cpu.contraction.conv2d import emit_conv2d
from staged.backends.cpu.contraction.matmul import emit_matmul
from staged.backends.cpu.contraction.spec import ContractionKernel, Conv2dSpec, Epilogue, MatmulSpec
from staged.backends.cpu.nest.epilogue import emit_epilogue, parameter_names
from staged.code.kernel_text import KernelText, Site, kernel_comments
from staged.code.printer import print_function
from staged.code.shape import shape_of
from staged.code.support.library import Snippet
from staged.code.support.vectors import width_snippet
from staged.code.tree import Function
from staged.code.writer import Names, Writer, safe_comment
from staged.ir.loops import Nest
from staged.ir.machine import Machine
from staged.ir.names import name_of
from staged.ir.nodes import Op, Value
from staged.ir.products import counted_extent
from staged.ir.types import DType, bound, f32, row_major

_CONVOLUTIONS: dict[str, Literal["forward", "backward_input", "backward_weight"]] = {
    "conv2d": "forward",
    "conv2d_backward_input": "backward_input",
    "conv2d_backward_weight": "backward_weight",
}


def emit_contraction(
    op: Op, name: str, machine: Machine, site: Site, shared: tuple[Snippet, tuple[int, ...]] | None = None
) -> KernelText:
    """The C function for a `contraction` op: operands (a, b, *epilogue inputs), results from the epilogue or the
    product.

    `shared` is the function of the epilogue, with the sizes of this op, if other kernels use the function, too.
    """
    nest: Nest | None = op.attrs.get("nest")
    epilogue, inline, snippets = None, None, frozenset[str]()
    if nest is not None:
        inline, parameters, snippets = emit_epilogue(nest, op.attrs["schedule"], f"{name}_epilogue", machine, site)
        epilogue = Epilogue(inline.name, parameters)
        if shared is not None:
            epilogue = Epilogue(shared[0].name, parameters, shared[1])
    spec = spec_of(op, f"{name}_product", epilogue)
    if isinstance(spec, Conv2dSpec):
        product = emit_conv2d(spec, machine)
    elif machine.blas is not None and goes_to_blas(spec):
        product = emit_blas(spec, machine, machine.blas)
    else:
        product = (emit_matmul if spec.dtype.is_float else emit_bytes)(spec, machine)
    kernel = _wrap(op, name, product, inline if shared is None else None, snippets, nest, machine)
    shape = None if inline is None else shape_of(inline)[0]
    functions = () if shared is None else shared[:1]
    spec = replace(spec, name="", epilogue=None)
    return replace(kernel, shape=(spec, shape), epilogue=inline, functions=functions)


def extents(value: Value) -> tuple[int, ...]:
    """The room along each axis: the shape, with the bound of a dimension whose size the program finds."""
    return tuple(bound(extent) for extent in value.tensor.shape)


def spec_of(op: Op, name: str, epilogue: Epilogue | None) -> MatmulSpec | Conv2dSpec:
    """The matrix product or convolution, with an optional epilogue."""
    dtype = op.operands[0].tensor.dtype
    if op.attrs["kind"] == "matmul":
        stored = dtype if dtype.is_half else None
        return replace(matmul_spec(op, name, f32 if dtype.is_half else dtype, epilogue), stored=stored)
    return conv2d_spec(op, name, dtype, epilogue)


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


def conv2d_spec(op: Op, name: str, dtype: DType, epilogue: Epilogue | None) -> Conv2dSpec:
    first, second = (extents(operand) for operand in op.operands[:2])
    kind = op.attrs["kind"]
    if kind == "conv2d":
        x, weight = first, second
    elif kind == "conv2d_backward_input":
        x, weight = tuple(op.attrs["input_shape"]), second
    elif kind == "conv2d_backward_weight":
        x, weight = first, tuple(op.attrs["weight_shape"])
    else:
        raise AssertionError(f"no convolution is of kind {kind}")
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
    inline: Function | None,
    snippets: frozenset[str],
    nest: Nest | None,
    machine: Machine,
) -> KernelText:
    """One function with the program's signature around the product's."""
    names = Names()
    # The wrapper calls the function of the product: no parameter may hide it.
    names.used |= {"scratch", "begin", "end", "count", name, f"{name}_product", f"{name}_epilogue"}
    inputs = [_parameter(v.tensor.dtype, v.tensor.shape, names.fresh(name_of(v) or "x"), True) for v in op.operands]
    if op.attrs.get("dims"):
        inputs[-1] = ("int64_t ", "count")
    hints = ["c"] if nest is None else [output.name for output in nest.outputs]
    results = [result.hint or hint for result, hint in zip(op.results, hints, strict=True)]
    outputs = [
        _parameter(v.tensor.dtype, v.tensor.shape, names.fresh(hint), False)
        for v, hint in zip(op.results, results, strict=True)
    ]
    inside = ["a", "b"], ["c"]
    if nest is not None:
        input_names, output_names = parameter_names(nest)
        inside = ["a", "b", *input_names], output_names
    given = {
        own: outer
        for own, (_, outer) in zip((*inside[0], *inside[1]), (*inputs[: len(inside[0])], *outputs), strict=True)
    }
    types = {parameter: type.replace("restrict", "").strip() for type, parameter in product.parameters}
    w = Writer()
    comments = kernel_comments(op)[:7]
    for comment in dict.fromkeys(comments):
        w.line("// " + safe_comment(comment))
    parameters = [*inputs, *outputs]
    if product.scratch_bytes:
        parameters.append(("unsigned char *", "scratch"))
    parameters += [("int64_t ", "begin"), ("int64_t ", "end")]
    with w.block(f"static void {name}({', '.join(map(''.join, parameters))})"):
        if op.attrs.get("dims") and "count" not in types:
            w.line("(void)count;")
        if "scratch" in types:
            given["scratch"] = f"({types['scratch']})(void *)scratch"
        w.statement(product.call(given) + ";")
    text = "\n".join(part for part in ("" if inline is None else print_function(inline), product.text, str(w)) if part)
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
        link=product.link,
    )


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
