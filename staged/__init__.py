"""`staged` turns ordinary Python functions over arrays into one readable C program.

    import staged as st

    @st.function
    def norm(x):
        return st.sqrt(st.sum(x * x))

    norm(numpy_array)                       # stages, compiles (cached), runs
    print(norm.stage(numpy_array).source)   # the C

The namespace holds the array functions (names of the Array API and NumPy), the transforms (names of JAX), `nn`, `optim`
and `data` (names of PyTorch), and functions that stage, show, run and export programs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from staged import cuda, ops, random
from staged.api import StagedFunction, function
from staged.eager import eager
from staged.errors import (
    ArgumentError,
    CacheError,
    CarriedValueError,
    CompilerError,
    DataError,
    DependencyError,
    DTypeError,
    GradientError,
    LeakError,
    ProgramError,
    ShapeError,
    StagedError,
    StagedValueError,
    StagingError,
    StateDictError,
    StaticStateError,
    UnboundNameError,
    UnsupportedError,
)
from staged.frontend.calls.foreign import pure
from staged.frontend.constructs.batches import batches
from staged.frontend.constructs.iterables import range_ as range
from staged.frontend.constructs.regions import GPU, to, with_backend
from staged.frontend.constructs.stack import Stack
from staged.frontend.devices.resident import DeviceArray
from staged.frontend.gpu_func.function import gpu_func
from staged.frontend.transforms import (
    checkpoint,
    custom_vjp,
    grad,
    hessian,
    jacfwd,
    jacrev,
    jvp,
    stop_gradient,
    value_and_grad,
    vjp,
    vmap,
)
from staged.frontend.values.dimensions import dim
from staged.frontend.values.generator import seed
from staged.frontend.values.variable import Variable
from staged.gradient_check import check_grads
from staged.ir.types import CPU, DType, bool_, dtype_of, f32, f64, i32, i64, u8, u32
from staged.ir.types import bool_ as bool
from staged.ops import *  # noqa: F403  (the array functions, listed in staged.ops.__all__)
from staged.ops.array import Array
from staged.prefetch import loader
from staged.program import Program
from staged.progress import progress
from staged.source import here

if TYPE_CHECKING:
    from staged import data, nn, optim, system, testing

__all__ = [
    "CPU",
    "GPU",
    "ArgumentError",
    "Array",
    "DeviceArray",
    "CacheError",
    "CarriedValueError",
    "CompilerError",
    "DType",
    "DTypeError",
    "DataError",
    "DependencyError",
    "GradientError",
    "LeakError",
    "Program",
    "ProgramError",
    "ShapeError",
    "Stack",
    "StagedError",
    "StagedFunction",
    "StagedValueError",
    "StagingError",
    "StateDictError",
    "StaticStateError",
    "UnboundNameError",
    "UnsupportedError",
    "Variable",
    "batches",
    "bool",
    "bool_",
    "check_grads",
    "checkpoint",
    "cuda",
    "custom_vjp",
    "data",
    "dim",
    "dtype_of",
    "eager",
    "f32",
    "f64",
    "function",
    "gpu_func",
    "grad",
    "here",
    "hessian",
    "i32",
    "i64",
    "jacfwd",
    "jacrev",
    "jvp",
    "loader",
    "nn",
    "optim",
    "progress",
    "pure",
    "random",
    "range",
    "seed",
    "stop_gradient",
    "system",
    "testing",
    "to",
    "u8",
    "u32",
    "value_and_grad",
    "vjp",
    "vmap",
    "with_backend",
]
__all__ += ops.__all__

__version__ = "0.1.0"

_LATE = ("nn", "optim", "data", "testing", "system")


def __getattr__(name: str) -> Any:
    # Written on these public names, so they can only be imported after them.
    if name in _LATE:
        import importlib

        return importlib.import_module(f"staged.{name}")
    from staged.other_names import answer_to, no_attribute

    raise no_attribute("module 'staged' has", name, answer_to(name, __all__))
