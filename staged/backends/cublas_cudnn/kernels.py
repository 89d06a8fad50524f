"""Fused kernels in CUDA: the outermost independent loops of a nest become threads.

    // mlp.py:31  y = x * 2 + 1
    // fused: multiply, add
    // 1000 items, a thread each: 4 blocks of 256 threads; item i is element i
    extern "C" __global__ void __launch_bounds__(256) y_kernel(const float *x, float *y) {
        const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= 1000) {
            return;
        }
        y[i] = x[i] * 2.0f + 1.0f;
    }

Loops inside of those (a row's reduction) stay loops of one thread.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from staged.backends.c_family.expr import Infix, Literal, Name
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.loops import LoopEmitter, emit_kernel, kernel_comments, may_stop, wrapped
from staged.backends.c_family.scalars import RANDOM_NAMES
from staged.backends.c_family.writer import Names, safe_comment
from staged.backends.cublas_cudnn.geometry import Launch, launch_for
from staged.backends.cublas_cudnn.spelling import device_names, spell_in_cuda
from staged.errors import UnsupportedError
from staged.ir.loops import (
    Affine,
    ArrayRef,
    Axis,
    CallSupport,
    CheckIndex,
    Compute,
    Load,
    LoadPair,
    Loop,
    Nest,
    PositionOf,
    Schedule,
    Statement,
    Store,
    StorePair,
    Tile,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.types import CPU
from staged.source import Position

Site = Callable[[Position | None], int]

LOCAL_BYTES = 16 << 10
"""Workspace that one thread may have: it lies in the GPU's local memory, and on the stack of the emulated device."""
CUDA_WORDS = frozenset(
    "threadIdx blockIdx blockDim gridDim warpSize dim3 uint3 __global__ __device__ __shared__ KERNELS KERNEL".split()
)
PLAIN = Schedule()
"""Neither vectors nor a thread team: what the host's C++ compilers all take, and what a single GPU thread does."""


@dataclass(frozen=True, slots=True)
class CudaKernel(KernelText):
    """A kernel on the device, and its launch; kernels of the host have none."""

    launch: Launch | None = None


class CudaLibrary:
    """Emits each kernel of a program: for its host in C, for its device in CUDA."""

    def __init__(self, machine: Machine, names: Names, site: Site) -> None:
        self.machine = machine
        self.names = names
        self.names.used |= CUDA_WORDS
        self.site = site

    def kernel(self, op: Op) -> KernelText:
        """The text for a `kernel` op. Raises UnsupportedError, with the Python line, for what has none."""
        name = str(op.attrs.get("name") or "kernel")
        if op.name == "contraction":
            kind = f"`{op.attrs['kind']}`"
            if op.device == CPU:
                kind += " on the host of a program with a GPU region"
            raise UnsupportedError(f"{kind} has no CUDA form yet", where=op.where, hint="compute it in a CPU program")
        if op.device == CPU:
            plain = op.replace(attrs={**op.attrs, "schedule": PLAIN})
            return emit_kernel(plain, self.names.fresh(name), self.machine, self.site)
        # With a suffix of its own: a kernel's name is visible to the linker, where libraries have plain names.
        return CudaLoopEmitter(op, self.machine, self.site).kernel(self.names.fresh(f"{name}_kernel"))


@dataclass(frozen=True, slots=True)
class Threads:
    """How a nest becomes threads: the axes that number them, the statements of one, and its workspace.

    No axes: the nest is one piece, or its outermost loop's body does not stand alone.
    """

    axes: tuple[Axis, ...]
    body: tuple[Statement, ...]
    scratch: tuple[ArrayRef, ...]


class CudaLoopEmitter(LoopEmitter):
    """Writes one nest as a `__global__` function."""

    def __init__(self, op: Op, machine: Machine, site: Site) -> None:
        nest: Nest = op.attrs["nest"]
        super().__init__(nest, PLAIN, machine, site)
        self.op = op
        threads = threads_of(nest)
        self.threads, self.inner, self.scratch = threads.axes, threads.body, threads.scratch
        self.check_supported()
        items = prod(axis.extent for axis in self.threads) if self.threads else nest.items
        if not self.threads and len(nest.body) != 1:
            items = min(1, len(nest.body))  # steps that follow each other; none at all for results of no elements
        self.launch = launch_for(items)

    def refuse(self, what: str, where: Position | None) -> UnsupportedError:
        return UnsupportedError(
            f"{what} does not run on the GPU yet",
            where=where or self.op.where,
            hint="compute it outside of the GPU region",
        )

    def check_supported(self) -> None:
        for s in walk(self.nest.body):
            if isinstance(s, CheckIndex):
                raise self.refuse("an index that has to be checked", s.where)
            if isinstance(s, Compute) and may_stop(s):
                raise self.refuse(f"`{s.op}` of integers", s.where)
            if isinstance(s, CallSupport):
                raise self.refuse(f"`{self.op.attrs.get('fused', self.op.name)}`", None)
            if isinstance(s, Compute) and s.op in RANDOM_NAMES:
                raise self.refuse(f"`{s.op}`", s.where)
        if sum(array.size * array.dtype.size for array in self.scratch) > LOCAL_BYTES:
            raise self.refuse(f"`{self.op.attrs.get('fused', self.op.name)}`, with its large workspace,", None)

    # ---- the function ----

    def kernel(self, name: str) -> CudaKernel:
        parameters = self.parameters()
        w = self.w
        for comment in (*kernel_comments(self.op), self.mapping()):
            w.line("// " + safe_comment(comment))
        text = ", ".join(f"{type}{parameter}" for type, parameter in parameters)
        bounds = f"__launch_bounds__({self.launch.threads})"
        with w.block(wrapped(f'extern "C" __global__ void {bounds} {name}({text})')):
            self.declare_scratch()
            self.outermost()
        return CudaKernel(
            name,
            device_names(str(w)),
            tuple(parameters),
            self.nest.items,
            may_alias=self.nest.in_place,
            snippets=frozenset(self.snippets),
            launch=self.launch,
        )

    def mapping(self) -> str:
        if self.launch.items <= 1:
            return "one thread does it all"
        if not self.threads:
            return str(self.launch)
        axes = ", ".join(axis.name for axis in self.threads)
        return f"{self.launch}; thread t has ({axes}) in row-major order" if len(self.threads) > 1 else str(self.launch)

    def declare_scratch(self) -> None:
        for array in self.scratch:
            name = self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            self.w.line(f"{array.dtype.c_name} {name}[{max(array.size, 1)}];")

    def outermost(self) -> None:
        if self.launch.items <= 1:
            self.body(self.nest.body)
            return
        thread = self.names.fresh(self.threads[0].name if len(self.threads) == 1 else "t")
        self.w.line(f"const int64_t {thread} = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;")
        if self.launch.has_tail:
            with self.w.block(f"if ({thread} >= {self.launch.items})"):
                self.w.line("return;")
        if self.threads:
            self.number_axes(thread)
        else:
            # The turns of the outermost loop are the threads' items, but its pieces have loops of their own.
            axis = next(s.axis for s in self.nest.body if isinstance(s, Loop | Tile))
            self.ranges[axis] = (thread, f"{thread} + 1")
        self.body(self.inner)

    def number_axes(self, thread: str) -> None:
        """The loop variables of thread number `thread`: quotients and remainders where several loops became one."""
        if len(self.threads) == 1:
            self.axes[self.threads[0]] = Name(thread)
            return
        stride = prod(axis.extent for axis in self.threads)
        for number, axis in enumerate(self.threads):
            stride //= axis.extent
            index = Name(thread) if stride == 1 else Infix("/", Name(thread), Literal(str(stride)))
            if number > 0:
                index = Infix("%", index, Literal(str(axis.extent)))
            name = self.names.fresh(axis.name)
            self.w.line(f"const int64_t {name} = {index};")
            self.axes[axis] = Name(name)

    # ---- statements ----

    def compute(self, s: Compute) -> None:
        operands = [self.operand(operand) for operand in s.operands]
        dtypes = [operand.dtype for operand in operands]
        expression = spell_in_cuda(
            s.op, dtypes, s.target.dtype, [operand.expr for operand in operands], s.attrs, self.need
        )
        self.bind(s.target, expression, False, True, s.target.name != s.op)


def threads_of(nest: Nest) -> Threads:
    """The outer loops of a nest whose turns can all be threads, and what is left for one thread.

    The outermost one is independent if the nest says so. A perfectly nested loop inside joins it if no total runs through
    it and every element written is one turn's alone: then whatever order they run in, each does the same. So does an axis
    that comes in tiles (totals of columns, for the CPU's caches): a thread takes one column.
    """
    axes: list[Axis] = []
    before: list[Statement] = []
    body: tuple[Statement, ...] = nest.body
    scratch = nest.scratch
    while nest.items != 1 and body and all(_is_repeatable(s) for s in body[:-1]):
        *first, outer = body
        if (
            isinstance(outer, Loop)
            and not outer.reductions
            and (not axes or _is_independent(outer, [*axes, outer.axis]))
        ):
            inner: tuple[Statement, ...] = outer.body
        elif isinstance(outer, Tile) and _has_own_columns(outer):
            column = _Column(outer.axis, scratch)
            inner, scratch = tuple(column.statements(outer.body)), tuple(column.scratch[array] for array in scratch)
        else:
            break
        axes.append(outer.axis)
        before += first
        body = inner
    if not axes or any(isinstance(s, Loop | Tile) and s.axis in axes for s in walk(body)):
        return Threads((), nest.body, nest.scratch)
    return Threads(tuple(axes), (*before, *body), scratch)


def _is_repeatable(s: Statement) -> bool:
    """Whether every thread may do it for itself: it reads what the kernel does not write, or computes."""
    return isinstance(s, Load) and s.array.role == "input" or isinstance(s, Compute | PositionOf)


def _is_independent(loop: Loop, axes: Sequence[Axis]) -> bool:
    written: set[ArrayRef] = set()
    for s in walk(loop.body):
        if isinstance(s, Store | StorePair):
            written.add(s.array)
            if s.array.role == "scratch" or any(s.index.stride(axis) == 0 for axis in axes if axis.extent > 1):
                return False
    return not any(isinstance(s, Load | LoadPair) and s.array in written for s in walk(loop.body))


def _has_own_columns(tile: Tile) -> bool:
    """Whether everything that a tile writes belongs to one turn of its axis."""
    loops = [s for s in walk(tile.body) if isinstance(s, Loop) and s.axis is tile.axis]
    if any(isinstance(s, LoadPair | StorePair) for s in walk(tile.body)):
        return False
    accesses = [s for s in walk(tile.body) if isinstance(s, Store) or isinstance(s, Load) and s.array.role == "scratch"]
    return not any(loop.reductions for loop in loops) and all(s.index.stride(tile.axis) for s in accesses)


class _Column:
    """The statements of a tile for a single value of its axis: its loops are gone, workspace rows are single numbers."""

    def __init__(self, axis: Axis, scratch: Sequence[ArrayRef]) -> None:
        self.axis = axis
        self.scratch = {
            array: ArrayRef(array.name, array.dtype, array.size - axis.extent + 1, "scratch") for array in scratch
        }

    def statements(self, body: Sequence[Statement]) -> list[Statement]:
        out: list[Statement] = []
        for s in body:
            match s:
                case Loop(axis, inner) | Tile(axis, _, inner) if axis is self.axis:
                    out += self.statements(inner)
                case Loop(axis, inner, reductions):
                    out.append(Loop(axis, tuple(self.statements(inner)), reductions))
                case Tile(axis, size, inner):
                    out.append(Tile(axis, size, tuple(self.statements(inner))))
                case Load(target, array, index, guards, fill) if array in self.scratch:
                    out.append(Load(target, self.scratch[array], self.without(index), guards, fill))
                case Store(array, index, value) if array in self.scratch:
                    out.append(Store(self.scratch[array], self.without(index), value))
                case _:
                    out.append(s)
        return out

    def without(self, index: Affine) -> Affine:
        return Affine(tuple(term for term in index.terms if term[0] is not self.axis), index.offset)


def needs_of(kernels: Sequence[KernelText]) -> frozenset[str]:
    """The support functions that the device's kernels use."""
    return frozenset(name for kernel in kernels if isinstance(kernel, CudaKernel) for name in kernel.snippets)
