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

from staged import fft, library, linalg, random, sparse, special
from staged.base.launcher import this_job
from staged.base.remote import set_dlpack_reader
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
    RankError,
    ShapeError,
    StagedError,
    StagedValueError,
    StagingError,
    StateDictError,
    StaticStateError,
    UnboundNameError,
    UnknownArgumentError,
    UnknownAttributeError,
    UnsupportedError,
)
from staged.ir.types import (
    CPU,
    DType,
    bf16,
    bool_,
    c64,
    c128,
    dtype_of,
    f16,
    f32,
    f64,
    i8,
    i16,
    i32,
    i64,
    u8,
    u16,
    u32,
    u64,
)
from staged.ir.types import bool_ as bool
from staged.library import *  # noqa: F403  (the array functions, listed in staged.library.__all__)
from staged.ops.array import WORDS, Array
from staged.ops.autocast import autocast
from staged.ops.context import Context, set_default_context
from staged.source import here
from staged.standard import (
    VERSION,
    array_namespace_info,
    bfloat16,
    can_cast,
    complex64,
    complex128,
    e,
    finfo,
    float16,
    float32,
    float64,
    from_dlpack,
    iinfo,
    inf,
    int8,
    int16,
    int32,
    int64,
    isdtype,
    nan,
    pi,
    result_type,
    uint8,
    uint16,
    uint32,
    uint64,
)

if TYPE_CHECKING:
    from staged import cuda, data, integrate, nn, optim, optimize, system, testing
    from staged.call.api import StagedFunction, function
    from staged.call.callbacks import callback
    from staged.call.custom_ops import custom_op
    from staged.call.prefetch import loader
    from staged.call.program import Program
    from staged.call.progress_bar import progress
    from staged.eager_mode.context import eager
    from staged.eager_mode.gradient_check import check_grads
    from staged.frontend.calls.foreign import pure
    from staged.frontend.constructs.batches import batches
    from staged.frontend.constructs.iterables import range_ as range
    from staged.frontend.constructs.regions import GPU, to, with_backend
    from staged.frontend.constructs.stack import Stack
    from staged.frontend.devices.resident import DeviceArray
    from staged.frontend.gpu_func.function import gpu_func
    from staged.frontend.transforms.checkpoint import checkpoint
    from staged.frontend.transforms.custom_vjp import custom_vjp
    from staged.frontend.transforms.gradient import grad, stop_gradient, value_and_grad
    from staged.frontend.transforms.jacobian import hessian, jacfwd, jacrev
    from staged.frontend.transforms.jvp import jvp
    from staged.frontend.transforms.vjp import vjp
    from staged.frontend.transforms.vmap import vmap
    from staged.frontend.values.dimensions import dim
    from staged.frontend.values.generator import seed
    from staged.frontend.values.variable import Variable
    from staged.nn.quantized import quantize
    from staged.saving.checkpoints import load, save

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
    "RankError",
    "ShapeError",
    "Stack",
    "StagedError",
    "StagedFunction",
    "StagedValueError",
    "StagingError",
    "StateDictError",
    "StaticStateError",
    "UnboundNameError",
    "UnknownArgumentError",
    "UnknownAttributeError",
    "UnsupportedError",
    "Variable",
    "autocast",
    "batches",
    "bf16",
    "bfloat16",
    "bool",
    "bool_",
    "c64",
    "c128",
    "callback",
    "can_cast",
    "complex64",
    "complex128",
    "check_grads",
    "checkpoint",
    "cuda",
    "custom_op",
    "custom_vjp",
    "data",
    "dim",
    "dtype_of",
    "e",
    "eager",
    "f16",
    "f32",
    "f64",
    "finfo",
    "float16",
    "float32",
    "float64",
    "from_dlpack",
    "function",
    "gpu_func",
    "grad",
    "here",
    "hessian",
    "i8",
    "i16",
    "i32",
    "i64",
    "iinfo",
    "inf",
    "int8",
    "int16",
    "int32",
    "int64",
    "isdtype",
    "integrate",
    "jacfwd",
    "jacrev",
    "jvp",
    "fft",
    "linalg",
    "load",
    "loader",
    "nan",
    "newaxis",
    "nn",
    "optim",
    "pi",
    "optimize",
    "progress",
    "pure",
    "quantize",
    "random",
    "range",
    "result_type",
    "save",
    "seed",
    "sparse",
    "special",
    "stop_gradient",
    "system",
    "testing",
    "to",
    "u8",
    "u16",
    "u32",
    "u64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "value_and_grad",
    "vjp",
    "vmap",
    "with_backend",
]
__all__ += library.__all__

__version__ = "0.2.0"
__array_api_version__ = VERSION
newaxis = None
__array_namespace_info__ = array_namespace_info


_LATE = {
    name: module
    for module, names in {
        "call.callbacks": "callback",
        "saving.checkpoints": "load save",
        "call.custom_ops": "custom_op",
        "call.api": "StagedFunction function",
        "eager_mode.context": "eager",
        "frontend.calls.foreign": "pure",
        "frontend.constructs.batches": "batches",
        "frontend.constructs.iterables": "range",
        "frontend.constructs.regions": "GPU to with_backend",
        "frontend.constructs.stack": "Stack",
        "frontend.devices.resident": "DeviceArray",
        "frontend.gpu_func.function": "gpu_func",
        "frontend.transforms.checkpoint": "checkpoint",
        "frontend.transforms.custom_vjp": "custom_vjp",
        "frontend.transforms.gradient": "grad stop_gradient value_and_grad",
        "frontend.transforms.jacobian": "hessian jacfwd jacrev",
        "frontend.transforms.jvp": "jvp",
        "frontend.transforms.vjp": "vjp",
        "frontend.transforms.vmap": "vmap",
        "frontend.values.dimensions": "dim",
        "frontend.values.generator": "seed",
        "frontend.values.variable": "Variable",
        "eager_mode.gradient_check": "check_grads",
        "nn.quantized": "quantize",
        "call.prefetch": "loader",
        "call.program": "Program",
        "call.progress_bar": "progress",
    }.items()
    for name in names.split()
}
"""The names that `import staged` does not load, with the module that defines each; the front end and the runtime need
more time to load than all other names."""
_LATE_MODULES = ("cuda", "data", "integrate", "nn", "optim", "optimize", "system", "testing")
_RENAMED = {"range": "range_"}


def _namespace(api_version: str | None) -> Any:
    import sys

    if api_version is not None and api_version > __array_api_version__:
        raise ArgumentError(
            f"this is version {__array_api_version__} of the Array API, not {api_version}", where=here()
        )
    return sys.modules[__name__]


def _to_device(x: Any, device: Any) -> Any:
    from staged.frontend.constructs.regions import to

    return to(x, CPU if device == "cpu" else device)


def _eager_context() -> Context:
    """Return the context of plain Python, which computes eagerly: users build models there, and look at results."""
    from staged.eager_mode.context import EagerContext

    return EagerContext()


def _read_dlpack(value: Any, what: str) -> dict[str, Any] | None:
    from staged.runtime.cuda.borrowed import device_interface

    return device_interface(value, what)


def _watch_ranks() -> None:
    """Let an exception on one rank of a job end them all, from the import on."""
    if this_job().ranks > 1:
        from staged.runtime.mpi import watch

        watch()


WORDS["namespace"] = _namespace
WORDS["to_device"] = _to_device
set_default_context(_eager_context)
set_dlpack_reader(_read_dlpack)
_watch_ranks()


_INTERNAL = {"add_item", "here", "set_item", "system"}
"""Names for our own code, which editors do not list."""


def __dir__() -> list[str]:
    return sorted({*__all__, *(name for name in globals() if name.startswith("__"))} - _INTERNAL)


if not TYPE_CHECKING:  # a type checker reports an unknown name

    def __getattr__(name: str) -> Any:
        import importlib

        if name in _LATE_MODULES:
            return importlib.import_module(f"staged.{name}")
        if name in _LATE:
            value = getattr(importlib.import_module(f"staged.{_LATE[name]}"), _RENAMED.get(name, name))
            globals()[name] = value  # a guard compares the attribute of the module
            return value
        from staged.base.other_names import answer_to, no_attribute

        raise no_attribute("module 'staged' has", name, answer_to(name, __all__))
