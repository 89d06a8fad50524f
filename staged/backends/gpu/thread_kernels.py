"""Kernels that the user writes for one thread: the same statements, the same names, each under its Python line. In
CUDA:

    // saxpy.py:9  def saxpy(a, x, y, out):
    // blocks of 256 threads; x_size is the size of x, y, out
    extern "C" __global__ void __launch_bounds__(256) saxpy_kernel(double a, const float *x, const float *y, float *out,
            int64_t x_size) {
        // saxpy.py:10  i = cuda.global_index.x
        const int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
        // saxpy.py:11  if i < len(x):
        if (i < x_size) {
            ...

Sizes are arguments, so that one kernel serves arrays of all shapes whose axes are as equal as those of the first.

Tested by `tests/backends/cublas_cudnn/test_gpu_func.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.nest.statements import FAILED, array_of
from staged.backends.gpu.thread_expressions import ThreadExpressions
from staged.backends.gpu.thread_variables import variable_uses
from staged.backends.host.body import BodyEmitter
from staged.code import tree
from staged.code.expr import Cast, Expr, Index, Infix, Literal, Variable
from staged.code.kernel_text import Site
from staged.code.printer import print_function
from staged.code.tree import CodeBuilder, Declare, Function, Parameter, Unused
from staged.code.types import INDEX, Space, pointer, scalar
from staged.code.uses import mentioned
from staged.code.writer import Names
from staged.ir.nodes import Op
from staged.ir.thread_kernel import (
    Argument,
    Assign,
    Atomic,
    Barrier,
    Builtin,
    Const,
    Do,
    Expression,
    Extent,
    For,
    If,
    Leave,
    Local,
    Memory,
    Shuffle,
    Statement,
    Store,
    ThreadKernel,
    While,
    walk,
    walk_statements,
)
from staged.ir.types import i64
from staged.source import Position


class ThreadKernels:
    """The user's kernels of a program, each once for all its launches."""

    def __init__(self, names: Names, dialect: GpuDialect, site: Site) -> None:
        self.names = names
        self.dialect = dialect
        self.site = site
        self.known: dict[object, GpuKernel] = {}

    def kernel(self, op: Op) -> GpuKernel:
        """The text for a launch."""
        kernel: ThreadKernel = op.attrs["kernel"]
        on_device = frozenset(
            number
            for number, (operand, parameter) in enumerate(zip(op.operands, kernel.parameters, strict=True))
            if operand.tensor.shape and not parameter.is_array
        )
        key = kernel, on_device
        if key not in self.known:
            name = self.names.fresh(kernel.name, "_kernel")
            self.known[key] = _Lowering(kernel, on_device, self.dialect, self.site).made(name)
        made = self.known[key]
        return replace(made, may_alias=tuple(enumerate(kernel.written)))


def begin_launch(structure: BodyEmitter, op: Op, inputs: Sequence[Expr], outputs: Sequence[Expr]) -> list[Expr]:
    """Put what a launch of the user's writes in its place with its old value. The arguments of the kernel: what it
    takes with results in the place of what it writes, then sizes.
    """
    kernel: ThreadKernel = op.attrs["kernel"]
    given = list(inputs)
    for number, output in zip(kernel.written, outputs, strict=True):
        if output != given[number]:
            structure.copy(output, inputs[number], op.operands[number].tensor)
        given[number] = output
    shapes = [
        operand.tensor.shape if parameter.is_array else ()
        for operand, parameter in zip(op.operands, kernel.parameters, strict=True)
    ]
    return [*given, *(structure.extent(extent) for extent in kernel.extent_values(shapes))]


class _Lowering:
    """One kernel on its way to code: its parameters, and its statements under their Python lines."""

    def __init__(self, kernel: ThreadKernel, on_device: frozenset[int], dialect: GpuDialect, site: Site) -> None:
        self.kernel = kernel
        self.on_device = on_device
        self.dialect = dialect
        self.names = ThreadExpressions(kernel, dialect, site)
        self.expr = self.names.expr
        self.code = CodeBuilder()
        self.declared: set[str] = set()
        self.last: Position | None = None
        self.uses = variable_uses(kernel.body)

    # ---- the function ----

    def made(self, name: str) -> GpuKernel:
        """The kernel, called `name`."""
        kernel, names = self.kernel, self.names
        given = [*self.parameters(), *self.sizes()]
        parameters = [*given, FAILED] if kernel.can_fail else given
        for number in sorted(self.on_device):
            parameter = kernel.parameters[number]
            value = names.variable(parameter.name, scalar(parameter.dtype))
            self.code.add(Declare(value, Index(names.arguments[parameter.name], Literal("0"))))
            names.arguments[parameter.name] = value
        for memory in kernel.memories:
            self.declare_memory(memory)
        declared, self.code.body = self.code.body, []
        self.body(kernel.body, ())
        used = mentioned((*declared, *self.code.body))
        arrays = [names.arrays[memory.name] for memory in kernel.memories]
        unused = [Unused((variable,)) for variable in (*parameters, *arrays) if variable not in used]
        code = Function(
            name,
            tuple(map(Parameter, parameters)),
            (*declared, *unused, *self.code.body),
            tuple(self.comments()),
            kernel.threads,
            kernel.block,
            breaks_lines=True,
        )
        return GpuKernel(
            name,
            print_function(code, self.dialect),
            tuple((variable.type.before_name, variable.text) for variable in given),
            1,
            snippets=frozenset(names.snippets),
            can_fail=kernel.can_fail,
            code=code,
        )

    def parameters(self) -> Iterator[Variable]:
        """The arrays and numbers."""
        names = self.names
        for number, parameter in enumerate(self.kernel.parameters):
            place = pointer(
                scalar(parameter.dtype), Space.GLOBAL, is_const=not (parameter.is_array and parameter.written)
            )
            if parameter.is_array:
                names.arrays[parameter.name] = variable = names.variable(parameter.name, place)
            elif number in self.on_device:
                names.arguments[parameter.name] = variable = names.variable(f"{parameter.name}_place", place)
            else:
                names.arguments[parameter.name] = variable = names.variable(parameter.name, scalar(parameter.dtype))
            yield variable

    def sizes(self) -> Iterator[Variable]:
        for hint in self.kernel.extents:
            self.names.extents.append(self.names.variable(hint, INDEX))
            yield self.names.extents[-1]

    def comments(self) -> list[str]:
        """The Python line of the kernel, its blocks, and what its sizes are."""
        kernel = self.kernel
        where = kernel.where
        found = [f"{where.short}  {where.text}"] if where is not None else []
        sizes = []
        for number, name in enumerate(map(str, self.names.extents)):
            axes = [
                p.name if len(p.extents) == 1 else f"{p.name}.shape[{axis}]"
                for p in kernel.parameters
                for axis, extent in enumerate(p.extents)
                if extent == number
            ]
            sizes.append(f"{name} is the size of {', '.join(axes)}")
        blocks = " x ".join(
            map(str, kernel.block if kernel.block[2] > 1 else kernel.block[: 2 if kernel.block[1] > 1 else 1])
        )
        return [*found, "; ".join([f"blocks of {blocks} thread{'s' if kernel.threads > 1 else ''}", *sizes])]

    def declare_memory(self, memory: Memory) -> None:
        space = Space.SHARED if memory.kind == "shared" else Space.PRIVATE
        array = self.names.arrays[memory.name] = self.names.variable(memory.name, array_of(memory.dtype, space))
        size: Expr = Literal(str(memory.shape[0]))
        for extent in memory.shape[1:]:
            size = Infix("*", size, Literal(str(extent)))
        self.code.add(Declare(array, is_const=False, sizes=(size,)))

    # ---- variables ----

    def declare_before(self, body: Sequence[Statement], number: int, path: tuple[int, ...]) -> None:
        """Declarations of the variables that live in this body and are first used inside of its next statement."""
        here = (*path, number)
        for name, uses in self.uses.items():
            if name in self.declared or uses.home != path or min(uses.paths)[: len(here)] != here:
                continue
            statement = body[number]
            if isinstance(statement, Assign) and statement.target.name == name:
                continue  # declared with its value
            self.code.add(Declare(self.names.local(self.local_of(name)), is_const=False))
            self.declared.add(name)

    def local_of(self, name: str) -> Local:
        for statement in walk_statements(self.kernel.body):
            if isinstance(statement, Assign | For) and statement.target.name == name:
                return statement.target
        raise AssertionError(f"nothing assigns `{name}`")

    # ---- statements ----

    def body(self, body: Sequence[Statement], path: tuple[int, ...]) -> None:
        for number, statement in enumerate(body):
            self.declare_before(body, number, path)
            self.comment(statement)
            self.statement(statement, (*path, number))

    def nested(self, body: Sequence[Statement], path: tuple[int, ...]) -> tuple[tree.Statement, ...]:
        """The statements of a body inside another."""
        with self.code.nested() as inner:
            self.body(body, path)
        return tuple(inner)

    def comment(self, statement: Statement) -> None:
        """The Python line, once."""
        where = statement.where
        if where is None or self.last is not None and (self.last.file, self.last.line) == (where.file, where.line):
            return
        self.last = where
        self.code.add(tree.Comment(f"{where.short}  {where.text}"))

    def statement(self, s: Statement, here: tuple[int, ...]) -> None:
        match s:
            case Assign():
                self.assign(s)
            case Store():
                self.store(s)
            case Do():
                self.code.add(tree.Do(self.expr(s.value)))
            case If():
                condition = self.expr(s.condition)
                self.code.add(tree.If(condition, self.nested(s.then, (*here, 0)), self.nested(s.other, (*here, 1))))
            case While():
                condition = self.expr(s.condition)
                self.code.add(tree.While(condition, self.nested(s.body, (*here, 0))))
            case For():
                self.loop(s, here)
            case Leave():
                self.code.add(tree.Jump(s.kind))
            case Barrier():
                self.code.add(tree.Barrier())

    def assign(self, s: Assign) -> None:
        name, uses = s.target.name, self.uses[s.target.name]
        value, target = self.names.converted_anyway(self.expr(s.value)), self.names.local(s.target)
        if name in self.declared:
            self.change(target, value)
            return
        self.declared.add(name)
        self.code.add(Declare(target, value, is_const=uses.assigned == 1))
        if not uses.read:
            self.code.add(Unused((target,)))

    def change(self, target: Expr, value: Expr) -> None:
        match value:
            case Infix(op, left, right) if op in "+-*/" and left == target:
                self.code.add(tree.Assign(target, right, op))
            case _:
                self.code.add(tree.Assign(target, value))

    def store(self, s: Store) -> None:
        names, array = self.names, self.names.arrays[s.target.array]
        if not any(s.target.checked):
            target = Index(array, names.place(s.target))
            names.changing = (s.target, target)
            self.change(target, self.expr(s.value))
            names.changing = None
            return
        at, given = names.variable("place", INDEX), names.variable("value", scalar(s.target.type.dtype))
        # The other lanes wait for this one at a shuffle, and atomic operations happen, whatever the index is.
        acts = any(isinstance(node, Shuffle | Atomic) for node in walk(s.value))
        with self.code.block():
            if acts:
                self.code.add(Declare(given, self.expr(s.value)))
            self.code.add(Declare(at, names.place(s.target)))
            with self.code.branch(Infix(">=", at, Literal("0"))):
                target = Index(array, at)
                names.changing = (s.target, target)
                self.change(target, given if acts else self.expr(s.value))
                names.changing = None
        names.names.used -= {at.text, given.text}

    def loop(self, s: For, here: tuple[int, ...]) -> None:
        changed = {each.target.name for each in walk_statements(s.body) if isinstance(each, Assign | For)}
        start = self.names.converted_anyway(self.expr(s.start))
        stop, step = (self.settled(bound, changed, hint) for bound, hint in ((s.stop, "stop"), (s.step, "step")))
        counter = self.names.local(s.target) if s.owns else self.names.variable(f"{s.target.name}_turn", INDEX)
        with self.code.nested() as inner:
            if not s.owns:
                dtype = s.target.type.dtype
                value = counter if dtype is i64 else Cast(dtype.c_name, counter)
                self.code.add(tree.Assign(self.names.local(s.target), value))
            self.body(s.body, (*here, 0))
        onwards = None if step == Literal("1") else step
        self.code.add(tree.For(counter, start, stop, tuple(inner), onwards, is_down=s.goes_down))

    def settled(self, bound: Expression, changed: set[str], hint: str) -> Expr:
        """A bound of a loop, which C computes in every iteration: by name if that is work, or its value may change."""
        simple = isinstance(bound, Const | Extent | Builtin | Argument)
        if simple or isinstance(bound, Local) and bound.name not in changed:
            return self.expr(bound)
        value = self.names.variable(hint, INDEX)
        self.code.add(Declare(value, self.expr(bound)))
        return value
