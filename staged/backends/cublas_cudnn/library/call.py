"""A call of a library as a function of the program's text, next to the kernels.

Tested by `tests/backends/cublas_cudnn/test_libraries.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from staged.backends.cublas_cudnn.device import DevicePart, Field
from staged.backends.cublas_cudnn.library.form import Form, Scale, form_of
from staged.backends.gpu.kernel_text import GpuKernel
from staged.code.expr import Expr, Infix, Name, Prefix, literal, print_expr
from staged.code.extents import size_expr
from staged.code.kernel_text import KernelText, kernel_comments
from staged.code.writer import Writer, safe_comment
from staged.ir.nodes import Op
from staged.ir.sizes import Dim, Extent, product
from staged.ir.types import DType


@dataclass(frozen=True, slots=True)
class LibraryCall(KernelText):
    """A function of the host's part that calls a library: `int name(gpu, host, site, inputs..., outputs...)`.

    It gives ST_OK, or the kind of the error that `host` explains.
    """

    parts: tuple[DevicePart, ...] = ()
    """The parts that must be open on the device, in the order in which they are created."""
    begins_as: tuple[tuple[int, int], ...] = ()
    """(result, operand) pairs: results that begin as an operand, copied there first where it is elsewhere, and not
    passed.
    """
    factors: tuple[Expr, Expr] | None = None
    """Its alpha and beta as C, in terms of `factor_N`, the value of operand N + 1; None where no operand is a factor.
    """
    reading: Callable[[str], LibraryCall] | None = field(default=None, compare=False)
    """By name, the same call that takes alpha and beta as addresses on the device, in place of the factors."""
    can_be_captured: bool = True
    """Whether the library lets a CUDA graph have the call."""
    helpers: tuple[str, ...] = ()
    """The functions that it calls, in full."""
    kernels: tuple[GpuKernel, ...] = ()
    """The kernels that it launches if the library does not support the operation on the device."""


Signature = Sequence[tuple[str, str]]


def library_call(
    op: Op,
    name: str,
    form: Form,
    comments: Sequence[str],
    body: Callable[[Writer], None],
    parts: Sequence[DevicePart],
    reads_numbers: bool = False,
) -> LibraryCall:
    """The function for a contraction `op` of this form. `body` writes its statements, which know its operands as `a`
    and `b`, the result as `c`, and the `alpha`, `beta` and `bias` of the form. If it `reads_numbers`, the first two of
    these are parameters, addresses on the device.
    """
    parameters = parameters_of(op, form)
    if reads_numbers:
        c_type = op.results[0].tensor.dtype.c_name
        kept = [parameter for parameter in parameters if not parameter[1].startswith("factor_")]
        parameters = [*kept[:-1], (f"const {c_type} *", "alpha"), (f"const {c_type} *", "beta"), kept[-1]]
    w = Writer()
    line = [f"{op.where.short}  {op.where.text}"] if op.where is not None else []
    above = kernel_comments(op, has_ops=True)
    for comment in (*(above if len(op.blocks[0].ops) else line), *comments):
        w.line("// " + safe_comment(comment))
    head = ["const Device *gpu", "st_host *host", "int site", *(f"{type}{parameter}" for type, parameter in parameters)]
    with w.block(f"static int {name}({', '.join(head)})"):
        body(w)
        w.line("return ST_OK;")
    begins_as = () if form.addend is None else ((0, operand_of(form.addend)),)
    return LibraryCall(
        name,
        str(w),
        tuple(parameters),
        1,
        may_alias=begins_as,
        parts=tuple(parts),
        begins_as=begins_as,
    )


def whole_call(
    op: Op,
    name: str,
    operands: Sequence[str],
    results: Sequence[str],
    comments: Sequence[str],
    body: Callable[[Writer], None],
    parts: Sequence[DevicePart],
    begins_as: tuple[tuple[int, int], ...] = (),
    can_be_captured: bool = True,
    helpers: Sequence[str] = (),
    before: str = "",
) -> LibraryCall:
    """The function for a `library` op; `body` writes its statements, which know operands and results by these names.

    `begins_as`: (result, operand) pairs of results that the library makes in the place of an operand. `before`: a
    function of this call alone.
    """
    replaced = [operand for _, operand in begins_as]
    dims = op.attrs.get("dims", ())
    arrays = op.operands[: len(op.operands) - len(dims)]
    parameters = [
        (f"const {value.tensor.dtype.c_name} *", each)
        for number, (value, each) in enumerate(zip(arrays, operands, strict=True))
        if number not in replaced
    ]
    parameters += [("int64_t ", size_name(dim)) for dim in dims]
    parameters += [(f"{value.tensor.dtype.c_name} *", each) for value, each in zip(op.results, results, strict=True)]
    w = Writer()
    line = [f"{op.where.short}  {op.where.text}"] if op.where is not None else []
    for comment in (*line, *comments):
        w.line("// " + safe_comment(comment))
    head = ["const Device *gpu", "st_host *host", "int site", *(f"{type}{parameter}" for type, parameter in parameters)]
    with w.block(f"static int {name}({', '.join(head)})"):
        body(w)
        w.line("return ST_OK;")
    return LibraryCall(
        name,
        f"{before}\n{w}" if before else str(w),
        tuple(parameters),
        1,
        may_alias=begins_as,
        parts=tuple(parts),
        begins_as=begins_as,
        can_be_captured=can_be_captured,
        helpers=tuple(helpers),
    )


def form_of_op(op: Op) -> Form:
    """The form of a contraction's epilogue; fusion lets no other join on a device."""
    form = form_of(op.attrs["kind"], op.blocks[0])
    assert form is not None, f"{op.attrs['kind']} with an epilogue that no library has"
    return form


def operand_of(param: int) -> int:
    """The operand of a contraction that is parameter `param` of its epilogue block, whose first one is the product."""
    return param + 1


def parameters_of(op: Op, form: Form) -> list[tuple[str, str]]:
    """(C type, name) of the operands that are passed, in their order, and of the result."""
    found = [(f"const {op.operands[number].tensor.dtype.c_name} *", name) for number, name in ((0, "a"), (1, "b"))]
    inputs = len(op.operands) - len(op.attrs.get("dims", ()))
    for number, operand in enumerate(op.operands[2:], 1):
        c_type = operand.tensor.dtype.c_name
        if operand_of(number) >= inputs:
            found.append((f"{c_type} ", size_name(op.attrs["dims"][operand_of(number) - inputs])))
        elif number == form.bias:
            found.append((f"const {c_type} *", "bias"))
        elif number != form.addend:
            found.append((f"{c_type} ", factor_name(number)))
    return [*found, (f"{op.results[0].tensor.dtype.c_name} *", "c")]


def size_name(dim: Dim) -> str:
    """The parameter of a call for the size of a dimension."""
    return f"{dim}_size"


def size_text(extent: Extent) -> str:
    """A size as C, in terms of these parameters."""
    return print_expr(size_expr(extent, lambda dim: Name(size_name(dim))))


def scale_of(scale: Scale, dtype: DType) -> Expr:
    """A product of factors."""
    factors: list[Expr] = [Name(factor_name(param)) for param in scale.params]
    if abs(scale.number) != 1.0 or not factors:
        factors.insert(0, literal(abs(scale.number), dtype))
    product = Prefix("-", factors[0]) if scale.number < 0 else factors[0]
    for factor in factors[1:]:
        product = Infix("*", product, factor)
    return product


def factor_name(param: int) -> str:
    """The parameter of a call for a number of its epilogue."""
    return f"factor_{param}"


def parts_of(calls: Sequence[LibraryCall]) -> list[DevicePart]:
    """The parts of all these calls, each once: that of the first call that needs it."""
    found: dict[tuple[Field, ...], DevicePart] = {}
    for call in calls:
        for part in call.parts:
            found.setdefault(part.fields, part)
    return sorted(found.values(), key=lambda part: part.order)


# ---- lines of such functions ---------------------------------------------------------------------


def write_call(w: Writer, macro: str, head: str, arguments: Sequence[str]) -> None:
    """A checked call at `site`, broken where it is long; `head` is the routine with its first argument."""
    lines, line = [], f"{macro}(site, {head}"
    for argument in arguments:
        if len(line) + len(argument) + 8 > 116:
            lines.append(line + ",")
            line = f"{' ' * (len(macro) + 1)}{argument}"
        else:
            line = f"{line}, {argument}"
    for each in (*lines, f"{line}));"):
        w.line(each)


def write_zeros(w: Writer, op: Op, name: str = "c") -> None:
    """The result `name` of sums of nothing."""
    type = op.results[0].tensor
    if type.size == 0:
        unused(w, "gpu", "host", "site", name)
        return
    size = product(type.shape)
    count = f"{size}" if isinstance(size, int) else f"(size_t)({size_text(size)})"
    w.statement(f"CUDA_CHECK(site, cudaMemsetAsync({name}, 0, {count} * sizeof({type.dtype.c_name}), gpu->stream));")


def unused(w: Writer, *names: str) -> None:
    """Parameters that the function leaves alone."""
    for name in names:
        w.line(f"(void){name};")
