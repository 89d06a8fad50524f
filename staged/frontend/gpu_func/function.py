"""`gpu_func`: a Python function of thread and block indices as a kernel, launched from staged code."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from staged.errors import StagingError, article
from staged.frontend.gpu_func.sizes import Size3, launch_size, size_text
from staged.frontend.gpu_func.source import Source
from staged.frontend.gpu_func.statements import translate
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.strict import Named, Strict
from staged.frontend.transforms.custom_vjp import custom_vjp
from staged.ir.thread_kernel import Parameter, ThreadKernel
from staged.ir.types import CPU, TensorType
from staged.ops.array import Array, StagedArray
from staged.ops.context import bind_all, context_or_none
from staged.ops.promote import as_array
from staged.ops.thread_kernel import LAUNCH
from staged.source import Position, here

_PLAIN = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.KEYWORD_ONLY)


class GpuFunc:
    """A kernel: what `@st.gpu_func` makes of a function. `checked`: an index out of range stops the program."""

    def __init__(self, function: Callable[..., Any], *, checked: bool = True) -> None:
        if not isinstance(function, FunctionType):
            raise StagingError(f"gpu_func takes a function, got {type(function).__name__}", where=here())
        functools.update_wrapper(self, function)
        self.function = function
        self.checked = checked
        self.signature = inspect.signature(function)
        self.with_vjp: custom_vjp | None = None
        for parameter in self.signature.parameters.values():
            if parameter.kind not in _PLAIN:
                source = Source(function)
                source.refuse(
                    source.node, f"`*{parameter.name}` in a kernel", "its parameters are arrays and numbers by name"
                )

    @property
    def name(self) -> str:
        """The user's name for it."""
        return self.function.__name__

    def defvjp(self, fwd: Callable[..., Any], bwd: Callable[..., Any]) -> None:
        """Say how to differentiate: `fwd(launch, *args) -> (result, residuals)`, `bwd(launch, residuals, cotangent) ->
        cotangents`.

        `launch` is `kernel[grid, block]`, with the attributes `grid` and `block`; `args` are all of the kernel's
        arguments in the order of its parameters, and `bwd` gives a tuple with one cotangent for each, None for zero. As
        `st.custom_vjp.defvjp`.
        """

        def primal(launch: Launch, *args: Any) -> Any:
            return launch.run(args)

        primal.__name__ = primal.__qualname__ = self.name
        self.with_vjp = custom_vjp(primal, nondiff_argnums=(0,))
        self.with_vjp.defvjp(fwd, bwd)

    def __getitem__(self, sizes: Any) -> Launch:
        """The launch in `[grid, block]`: `grid` blocks of `block` threads."""
        if not isinstance(sizes, tuple) or len(sizes) != 2:
            raise StagingError(
                f"`{self.name}[...]` takes the grid and the block",
                where=here(),
                hint=f"`{self.name}[blocks, threads](...)`, each a number or a tuple of up to three",
            )
        hint = (
            f"`{self.name}[blocks, threads](...)`, each a number or a tuple of up to three that are known while staging"
        )
        return Launch(self, *launch_size(self.name, *sizes, hint))

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        raise StagingError(
            f"`{self.name}` is a kernel: a call says how many threads run it",
            where=here(),
            hint=f"`{self.name}[blocks, threads](...)`",
        )

    def __repr__(self) -> str:
        return f"<kernel `{self.name}`>"


def gpu_func(function: Callable[..., Any] | None = None, /, *, checked: bool = True) -> Any:
    """A kernel: what one thread of a GPU does, in Python. Decorate the function, and launch it from a region of a GPU.

        @st.gpu_func
        def saxpy(a, x, y, out):
            i = st.cuda.global_index.x
            if i < len(x):
                out[i] = a * x[i] + y[i]

        with st.with_backend(st.GPU, x, y):
            z = saxpy[grid, block](2.0, x, y, out=st.zeros_like(x))

    Outside of the kernel arrays are values: a launch returns the new values of the arrays that the kernel writes, alone
    or as a tuple in the order of the parameters. Elements that are not written keep their old values, and an array
    whose old value is not used again is changed in place. `grid` and `block` are numbers of blocks, and of threads of a
    block: ints, or tuples of up to three, known while staging.

    In the kernel: numbers and elements of arrays, with the arithmetic of `staged`'s arrays and the functions of `math`,
    NumPy and `st` on numbers; `if`, `while`, `for i in range(...)`, `break`, `continue`, `return`; and the names of
    `st.cuda`. A variable keeps its dtype. An index out of range stops the program with the kernel's line, unless
    `checked=False`.

    `defvjp` gives it a reverse derivative, as `st.custom_vjp`. In eager mode a launch runs thread by thread in Python:
    slow, and the reference for the GPU.

    Raises: StagingError, with the user's line, for code that a kernel cannot have, for a launch outside of a GPU
    region, for an array that is not on the device and that the region does not name, and for a launch that exceeds
    every GPU's limits.
    """
    if function is None:
        return lambda given: GpuFunc(given, checked=checked)
    return GpuFunc(function, checked=checked)


class Launch:
    """A kernel in a grid: call it with the kernel's arguments."""

    __staged_plain__ = True

    def __init__(self, kernel: GpuFunc, grid: Size3, block: Size3) -> None:
        self.kernel = kernel
        self.grid = grid
        self.block = block

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        given = self.bound(args, kwargs)
        if self.kernel.with_vjp is not None:
            return self.kernel.with_vjp(self, *given)
        return self.run(given)

    def bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The arguments in the order of the parameters."""
        try:
            bound = self.kernel.signature.bind(*args, **kwargs)
        except TypeError as error:
            names = ", ".join(self.kernel.signature.parameters)
            raise StagingError(f"`{self.kernel.name}`: {error}", where=here(), hint=f"it takes ({names})") from None
        bound.apply_defaults()
        return tuple(bound.arguments.values())

    def run(self, given: tuple[Any, ...]) -> Any:
        """Record the launch, or run it in eager mode."""
        name, where, trace = self.kernel.name, here(), current_trace()
        if trace is None and context_or_none() is None:
            raise StagingError(
                f"`{name}` is launched outside of a staged function",
                where=where,
                hint="launch it in a function with `@st.function`, in a region of a GPU; or in `with st.eager():`, "
                "thread by thread",
            )
        if trace is not None and trace.builder.device == CPU:
            raise StagingError(
                f"`{name}` is a kernel of a GPU, and what stands here runs on the CPU",
                where=where,
                hint="launch it in a region: `with st.with_backend(st.GPU, x):`",
            )
        names = list(self.kernel.signature.parameters)
        operands = [self.operand(name, value, trace, where) for name, value in zip(names, given, strict=True)]
        kernel = self.translated(names, [operand.type for operand in operands])
        results = bind_all(LAUNCH, operands, kernel=kernel, grid=self.grid)
        return results[0] if len(results) == 1 else results

    def operand(self, name: str, value: Any, trace: TraceContext | None, where: Position | None) -> Array:
        """An argument as an array or number. Raises StagingError for an array that is not on the device."""
        try:
            array = as_array(value)
        except TypeError:
            raise StagingError(
                f"`{self.kernel.name}` takes arrays and numbers, and `{name}` is {article(type(value).__name__)}",
                where=where,
                hint="what is known while staging can be read from outside of the kernel: a constant `TILE = 32`",
            ) from None
        if trace is not None and array.shape:
            self.check_device(name, array, trace, where)
        return array

    def check_device(self, name: str, array: Array, trace: TraceContext, where: Position | None) -> None:
        device = trace.builder.device
        assert isinstance(array, StagedArray), "a trace has staged arrays"
        named = trace.of(Named).inputs or Strict(device, [])
        if named.has(trace, array):
            return
        shown = array.value.hint or name
        raise StagingError(
            f"`{self.kernel.name}` takes arrays that are on the GPU, and `{name}` ({array.type}) is on the host",
            where=where,
            hint=f"name it, `with_backend({str(device).upper()}, {shown})`, or move it: `st.to({shown}, "
            f"{str(device).upper()})`",
        )

    def translated(self, names: list[str], types: list[TensorType]) -> ThreadKernel:
        """The kernel for operands of these types: one for all shapes whose axes are equal where these are."""
        numbers: dict[Any, int] = {}
        extents: list[str] = []
        parameters = []
        for name, type in zip(names, types, strict=True):
            own = []
            for axis, size in enumerate(type.shape):
                if size not in numbers:
                    numbers[size] = len(extents)
                    extents.append(f"{name}_size" if len(type.shape) == 1 else f"{name}_size_{axis}")
                own.append(numbers[size])
            parameters.append(Parameter(name, type.dtype, type.weak, bool(type.shape), tuple(own)))
        return translate(Source(self.kernel.function), parameters, extents, self.block, self.kernel.checked)

    def __repr__(self) -> str:
        return f"<kernel `{self.kernel.name}` in {size_text(self.grid)} blocks of {size_text(self.block)} threads>"
