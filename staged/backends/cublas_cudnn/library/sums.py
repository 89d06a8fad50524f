"""A weight's gradient together with its bias' as one product of cublasLt.

    d_w = x.T @ d_y,  d_b = sum(d_y, axis=0)   ->   one product that also adds up the rows of d_y

It is worth a call where the sum would be a kernel of its own: a kernel that makes d_y adds it up on the way. And where
the product is not one that a sum joins in its place (`w - lr * x.T @ d_y`), which cublasLt does not do at the same
time.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from staged.backends.cublas_cudnn.library import cublas
from staged.backends.cublas_cudnn.library.call import LibraryCall, whole_call
from staged.backends.cublas_cudnn.library.cublas import Product, workspace_part, write_product
from staged.backends.cublas_cudnn.library.cublaslt import (
    alignment_of,
    handle_part,
    layouts_of,
    product_part,
    write_bias_pointer,
    write_matmul,
)
from staged.backends.cublas_cudnn.library.instead import IS_MISSING, KernelsInstead, where_missing
from staged.code.writer import Writer
from staged.ir.declaration import prims
from staged.ir.loops import Accumulate, Affine, ArrayRef, Axis, Load, Local, Loop, Nest, Reduction, Store
from staged.ir.nodes import Block, Op, Value
from staged.ir.options import DeviceOptions
from staged.ir.structure import COMPOSITE
from staged.ir.types import bound, f32
from staged.ir.users import Users
from staged.ops.array import Array
from staged.ops.library_calls import FindWay, Way, library_call
from staged.ops.record import RecordContext

PRODUCT = "product_with_sums"
_LINEAR = (prims.ACCUMULATE, prims.ADD, prims.SUBTRACT, prims.MULTIPLY, prims.NEGATIVE)
"""The only reader of a product, where that is made in the place of what it is added to."""
_APART = ("contraction", "pooling", "launch", "structured")
"""Kinds of primitives whose results no sum joins."""
_CALLS = frozenset(f"{name}_backward" for name in ("lstm", "gru", "rnn", "batch_norm"))
"""Composites that are calls of libraries, or end in a product."""


class WeightGradients:
    """The ways of such pairs, whichever of the two comes first."""

    def __init__(self, users: Users, options: DeviceOptions) -> None:
        self.users = users
        self.options = options
        self.made: dict[Op, Value] = {}
        """The values that a call has computed already, by the op that would compute them."""
        self.ways: dict[str, FindWay] = {"sum": self.sum, "matmul": self.product}

    def sum(self, op: Op, block: Block) -> Way | None:
        """The bias' gradient."""
        if op in self.made:
            return self.known(op)
        product = next((user for user in self.users.get(op.operands[0], ()) if self.is_pair(op, user, block)), None)
        if product is None:
            return None
        (other,) = (value for value in product.operands if value is not op.operands[0])
        if other.producer in block.ops and block.ops.index(other.producer) > block.ops.index(op):
            return None

        def write(context: RecordContext, summed: Array, other: Array) -> Sequence[Array]:
            operands = [summed if value is op.operands[0] else other for value in product.operands]
            made, sums = self.call(op, product, operands)
            self.made[product] = context.value_of(made)
            return [sums]

        return Way(write, (other,))

    def product(self, op: Op, block: Block) -> Way | None:
        """The weight's gradient."""
        if op in self.made:
            return self.known(op)
        readers = [user for value in op.operands for user in self.users.get(value, ()) if user is not None]
        total = next((user for user in readers if self.is_pair(user, op, block)), None)
        if total is None:
            return None

        def write(context: RecordContext, a: Array, b: Array) -> Sequence[Array]:
            made, sums = self.call(total, op, [a, b])
            self.made[total] = context.value_of(sums)
            return [made]

        return Way(write)

    def known(self, op: Op) -> Way:
        made = self.made[op]
        return Way(lambda context, *operands: [context.handle(made)])

    def call(self, total: Op, product: Op, operands: Sequence[Array]) -> Sequence[Array]:
        of = "a" if product.operands[0] is total.operands[0] else "b"
        types = [product.result.tensor, total.result.tensor]
        return library_call(
            PRODUCT, operands, types, transpose_a=True, transpose_b=False, sums_of=of, tf32=self.options.tf32
        )

    def is_pair(self, total: Op, product: Op | None, block: Block) -> bool:
        """Return whether a sum and a product are the gradients of a bias and a weight, and better off in one call."""
        if product is None or total.declared is not prims.SUM or product.declared is not prims.MATMUL:
            return False
        (summed,), (a, b) = total.operands, product.operands
        fits = (
            total.attrs["axes"] == (0,)
            and a is not b
            and any(summed is value for value in (a, b))
            and product.attrs["transpose_a"]
            and not product.attrs["transpose_b"]
            and all(type.dtype is f32 and type.ndim == 2 for type in (a.tensor, b.tensor))
            and all(isinstance(extent, int) and extent > 1 for type in (a.tensor, b.tensor) for extent in type.shape)
            and total.device == product.device
            and total.result.tensor.ndim == 1
            and all(op in block.ops for op in (total, product))
            and not any(op in self.made for op in (total, product))
        )
        return fits and not _is_of_kernel(summed) and self.is_wanted(total, product)

    def is_wanted(self, total: Op, product: Op) -> bool:
        """Return whether both are read, and the product is not one that is made in the place of what it is added to."""
        readers = self.users.get(product.result, ())
        joins = len(readers) == 1 and readers[0] is not None and readers[0].declared in _LINEAR
        return bool(readers) and not joins and bool(self.users.get(total.result))


def _is_of_kernel(value: Value) -> bool:
    """Return whether a kernel makes it, which adds it up on the way; none makes a piece of an array."""
    op = value.behind(prims.RESHAPE, prims.STOP_GRADIENT).producer
    if op is None or op.declared.is_view:
        return False
    if op.declared is COMPOSITE:
        return op.attrs["name"] not in _CALLS
    return op.declared.kind not in _APART


def sums_nest(op: Op, rows: int, columns: int) -> Nest:
    """The loops of the sums over the rows of a matrix."""
    dtype = op.results[1].tensor.dtype
    row, column = Axis("row", rows), Axis("column", columns)
    x, sums = ArrayRef("x", dtype, rows * columns, "input"), ArrayRef("sums", dtype, columns, "output")
    total, element = Reduction(Local("total", dtype), prims.SUM), Local("element", dtype)
    at = Affine.of(row, columns) + Affine.of(column)
    terms = Loop(row, (Load(element, x, at), Accumulate(total, element)), (total,))
    body = Loop(column, (terms, Store(sums, Affine.of(column), total.target)))
    return Nest("sums_of_rows", (x,), (sums,), (), (body,), columns)


def emit_product(op: Op, name: str, site: int, kernels: KernelsInstead) -> LibraryCall:
    """The call: `c` = a.T @ b, and the sums over the rows of a or of b."""
    product, options = Product.of(op), DeviceOptions(tf32=bool(op.attrs["tf32"]))
    # The operands change places, as everywhere: b is what cublasLt calls A.
    epilogue = {"a": "BGRADB", "b": "BGRADA"}[op.attrs["sums_of"]]
    (b, a, c), parts = layouts_of(site, product)
    plan, plan_part = product_part(site, product, epilogue, (b, a, c), alignment_of(op), options)

    def body(w: Writer) -> None:
        w.line("const float alpha = 1.0f;")
        w.line("const float beta = 0.0f;")
        with where_missing(w, f"gpu->{plan}_{IS_MISSING}", "cublasLt"):
            write_product(w, product)
            summed = op.operands["ab".index(op.attrs["sums_of"])]
            nest = sums_nest(op, *map(bound, summed.tensor.shape))
            kernels.launch_nest(w, op, nest, [summed], [op.attrs["sums_of"], "sums"], op.results[1].tensor)
        write_bias_pointer(w, plan, "sums")
        write_matmul(w, plan, (b, a, c))

    comments = [f"{product}, and the sums of the rows of {op.attrs['sums_of']}, by cublasLt: {epilogue}"]
    needed = [workspace_part(site), cublas.handle_part(site, options), handle_part(site), *parts, plan_part]
    call = whole_call(op, name, ["a", "b"], ["c", "sums"], comments, body, needed)
    return replace(call, kernels=kernels.taken())


EMITTERS: Mapping[str, Callable[[Op, str, int, KernelsInstead], LibraryCall]] = {PRODUCT: emit_product}
