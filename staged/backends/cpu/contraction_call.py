"""Matrix products and convolutions as kernels of a program: the contraction generator's functions with the names of the
user's values, and what happens to each finished piece (the epilogue) as an inline function.

Tested by `tests/kernels/test_contractions.py` and `tests/backends/host/test_contraction_sized.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import prod
from typing import Literal

from staged.backends.cpu.contraction.blas import emit_blas, goes_to_blas
from staged.backends.cpu.contraction.bytes import emit_bytes
from staged.backends.cpu.contraction.conv2d import emit_conv2d
from staged.backends.cpu.contraction.matmul import emit_matmul, least_columns
from staged.backends.cpu.contraction.spec import Conv2dSpec, Epilogue, Images, MatmulSpec, Matrices
from staged.backends.cpu.nest.epilogue import emit_epilogue
from staged.code.expr import Setting
from staged.code.in_place import with_one_parameter
from staged.code.kernel_text import KernelText, Site, kernel_comments
from staged.code.printer import print_function
from staged.code.ranges import Ranges, for_ranges
from staged.code.shape import shape_of
from staged.code.sizes import Numbers
from staged.code.support.library import Snippet
from staged.code.support.vectors import width_snippet
from staged.code.tree import Function
from staged.code.writer import Names, safe_comment
from staged.ir.convolutions import convolution_of
from staged.ir.loops import Nest
from staged.ir.machine import Machine
from staged.ir.names import layer_of, name_of
from staged.ir.nodes import Op, Value
from staged.ir.products import sizes_of_product, turned_operands
from staged.ir.size_functions import substitute
from staged.ir.sizes import Dim
from staged.ir.types import DType, bound, f32, row_major

_CONVOLUTIONS: dict[str, Literal["forward", "backward_input", "backward_weight"]] = {
    "conv2d": "forward",
    "conv2d_backward_input": "backward_input",
    "conv2d_backward_weight": "backward_weight",
}


def emit_contraction(
    op: Op,
    name: str,
    machine: Machine,
    site: Site,
    table: str = "",
    shared: tuple[Function, Numbers] | None = None,
    in_place: tuple[tuple[int, int], ...] = (),
    step: int = 0,
) -> KernelText:
    """The C function for a `contraction` op: operands (a, b, *epilogue inputs), results from the epilogue or the
    product.

    The names of its tables begin with `table`, which products of equal sizes have in common. `shared` is the function
    of the epilogue, with the numbers of this op, if other kernels use the function, too. `in_place` are the results
    that are in the place of operands. `step` is the step of all its users' columns.
    """
    nest: Nest | None = op.attrs.get("nest")
    table = table or f"{name}_sizes"
    operands, results = _parameter_names(op, name, table, nest)
    dims, first_size = op.attrs.get("dims", ()), len(operands) - len(op.attrs.get("dims", ()))
    epilogue, inline, finish, snippets = None, None, None, frozenset[str]()
    may_alias: tuple[tuple[int, int], ...] = ()
    plain = spec_of(op)
    if nest is not None:
        least = least_columns(plain, machine)
        inline, own, snippets, may_alias = emit_epilogue(
            nest, op.attrs["schedule"], f"{name}_epilogue", machine, site, least
        )
        passed = [*operands[2 : len(nest.inputs) + 1], *results]
        finish, numbers = (inline, ()) if shared is None else shared
        first = len(inline.parameters) - len(passed)
        pairs = {operand - 2: len(nest.inputs) - 1 + result for result, operand in in_place}
        finish = with_one_parameter(finish, {first + read: first + written for read, written in pairs.items()})
        for read, written in pairs.items():
            passed[written] = passed[read]
        parameters = tuple((type, passed[n]) for n, (type, _) in enumerate(own) if n not in pairs)
        settings = tuple(_settings(finish, numbers))
        epilogue = Epilogue(finish.name, parameters, len(results), settings, finish if shared is None else None)
    spec = replace(
        plain,
        name=name,
        epilogue=epilogue,
        operand_names=(operands[0], operands[1]),
        result_name=results[0],
        table=table,
        sizes=tuple(operands[first_size:]),
        comments=tuple(map(safe_comment, dict.fromkeys(kernel_comments(op)[:7]))),
    )
    if isinstance(spec, Conv2dSpec):
        product = emit_conv2d(spec, machine)
    elif machine.blas is not None and goes_to_blas(spec):
        product = emit_blas(spec, machine, machine.blas)
    else:
        product = (emit_matmul if spec.dtype.is_float else emit_bytes)(spec, machine)
    own_functions = []
    if finish is not None and not product.has_epilogue:
        finish = for_ranges(finish, Ranges(step or product.column_step), ("cols",))
        own_functions.append(Snippet(finish.name, print_function(finish)))
    items, places = product.work_items, {dim: Dim(str(first_size + place)) for place, dim in enumerate(dims)}
    work = _multiply_adds(op) / 20.0  # nanoseconds at a modest rate
    chunk = max(1, min(items // 2, int(items * 10_000 / work))) if items > 1 and work > 20_000 else 0
    return KernelText(
        product.function,
        product.text,
        product.parameters,
        items,
        snippets | product.snippets | {width_snippet(machine.vector_bytes)},
        product.scratch_bytes,
        chunk=chunk,
        may_alias=tuple((result, operand + 1) for result, operand in may_alias),
        items_size=substitute(product.items_size, places),
        filled=product.filled and product.filled.substituted(places),
        unused=frozenset(range(first_size, len(operands)) if product.filled and not product.text else ()),
        support=product.support,
        link=product.link,
        code=product.code,
        epilogue=inline,
        column_step=product.column_step,
        is_whole=inline is None or product.has_epilogue,
        functions=(*own_functions, *product.tables),
        shape=product.shape or (plain, None if inline is None else shape_of(inline)[0]),
        numbers=product.numbers,
        in_place=in_place,
    )


def _settings(epilogue: Function, numbers: Numbers) -> Iterator[Setting]:
    """The numbers with which a kernel calls an epilogue that other kernels call, too: its last arguments."""
    parameters = epilogue.parameters[len(epilogue.parameters) - len(numbers) :]
    for number, parameter in zip(numbers, parameters, strict=True):
        yield Setting(number.text, parameter.variable)


def extents(value: Value) -> tuple[int, ...]:
    """The room along each axis: the shape, with the bound of a dimension whose size the program finds."""
    return tuple(bound(extent) for extent in value.tensor.shape)


def spec_of(op: Op) -> MatmulSpec | Conv2dSpec:
    """The matrix product or convolution, without its epilogue and names."""
    dtype = op.operands[0].tensor.dtype
    if op.attrs["kind"] == "matmul":
        stored = dtype if dtype.is_half else None
        return replace(matmul_spec(op, f32 if dtype.is_half else dtype), stored=stored)
    return conv2d_spec(op, dtype)


def sizes_of(op: Op) -> object:
    """Equal for contractions whose tables may be equal."""
    spec = spec_of(op)
    if isinstance(spec, MatmulSpec) and spec.matrices is not None:
        return replace(spec, matrices=replace(spec.matrices, may_repeat=False))
    return spec


def matmul_spec(op: Op, dtype: DType) -> MatmulSpec:
    a, b = (extents(operand) for operand in op.operands[:2])
    dims = op.attrs.get("dims", ())
    strides = []
    for shape, turned in ((a, op.attrs.get("transpose_a", False)), (b, op.attrs.get("transpose_b", False))):
        steps = row_major(*shape)
        strides.append((*steps[:-2], steps[-1], steps[-2]) if turned else steps)
    m, k = (a[-1], a[-2]) if op.attrs.get("transpose_a", False) else (a[-2], a[-1])
    n = b[-2] if op.attrs.get("transpose_b", False) else b[-1]
    batch = a[:-2]
    c = row_major(*batch, m, n)
    nest: Nest | None = op.attrs.get("nest")
    matrices = None
    if dims:
        may_repeat = nest is not None and not nest.in_place
        matrices = Matrices(*sizes_of_product(op), turned_operands(op), dims, may_repeat)
    return MatmulSpec("", m, n, k, dtype, batch, strides[0], strides[1], c, matrices=matrices)


def conv2d_spec(op: Op, dtype: DType) -> Conv2dSpec:
    conv, kind, dims = convolution_of(op), op.attrs["kind"], op.attrs.get("dims", ())
    n, c, h, w = map(bound, conv.x_shape)
    oc, _, kh, kw = map(bound, conv.weight_shape)
    return Conv2dSpec(
        "", n, c, h, w, oc, kh, kw,
        stride=conv.stride,
        padding=conv.padding,
        dilation=conv.dilation,
        groups=conv.groups,
        dtype=dtype,
        kind=_CONVOLUTIONS[kind],
        images=Images(conv.n, conv.image, (conv.out(0), conv.out(1)), dims) if dims else None,
    )  # fmt: skip


def _parameter_names(op: Op, name: str, table: str, nest: Nest | None) -> tuple[list[str], list[str]]:
    """The names of a kernel's operands and results: the user's, except names that the function declares."""
    names = Names()
    names.layer = layer_of(op)
    names.used |= {*LOCALS, *(f"{name}_{part}" for part in PARTS), table}
    operands = ["x", "d_y"]
    if op.attrs["kind"] != "conv2d_backward_weight":
        operands = [names.fresh(name_of(value) or "x") for value in op.operands[:2]]
    names.used |= {*TILE_LOCALS, *operands}
    operands += [names.fresh(name_of(value) or "x") for value in op.operands[2:]]
    hints = ["c"] if nest is None else [output.name for output in nest.outputs]
    return operands, [names.fresh(result.hint or hint) for result, hint in zip(op.results, hints, strict=True)]


LOCALS = frozenset(
    """batch begin block blocks channel channel_block col col_begin col_end col_tile col_tile_end column columns
    count d_y end factor first first_channel first_column first_outer first_panel first_row first_tile from from_y
    group here i image item k ky last last_panel last_tile left live offset p packs padded panel part parts pixel
    pixels offsets plane planes r result right row row_begin row_end row_tile row_tile_end rows s sample samples
    scratch sized sizes small source start step steps stop stop_column stop_row sums target tile to turned u v
    weights width window y""".split()
)
"""The names that functions of products and convolutions declare."""
TILE_LOCALS = frozenset(
    "acc before channel factors i meets pixels planes tap taps x x0 x1 x2 x3 y0 y1 y2 y3 y4 y5 y6 y7".split()
)
"""The names that functions of tiles declare, to which results of an epilogue are parameters."""
PARTS = ("epilogue", "add_up", "offset", "taps", "rows", *(f"panel_{vectors}" for vectors in range(1, 9)))
"""The ends of the names of the functions that belong to a kernel."""


def _multiply_adds(op: Op) -> float:
    a = op.operands[0]
    if op.attrs["kind"] == "matmul":
        k = extents(a)[-2 if op.attrs.get("transpose_a", False) else -1]
        return float(prod(extents(op.blocks[0].params[0])) * k)
    spec = conv2d_spec(op, a.tensor.dtype)
    return float(spec.multiply_adds)
