"""Statements of a kernel, and the kernel as a whole."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from staged.errors import StagedError, StagingError
from staged.frontend.constructs.iterables import range_
from staged.frontend.gpu_func import names
from staged.frontend.gpu_func.arithmetic import as_expression, is_expression, is_number
from staged.frontend.gpu_func.assumptions import Assumptions, RefutedError
from staged.frontend.gpu_func.expressions import Expressions, static_dtype
from staged.frontend.gpu_func.ranges import Facts
from staged.frontend.gpu_func.source import Source, assignments, loop_bindings
from staged.ir.ranges import Range
from staged.ir.thread_kernel import (
    INDEX,
    Assign,
    Atomic,
    Barrier,
    Const,
    Do,
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
    nodes_of,
    walk,
)
from staged.source import position_of_function

SHARED_BYTES = 48 << 10
"""Shared memory that every GPU gives a block without being asked."""
LOCAL_BYTES = 16 << 10
"""Memory of a thread's own: more is not what registers and caches are for."""
_HINTS: dict[type[ast.stmt], str] = {
    ast.With: "a kernel has no contexts",
    ast.Assert: "write a flag into an array, and look at it after the launch",
    ast.Raise: "write a flag into an array, and look at it after the launch",
    ast.Try: "nothing raises in a kernel",
    ast.FunctionDef: "write what it does where it is called",
    ast.ClassDef: "a kernel works with numbers",
    ast.Global: "pass the value as an argument, or write it into an array",
    ast.Nonlocal: "pass the value as an argument, or write it into an array",
    ast.Delete: "a name may get another value of its type",
    ast.Import: "import it outside of the kernel",
    ast.ImportFrom: "import it outside of the kernel",
    ast.Match: "write `if` and `elif`",
    ast.AnnAssign: "the type of a variable is that of what it gets: `count = st.astype(0, st.i32)`",
}


def translate(
    source: Source,
    parameters: Sequence[Parameter],
    extents: Sequence[str],
    block: tuple[int, int, int],
    checked: bool = True,
) -> ThreadKernel:
    """The kernel for parameters of these types, `extents` names for the sizes of their axes, and blocks of that size.
    With `checked` an index that may be out of range is checked.

    Raises: StagingError and its kind, at the user's line, for what a kernel cannot have; errors of types as for arrays.
    """
    assumed = Assumptions()
    while True:
        try:
            return _Statements(source, parameters, block, assumed, checked).kernel(extents)
        except RefutedError:
            continue


class _Statements(Expressions):
    def __init__(
        self,
        source: Source,
        parameters: Sequence[Parameter],
        block: tuple[int, int, int],
        assumed: Assumptions,
        checked: bool,
    ) -> None:
        super().__init__(source, parameters, block, checked)
        self.assumed = assumed
        self.types = assumed.types
        self.ranges: dict[str, Range] = {}
        self.facts = Facts(block, self.ranges)
        self.out: list[Statement] = []
        self.loops: list[set[str] | None] = []
        """For each loop around: the variables that are bound wherever it is broken out of."""
        self.broken: list[bool] = []
        self.depth = 0
        """The number of enclosing branches and loops."""
        self.own_loops = {
            name for name, count in loop_bindings(source.node).items() if source.assigned[name] == count
        } - _nested(source.node)

    def kernel(self, extents: Sequence[str]) -> ThreadKernel:
        body = self.body(self.source.node.body)
        made = tuple(replace(p, written=p.name in self.written) for p in self.parameters.values())
        kernel = ThreadKernel(
            self.source.name, made, tuple(extents), tuple(self.memories.values()), body, self.block,
            position_of_function(self.source.function),
        )  # fmt: skip
        node = self.source.node
        if not self.written:
            self.source.refuse(
                node, f"`{kernel.name}` writes no array", "what a kernel does is what it writes: `out[i] = ...`"
            )
        local_bytes = sum(m.size * m.dtype.size for m in kernel.memories if m.kind == "local")
        for what, nbytes, most in (
            ("shared memory", kernel.shared_bytes, SHARED_BYTES),
            ("local memory", local_bytes, LOCAL_BYTES),
        ):
            if nbytes > most:
                self.source.refuse(node, f"`{kernel.name}` asks for {nbytes:,} bytes of {what}, and there are {most:,}")
        return kernel

    # ---- bodies ----

    def body(self, nodes: Sequence[ast.stmt]) -> tuple[Statement, ...]:
        """The statements of a body; what comes after one that always leaves is never run."""
        outer, self.out = self.out, []
        for node in nodes:
            if self.assigned is None:
                break
            self.statement(node)
        made, self.out = tuple(self.out), outer
        return made

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign(targets=[target], value=value):
                self.assign_to(target, value)
            case ast.Assign():
                self.source.refuse(node, "several targets in a kernel", "write one assignment after the other")
            case ast.AugAssign():
                self.augment(node)
            case ast.Expr():
                self.expression_statement(node)
            case ast.If():
                self.branch(node)
            case ast.While():
                self.while_loop(node)
            case ast.For():
                self.for_loop(node)
            case ast.Break() | ast.Continue():
                self.leave_loop(node)
            case ast.Return():
                if node.value is not None and not (isinstance(node.value, ast.Constant) and node.value.value is None):
                    self.source.refuse(
                        node, "a kernel returns nothing", "write the result into an array: `out[i] = ...`"
                    )
                self.out.append(Leave("return", self.source.where(node)))
                self.assigned = None
            case ast.Pass():
                pass
            case _:
                word = type(node).__name__.lower()
                self.source.refuse(node, f"the statement `{word}` in a kernel", _HINTS.get(type(node)))

    def append(self, statement: Statement) -> None:
        """One more statement. Of several atomic operations in one, C would not say which is first."""
        if sum(isinstance(node, Atomic) for node in nodes_of(statement)) > 1:
            raise self.error(statement, "several atomic operations in one statement", "give their results names")
        self.out.append(statement)

    def error(self, at: Any, message: str, hint: str) -> StagedError:
        return StagingError(message, where=at.where, hint=hint)

    # ---- assignments ----

    def assign_to(self, target: ast.expr, value: ast.expr) -> None:
        match target:
            case ast.Name():
                self.assign(target, self.memory(target, value) or self.evaluate(value))
            case ast.Subscript():
                self.store(target, value)
            case ast.Tuple(elts=targets):
                self.unpack(targets, value)
            case _:
                self.source.refuse(target, f"`{ast.unparse(target)}` cannot be assigned to in a kernel")

    def memory(self, target: ast.Name, value: ast.expr) -> Memory | None:
        """The array of a `cuda.shared(...)` or `cuda.local(...)`."""
        if not isinstance(value, ast.Call):
            return None
        function = self.evaluate(value.func)
        if function is not names.shared and function is not names.local:
            return None
        kind: Literal["shared", "local"] = "shared" if function is names.shared else "local"
        if len(value.args) + len(value.keywords) != 2 or not {k.arg for k in value.keywords} <= {"shape", "dtype"}:
            self.source.refuse(value, f"`cuda.{kind}` takes a shape and a dtype", f"`cuda.{kind}((32, 33), st.f32)`")
        given = dict(zip(("shape", "dtype"), map(self.evaluate, value.args), strict=False))
        given |= {str(keyword.arg): self.evaluate(keyword.value) for keyword in value.keywords}
        shape = given["shape"] if isinstance(given["shape"], tuple) else (given["shape"],)
        shape = tuple(self.known_size(size) for size in shape)
        if not shape or not all(isinstance(size, int) and not isinstance(size, bool) and size > 0 for size in shape):
            self.source.refuse(
                value,
                f"the shape of {kind} memory is known while staging",
                "numbers from outside of the kernel, and `cuda.block_size.x`",
            )
        dtype = static_dtype(given["dtype"])
        if dtype is None:
            self.source.refuse(value, f"`cuda.{kind}` takes a dtype, got {given['dtype']!r}", "`st.f32`, or `x.dtype`")
        if self.source.assigned[target.id] > 1 or self.depth:
            self.source.refuse(
                target, f"`{target.id}` is an array of the kernel: it is made once, outside of branches and loops"
            )
        made = self.memories[target.id] = Memory(target.id, kind, dtype, shape)
        return made

    def known_size(self, size: Any) -> Any:
        """A size that a launch fixes as the number that it is."""
        if is_expression(size):
            span = self.facts.range(size)
            return span[0] if span is not None and span[0] == span[1] else size
        return size

    def assign(self, target: ast.Name, value: Any) -> None:
        name = target.id
        if name in self.parameters:
            is_array = self.parameters[name].is_array
            self.source.refuse(
                target,
                f"`{name}` is a parameter of the kernel",
                f"write its elements: `{name}[i] = ...`" if is_array else "give the new value another name",
            )
        assert self.assigned is not None
        once = self.source.assigned[name] == 1
        if (
            once
            and not is_expression(value)
            and (is_number(value) or isinstance(value, Memory | tuple) or static_dtype(value))
        ):
            if isinstance(value, tuple) and any(is_expression(item) and not isinstance(item, Extent) for item in value):
                self.source.refuse(
                    target, f"`{name}` is a tuple of numbers that are not known while staging", "give each a name"
                )
            self.static[name] = value
            self.assigned.add(name)
            return
        self.check_number(target, value)
        given = as_expression(value)
        type = self.assumed.joined(target.id, given.type, self.source.where(target))
        if given.type != type:
            given = self.convert(target, given, type.dtype, type.weak)
        self.append(Assign(Local(name, type), given, self.source.where(target)))
        self.bound(name, given, once)

    def bound(self, name: str, value: Expression, once: bool) -> None:
        """A variable has a value from here on."""
        assert self.assigned is not None
        self.assigned.add(name)
        type = value.type
        span = self.facts.range(value) if type.dtype.is_integer else None
        self.facts.forget(name)
        if span is not None and once:
            self.ranges[name] = span
            if isinstance(value, Extent):
                self.facts.aliases[name] = value
        elif span is not None:
            self.ranges[name] = self.assumed.hold(name, span, type.dtype)

    def unpack(self, targets: Sequence[ast.expr], value: ast.expr) -> None:
        given = self.evaluate(value)
        if not isinstance(given, tuple) or len(given) != len(targets):
            self.source.refuse(value, f"{len(targets)} names for `{ast.unparse(value)}`", "as many values as names")
        if not all(isinstance(target, ast.Name) for target in targets):
            self.source.refuse(targets[0], "elements among several targets", "write one assignment after the other")
        found = [target for target in targets if isinstance(target, ast.Name)]
        later: list[Any] = []
        for number, item in enumerate(given):
            # What an earlier target changes is read before.
            if is_expression(item) and any(
                isinstance(part, Local) and part.name in [t.id for t in found[:number]] for part in walk(item)
            ):
                kept = Local(self.unused(f"{found[number].id}_next"), item.type)
                self.append(Assign(kept, item, self.source.where(value)))
                item = kept
            later.append(item)
        for target, item in zip(found, later, strict=True):
            self.assign(target, item)

    def unused(self, name: str) -> str:
        """A name that the kernel does not have."""
        while name in self.parameters or self.source.assigned[name]:
            name += "_"
        return name

    def store(self, target: ast.Subscript, value: ast.expr) -> None:
        array = self.evaluate(target.value)
        if not isinstance(array, Parameter | Memory):
            self.source.refuse(target, f"`{ast.unparse(target)}` is no element of an array")
        given = self.fitted(value, self.number(value), array.dtype, f"`{array.name}`")
        element = self.element(target, array)
        self.write(target, array)
        self.append(Store(element, given, self.source.where(target)))

    def augment(self, node: ast.AugAssign) -> None:
        """`x += v`, of a variable or an element."""
        where = node.target
        read: ast.expr = ast.copy_location(_as_read(where), where)
        value = ast.copy_location(ast.BinOp(read, node.op, node.value), node)
        if isinstance(where, ast.Subscript):
            element = self.evaluate(read)
            if is_expression(element) and any(isinstance(part, Atomic | Shuffle) for part in walk(element)):
                self.source.refuse(
                    node, "an index that does something, in an element that is changed", "give the index a name first"
                )
        self.assign_to(where, value)

    def expression_statement(self, node: ast.Expr) -> None:
        value = node.value
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return  # a docstring
        if isinstance(value, ast.Call):
            function = self.evaluate(value.func)
            if function is names.syncthreads:
                self.out.append(Barrier(self.source.where(node)))
                return
            if function is print:
                self.source.refuse(
                    node, "`print` in a kernel", "write the value into an array, and print it after the launch"
                )
        made = self.evaluate(value)
        if not isinstance(made, Atomic):
            self.source.refuse(node, f"`{ast.unparse(value)}` does nothing", "a kernel does what it writes")
        self.append(Do(made, self.source.where(node)))

    # ---- control flow ----

    def plain_condition(self, node: ast.expr) -> Any:
        """A condition; lanes that do not go the same way could not meet at a shuffle in it."""
        value = self.condition(node)
        if is_expression(value) and any(isinstance(part, Shuffle) for part in walk(value)):
            self.source.refuse(node, "a shuffle in a condition", "give its result a name first")
        return value

    def branch(self, node: ast.If) -> None:
        condition = self.plain_condition(node.test)
        if isinstance(condition, bool):
            for chosen in node.body if condition else node.orelse:
                if self.assigned is not None:
                    self.statement(chosen)
            return
        self.depth += 1
        before = set(self.assigned or ())
        mark = self.facts.mark()
        self.facts.learn(condition, True)
        then = self.body(node.body)
        after_then, known_then = self.assigned, self.facts.mark()
        self.assigned = set(before)
        self.facts.back(mark)
        self.facts.learn(condition, False)
        other = self.body(node.orelse)
        after_other, known_other = self.assigned, self.facts.mark()
        self.depth -= 1
        # What holds on every way that goes on from here.
        ways = [known for bound, known in ((after_then, known_then), (after_other, known_other)) if bound is not None]
        if ways:
            self.facts.back(
                (frozenset.intersection(*(w[0] for w in ways)), frozenset.intersection(*(w[1] for w in ways)))
            )
        self.assigned = (
            after_other if after_then is None else after_then if after_other is None else after_then & after_other
        )
        self.append(If(condition, then, other, self.source.where(node.test)))

    def enter_loop(self, node: ast.While | ast.For) -> None:
        """Forget the facts about variables that the body changes."""
        if node.orelse:
            self.source.refuse(node, "`else` of a loop in a kernel", "use a flag")
        for name in sorted(assignments(node)):
            self.facts.forget(name)
        self.depth += 1

    def loop_body(self, node: ast.While | ast.For) -> tuple[tuple[Statement, ...], set[str] | None, bool]:
        """The body, the variables that are bound where it is broken out of, and whether it is."""
        self.loops.append(None)
        self.broken.append(False)
        body = self.body(node.body)
        self.depth -= 1
        return body, self.loops.pop(), self.broken.pop()

    def after_loop(self, node: ast.While | ast.For, before: set[str], mark: Any) -> None:
        self.assigned = before
        self.facts.back(mark)
        for name in sorted(assignments(node)):
            self.facts.forget(name)

    def while_loop(self, node: ast.While) -> None:
        self.enter_loop(node)
        condition = self.plain_condition(node.test)
        before, mark = set(self.assigned or ()), self.facts.mark()
        if condition is False:
            self.depth -= 1
            return
        self.facts.learn(as_expression(condition), True)
        body, bound, broken = self.loop_body(node)
        self.after_loop(node, before, mark)
        if condition is True:
            # It is left by a break alone.
            self.assigned = bound if broken else None
        elif not broken:
            self.facts.learn(condition, False)
        self.append(While(as_expression(condition), body, self.source.where(node.test)))

    def for_loop(self, node: ast.For) -> None:
        target, iterable = node.target, node.iter
        function = self.evaluate(iterable.func) if isinstance(iterable, ast.Call) else None
        if function is not range and function is not range_:
            self.source.refuse(
                iterable,
                f"a loop over `{ast.unparse(iterable)}` in a kernel",
                "`for i in range(...)`, with `x[i]` in the loop",
            )
        if not isinstance(target, ast.Name):
            self.source.refuse(target, f"`{ast.unparse(target)}` cannot count a loop", "`for i in range(...)`")
        assert isinstance(iterable, ast.Call)
        if not 1 <= len(iterable.args) <= 3 or iterable.keywords:
            self.source.refuse(iterable, "`range` takes one to three integers")
        bounds = [self.integer(bound) for bound in iterable.args]
        for bound in bounds:
            if any(isinstance(part, Shuffle) for part in walk(bound)):
                self.source.refuse(iterable, "a shuffle in the bounds of a loop", "give its result a name first")
        zero, one = Const(0, INDEX), Const(1, INDEX)
        start, stop, step = {1: (zero, *bounds, one), 2: (*bounds, one), 3: tuple(bounds)}[len(bounds)]
        by = self.facts.range(step)
        if by is None or by[0] <= 0 <= by[1]:
            self.source.refuse(
                iterable.args[2], f"`{ast.unparse(iterable.args[2])}` may be positive or negative",
                "the step of a range is certainly one of them; else write a `while` loop",
            )  # fmt: skip
        down = by[1] < 0
        first, last = self.facts.range(start), self.facts.range(stop)
        name = target.id
        owns = name in self.own_loops
        before, mark = set(self.assigned or ()), self.facts.mark()
        self.enter_loop(node)
        type = self.assumed.joined(name, INDEX, self.source.where(target))
        assert self.assigned is not None
        self.assigned.add(name)
        assert first is not None and last is not None, "the bounds of a loop are integers"
        span = (last[0] + 1, first[1]) if down else (first[0], last[1] - 1)
        if span[0] > span[1]:
            span = first  # no iteration at all
        self.ranges[name] = span if owns else self.assumed.hold(name, span, type.dtype)
        counter = Local(name, type)
        if type == INDEX:
            relation = (stop, counter) if down else (counter, self.facts.canonical(stop))
            changed = assignments(node)
            if not any(isinstance(part, Local) and changed[part.name] for part in walk(stop)):
                self.facts.less |= {relation}
        body, _, _ = self.loop_body(node)
        self.after_loop(node, before, mark)
        self.append(For(counter, start, stop, step, body, owns and type == INDEX, down, self.source.where(iterable)))

    def leave_loop(self, node: ast.Break | ast.Continue) -> None:
        kind: Literal["break", "continue"] = "break" if isinstance(node, ast.Break) else "continue"
        if kind == "break":
            assert self.assigned is not None
            bound = self.loops[-1]
            self.loops[-1] = set(self.assigned) if not self.broken[-1] or bound is None else bound & self.assigned
            self.broken[-1] = True
        self.out.append(Leave(kind, self.source.where(node)))
        self.assigned = None


def _as_read(target: ast.expr) -> ast.expr:
    if isinstance(target, ast.Name):
        return ast.Name(target.id, ast.Load())
    if isinstance(target, ast.Subscript):
        return ast.copy_location(ast.Subscript(target.value, target.slice, ast.Load()), target)
    return target


def _nested(node: ast.AST) -> set[str]:
    """Names that count a loop inside of a loop that they count."""
    found: set[str] = set()
    for part in ast.walk(node):
        if isinstance(part, ast.For) and isinstance(part.target, ast.Name):
            found |= {part.target.id} & {name for inner in part.body for name in loop_bindings(inner)}
    return found
