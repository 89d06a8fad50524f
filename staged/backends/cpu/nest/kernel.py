"""A loop nest and its schedule become one C function.

    // mlp.py:31  probabilities = softmax(logits)
    static void probabilities(const float *logits, float *probabilities, unsigned char *scratch, int64_t begin, int64_t
    end)

Loops print as loops; values keep the user's names; what is used once, in the loop that made it, is written in place.

Tested by `tests/kernels/test_kernels.py` and `tests/backends/host/test_vector_plan.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from staged.backends.cpu.nest.copies import Copies
from staged.backends.cpu.nest.row_tiles import RowLoops
from staged.backends.cpu.nest.tile_calls import with_tile_calls
from staged.backends.cpu.nest.vector_loops import VectorLoops
from staged.backends.cpu.nest.vector_statements import VectorStatements
from staged.backends.cpu.nest.vector_totals import VectorTotals
from staged.code.dialect import C, Dialect
from staged.code.expr import Cast, Conditional, Expr, Infix, Literal, Variable
from staged.code.kernel_text import KernelText, Site, kernel_comments
from staged.code.named_choices import needed, with_named_choices
from staged.code.nest.loops import Loops
from staged.code.nest.lowering import ZERO, Lowering
from staged.code.nest.size_names import name_ends
from staged.code.nest.statements import Statements
from staged.code.nest.totals import Totals
from staged.code.nest.uses import may_stop
from staged.code.printer import print_function
from staged.code.shape import shape_of
from staged.code.support.vectors import width_snippet
from staged.code.tree import Declare, Function, Parameter, Statement, Unused
from staged.code.types import INDEX, VOID, Space, pointer, scalar, word
from staged.code.unused import without_copies
from staged.code.uses import mentioned
from staged.ir.buffers import aligned
from staged.ir.loops import ArrayRef, CallSupport, Load, Loop, Nest, Tile, dims_in, walk
from staged.ir.machine import Machine
from staged.ir.names import layer_of
from staged.ir.nodes import Op
from staged.ir.schedule import Schedule
from staged.ir.size_functions import substitute
from staged.ir.sizes import Dim, Extent

HOST = Variable("host", pointer(word("st_host"), Space.PRIVATE))
BYTES = pointer(word("unsigned char"), Space.GLOBAL)


def emit_kernel(op: Op, name: str, machine: Machine, site: Site, dialect: Dialect = C) -> KernelText:
    """The C function for a `kernel` op that carries its nest and schedule."""
    nest, comments = op.attrs["nest"], kernel_comments(op)
    return kernel_of(nest, op.attrs["schedule"], name, comments, machine, site, dialect, layer_of(op))


class CpuNest:
    """Lowers the statements of a nest for a CPU."""

    def __init__(self, nest: Nest, schedule: Schedule, machine: Machine, site: Site) -> None:
        self.low = Lowering(nest, schedule, site)
        scalars = Statements(self.low, HOST)
        self.vectors = VectorStatements(self.low, scalars, machine.vector_bytes)
        totals = VectorTotals(self.vectors, Totals(self.low))
        self.copies = Copies(self.low)
        RowLoops(self.low)
        self.loops = VectorLoops(Loops(self.low, totals), self.vectors, totals, self.copies)

    @property
    def snippets(self) -> frozenset[str]:
        """The support snippets that the code uses."""
        return frozenset(self.low.snippets | self.vectors.types.snippets)


def kernel_of(
    nest: Nest,
    schedule: Schedule,
    name: str,
    comments: Sequence[str],
    machine: Machine,
    site: Site,
    dialect: Dialect,
    layer: str = "",
) -> KernelText:
    """The C function for a nest with its schedule, whose names do not repeat the `layer`."""
    nest, schedule, tiles = with_tile_calls(nest, schedule, machine)
    cpu = CpuNest(nest, schedule, machine, site)
    low = cpu.low
    low.names.layer = layer
    parameters = low.parameters()
    given = [parameter.variable for parameter in parameters]
    scratch_bytes = sum(bytes_in_scratch(array, schedule) for array in nest.scratch if array.role == "scratch")
    scratch = low.variable("scratch", BYTES) if scratch_bytes else None
    can_fail = any(may_stop(s) for s in walk(nest.body))
    if can_fail:
        low.need("fail")
        low.names.used.add(HOST.text)
        parameters.append(Parameter(HOST))
    if scratch is not None:
        parameters.append(Parameter(scratch))
    begin, end = Variable("begin", INDEX), Variable("end", INDEX)
    has_range = nest.items != 1
    if has_range:
        parameters += [Parameter(begin), Parameter(end)]
    low.names.used |= {"begin", "end"}
    low.parameter_names = set(low.names.used)
    ends = name_ends(low, nest)
    places = [*declare_registers(low)]
    if scratch is not None:
        places += declare_scratch(low, scratch)
    if has_range:
        deal_out(low, begin, end)
    low.body(nest.body)
    body = with_named_choices(low.dimensions(), needed(ends, without_copies(low.code.body)))
    first, last = unused_parameters(nest, given, body)
    statements = (*places, *first, *body, *last)
    code = Function(name, tuple(parameters), statements, tuple(comments), is_apart=bool(dims_in(nest.body)))
    return KernelText(
        name,
        print_function(code, dialect),
        tuple((p.variable.type.before_name, p.variable.text) for p in parameters),
        nest.items,
        cpu.snippets.union({width_snippet(machine.vector_bytes)} if tiles else (), *(tile.needs for tile in tiles)),
        has_range=has_range,
        scratch_bytes=scratch_bytes,
        can_fail=can_fail,
        chunk=schedule.chunk,
        may_alias=in_place_pairs(nest, cpu.loops.stored_twice),
        items_size=items_size(nest),
        code=code,
        shape=shape_of(code, dialect)[0],
        support=(*tiles, *cpu.copies.support),
    )


def deal_out(low: Lowering, begin: Variable, end: Variable) -> None:
    """The items from `begin` to `end` as iterations of the outermost loops: those of one loop come after those of the
    one before."""
    axes = [s.axis for s in low.nest.body if isinstance(s, Loop | Tile)]
    if len(axes) == 1:
        low.ranges[axes[0]] = begin, end
        return
    before = 0
    for axis in axes:
        first, stop = (
            low.constant(hint, INDEX, clamped(limit, before, axis.extent))
            for hint, limit in (("first", begin), ("stop", end))
        )
        low.ranges[axis] = first, stop
        before += axis.extent


def clamped(item: Variable, before: int, extent: int) -> Expr:
    """The iteration of a loop at an item, where `before` items are those of other loops; at most `extent`."""
    place = Infix("-", item, Literal(str(before))) if before else item
    last = Literal(str(before + extent))
    below = Conditional(Infix("<", item, last), place, Literal(str(extent)))
    return Conditional(Infix("<", item, Literal(str(before))), ZERO, below) if before else below


def declare_registers(low: Lowering) -> Iterable[Declare]:
    """The arrays of the nest that are meant to be in registers. Functions fill the others, vector by vector."""
    filled = {array for s in walk(low.nest.body) if isinstance(s, CallSupport) for array in s.arrays}
    for array in low.nest.scratch:
        if array.role == "registers":
            place = low.variable(array.name, scalar(array.dtype))
            low.arrays[array] = place
            alignment = array.dtype.size * low.schedule.lanes if array in filled else 0
            yield Declare(place, is_const=False, sizes=(Literal(str(array.size)),), alignment=alignment)


def declare_scratch(low: Lowering, scratch: Expr) -> Iterable[Declare]:
    """The nest's workspace."""
    offset = 0
    for array in low.nest.scratch:
        if array.role != "scratch":
            continue
        place = low.variable(array.name, pointer(scalar(array.dtype), Space.GLOBAL))
        low.arrays[array] = place
        start = Infix("+", scratch, Literal(str(offset))) if offset else scratch
        yield Declare(place, Cast(VOID, start))
        offset += bytes_in_scratch(array, low.schedule)


def bytes_in_scratch(array: ArrayRef, schedule: Schedule) -> int:
    """The bytes of an array of workspace: whole vectors in whole cache lines."""
    return aligned(-(-array.size // schedule.lanes) * schedule.lanes * array.dtype.size)


def unused_parameters(
    nest: Nest, given: Sequence[Variable], body: Sequence[Statement]
) -> tuple[list[Unused], list[Unused]]:
    """Statements before and after `body` that name the parameters it does not use, and say why where a reader would
    wonder."""
    used = mentioned(body)
    sizes = {nest.counts[dim] for dim in dims_in(nest.body)}
    read = {s.array for s in walk(nest.body) if isinstance(s, Load)}
    first: list[Unused] = []
    last: list[Unused] = []
    for source, variable in zip((*nest.inputs, *nest.outputs), given, strict=True):
        if variable in used:
            continue
        if source in sizes:
            last.append(Unused((variable,), "`end` says it"))
        elif isinstance(source, ArrayRef) and source in read:
            last.append(Unused((variable,), "none of its elements is wanted"))
        else:
            first.append(Unused((variable,)))
    return first, sorted(last, key=lambda unused: (unused.note[0] != "`", unused.names[0].text))


def in_place_pairs(nest: Nest, stored_twice: set[ArrayRef]) -> tuple[tuple[int, int], ...]:
    """The (result, operand) pairs that may share a buffer.

    Exact: not a result whose last vector is written twice, and so read again after the first time.
    """
    return tuple(pair for pair in nest.in_place if nest.outputs[pair[0]] not in stored_twice)


def items_size(nest: Nest) -> Extent:
    """The number of work items in terms of the call's arguments; 0 where it is a number."""
    axis = next((s.axis for s in nest.body if isinstance(s, Loop | Tile)), None)
    if nest.items == 1 or axis is None or axis.is_static:
        return 0
    places = {dim: Dim(str(nest.inputs.index(local)), dim.max) for dim, local in nest.counts.items()}
    return substitute(axis.size, places)
