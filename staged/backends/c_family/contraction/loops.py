"""Matrix products as plain loops: integers, empty sums, and products too small for anything else."""

from __future__ import annotations

from math import prod

from staged.backends.c_family.contraction.spec import ContractionKernel, MatmulSpec, Parameter
from staged.backends.c_family.contraction.text import added, times
from staged.backends.c_family.contraction.tile import declared
from staged.backends.c_family.writer import Writer
from staged.ir.types import DType

STRIP = 64  # columns that are summed side by side in a local array


def product_parameters(spec: MatmulSpec, scratch: bool = False) -> tuple[Parameter, ...]:
    """The parameters of a product, in order."""
    pointer = f"{spec.dtype.c_name} *restrict "
    found: list[Parameter] = [(f"const {pointer}", name) for name in spec.operand_names]
    if spec.epilogue is None:
        found.append((pointer, "c"))
    if scratch:
        found.append((pointer, "scratch"))
    if spec.counted in ("m", "k"):
        found.append(("int64_t ", "count"))
    found += [("int64_t ", "begin"), ("int64_t ", "end")]
    if spec.epilogue is not None:
        found += spec.epilogue.parameters
    return tuple(found)


def batch_items(spec: MatmulSpec, items: int) -> str:
    """The text of a number of work items that is a multiple of a counted batch."""
    if spec.counted != "batch":
        return ""
    each = items // spec.batch[0]
    return "{count}" if each == 1 else f"{{count}} * {each}"


def batch_terms(extents: tuple[int, ...], strides: tuple[int, ...], index: str = "batch") -> list[str]:
    """The terms of an operand's offset for matrix number `index` of a batch with the given extents, in row-major order."""
    axes = [axis for axis in range(len(extents)) if extents[axis] > 1]
    dense = all(strides[axis] == strides[inner] * extents[inner] for axis, inner in zip(axes, axes[1:], strict=False))
    if not axes:
        return []
    if dense:
        return [times(strides[axes[-1]], index)]
    terms = []
    for axis in axes:
        below, above = prod(extents[axis + 1 :]), prod(extents[:axis])
        position = index if below == 1 else f"{index} / {below}"
        if above > 1:
            position = f"{position} % {extents[axis]}"
        terms.append(times(strides[axis], position))
    return terms


def emit_loops(spec: MatmulSpec) -> ContractionKernel:
    """One work item per row of the result; a strip of columns is summed in a local array."""
    t, scalar = Writer(), spec.dtype.c_name
    rank = len(spec.batch)
    (a_row, a_col), (b_row, b_col) = spec.a_strides[rank:], spec.b_strides[rank:]
    strip = min(STRIP, spec.n)
    parameters = product_parameters(spec)
    a, b = spec.operand_names
    steps = "count" if spec.counted == "k" else str(spec.k)
    unused = ["(void)count;"] if spec.counted == "m" else []
    unused += [] if spec.k else [f"(void){a};", f"(void){b};  // an empty sum"]
    t.line(f"// ({spec.m}, {spec.k}) @ ({spec.k}, {spec.n}), {spec.dtype}, one work item per row")
    with t.function(f"static void {spec.name}", map(declared, parameters)):
        for line in unused:
            t.line(line)
        with t.block("for (int64_t item = begin; item < end; ++item)"):
            matrices = prod(spec.batch)
            t.line(f"const int64_t row = {'item' if matrices == 1 else f'item % {spec.m}'};")
            if matrices > 1 or spec.epilogue is not None:
                t.line(f"const int64_t batch = {'0' if matrices == 1 else f'item / {spec.m}'};")
            if spec.k:
                left = added(*batch_terms(spec.batch, spec.a_strides), times(a_row, "row"))
                t.line(f"const {scalar} *const left = {added(a, left)};")
                t.line(f"const {scalar} *const right = {added(b, *batch_terms(spec.batch, spec.b_strides))};")
            header = f"for (int64_t col = 0; col < {spec.n}; col += {strip})" if strip < spec.n else ""
            if not header:
                t.line("const int64_t col = 0;")
            with t.block(header):
                t.line(f"{scalar} tile[{strip}] = {{0}};")
                width = str(strip)
                if spec.n % strip:
                    width = "width"
                    t.line(f"const int64_t width = col + {strip} <= {spec.n} ? {strip} : {spec.n} - col;")
                if spec.k:
                    with t.block(f"for (int64_t k = 0; k < {steps}; ++k)"):
                        t.line(f"const {scalar} x = left[{times(a_col, 'k')}];")
                        with t.block(f"for (int64_t s = 0; s < {width}; ++s)"):
                            t.line(_multiply_add(spec.dtype, added(times(b_row, "k"), times(b_col, "(col + s)"))))
                if spec.epilogue is not None:
                    names = "".join(f", {name}" for _, name in spec.epilogue.parameters)
                    t.statement(f"{spec.epilogue.function}(batch, row, col, 1, {width}, tile, {strip}{names});")
                else:
                    c_row, c_col = spec.c_strides[rank:]
                    offset = added(
                        *batch_terms(spec.batch, spec.c_strides), times(c_row, "row"), times(c_col, "(col + s)")
                    )
                    with t.block(f"for (int64_t s = 0; s < {width}; ++s)"):
                        t.line(f"c[{offset}] = tile[s];")
    items = prod(spec.batch) * spec.m
    text = "{count}" if spec.counted == "m" else batch_items(spec, items)
    return ContractionKernel(spec.name, str(t), parameters, items, text)



def _multiply_add(dtype: DType, index: str) -> str:
    """One more product in the sum. Exact: integers wrap to their dtype, as each sum and product of NumPy does."""
    if not dtype.is_float:
        u = "uint64_t" if dtype.size == 8 else "uint32_t"  # overflow of signed integers is undefined in C
        return f"tile[s] = ({dtype.c_name})(({u})tile[s] + ({u})x * ({u})right[{index}]);"
    return f"tile[s] += x * right[{index}];"
