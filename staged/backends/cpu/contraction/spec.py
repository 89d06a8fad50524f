"""Specifications of matrix products and convolutions, and the kernel that a generator makes of one.

All sizes and strides are numbers fixed while staging; strides count elements, not bytes.

Tested by `tests/backends/host/test_contraction_matmul.py` and `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Literal

from staged.code.expr import Expr, Setting, Variable
from staged.code.extents import size_expr
from staged.code.kernel_text import Filled
from staged.code.support.library import Snippet
from staged.code.tree import Function
from staged.code.types import INDEX, CType
from staged.ir.sizes import Dim, Extent
from staged.ir.types import DType, f32

Parameter = tuple[str, str]
"""A C parameter: its type as written (`const float *`) and its name."""


def variable_of(parameter: Parameter) -> Variable:
    """The variable that a parameter declares."""
    type, name = parameter
    text = type.replace("restrict ", "").rstrip()
    return Variable(
        name, INDEX if text == INDEX.text else CType(text, is_pointer="*" in text, is_const=text.startswith("const "))
    )


@dataclass(frozen=True, slots=True)
class Epilogue:
    """A C function from elsewhere that receives each finished piece of the result exactly once.

    It is `static inline __attribute__((always_inline))` and reads

        void F(int64_t batch, int64_t row, int64_t col, int64_t rows, int64_t cols,
               const T *tile, int64_t ld, <parameters>)

    Element (row + r, col + s) of matrix `batch` is `tile[r * ld + s]`. `batch` counts the matrices of a batch in
    row-major order; in a convolution it is the sample, a row is a channel and a column a pixel, row-major
    (for weight gradients: batch 0, a row per output channel, a column per weight of it).
    """

    function: str
    parameters: tuple[Parameter, ...] = ()
    """In order, with the names that they have in the product's function: inputs, then results."""
    results: int = 0
    """The number of results."""
    numbers: tuple[Expr, ...] = ()
    """Further arguments, if kernels with other numbers use the function, too."""
    code: Function | None = field(default=None, compare=False)
    """The function: its statements may replace its only call."""

    @property
    def passed(self) -> str:
        """The arguments after those of the tile, each behind a comma."""
        return "".join(f", {argument}" for argument in (*(name for _, name in self.parameters), *self.numbers))


@dataclass(frozen=True, slots=True)
class Matrices:
    """Dense matrices (batch, m, k) @ (batch, k, n) with sizes that the program finds; either may lie transposed."""

    batch: Extent
    m: Extent
    n: Extent
    k: Extent
    turned: tuple[bool, bool]
    dims: tuple[Dim, ...]
    """The dimensions that the kernel receives, in order."""
    may_repeat: bool = False
    """Whether the epilogue may receive elements of the product twice."""

    @property
    def matrix(self) -> tuple[Extent, Extent, Extent]:
        """The sizes of a matrix of the batch."""
        return self.m, self.n, self.k


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """`c = a @ b`, over a batch; or the epilogue consumes `a @ b`.

    Shapes: a (*batch, m, k); b (*batch, k, n); c (*batch, m, n). Strides are per axis of these, 0 where an operand is
    broadcast. With an epilogue there is no `c`: its strides are ignored.
    """

    name: str
    m: int
    n: int
    k: int
    dtype: DType
    batch: tuple[int, ...] = ()
    a_strides: tuple[int, ...] = ()
    b_strides: tuple[int, ...] = ()
    c_strides: tuple[int, ...] = ()
    epilogue: Epilogue | None = None
    operand_names: tuple[str, str] = ("a", "b")
    """The parameters that hold a and b."""
    right_first: bool = False
    """Whether the parameter of b comes before the parameter of a."""
    result_name: str = "c"
    comments: tuple[str, ...] = ()
    """Lines above the function, besides those that describe the product."""
    table: str = "product_sizes"
    """The name of the table of its sizes."""
    matrices: Matrices | None = None
    """The sizes if the program finds some; numbers and strides are those of the largest."""
    sizes: tuple[str, ...] = ()
    """The names of the parameters for their dimensions."""
    stored: DType | None = None
    """The dtype of a and b in memory, where it is another one than that of the sums: f16 or bf16 beside f32."""

    def __post_init__(self) -> None:
        rank = len(self.batch) + 2
        for operand, strides in (("a", self.a_strides), ("b", self.b_strides), ("c", self.c_strides)):
            if operand == "c" and self.epilogue is not None:
                continue
            assert len(strides) == rank, f"matmul {self.name}: {operand} needs {rank} strides, got {strides}"

    def number(self, extent: Extent, parameters: Mapping[str, Expr]) -> Expr:
        """A size in terms of the parameters for dimensions."""
        dims = () if self.matrices is None else self.matrices.dims
        return size_expr(extent, lambda dim: parameters[self.sizes[dims.index(dim)]])

    @property
    def multiply_adds(self) -> int:
        return prod(self.batch) * self.m * self.n * self.k


@dataclass(frozen=True, slots=True)
class Images:
    """Images whose number, height or width the program finds."""

    n: Extent
    image: tuple[Extent, Extent]
    out: tuple[Extent, Extent]
    """Rows and columns of the images, and of the results."""
    dims: tuple[Dim, ...]
    """The dimensions that the kernel receives, in order."""

    @property
    def have_one_size(self) -> bool:
        """Return whether the program finds their number alone."""
        return all(isinstance(extent, int) for extent in self.image)


@dataclass(frozen=True, slots=True)
class Conv2dSpec:
    """One of the three products of a convolution, on dense arrays in torch's layouts.

    x is (n, c, h, w), the weight (oc, c // groups, kh, kw), y (n, oc, out_h, out_w).
    kind "forward":         y = conv(a = x, b = weight)
    kind "backward_input":  d_x = (a = d_y, b = weight)
    kind "backward_weight": d_weight = (a = x, b = d_y)
    """

    name: str
    n: int
    c: int
    h: int
    w: int
    oc: int
    kh: int
    kw: int
    stride: tuple[int, int] = (1, 1)
    padding: tuple[int, int] = (0, 0)
    dilation: tuple[int, int] = (1, 1)
    groups: int = 1
    dtype: DType = f32
    kind: Literal["forward", "backward_input", "backward_weight"] = "forward"
    epilogue: Epilogue | None = None
    operand_names: tuple[str, str] = ("a", "b")
    result_name: str = "c"
    comments: tuple[str, ...] = ()
    table: str = "product_sizes"
    """The name of the table of its sizes."""
    images: Images | None = None
    """The sizes, if the program finds one; `n`, `h` and `w` are the largest."""
    sizes: tuple[str, ...] = ()
    """The names of the parameters for their dimensions."""

    def number(self, extent: Extent, parameters: Mapping[str, Variable]) -> Expr:
        """A size in terms of the parameters for dimensions."""
        dims = () if self.images is None else self.images.dims
        return size_expr(extent, lambda dim: parameters[self.sizes[dims.index(dim)]])

    @property
    def shapes(self) -> tuple[tuple[Extent, ...], ...]:
        """The shapes of x, the weight and y, for readers."""
        images = self.images or Images(self.n, (self.h, self.w), (self.out_h, self.out_w), ())
        weight = (self.oc, self.c // self.groups, self.kh, self.kw)
        return (images.n, self.c, *images.image), weight, (images.n, self.oc, *images.out)

    @property
    def out_h(self) -> int:
        return (self.h + 2 * self.padding[0] - self.dilation[0] * (self.kh - 1) - 1) // self.stride[0] + 1

    @property
    def out_w(self) -> int:
        return (self.w + 2 * self.padding[1] - self.dilation[1] * (self.kw - 1) - 1) // self.stride[1] + 1

    @property
    def multiply_adds(self) -> int:
        return self.n * self.oc * self.out_h * self.out_w * (self.c // self.groups) * self.kh * self.kw


@dataclass(frozen=True, slots=True)
class ContractionKernel:
    """A generated kernel: one C function. The caller runs it over all of [0, work_items), in pieces and by threads as
    it likes.

    Those of its parameters that are not the epilogue's are a, b, c (only without epilogue), `scratch` (only when
    scratch_bytes > 0; one per thread), dimensions (`MatmulSpec.sizes`), `begin` and `end` (a range of work items).
    The workspace starts at a multiple of 64 bytes and needs no initial value.
    """

    function: str
    text: str
    parameters: tuple[Parameter, ...]
    """In the order of the call."""
    work_items: int
    items_size: Extent = 0
    """The number of work items where the program finds that; `work_items` is then a bound."""
    scratch_bytes: int = 0
    snippets: frozenset[str] = frozenset()
    """Support snippets of the registry that it uses."""
    support: tuple[Snippet, ...] = ()
    """Support text that follows from the lanes of its vectors: shared by the kernels of a program."""
    link: tuple[str, ...] = ()
    """Linker flags for a library that it calls."""
    column_step: int = 1
    """The columns of each tile that the epilogue receives are a multiple of so many."""
    code: Function | None = None
    """The tree of the function; None if it was not printed from a tree."""
    has_epilogue: bool = False
    """Whether `code` has the statements of the epilogue."""
    tables: tuple[Snippet, ...] = ()
    """The constants that it reads."""
    filled: Filled | None = None
    """The struct of sizes whose address is an argument behind the results."""
    numbers: tuple[Setting, ...] = ()
    """Arguments behind the results, if other kernels call the function with other ones."""
    shape: object = None
    """Equal for kernels with equal arguments `numbers`, if there are any."""

    def call(self, arguments: Mapping[str, str]) -> str:
        """The C call; `arguments` maps parameter names to C expressions (other names stand for themselves)."""
        arguments = {each.parameter.text: each.text for each in self.numbers} | {**arguments}
        return f"{self.function}({', '.join(arguments.get(name, name) for _, name in self.parameters)})"
