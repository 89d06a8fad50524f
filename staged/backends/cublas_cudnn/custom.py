"""Forms of the user's functions for a device of CUDA: kernels given as text, and functions of libraries.

Tested by `tests/backends/cublas_cudnn/test_custom.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from staged.backends.cublas_cudnn.device import STREAM
from staged.backends.cublas_cudnn.structure import CudaBody
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.host.custom import call_checked
from staged.code.expr import Expr, call
from staged.errors import ArgumentError
from staged.ir.functions import every_function
from staged.ir.nodes import Function, Op, walk_ops
from staged.ops.custom import CUSTOM_LAUNCH, CFunction


def launched_functions(program: Function) -> list[CFunction]:
    """The functions whose form for a device a program calls. Raises: ArgumentError for two of one name."""
    found: dict[str, CFunction] = {}
    for function in every_function(program):
        for op in walk_ops(function.block):
            if op.declared is not CUSTOM_LAUNCH:
                continue
            called: CFunction = op.attrs["function"]
            before = found.setdefault(called.name, called)
            if (before.parameters, before.cuda) != (called.parameters, called.cuda):
                raise ArgumentError(f"the program calls two CUDA functions called `{called.name}`", where=op.where)
    return list(found.values())


def reserved_names(functions: Iterable[CFunction]) -> set[str]:
    """The names that the functions take: of a kernel, a library's function, and the namespace of a text."""
    return {name for function in functions for name in (form_name(function), f"{function.name}_text")}


def form_name(function: CFunction) -> str:
    """The name of its form for a device."""
    assert function.cuda is not None
    return function.cuda.name(function.name)


def kernel_of(op: Op) -> GpuKernel:
    """The user's kernel; for a function of a library, one without a text."""
    function: CFunction = op.attrs["function"]
    assert function.cuda is not None
    text = kernel_text(function) if function.cuda.source else ""
    return GpuKernel(form_name(function), text, tuple(_parameters(function)), 1)


def kernel_text(function: CFunction) -> str:
    """The user's text in a namespace of its own, and what makes compilers hold it against the declaration."""
    assert function.cuda is not None
    name, space = form_name(function), f"{function.name}_text"
    return (
        f"// ---- `{function.name}`, given to st.custom_op ----\n"
        f"namespace {space} {{\n"
        f'extern "C" __global__ void {name}({function.parameters});\n'
        f"{function.cuda.source.strip()}\n"
        f"typedef decltype(&{name}) Declared;  // ambiguous, if the text has a kernel with other parameters\n"
        f"}}  // namespace {space}\n"
        f"using {space}::{name};\n"
    )


def prototypes(functions: Iterable[CFunction]) -> str:
    """Declarations of the functions of libraries."""
    return "\n".join(
        f"// ---- `{function.name}`, of {function.cuda.library} ----\n"
        '#ifdef __cplusplus\nextern "C"\n#endif\n'
        f"int {form_name(function)}({function.parameters}, cudaStream_t);\n"
        for function in functions
        if function.cuda is not None and function.cuda.library
    )


def arguments_of(structure: CudaBody, op: Op, inputs: list[Expr], outputs: list[Expr]) -> list[Expr]:
    """The arguments of a call: each array with the sizes of its axes, numbers, results."""
    given: list[Expr] = []
    for operand, text in zip(op.operands, inputs, strict=True):
        given += [text, *map(structure.extent, operand.tensor.shape)]
    return [*given, *outputs]


def call_library(structure: CudaBody, op: Op, arguments: list[Expr]) -> None:
    """A call of a library's function, which puts its work on the stream."""
    function: CFunction = op.attrs["function"]
    call_checked(structure, function.name, call(form_name(function), *arguments, STREAM), op.where)


def _parameters(function: CFunction) -> Iterable[tuple[str, str]]:
    """(type, name) of each parameter of the kernel."""
    for number, (dtype, axes) in enumerate(function.arguments, 1):
        if not axes:
            yield f"{dtype.c_name} ", f"argument_{number}"
            continue
        yield f"const {dtype.c_name} *", f"argument_{number}"
        yield from (("int64_t ", f"size_{number}_{axis}") for axis in range(axes))
    for number, (dtype, _) in enumerate(function.results, 1):
        yield f"{dtype.c_name} *", "result" if len(function.results) == 1 else f"result_{number}"
