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
from dataclasses import dataclass, field, replace

from staged.backends.c_family.expr import Call, Cast, Expr, Index, Infix, Literal, Member, Name, Prefix, literal
from staged.backends.c_family.loops import wrapped
from staged.backends.c_family.scalars import narrow
from staged.backends.c_family.writer import INDENT, Names, Writer, safe_comment
from staged.backends.cublas_cudnn.failures import RECORD
from staged.backends.cublas_cudnn.kernel_text import CudaKernel
from staged.backends.cublas_cudnn.kernels import CUDA_WORDS, Site
from staged.backends.cublas_cudnn.spelling import device_names, spell_in_cuda
from staged.ir.nodes import Op
from staged.ir.thread_kernel import (
    AXES,
    Argument,
    Assign,
    Atomic,
    Barrier,
    Builtin,
    Compute,
    Const,
    Do,
    Element,
    Expression,
    Extent,
    For,
    If,
    Leave,
    Local,
    Memory,
    Parameter,
    Shuffle,
    Statement,
    Store,
    ThreadKernel,
    While,
    bodies_of,
    nodes_of,
    walk,
    walk_statements,
)
from staged.source import Position

DIM3 = """\
static dim3 st_dim3_of(unsigned int x, unsigned int y, unsigned int z) {
    dim3 size;
    size.x = x;
    size.y = y;
    size.z = z;
    return size;
}
"""
_PLACES = {"thread_index": "threadIdx", "block_index": "blockIdx", "block_size": "blockDim", "grid_size": "gridDim"}
_SYMBOLS = {
    "add": "+", "subtract": "-", "multiply": "*", "floor_divide": "/", "remainder": "%",
    "bitwise_left_shift": "<<", "bitwise_right_shift": ">>",
}  # fmt: skip
_SHUFFLES = {"idx": "__shfl_sync", "up": "__shfl_up_sync", "down": "__shfl_down_sync", "xor": "__shfl_xor_sync"}
_RESERVED = frozenset(
    "atomicAdd atomicMin atomicMax int64_t uint64_t asm template class new delete this operator private public".split()
)


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
            name = self.names.fresh(f"{kernel.name}_kernel")
            self.known[key] = _Emitter(kernel, on_device, self.site).text(name)
        made = self.known[key]
        return replace(made, may_alias=tuple(enumerate(kernel.written)))


def thread_launcher(made: CudaKernel, name: str) -> str:
    """The host function `name(gpu, grid, block, arguments of the kernel)`; it gives CUDA's error."""
    w = Writer()
    parameters = [f"{type}{parameter}" for type, parameter in made.parameters]
    head = ", ".join(["const Device *gpu", "dim3 grid", "dim3 block", *parameters])
    with w.block(wrapped(f"static cudaError_t {name}({head})")):
        given = [parameter for _, parameter in made.parameters] + ([f"gpu->{RECORD}"] if made.can_fail else [])
        w.text(wrapped(f"void *values[] = {{{', '.join(f'(void *)&{value}' for value in given)}}};"))
        w.line(f"return cudaLaunchKernel(KERNEL({made.name}), grid, block, values, 0, gpu->stream);")
    return str(w)


def launch_arguments(op: Op, inputs: Sequence[Expr], outputs: Sequence[Expr]) -> list[str]:
    """The arguments of a launch: grid, block, what the kernel takes with results in the place of what it writes, sizes."""
    kernel: ThreadKernel = op.attrs["kernel"]
    given = list(map(str, inputs))
    for number, output in zip(kernel.written, outputs, strict=True):
        given[number] = str(output)
    sizes = kernel.extent_values([_shape(op, number) for number in range(len(given))])
    dims = [f"st_dim3_of({', '.join(map(str, size))})" for size in (op.attrs["grid"], kernel.block)]
    return [*dims, *given, *map(str, sizes)]


def _shape(op: Op, number: int) -> tuple[int, ...]:
    parameter: Parameter = op.attrs["kernel"].parameters[number]
    shape = op.operands[number].tensor.shape if parameter.is_array else ()
    return tuple(extent for extent in shape if isinstance(extent, int))


@dataclass
class _Uses:
    """Where a variable is used: the paths of its statements, and how often it is assigned."""

    paths: list[tuple[int, ...]] = field(default_factory=list)
    assigned: int = 0
    read: bool = False


class _Emitter:
    def __init__(self, kernel: ThreadKernel, on_device: frozenset[int], site: Site) -> None:
        self.kernel = kernel
        self.on_device = on_device
        self.site = site
        self.names = Names()
        self.names.used |= CUDA_WORDS | _RESERVED | {RECORD}
        self.snippets: set[str] = set()
        self.w = Writer()
        self.arrays: dict[str, Expr] = {}
        self.arguments: dict[str, Expr] = {}
        self.extents: list[Expr] = []
        self.locals: dict[str, str] = {}
        self.declared: set[str] = set()
        self.last: Position | None = None
        self.counters = {
            each.target.name for each in walk_statements(kernel.body) if isinstance(each, For) and each.owns
        }
        """The variables that their loops declare."""
        self.uses: dict[str, _Uses] = {}
        self.changing: tuple[Element, Expr] | None = None
        """The element that is being changed, and its text."""

    def need(self, *snippets: str) -> None:
        self.snippets.update(snippets)

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
        with w.block(wrapped(f'extern "C" __global__ void __launch_bounds__({kernel.threads}) {name}({head})')):
            start = len(w.lines)
            for number in sorted(self.on_device):
                parameter = kernel.parameters[number]
                value = self.names.fresh(parameter.name)
                w.line(f"const {parameter.dtype.c_name} {value} = {self.arguments[parameter.name]}[0];")
                self.arguments[parameter.name] = Name(value)
            for memory in kernel.memories:
                self.declare_memory(memory)
            self.find_uses(kernel.body, ())
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

    def find_uses(self, body: Sequence[Statement], path: tuple[int, ...]) -> None:
        """Where each variable is read and assigned, but for those that loops declare."""
        for number, statement in enumerate(body):
            here = (*path, number)
            for node in nodes_of(statement):
                if isinstance(node, Local) and node.name not in self.counters:
                    self.uses.setdefault(node.name, _Uses()).paths.append(here)
            if isinstance(statement, Assign | For) and statement.target.name not in self.counters:
                self.uses[statement.target.name].assigned += 1
            for name in self.read_in(statement):
                if name not in self.counters:
                    self.uses[name].read = True
            for inner, inside in enumerate(bodies_of(statement)):
                self.find_uses(inside, (*here, inner))

    def read_in(self, statement: Statement) -> list[str]:
        """The variables that a statement reads, not its bodies."""
        nodes = list(nodes_of(statement))
        if isinstance(statement, Assign | For):
            nodes = nodes[1:]  # the target
        return [node.name for node in nodes if isinstance(node, Local)]

    def home(self, uses: _Uses) -> tuple[int, ...]:
        """The innermost body around all uses of a variable, as a path."""
        first, last = min(uses.paths), max(uses.paths)
        common = 0
        while common < min(len(first), len(last)) and first[common] == last[common]:
            common += 1
        # A body's path has an even length: statement, body, statement, body, ...
        return first[: min(common, len(first) - 1) // 2 * 2]

    def c_name(self, name: str) -> str:
        if name not in self.locals:
            self.locals[name] = self.names.fresh(name)
        return self.locals[name]

    def declare_before(self, body: Sequence[Statement], number: int, path: tuple[int, ...]) -> None:
        """Declarations of the variables that live in this body and are first used inside of its next statement."""
        here = (*path, number)
        for name, uses in self.uses.items():
            if name in self.declared or self.home(uses) != path or min(uses.paths)[: len(here)] != here:
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
                self.line(f"{self.expr(s.value)};")
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
        self.line(f"{'const ' if uses.assigned == 1 else ''}{c_type} {target} = {value};")
        if not uses.read:
            self.w.line(f"(void){target};")

    def line(self, text: str) -> None:
        """A statement, broken after commas where it is long."""
        self.w.text(wrapped(text, 116 - len(INDENT) * self.w.depth))

    def change(self, target: Expr, value: Expr) -> None:
        match value:
            case Infix(op, left, right) if op in "+-*/" and str(left) == str(target):
                self.line(f"{target} {op}= {right};")
            case _:
                self.line(f"{target} = {value};")

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
                self.line(f"const {s.target.type.dtype.c_name} {given} = {self.expr(s.value)};")
            self.line(f"const int64_t {at} = {self.place(s.target)};")
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

    # ---- expressions ----

    def expr(self, e: Expression) -> Expr:
        match e:
            case Const():
                return literal(e.value, e.type.dtype)
            case Local():
                return Name(self.c_name(e.name))
            case Argument():
                return self.arguments[e.name]
            case Extent():
                return self.extents[e.number]
            case Builtin():
                return Cast("int64_t", Member(Name(_PLACES[e.name]), AXES[e.axis], arrow=False))
            case Compute():
                return self.compute(e)
            case Element():
                return self.element(e)
            case Shuffle():
                lane = self.expr(e.lane)
                c_type = "int" if e.kind in ("idx", "xor") else "unsigned int"
                given = lane if isinstance(lane, Literal) else Cast(c_type, lane)
                return Call(_SHUFFLES[e.kind], (Literal("0xffffffffu"), self.expr(e.value), given))
            case Atomic():
                return self.atomic(e)

    def compute(self, e: Compute) -> Expr:
        operands = [self.expr(operand) for operand in e.operands]
        dtype = e.type.dtype
        if e.exact and e.op in _SYMBOLS:
            return narrow(_arithmetic(_SYMBOLS[e.op], operands[0], operands[1]), dtype)
        if e.exact and e.op == "negative":
            return narrow(Prefix("-", operands[0]), dtype)
        if e.checked:
            self.need(f"checked_{e.op}_{dtype}")
            site = Literal(str(self.site(e.where)))
            return Call(f"st_checked_{e.op}_{dtype}", (Name(RECORD), site, *operands))
        dtypes = [operand.type.dtype for operand in e.operands]
        return spell_in_cuda(e.op, dtypes, dtype, operands, e.attributes(), self.need)

    def element(self, e: Element) -> Expr:
        if self.changing is not None and self.changing[0] == e:
            return self.changing[1]
        if not any(e.checked):
            return Index(self.arrays[e.array], self.place(e))
        self.need(f"thread_read_{e.type.dtype}")
        return Call(f"st_thread_read_{e.type.dtype}", (self.arrays[e.array], self.place(e)))

    def atomic(self, e: Atomic) -> Expr:
        array, dtype = self.arrays[e.target.array], e.type.dtype
        value = self.expr(e.value)
        if any(e.target.checked) or dtype.name == "i64":
            self.need(f"thread_atomic_{e.op}_{dtype}")
            return Call(f"st_thread_atomic_{e.op}_{dtype}", (array, self.place(e.target), value))
        return Call(f"atomic{e.op.capitalize()}", (Prefix("&", Index(array, self.place(e.target))), value))

    def place(self, e: Element) -> Expr:
        """The place of an element in its array, row by row; where an index is checked, -1 if there is none."""
        array = self.kernel.array_of(e.array)
        extents: list[Expr]
        if isinstance(array, Memory):
            extents = [Literal(str(extent)) for extent in array.shape]
        else:
            extents = [self.extents[number] for number in array.extents]
        place: Expr | None = None
        checked = False
        for index, extent, is_checked in zip(e.indices, extents, e.checked, strict=True):
            given = self.expr(index)
            if is_checked:
                self.need("thread_index")
                given = Call("st_thread_index", (Name(RECORD), Literal(str(self.site(e.where))), given, extent))
            checked = checked or is_checked
            if place is None:
                place = given
            elif checked:
                self.need("thread_place")
                place = Call("st_thread_place", (place, given, extent))
            else:
                place = _arithmetic("+", _arithmetic("*", place, extent), given)
        assert place is not None, "an array has an axis"
        return place


def _arithmetic(op: str, left: Expr, right: Expr) -> Expr:
    """`left op right` on int64_t; of two sides C converts the second by itself, where the first is no plain number."""
    if op in "+-*" and isinstance(right, Cast) and isinstance(right.operand, Member) and not isinstance(left, Literal):
        right = right.operand
    return Infix(op, left, right)
