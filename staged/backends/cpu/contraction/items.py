"""The function of a kernel that goes through its work items, and the kernel's text with it.

Tested by `tests/backends/host/test_contraction_matmul.py` and `tests/backends/host/test_contraction_conv2d.py`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from staged.backends.cpu.contraction.operands import kernel_parameters
from staged.backends.cpu.contraction.shared_tiles import TileCalls
from staged.backends.cpu.contraction.spec import (
    ContractionKernel,
    Conv2dSpec,
    MatmulSpec,
    Parameter,
    variable_of,
)
from staged.backends.cpu.contraction.tile import declared, members
from staged.backends.cpu.contraction.vectors import Vector, support_for
from staged.code import tree
from staged.code.expr import Expr, Literal, Member, Name, Setting, Variable, call
from staged.code.named_choices import with_named_choices
from staged.code.printer import print_function
from staged.code.ranges import Ranges, for_ranges
from staged.code.scopes import declared_variables, replaced
from staged.code.support.library import Snippet
from staged.code.tree import Declare, Do, For, Function, Statement, Unused
from staged.code.types import CType
from staged.code.uses import mentioned
from staged.code.writer import INDENT, WIDTH, Names, Writer, broken
from staged.ir.sizes import Extent


@contextmanager
def kernel_function(
    t: Writer, spec: MatmulSpec | Conv2dSpec, parameters: Sequence[Parameter], notes: Sequence[str]
) -> Iterator[None]:
    """The function of a kernel around its body, below comments and `notes`."""
    for line in (*spec.comments, *notes):
        t.line(f"// {line}")
    with t.function(f"static void {spec.name}", map(declared, parameters)):
        for name in spec.sizes if isinstance(spec, Conv2dSpec) else ():
            t.line(f"(void){name};")
        yield


def over_items(
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    t: Writer,
    notes: Sequence[str],
    emit_item: Callable[[], None],
    work_items: int,
    scratch_items: int,
    items_size: Extent = 0,
    more: Sequence[tuple[str, Snippet]] = (),
    tiles: TileCalls | None = None,
) -> ContractionKernel:
    """Finish the text of a kernel: `emit_item` writes what it does with the work item `item`.

    `more` are functions that it may call (see `support_for`), `tiles` the tiles that `emit_item` calls.
    """
    parameters = kernel_parameters(spec, scratch_items > 0)
    with kernel_function(t, spec, parameters, notes):
        with t.block("for (int64_t item = begin; item < end; ++item)"):
            emit_item()
    text = str(t) if tiles is None else tiles.text + str(t)
    return ContractionKernel(
        spec.name,
        text,
        parameters,
        work_items,
        items_size,
        scratch_items * spec.dtype.size,
        *support_for(text, vector, (*more, *(() if tiles is None else tiles.functions))),
    )


@dataclass(frozen=True, slots=True)
class Table:
    """The sizes of a kernel: a constant struct of this type."""

    name: str
    type: str
    comment: str
    """Lines above it."""
    fields: Mapping[str, object]
    """Their values as C; those that are 0 are left out."""
    array: str = ""
    """The definition of an array in a field."""

    @property
    def snippet(self) -> Snippet:
        """The definition."""
        t = Writer()
        t.comment(self.comment)
        if self.array:
            t.statement(self.array)
        with t.block(f"static const {self.type} {self.name} =", ";"):
            room = WIDTH - len(INDENT)
            parts = [part for each in members(self.fields) for part in re.split(r", (?=\.)", each)]
            parts = [part for each in parts for part in ([each] if len(each) < room else each.split(", "))]
            for line in broken("", parts, ",", room):
                t.line(line)
        return Snippet(self.name, str(t))


def kernel_with_sizes(
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    work_items: int,
    scratch_items: int,
    table: Table,
    body: Callable[[Expr, Mapping[str, Variable]], tuple[Statement, ...]],
    support: Sequence[Snippet],
    is_shared: bool = True,
    column_step: int = 1,
) -> ContractionKernel:
    """A kernel: `body` builds its statements from the address of its table, and from its parameters by name.

    It becomes one function with those of other sizes, which may need scratch memory. If not, the sizes are constants.
    """
    address = f"&{table.name}"
    parameter = Variable("sizes", CType(f"const {table.type} *", is_pointer=True))
    sizes = Setting(address, parameter) if is_shared else Name(address)
    made = kernel_of_statements(
        spec, vector, work_items, scratch_items, lambda parameters: body(sizes, parameters), support, column_step
    )
    return replace(made, tables=(table.snippet,))


def kernel_of_statements(
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    work_items: int,
    scratch_items: int,
    body: Callable[[Mapping[str, Variable]], tuple[Statement, ...]],
    support: Sequence[Snippet],
    column_step: int = 1,
    more: Sequence[Parameter] = (),
) -> ContractionKernel:
    """A kernel: `body` builds its statements from its parameters by name. It may need scratch memory.

    `more` are parameters behind those of its arrays.
    """
    *arrays, scratch, begin, end = kernel_parameters(spec, has_scratch=True)
    given = (*arrays, *more, scratch, begin, end)
    parameters = {name: variable_of((type, name)) for type, name in given}
    alone = (tree.Parameter(parameters[name], is_alone="restrict" in type) for type, name in given)
    dims = [parameters[name] for name in spec.sizes]
    statements = with_named_choices(dims, body(parameters))
    unused = tuple(Unused((dim,)) for dim in dims if dim not in mentioned(statements))
    code = Function(spec.name, tuple(alone), (*unused, *statements), spec.comments)
    text = print_function(code)
    return ContractionKernel(
        spec.name,
        text,
        tuple((each.type.before_name, each.text) for each in parameters.values()),
        work_items,
        0,
        max(1, scratch_items) * spec.dtype.size,
        *support_for(text, vector, [("", each) for each in support]),
        column_step=column_step,
        code=code,
        has_epilogue=spec.epilogue is not None and spec.epilogue.code is not None,
    )


def support_with_sizes(
    function: str,
    spec: MatmulSpec | Conv2dSpec,
    vector: Vector,
    work_items: int,
    scratch_items: int,
    table: Table,
    support: Sequence[Snippet],
) -> ContractionKernel:
    """A kernel that is a function of the support, to which a program passes the address of its table."""
    sizes = Setting(f"&{table.name}", Variable("sizes", CType(f"const {table.type} *", is_pointer=True)))
    *parameters, scratch, begin, end = kernel_parameters(spec, has_scratch=True)
    return ContractionKernel(
        function,
        "",
        (*parameters, (sizes.parameter.type.before_name, "sizes"), scratch, begin, end),
        work_items,
        0,
        max(1, scratch_items) * spec.dtype.size,
        *support_for("\n".join(each.text for each in support), vector, [("", each) for each in support]),
        tables=(table.snippet,),
        numbers=(sizes,),
        shape=tuple(table.fields.items()),
    )


_NUMBER = re.compile(r"_\d+$")


def finished(
    spec: MatmulSpec | Conv2dSpec,
    parameters: Mapping[str, Variable],
    tile: Variable,
    place: Sequence[str | int],
    column_step: int,
) -> tuple[Statement, ...]:
    """The epilogue of a tile, by fields of the tile and numbers: its statements or its call, if there is one. The
    columns of each tile are a multiple of `column_step`.
    """
    epilogue = spec.epilogue
    if epilogue is None:
        return ()
    sizes = [Member(tile, each, arrow=False) if isinstance(each, str) else Literal(str(each)) for each in place]
    passed = [parameters[name] for _, name in epilogue.parameters]
    if epilogue.code is None:
        return (Do(call(epilogue.function, *sizes, *passed, *epilogue.numbers)),)
    code = for_ranges(epilogue.code, Ranges(column_step), ("cols",))
    known = spec.sizes if isinstance(spec, MatmulSpec) else ()
    given = [parameter.variable for parameter in code.parameters]
    used_before = {
        *given[: len(sizes)],
        *(given[len(sizes) + n] for n, each in enumerate(passed) if each.text in known),
    }
    body = [s for s in code.body if not (isinstance(s, Unused) and {*s.names} & used_before)]
    used, stops = mentioned(body), {s.stop for s in body if isinstance(s, For)}
    found: dict[Variable, Expr] = dict(zip(given[len(sizes) :], passed, strict=True))
    names = Names()
    names.used |= {*parameters, tile.text, "sizes"}
    named: dict[str, str] = {}
    for variable in (*given[: len(sizes)], *declared_variables(body)):
        text = variable.text
        if text not in named:
            hint = text if text not in names.used else "sums" if text == "tile" else _NUMBER.sub("", text)
            named[text] = names.fresh(hint)
        if named[text] != text:
            found[variable] = Variable(named[text], variable.type)
    first: dict[CType, list[tuple[Variable, Expr]]] = {}
    for variable, size in zip(given, sizes, strict=False):
        if isinstance(size, Literal) or variable in stops:
            found[variable] = size
        elif variable in used:
            first.setdefault(variable.type, []).append((replaced(variable, found), size))
    # Constants: compilers do not know that stores of the epilogue leave the tile as it is.
    declared = (Declare(*pairs[0], also=tuple(pairs[1:])) for pairs in first.values())
    return (*declared, *(replaced(s, found) for s in body))


def no_items(spec: MatmulSpec | Conv2dSpec) -> ContractionKernel:
    """The kernel of a result without elements."""
    t, parameters = Writer(), kernel_parameters(spec)
    with kernel_function(t, spec, parameters, ()):
        for _, name in parameters:
            t.line(f"(void){name};")
    return ContractionKernel(spec.name, str(t), parameters, 0)
