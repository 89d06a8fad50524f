"""Kernels as trees: what a graph's form of one reads, and how the device spells what the host has too."""

from __future__ import annotations

import pytest

from staged.backends.cublas_cudnn.dialect import CUDA
from staged.backends.gpu.geometry import Launch
from staged.backends.gpu.kernel_text import GpuKernel, WholeCopy
from staged.code.expr import Call, Expr, Index, Infix, Literal, Name, Variable
from staged.code.printer import print_function
from staged.code.tree import Assign, Declare, Function, Parameter
from staged.code.types import INDEX, Space, pointer, scalar
from staged.ir.types import f32

X = Variable("x", pointer(scalar(f32), Space.GLOBAL, is_const=True))
Y = Variable("y", pointer(scalar(f32), Space.GLOBAL))
FACTOR = Variable("factor", scalar(f32))
I = Variable("factor_at", INDEX)  # noqa: E741


def kernel(*copies: WholeCopy) -> GpuKernel:
    """`y[i] = exp(x[i]) * factor`, where a local has the name that a place of the factor would have."""
    value = Infix("*", Call("st_exp_f32", (Index(X, I),)), FACTOR)
    body = (Declare(I, Name("threadIdx.x")), Assign(Index(Y, I), value))
    parameters = (Parameter(X, is_alone=True), Parameter(FACTOR), Parameter(Y))
    code = Function("y_kernel", parameters, body, ("why",), threads=32)
    given = tuple((p.variable.type.before_name, p.variable.text) for p in parameters)
    text = print_function(code, CUDA)
    return GpuKernel("y_kernel", text, given, 32, code=code, launch=Launch(32, 1, 32), copies=copies)


def test_functions_of_the_support_library_are_the_device_s() -> None:
    assert kernel().text == (
        "// why\n"
        'extern "C" __global__ void __launch_bounds__(32) y_kernel(const float *__restrict__ x, float factor, float *y) {\n'
        "    const int64_t factor_at = threadIdx.x;\n"
        "    y[factor_at] = st_device_exp_f32(x[factor_at]) * factor;\n"
        "}\n"
    )


def test_a_kernel_reads_what_changes_where_a_pointer_says() -> None:
    made = kernel().reading((0, 1), "y_of_turn_kernel", CUDA)
    assert made.text.splitlines()[1:4] == [
        'extern "C" __global__ void __launch_bounds__(32) y_of_turn_kernel(const float *const *x_at, const float *factor_at_,',
        "        float *y) {",
        "    const float *const x = *x_at;",
    ]
    assert "    const float factor = *factor_at_;\n" in made.text
    assert made.parameters == (("const float *const *", "x_at"), ("const float *", "factor_at_"), ("float *", "y"))


@pytest.mark.parametrize(("target", "source", "can"), [(Y, X, False), (Y, None, True), (X, None, False)])
def test_arrays_that_the_host_copies_are_not_found_by_the_kernel(target: Expr, source: Expr | None, can: bool) -> None:
    assert kernel(WholeCopy(target, source, Literal("4"))).can_read((0,)) is can
