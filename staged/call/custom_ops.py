"""`custom_op`: a C or CUDA function of the user's as an op: in programs, eager mode, derivatives, `vmap`, exports."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from staged.backends.contract import BackEnd
from staged.backends.registry import choose
from staged.errors import ArgumentError, DTypeError, ProgramError, ShapeError
from staged.frontend.devices.device_options import RegionOptions, device_options
from staged.frontend.gpu_func.sizes import launch_size
from staged.frontend.trace.context import TraceContext, current_trace
from staged.frontend.trace.effects import check_effect
from staged.frontend.transforms.custom_vjp import custom_vjp
from staged.ir.types import CPU, DType, dims_of, dtype_of
from staged.ops.array import Array
from staged.ops.context import bind_all
from staged.ops.custom import CUSTOM_LAUNCH, CUSTOM_OP, CFunction, CudaForm, Operand
from staged.ops.promote import adopted, as_array
from staged.ops.shape import reshape
from staged.runtime.cuda.custom import check_function, check_kernel
from staged.runtime.foreign import ForeignFunction
from staged.source import here

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_INCLUDE = re.compile(r"^\s*#\s*include\b", re.MULTILINE)
_DTYPES = frozenset("f32 f64 i8 i16 i32 i64 u8 u16 u32 u64 bool".split())


class custom_op:
    """A C or CUDA function as an op: `blur = st.custom_op("blur", [(st.f32, 2), st.f32], [(st.f32, 2)], source=C)`.

    `arguments` and `results` list (dtype, number of axes); a dtype alone is a number. In C an array is an address and
    the size of each of its axes, elements in C's order; a number is passed by value; the addresses of the results come
    last, of numbers too. The function returns 0, or another number, with which the program stops at the user's line:

        int blur(const float *x, int64_t rows, int64_t columns, float width, float *out)

    `source` is the text that defines it, which becomes part of every program that calls it, and of exported folders;
    helpers in it are `static`. Or `library` is the path of a shared library, which programs are linked to. `shapes`
    gives the shapes of the results for those of the arguments (a list where there are several results); without it,
    each result has the shape of the first argument with as many axes. A function with `has_effects` is called as often
    as it stands there, in order; others are computations, which may be left out where the results are unused.

    Called with arrays and numbers (these take the declared dtype), it returns its result, or a tuple of several. Eager
    mode and plain Python call the same C function. `vjp(cotangent, result, *arguments)` gives one cotangent per
    argument, None for zero, in staged code; with several results the first two are tuples. `vmap(*arguments)` computes
    the results of arguments that all have a leading axis more; without it `st.vmap` calls the function for one element
    after another.

    A function of C runs on the host, in a region too: arrays are copied, as `program.transfers()` lists. With a form
    for CUDA a region calls that one, with arrays of the device. Either `cuda_source` is the text of the kernel
    NAME_kernel, with the same parameters, in a namespace of its own (C++ without `#include`: the functions of math and
    `int64_t` are there), and `launch` gives its grid and block for the shapes of the arguments, each a number or a
    tuple of up to three:

        __global__ void blur_kernel(const float *x, int64_t rows, int64_t columns, float width, float *out)

    Or `cuda_library` is the path of a shared library with `int NAME_cuda(the same parameters, cudaStream_t stream)`: it
    puts its work on the stream, does not wait for it, and returns 0. One with a form for CUDA alone is called in
    regions alone.

    Raises: ArgumentError for a declaration that is none; CompilerError, with the compiler's words, for a source that
    does not define such a function; DTypeError and ShapeError for other arguments; GradientError for a derivative
    without `vjp`; at run time ProgramError where the function has not returned 0.
    """

    __staged_plain__ = True

    def __init__(
        self,
        name: str,
        arguments: Sequence[Any],
        results: Sequence[Any],
        *,
        source: str = "",
        library: str | os.PathLike[str] = "",
        shapes: Callable[..., Any] | None = None,
        has_effects: bool = False,
        vjp: Callable[..., Any] | None = None,
        vmap: Callable[..., Any] | None = None,
        cuda_source: str = "",
        cuda_library: str | os.PathLike[str] = "",
        launch: Callable[..., Any] | None = None,
    ) -> None:
        if not _NAME.fullmatch(name) or name.startswith("st_"):
            raise ArgumentError(f"{name!r} is no name for a C function of a program", where=here())
        cuda = _cuda_form(name, cuda_source, cuda_library, launch)
        if source and library or not (source or library or cuda):
            raise ArgumentError(
                f"`{name}` is defined by its `source`, or is in a `library`: one of the two", where=here()
            )
        if has_effects and cuda is not None:
            raise ArgumentError(f"`{name}` has effects: it has no form for CUDA", where=here())
        if has_effects and (vjp is not None or vmap is not None):
            raise ArgumentError(f"`{name}` has effects: it has no derivative and no `vmap`", where=here())
        self.name = self.__name__ = name
        path = os.path.abspath(os.fspath(library)) if library else ""
        self.function = CFunction(
            name,
            tuple(_operand(each, name) for each in arguments),
            tuple(_operand(each, name) for each in results),
            self._shapes,
            source,
            path,
            has_effects,
            self._run,
            vmap,
            cuda,
        )
        self._launch = launch
        if not self.function.results and not has_effects:
            raise ArgumentError(f"`{name}` has no results and no effects", where=here(), hint="`has_effects=True`")
        self._given_shapes = shapes
        self._with_vjp: custom_vjp | None = None
        self._is_checked = False
        if vjp is not None:
            self._with_vjp = self._differentiable(vjp)

    def __call__(self, *args: Any) -> Any:
        """Call it on arrays and numbers."""
        if self.function.has_effects:
            check_effect("print", f"`{self.name}`, which has effects,")
        if len(args) != len(self.function.arguments):
            raise ArgumentError(
                f"`{self.name}` takes {len(self.function.arguments)} arguments, got {len(args)}", where=here()
            )
        arrays = [self._argument(number, value) for number, value in enumerate(args)]
        return self._with_vjp(*arrays) if self._with_vjp is not None else self._bound(*arrays)

    def __repr__(self) -> str:
        return f"<custom op `{self.name}`>"

    # ---- calls ----

    def _argument(self, number: int, value: Any) -> Array:
        dtype, axes = self.function.arguments[number]
        array = as_array(value)
        if array.type.weak:
            array = adopted(array, dtype)
        if array.type.dtype is not dtype:
            raise DTypeError(
                f"argument {number + 1} of `{self.name}` is {dtype}, got {array.type}",
                where=here(),
                hint=f"convert it: `st.astype(x, st.{dtype})`",
            )
        if len(array.type.shape) != axes or dims_of(array.type):
            sizes = " of known sizes" if dims_of(array.type) else ""
            raise ShapeError(
                f"argument {number + 1} of `{self.name}` has {axes} axes{sizes}, got {array.type}", where=here()
            )
        return array

    def _back_end(self, trace: TraceContext | None) -> BackEnd | None:
        """The back end that runs the form for CUDA here, if there is one."""
        if trace is None or self.function.cuda is None or trace.builder.device == CPU:
            return None
        using = device_options(trace.of(RegionOptions).said).using
        back_end = choose({trace.builder.device.kind}, using)
        return back_end if back_end.takes_cuda_forms else None

    def _launched(self, back_end: BackEnd, arrays: Sequence[Any]) -> Sequence[Any]:
        """Record the form for CUDA. A number is computed on the device as an array of one element."""
        self._check_cuda(back_end)
        grid = block = None
        if self._launch is not None:
            made = self._launch(*(array.type.shape for array in arrays))
            if not isinstance(made, tuple) or len(made) != 2:
                raise ArgumentError(f"the `launch` of `{self.name}` gives {made!r}", where=here(), hint="(grid, block)")
            hint = "`launch` gives (grid, block), each a number or a tuple of up to three"
            grid, block = launch_size(self.name, *made, hint)
        results = bind_all(CUSTOM_LAUNCH, arrays, function=self.function, grid=grid, block=block)
        types = self.function.types([array.type for array in arrays])
        return [x if type.shape else reshape(x, ()) for x, type in zip(results, types, strict=True)]

    def _bound(self, *arrays: Any) -> Any:
        trace = current_trace()
        back_end = self._back_end(trace)
        if back_end is not None:
            made = self._launched(back_end, arrays)
            return made[0] if len(made) == 1 else tuple(made)
        if not (self.function.source or self.function.library):
            raise ArgumentError(
                f"`{self.name}` has a form for CUDA alone, and what stands here runs on the CPU",
                where=here(),
                hint="call it in a region of a staged function, `with st.with_backend(st.GPU, x):`, or give it a "
                "`source` in C too",
            )
        self._foreign.load()
        if trace is None:
            made = bind_all(CUSTOM_OP, arrays, function=self.function)
        else:
            builder, before = trace.builder, trace.builder.device
            builder.device = CPU
            try:
                made = bind_all(CUSTOM_OP, arrays, function=self.function)
            finally:
                builder.device = before
        return made[0] if len(made) == 1 else made or None

    def _differentiable(self, vjp: Callable[..., Any]) -> custom_vjp:
        def forward(*args: Any) -> Any:
            result = self._bound(*args)
            return result, (result, args)

        def backward(residuals: Any, cotangent: Any) -> Any:
            result, args = residuals
            return tuple(vjp(cotangent, result, *args))

        def primal(*args: Any) -> Any:
            return self._bound(*args)

        primal.__name__ = primal.__qualname__ = self.name
        made = custom_vjp(primal)
        made.defvjp(forward, backward)
        return made

    def _shapes(self, *given: tuple[int, ...]) -> list[tuple[int, ...]]:
        """The shapes of the results."""
        wanted = [axes for _, axes in self.function.results]
        if self._given_shapes is None:
            found = [next((shape for shape in given if len(shape) == axes), None) for axes in wanted]
        else:
            made = self._given_shapes(*given)
            found = [made] if len(wanted) == 1 and not isinstance(made, list) else list(made)
        if len(found) != len(wanted) or any(
            not isinstance(shape, tuple) or len(shape) != axes or not all(isinstance(n, int) and n >= 0 for n in shape)
            for shape, axes in zip(found, wanted, strict=False)
        ):
            raise ShapeError(
                f"the results of `{self.name}` have {wanted} axes, `shapes` gives {found}",
                where=here(),
                hint="a tuple of sizes, known while staging, for each result",
            )
        return [shape for shape in found if shape is not None]

    # ---- the C function ----

    @cached_property
    def _foreign(self) -> ForeignFunction:
        return ForeignFunction(self.name, self.function.parameters, self.function.source, self.function.library)

    def _check_cuda(self, back_end: BackEnd) -> None:
        """Compile or load the form for CUDA by itself, once."""
        if self._is_checked:
            return
        function, form = self.function, self.function.cuda
        assert form is not None
        name = form.name(self.name)
        if form.source:
            check_kernel(self.name, name, function.parameters, back_end.custom_source(function))
        else:
            check_function(self.name, name, form.library)
        self._is_checked = True

    def _run(self, *arrays: Any) -> Any:
        """Call the C function on arrays of NumPy's."""
        shapes = self._shapes(*(np.shape(array) for array in arrays))
        results = [
            np.empty(shape, dtype.numpy) for shape, (dtype, _) in zip(shapes, self.function.results, strict=True)
        ]
        given = [
            np.ascontiguousarray(array, dtype.numpy) if axes else array
            for array, (dtype, axes) in zip(arrays, self.function.arguments, strict=True)
        ]
        status = self._foreign.load()(given, results)
        if status:
            raise ProgramError(f"`{self.name}` has returned {status}", where=here())
        return results[0] if len(results) == 1 else tuple(results)


def _cuda_form(name: str, source: str, library: str | os.PathLike[str], launch: Any) -> CudaForm | None:
    """The form for CUDA, if there is one. Raises: ArgumentError."""
    if not source and not library:
        if launch is not None:
            raise ArgumentError(f"`{name}` has a `launch` and no `cuda_source`", where=here())
        return None
    if source and library:
        raise ArgumentError(
            f"the form of `{name}` for CUDA is its `cuda_source`, or is in a `cuda_library`: one of the two",
            where=here(),
        )
    if bool(source) != (launch is not None):
        raise ArgumentError(
            f"`{name}` has a `cuda_source` and no `launch`"
            if source
            else f"`{name}` has a `launch` and no `cuda_source`",
            where=here(),
            hint="`launch=lambda *shapes: (grid, block)` says how many threads run a kernel; a library's function "
            "decides that itself",
        )
    if _INCLUDE.search(source):
        raise ArgumentError(
            f"the `cuda_source` of `{name}` has an `#include`: it is part of a larger text, which is compiled without "
            "headers",
            where=here(),
            hint="the functions of math and the integers of stdint.h are there",
        )
    if source and not re.search(rf"\b{name}_kernel\s*\(", source):
        raise ArgumentError(
            f"the `cuda_source` of `{name}` defines no kernel `{name}_kernel`",
            where=here(),
            hint=f"`__global__ void {name}_kernel(...)`: `{name}` itself is the C function's name",
        )
    return CudaForm(source, os.path.abspath(os.fspath(library)) if library else "")


def _operand(given: Any, name: str) -> Operand:
    dtype, axes = given if isinstance(given, tuple) and len(given) == 2 else (given, 0)
    known = dtype_of(dtype) if isinstance(dtype, DType | np.dtype | type | str) else None
    if known is None or known.name not in _DTYPES or not isinstance(axes, int) or axes < 0:
        raise ArgumentError(
            f"`{name}` takes and returns (dtype, number of axes), or a dtype for a number; got {given!r}",
            where=here(),
            hint=f"dtypes are {', '.join(sorted(_DTYPES))}",
        )
    return known, axes
