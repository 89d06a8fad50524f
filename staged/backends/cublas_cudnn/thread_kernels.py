"""Kernels that the user writes for one thread, in CUDA: the same statements, the same names, each under its Python line.

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
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from staged.backends.c_family.expr import Cast, Expr, Index, Infix, Member, Name
from staged.backends.c_family.kernel_text import Site
from staged.backends.c_family.writer import Names, Writer, safe_comment
from staged.backends.cublas_cudnn.failures import RECORD
from staged.backends.cublas_cudnn.kernel_text import CudaKernel
from staged.backends.cublas_cudnn.spelling import device_names
from staged.backends.cublas_cudnn.thread_expressions import ThreadExpressions
from staged.backends.cublas_cudnn.thread_variables import variable_uses
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
from staged.source import Position


@dataclass(frozen=True, slots=True)
class ThreadKernelText(CudaKernel):
    """A kernel of the user's, and how it is called."""

    kernel: ThreadKernel | None = None
    on_device: frozenset[int] = frozenset()
    """The numbers of the parameters that are numbers on the device, which it reads there."""


class ThreadKernels:
    """The user's kernels of a program, each once for all its launches."""

    def __init__(self, names: Names, site: Site) -> None:
        self.names = names
        self.site = site
        self.known: dict[object, ThreadKernelText] = {}

    def kernel(self, op: Op) -> ThreadKernelText:
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
            self.known[key] = _Emitter(kernel, on_device, self.site).text(name)
        made = self.known[key]
        return replace(made, may_alias=tuple(enumerate(kernel.written)))


class _Emitter(ThreadExpressions):
    """Writes one kernel: its parameters, and its statements under their Python lines."""

    def __init__(self, kernel: ThreadKernel, on_device: frozenset[int], site: Site) -> None:
        super().__init__(kernel, site)
        self.on_device = on_device
        self.w = Writer()
        self.declared: set[str] = set()
        self.last: Position | None = None
        self.uses = variable_uses(kernel.body)

    # ---- the function ----

    def text(self, name: str) -> ThreadKernelText:
        """The kernel, called `name`."""
        kernel, w = self.kernel, self.w
        parameters = [*self.parameters(), *self.sizes()]
        given = list(parameters)
        if kernel.can_fail:
            parameters.append(("st_device_failure *", RECORD))
        for comment in self.comments():
            w.line("// " + safe_comment(comment))
        head = ", ".join(f"{type}{parameter}" for type, parameter in parameters)
        with w.block(f'extern "C" __global__ void __launch_bounds__({kernel.threads}) {name}({head})'):
            start = len(w.lines)
            for number in sorted(self.on_device):
                parameter = kernel.parameters[number]
                value = self.names.fresh(parameter.name)
                w.line(f"const {parameter.dtype.c_name} {value} = {self.arguments[parameter.name]}[0];")
                self.arguments[parameter.name] = Name(value)
            for memory in kernel.memories:
                self.declare_memory(memory)
            self.body(kernel.body, ())
            self.close(start, parameters)
        return ThreadKernelText(
            name,
            device_names(str(w)),
            tuple(given),
            1,
            snippets=frozenset(self.snippets),
            can_fail=kernel.can_fail,
            kernel=kernel,
            on_device=self.on_device,
        )

    def parameters(self) -> Iterator[tuple[str, str]]:
        """(C type, name) of the arrays and numbers."""
        for number, parameter in enumerate(self.kernel.parameters):
            name, c_type = self.names.fresh(parameter.name), parameter.dtype.c_name
            if parameter.is_array:
                self.arrays[parameter.name] = Name(name)
                yield f"{c_type} *" if parameter.written else f"const {c_type} *", name
            elif number in self.on_device:
                self.names.used.discard(name)
                place = self.names.fresh(f"{parameter.name}_place")
                self.arguments[parameter.name] = Name(place)
                yield f"const {c_type} *", place
            else:
                self.arguments[parameter.name] = Name(name)
                yield f"{c_type} ", name

    def sizes(self) -> Iterator[tuple[str, str]]:
        for hint in self.kernel.extents:
            name = self.names.fresh(hint)
            self.extents.append(Name(name))
            yield "int64_t ", name

    def comments(self) -> list[str]:
        """The Python line of the kernel, its blocks, and what its sizes are."""
        kernel = self.kernel
        where = kernel.where
        found = [f"{where.short}  {where.text}"] if where is not None else []
        sizes = []
        for number, name in enumerate(map(str, self.extents)):
            axes = [
                p.name if len(p.extents) == 1 else f"{p.name}.shape[{axis}]"
                for p in kernel.parameters
                for axis, extent in enumerate(p.extents)
                if extent == number
            ]
            sizes.append(f"{name} is the size of {', '.join(axes)}")
        blocks = " x ".join(map(str, kernel.block if kernel.block[2] > 1 else kernel.block[: 2 if kernel.block[1] > 1 else 1]))
        return [*found, "; ".join([f"blocks of {blocks} thread{'s' if kernel.threads > 1 else ''}", *sizes])]

    def declare_memory(self, memory: Memory) -> None:
        name = self.names.fresh(memory.name)
        self.arrays[memory.name] = Name(name)
        storage = "__shared__ " if memory.kind == "shared" else ""
        sizes = " * ".join(map(str, memory.shape))
        self.w.line(f"{storage}{memory.dtype.c_name} {name}[{sizes}];")

    def close(self, start: int, parameters: Sequence[tuple[str, str]]) -> None:
        """Say which parameters and arrays nobody uses: compilers warn of the others."""
        lines = self.w.lines
        text = "\n".join(line for line in lines[start:] if not line.lstrip().startswith("//"))
        named = [(name, 1) for _, name in parameters]
        named += [(str(self.arrays[memory.name]), 2) for memory in self.kernel.memories]
        unused = [name for name, count in named if len(re.findall(rf"\b{name}\b", text)) < count]
        at = start + len(self.on_device) + len(self.kernel.memories)
        lines[at:at] = [f"    (void){name};" for name in unused]

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
            type = self.type_of(name)
            self.w.line(f"{type} {self.c_name(name)};")
            self.declared.add(name)

    def type_of(self, name: str) -> str:
        for statement in walk_statements(self.kernel.body):
            if isinstance(statement, Assign | For) and statement.target.name == name:
                return statement.target.type.dtype.c_name
        raise AssertionError(f"nothing assigns `{name}`")

    # ---- statements ----

    def body(self, body: Sequence[Statement], path: tuple[int, ...]) -> None:
        for number, statement in enumerate(body):
            self.declare_before(body, number, path)
            self.comment(statement)
            self.statement(statement, (*path, number))

    def comment(self, statement: Statement) -> None:
        """The Python line, once."""
        where = statement.where
        if where is None or self.last is not None and (self.last.file, self.last.line) == (where.file, where.line):
            return
        self.last = where
        self.w.comment(f"{where.short}  {where.text}")

    def statement(self, s: Statement, here: tuple[int, ...]) -> None:
        w = self.w
        match s:
            case Assign():
                self.assign(s)
            case Store():
                self.store(s)
            case Do():
                self.w.statement(f"{self.expr(s.value)};")
            case If():
                self.branch(s, here)
            case While():
                with w.block(f"while ({self.expr(s.condition)})"):
                    self.body(s.body, (*here, 0))
            case For():
                self.loop(s, here)
            case Leave():
                w.line(f"{s.kind};")
            case Barrier():
                w.line("__syncthreads();")

    def assign(self, s: Assign) -> None:
        name, uses = s.target.name, self.uses[s.target.name]
        value, target = self.expr(s.value), Name(self.c_name(name))
        if isinstance(value, Cast) and isinstance(value.operand, Member):
            value = value.operand  # what C converts anyway
        if name in self.declared:
            self.change(target, value)
            return
        self.declared.add(name)
        c_type = s.target.type.dtype.c_name
        self.w.statement(f"{'const ' if uses.assigned == 1 else ''}{c_type} {target} = {value};")
        if not uses.read:
            self.w.line(f"(void){target};")

    def change(self, target: Expr, value: Expr) -> None:
        match value:
            case Infix(op, left, right) if op in "+-*/" and str(left) == str(target):
                self.w.statement(f"{target} {op}= {right};")
            case _:
                self.w.statement(f"{target} = {value};")

    def store(self, s: Store) -> None:
        array = self.arrays[s.target.array]
        if not any(s.target.checked):
            target = Index(array, self.place(s.target))
            self.changing = (s.target, target)
            self.change(target, self.expr(s.value))
            self.changing = None
            return
        at, given = Name(self.names.fresh("place")), Name(self.names.fresh("value"))
        # The other lanes wait for this one at a shuffle, and atomic operations happen, whatever the index is.
        acts = any(isinstance(node, Shuffle | Atomic) for node in walk(s.value))
        with self.w.block(""):
            if acts:
                self.w.statement(f"const {s.target.type.dtype.c_name} {given} = {self.expr(s.value)};")
            self.w.statement(f"const int64_t {at} = {self.place(s.target)};")
            with self.w.block(f"if ({at} >= 0)"):
                target = Index(array, at)
                self.changing = (s.target, target)
                self.change(target, given if acts else self.expr(s.value))
                self.changing = None
        self.names.used -= {at.text, given.text}

    def branch(self, s: If, here: tuple[int, ...]) -> None:
        w = self.w
        condition = self.expr(s.condition)
        then, other = s.then, s.other
        w.line(f"if ({condition}) {{")
        self.indented(then, (*here, 0))
        if other:
            w.line("} else {")
            self.indented(other, (*here, 1))
        w.line("}")

    def indented(self, body: Sequence[Statement], path: tuple[int, ...]) -> None:
        self.w.depth += 1
        self.body(body, path)
        self.w.depth -= 1

    def loop(self, s: For, here: tuple[int, ...]) -> None:
        changed = {each.target.name for each in walk_statements(s.body) if isinstance(each, Assign | For)}
        start = self.expr(s.start)
        stop, step = (self.settled(bound, changed, hint) for bound, hint in ((s.stop, "stop"), (s.step, "step")))
        if s.owns:
            counter = self.c_name(s.target.name)
        else:
            counter = self.names.fresh(f"{s.target.name}_turn")
        if isinstance(start, Cast) and isinstance(start.operand, Member):
            start = start.operand
        relation = ">" if s.goes_down else "<"
        onwards = {"1": f"++{counter}", "-1": f"--{counter}"}.get(str(step), f"{counter} += {step}")
        with self.w.block(f"for (int64_t {counter} = {start}; {counter} {relation} {stop}; {onwards})"):
            if not s.owns:
                value: Expr = Name(counter)
                dtype = s.target.type.dtype
                if dtype.name != "i64":
                    value = Cast(dtype.c_name, value)
                self.w.line(f"{self.c_name(s.target.name)} = {value};")
            self.body(s.body, (*here, 0))

    def settled(self, bound: Expression, changed: set[str], hint: str) -> Expr:
        """A bound of a loop, which C computes in every turn: by name if that is work, or its value may change."""
        simple = isinstance(bound, Const | Extent | Builtin | Argument)
        if simple or isinstance(bound, Local) and bound.name not in changed:
            return self.expr(bound)
        name = self.names.fresh(hint)
        self.w.line(f"const int64_t {name} = {self.expr(bound)};")
        return Name(name)

