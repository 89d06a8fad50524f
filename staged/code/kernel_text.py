"""The result of emitting a kernel: a C function, how to call it, and the comments above it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import gcd

from staged.code.expr import Expr, Items, Literal, Name, Prefix, call
from staged.code.extents import size_expr
from staged.code.ranges import Ranges
from staged.code.support.library import Snippet
from staged.code.support.team import Shared
from staged.code.tree import Function
from staged.ir.nodes import Op
from staged.ir.size_functions import substitute
from staged.ir.sizes import Dim, Extent, Size
from staged.ir.views import work_of
from staged.source import Position

Site = Callable[[Position | None], int]
"""The number under which the runtime finds the Python line of a failure."""


@dataclass(frozen=True, slots=True)
class Filled:
    """A struct of sizes that a program fills: `const st_product_f32 mean_product = st_sized_f32((...){T, 50}, tiles);`.

    `Dim("3")` in a size is argument 3 of the call.
    """

    name: str
    type: str
    function: str
    """The function that fills it, from a struct `given` with these sizes and flags, and from a table."""
    given: str
    sizes: tuple[Extent, ...]
    flags: tuple[bool, ...]
    table: str
    more: tuple[Extent, ...] = ()
    """Sizes that follow its address in the call of a kernel."""

    def value(self, arguments: Sequence[Expr]) -> Expr:
        """The call that fills it."""
        flags = (Name("true" if flag else "false") for flag in self.flags)
        return call(self.function, Items((*_sizes_of(self.sizes, arguments), *flags), self.given), Name(self.table))

    def passed(self, made: Expr, arguments: Sequence[Expr]) -> list[Expr]:
        """The arguments of a kernel: the address of the struct, and `more`."""
        return [Prefix("&", made), *_sizes_of(self.more, arguments)]

    def substituted(self, arguments: Mapping[Dim, Dim]) -> Filled:
        """With arguments of the call in place of dimensions."""
        sizes, more = (tuple(substitute(size, arguments) for size in each) for each in (self.sizes, self.more))
        return replace(self, sizes=sizes, more=more)


@dataclass(frozen=True, slots=True)
class KernelText:
    """One C function for one fused kernel or library node.

    It is called as `name(inputs..., outputs..., [&filled,] numbers..., [host,] [scratch,] [begin, end])`: inputs in the
    order of the op's operands (pointers, or values for scalars), outputs in the order of its results (always pointers).
    Inputs that are results, too (`in_place`), are not passed a second time, and `unused` ones not at all.
    `[begin, end)` is a range of its `items` independent work items, so that a thread team can share them out.
    """

    name: str
    text: str
    """The whole function (and the inline functions only it uses), with its comments; nothing if it is support."""
    parameters: tuple[tuple[str, str], ...]
    """(C type, name) in the order of the call."""
    items: int
    snippets: frozenset[str] = frozenset()
    """Support snippets that it uses."""
    scratch_bytes: int = 0
    """Workspace per thread; 0: it takes no `scratch` parameter."""
    can_fail: bool = False
    """True if it takes `st_host *host` and may stop the program."""
    chunk: int = 0
    """Work items per claim when threads share them; 0: not worth it (or not allowed), one thread does all."""
    may_alias: tuple[tuple[int, int], ...] = ()
    """(result, operand) pairs that may share a buffer: every element is read before it is written."""
    in_place: tuple[tuple[int, int], ...] = ()
    """(result, operand) pairs that are one array in all calls, and one parameter: that of the result."""
    unused: frozenset[int] = frozenset()
    """The numbers, among the other operands and the results, of those that are not passed."""
    items_size: Extent = 0
    """The number of work items if it is known at run time, in terms of arguments of the call: `Dim("3")` is argument 3;
    `items` is a bound."""
    has_range: bool = True
    """False if it has no parameters for a range, since its work is one item."""
    support: tuple[Snippet, ...] = ()
    """Functions that kernels share and the registry of snippets does not have: once per program."""
    link: tuple[str, ...] = ()
    """Linker flags for a library that it calls."""
    filled: Filled | None = field(default=None, compare=False)
    """The struct of sizes whose address follows the outputs of a call."""
    numbers: tuple[Literal, ...] = ()
    """Arguments after the outputs of a call, if the function serves kernels that differ in them."""
    code: Function | None = field(default=None, compare=False)
    """The tree of the function; None if it was not printed from a tree."""
    epilogue: Function | None = field(default=None, compare=False)
    """The tree of the inline function that finishes the tiles of a product."""
    column_step: int = 1
    """The columns of each of these tiles are a multiple of so many."""
    is_whole: bool = True
    """False if it calls the epilogue; else `code` has the statements."""
    functions: tuple[Snippet, ...] = ()
    """Functions that the program has once, before the first kernel that calls them."""
    shape: object = field(default=None, compare=False)
    """Equal for kernels whose texts differ only in comments and in the names that they declare."""

    @property
    def ranges(self) -> Ranges:
        """The ranges of its calls: all items, or a thread's share of these. Nothing is known of empty ones."""
        if isinstance(self.items_size, Size) or not self.items:
            return Ranges()
        return Ranges(gcd(self.items, self.chunk) if self.is_shared else self.items, self.items)

    @property
    def is_shared(self) -> bool:
        """Return whether a team shares its items if there is one."""
        return 0 < self.chunk < self.items

    @property
    def how(self) -> str:
        """The distribution of its items over parallel units, in words; empty if the schedule says all."""
        return ""

    @property
    def types(self) -> list[str]:
        """The types of its parameters."""
        return [type.replace("restrict", "").strip() for type, _ in self.parameters]

    @property
    def scratch_type(self) -> str:
        """The type of the parameter for scratch memory, which precedes the range of items."""
        return self.types[-3 if self.has_range else -1]

    @property
    def shared(self) -> Shared:
        """Its name and types, for a team."""
        has_scratch = self.scratch_bytes > 0
        return Shared(self.name, tuple(self.types[: -2 - has_scratch]), has_scratch)

    def passed(self, inputs: Sequence[Expr], outputs: Sequence[Expr]) -> list[Expr]:
        """The arrays and numbers of a call, each array that it overwrites once."""
        assert all(inputs[operand] == outputs[result] for result, operand in self.in_place), self.name
        again = {operand for _, operand in self.in_place}
        arguments = [*(each for number, each in enumerate(inputs) if number not in again), *outputs]
        return [each for number, each in enumerate(arguments) if number not in self.unused]

    def items_of(self, arguments: Sequence[Expr]) -> Expr:
        """The number of work items of a call."""
        (items,) = _sizes_of([self.items_size if isinstance(self.items_size, Size) else self.items], arguments)
        return items


def _sizes_of(extents: Iterable[Extent], arguments: Sequence[Expr]) -> list[Expr]:
    """Sizes in terms of the arguments of a call."""
    return [size_expr(each, lambda dim: arguments[int(dim.name)]) for each in extents]


def by_name(kernels: Iterable[KernelText]) -> list[KernelText]:
    """Each function once, with the tables of all kernels that call it."""
    made: dict[str, KernelText] = {}
    for kernel in kernels:
        first = made.setdefault(kernel.name, kernel)
        if isinstance(kernel, KernelText) and kernel.functions != first.functions:
            functions, support = (
                tuple(dict.fromkeys([*getattr(first, name), *getattr(kernel, name)]))
                for name in ("functions", "support")
            )
            made[kernel.name] = replace(first, functions=functions, support=support)
    return list(made.values())


def parameters_of(function: Function) -> tuple[tuple[str, str], ...]:
    """(C type, name) of the parameters of a function."""
    return tuple((each.variable.type.before_name, each.variable.text) for each in function.parameters)


def section_of(op: Op) -> str:
    """The section of a kernel: `forward` if it computes anything of the forward pass, else what it is for."""
    phases = _phases(op)
    return phases[0] if "forward" in phases else phases[-1]


def phases_text(op: Op) -> str:
    """`forward and backward` for a kernel that computes more than the forward pass; empty for others."""
    phases = _phases(op)
    return f"{', '.join(phases[:-1])} and {phases[-1]}" if "forward" in phases[:-1] else ""


def _phases(op: Op) -> tuple[str, ...]:
    return op.attrs.get("phases") or ((op.where.phase if op.where else "") or "forward",)


def kernel_comments(op: Op, has_ops: bool = False) -> list[str]:
    """The Python lines whose values, or whose gradients, a kernel computes; with `has_ops` its ops."""
    lines = [*_first_of(_source_lines(op), 6), *_work_lines(op, has_ops)]
    return [*lines, op.attrs["tiles"]] if "tiles" in op.attrs else lines


def common_comments(ops: Sequence[Op]) -> tuple[str, ...]:
    """The comments of a function that serves several kernels, without their sizes."""
    lines = dict.fromkeys(line for op in ops for line in _source_lines(op))
    return (*_first_of([*lines], 3), *dict.fromkeys(line for op in ops for line in _work_lines(op)))


def _source_lines(op: Op) -> list[str]:
    """The lines behind the ops of a kernel, without those of ops that only move elements or create equal ones."""
    inside = op.blocks[0].ops if op.blocks else ()
    made = {*op.blocks[0].end.operands} if op.blocks else set()
    computed = [inner for inner in inside if not _is_inlined(inner) or made & {*inner.results}]
    wheres = [inner.where for inner in computed] or [op.where]
    own = {_line(where) for where in wheres if where is not None and where.phase != "backward"}
    gradients = {_line(where): None for where in wheres if where is not None and _line(where) not in own}
    lines = list(dict.fromkeys(_line(where) for where in wheres if where is not None and _line(where) in own))
    return lines + [f"gradient of {line}" for line in gradients]


def _work_lines(op: Op, has_ops: bool = False) -> list[str]:
    texts = [text for text in (phases_text(op), work_of(op) if has_ops else "") if text]
    return ["; ".join(texts)] if texts else []


def _first_of(lines: Sequence[str], most: int) -> Sequence[str]:
    """At most so many lines, the last of which says how many are missing."""
    return lines if len(lines) <= most else [*lines[: most - 1], f"... and {len(lines) - most + 1} more lines"]


def _line(where: Position) -> str:
    return f"{where.short}  {where.text}"


def _is_inlined(op: Op) -> bool:
    return op.declared.is_move or op.declared.kind == "source"
