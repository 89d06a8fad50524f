"""A loop nest and its schedule become one C function.

    // mlp.py:31  probabilities = softmax(logits)
    // fused: max, subtract, exp, sum, divide
    static void probabilities(const float *logits, float *probabilities, unsigned char *scratch, int64_t begin, int64_t end)

Loops print as loops; values keep the user's names; what is used once, in the loop that made it, is written in place.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from staged.backends.c_family.expr import Call, Cast, Expr, Index, Infix, Literal, Name, infix_sum, literal, scaled
from staged.backends.c_family.kernel_text import KernelText
from staged.backends.c_family.scalars import RANDOM_NAMES, is_checked, random_call, spell
from staged.backends.c_family.totals import COMPARE, Total, TotalsEmitter, feeds
from staged.backends.c_family.vectors import Vec, VectorSpeller, VectorTypes, is_zero
from staged.backends.c_family.writer import Names, Writer, c_identifier, safe_comment
from staged.ir.loops import (
    Accumulate,
    Affine,
    ArrayRef,
    Axis,
    Bound,
    CallSupport,
    CheckIndex,
    Compute,
    Constant,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    Operand,
    PositionOf,
    Reduction,
    Statement,
    Store,
    StorePair,
    Tile,
    dims_in,
    segments,
    walk,
)
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.schedule import Schedule
from staged.ir.types import Dim, DType, i64
from staged.ir.types import bound as bound_of
from staged.source import Position

Site = Callable[[Position | None], int]
_INLINE_WIDTH = 60
"""Expressions longer than this get a name."""
ELEMENT = "element"


def emit_kernel(op: Op, name: str, machine: Machine, site: Site) -> KernelText:
    """The C function for a `kernel` op that carries its nest and schedule."""
    nest: Nest = op.attrs["nest"]
    schedule: Schedule = op.attrs["schedule"]
    emitter = LoopEmitter(nest, schedule, machine, site)
    return emitter.function(name, kernel_comments(op))


def kernel_comments(op: Op) -> list[str]:
    """The Python lines behind a kernel, and what was fused."""
    lines: list[str] = []
    for inner in op.blocks[0].ops if op.blocks else ():
        if inner.where is not None:
            text = f"{inner.where.short}  {inner.where.text}"
            if text not in lines:
                lines.append(text)
    if len(lines) > 6:
        lines = [*lines[:5], f"... and {len(lines) - 5} more lines"]
    fused = op.attrs.get("fused")
    return [*lines, f"fused: {fused}"] if fused else lines


class LoopEmitter(TotalsEmitter):
    """Writes one nest."""

    index_type = "int64_t"
    """What counts turns and elements."""

    def __init__(self, nest: Nest, schedule: Schedule, machine: Machine, site: Site) -> None:
        self.nest = nest
        self.schedule = schedule
        self.machine = machine
        self.site = site
        self.w = Writer()
        self.names = Names()
        self.snippets: set[str] = set()
        self.types = VectorTypes(machine.vector_bytes, schedule.lanes, schedule.item_bytes)
        self.speller = VectorSpeller(self.types, self.need, self.named_mask)
        self.arrays: dict[ArrayRef, Name] = {}
        self.values: dict[Local, Vec] = {}
        self.axes: dict[Axis, Expr] = {}
        self.ranges: dict[Axis, tuple[str, str]] = {}
        self.segments: dict[Axis, tuple[int, int]] = {}
        self.totals: dict[Reduction, Total] = {}
        self.vector_axis: Axis | None = None
        self.lane: Expr | None = None
        self.uses: dict[Local, tuple[int, int]] = {}
        self.unrolled: Name | None = None
        self.repeats = False
        """Whether a loop computes elements twice: then a result must not overwrite an operand."""
        self.repeated = 0
        """How many lanes of the vector under way were taken in before."""
        self.loop_names: list[str] = []
        self.parameter_names: set[str] = set()
        self.drawn: set[Operand] = set()
        self.sizes_read: set[Local] = set()
        self.left_out: set[ArrayRef] = set()
        self.loaded: set[ArrayRef] = set()
        self.can_fail = any(may_stop(s) for s in walk(nest.body))

    def need(self, *names: str) -> None:
        self.snippets.update(names)

    # ---- the function ----

    def function(self, name: str, comments: Sequence[str]) -> KernelText:
        parameters = self.parameters()
        scratch_bytes = sum(rounded(a) for a in self.nest.scratch)
        if scratch_bytes:
            parameters.append(("unsigned char *", self.names.fresh("scratch")))
        if self.can_fail:
            self.need("fail")
            self.names.used.add("host")
            parameters.append(("st_host *", "host"))
        self.names.used |= {"begin", "end"}
        self.parameter_names = set(self.names.used)
        parameters += [("int64_t ", "begin"), ("int64_t ", "end")]
        w = self.w
        for comment in comments:
            w.line("// " + safe_comment(comment))
        text = ", ".join(f"{type}{parameter}" for type, parameter in parameters)
        with w.block(wrapped(f"static void {name}({text})")):
            self.declare_scratch()
            self.outermost()
            for size in sorted(self.unread_sizes()):
                w.line(f"(void){size};  // `end` says it")
            for array in sorted(str(self.arrays[array]) for array in self.left_out if array not in self.loaded):
                w.line(f"(void){array};  // none of its elements is wanted")
        return KernelText(
            name,
            str(w),
            tuple(parameters),
            self.nest.items,
            frozenset(self.snippets | self.types.snippets),
            scratch_bytes,
            self.can_fail,
            self.schedule.chunk,
            () if self.repeats else self.nest.in_place,
            items_text=self.items_text(),
        )

    def items_text(self) -> str:
        """The number of work items as C, in terms of the call's arguments; nothing where it is a number."""
        axis = next((s.axis for s in self.nest.body if isinstance(s, Loop | Tile)), None)
        if self.nest.items == 1 or axis is None or axis.dim is None:
            return ""
        size = f"{{{self.nest.inputs.index(self.nest.counts[axis.dim])}}}"
        return size if axis.factor == 1 else f"{size} * {axis.factor}"

    def parameters(self) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        for source in self.nest.inputs:
            name = self.names.fresh(source.name)
            if isinstance(source, Local):
                self.values[source] = Vec(Name(name), source.dtype, False)
                found.append((f"{source.dtype.c_name} ", name))
            else:
                self.arrays[source] = Name(name)
                found.append((f"const {source.dtype.c_name} *", name))
        for output in self.nest.outputs:
            name = self.names.fresh(output.name)
            self.arrays[output] = Name(name)
            found.append((f"{output.dtype.c_name} *", name))
        return found

    def declare_scratch(self) -> None:
        offset = 0
        for array in self.nest.scratch:
            name = self.names.fresh(array.name)
            self.arrays[array] = Name(name)
            start = f"scratch + {offset}" if offset else "scratch"
            self.w.line(f"{array.dtype.c_name} *const {name} = (void *)({start});".replace("(scratch)", "scratch"))
            offset += rounded(array)
        used = used_sources(self.nest) | {*self.nest.counts.values()}
        for source in (*self.nest.inputs, *self.nest.outputs):
            if source not in used:
                text = self.arrays[source] if isinstance(source, ArrayRef) else self.values[source].expr
                self.w.line(f"(void){text};")

    def unread_sizes(self) -> list[str]:
        """The parameters with sizes of dimensions that nothing in the text reads."""
        sizes = {self.nest.counts[dim] for dim in dims_in(self.nest.body)}
        return [str(self.values[size].expr) for size in sizes - self.sizes_read - used_sources(self.nest)]

    def outermost(self) -> None:
        if self.nest.items == 1:
            self.w.line("(void)begin, (void)end;  // one piece")
        else:
            axis = next(s.axis for s in self.nest.body if isinstance(s, Loop | Tile))
            self.ranges[axis] = ("begin", "end")
        self.body(self.nest.body)

    # ---- statements ----

    def body(self, body: tuple[Statement, ...]) -> None:
        """The statements of one loop body."""
        self.count_uses(body)
        stores = sum(isinstance(s, Store) for s in body)
        for s in body:
            match s:
                case Load():
                    self.load(s, inline=stores <= 1 and not any(isinstance(t, Loop | Tile) for t in body))
                case LoadPair():
                    self.load_pair(s)
                case StorePair():
                    self.store_pair(s)
                case Compute():
                    self.compute(s)
                case PositionOf(target, index):
                    self.position(target, index)
                case CheckIndex():
                    self.check_index(s)
                case Store():
                    self.store(s)
                case Accumulate():
                    self.accumulate(s)
                case Loop():
                    self.loop(s)
                case Tile():
                    self.tile(s)
                case Guarded():
                    self.guarded(s)
                case Copy(target, source):
                    self.copy(target, source)
                case CallSupport(function, snippet, arguments):
                    self.need(snippet)
                    texts = [self.arrays[a] if isinstance(a, ArrayRef) else self.operand(a).expr for a in arguments]
                    self.w.line(f"{Call(function, tuple(texts))};")

    def count_uses(self, body: tuple[Statement, ...]) -> None:
        """(direct, nested) uses of every local: only what is used once, right here, is written in place."""
        counts: dict[Local, list[int]] = {}

        def use(operand: Operand | Axis | None, nested: int, weight: int = 1) -> None:
            if isinstance(operand, Local):
                counts.setdefault(operand, [0, 0])[nested] += weight

        def visit(statements: tuple[Statement, ...], nested: int) -> None:
            for s in statements:
                match s:
                    case Compute(_, op, operands):
                        for operand in operands:
                            use(operand, nested, 2 if op in ("square", "abs", "maximum", "minimum", "isnan") else 1)
                    case Store(_, index, value):
                        use(value, nested)
                        for name, _ in index.terms:
                            use(name, nested, 2)
                    case Accumulate(reduction, value, _):
                        use(value, nested, 2 if reduction.op in COMPARE else 1)
                    case StorePair(_, _, first, second):
                        use(first, nested)
                        use(second, nested)
                    case CheckIndex(_, index):
                        use(index, nested, 2)
                    case Load(_, _, index, guards):
                        for name, _ in index.terms:
                            use(name, nested, 2)
                        for guard in guards:
                            for name, _ in guard.index.terms:
                                use(name, nested, 2)
                    case PositionOf(_, index):
                        for name, _ in index.terms:
                            use(name, nested, 2)
                    case Loop(_, inner) | Tile(_, _, inner) | Guarded(_, inner):
                        visit(inner, 1)

        visit(body, 0)
        for local, (direct, nested) in counts.items():
            self.uses[local] = (direct, nested)

    def fresh(self, hint: str) -> str:
        """A name for an element: `x_j` where `x` is the array and `j` the loop."""
        if c_identifier(hint) in self.parameter_names and self.loop_names:
            hint = f"{hint}_{self.loop_names[-1]}"
        return self.names.fresh(hint)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """A C block with names of its own."""
        self.names = Names(self.names)
        with self.w.block(head):
            yield
        assert self.names.outer is not None
        self.names = self.names.outer

    def bind(self, target: Local, expression: Expr, varies: bool, inline: bool, named: bool) -> None:
        """Give `target` its text: in place where it is used once here, else as a constant."""
        dtype = target.dtype
        direct, nested = self.uses.get(target, (0, 0))
        if inline and direct == 1 and not nested and not named and len(str(expression)) <= _INLINE_WIDTH:
            self.values[target] = Vec(expression, dtype, varies)
            return
        name = self.fresh(target.name)
        type = self.types.type(dtype) if varies else dtype.c_name
        self.w.line(f"const {type} {name} = {expression};")
        self.values[target] = Vec(Name(name), dtype, varies)

    def load(self, s: Load, inline: bool) -> None:
        guards = self.open_guards(s.guards)
        if guards is None:
            assert s.fill is not None
            self.left_out.add(s.array)
            self.values[s.target] = Vec(self.number(s.fill), s.array.dtype, False)
            return
        array = self.arrays[s.array]
        self.loaded.add(s.array)
        axis = self.vector_axis
        varies = axis is not None and s.index.stride(axis) != 0
        index = self.index(s.index)
        if varies:
            expression = self.speller.load(s.array.dtype, address(array, index))
        else:
            expression = Index(array, index)
        if guards:
            assert s.fill is not None
            condition = self.condition(guards)
            fill = self.number(s.fill)
            if varies:
                fill = self.speller.splat(Vec(fill, s.array.dtype, False))
                if not s.array.dtype.is_bool:
                    # What is read may lie at any address: a type of its own to the compiler.
                    expression = Cast(self.types.type(s.array.dtype), expression)
            expression = Name(f"{condition} ? {expression} : {fill}")
            inline = False
        self.bind(s.target, expression, varies, inline, False)

    def load_pair(self, s: LoadPair) -> None:
        """Neighbours: in a vector loop two vectors, sorted into even and odd lanes."""
        array = self.arrays[s.array]
        if self.vector_axis is None:
            for offset, target in enumerate((s.first, s.second)):
                self.bind(target, Index(array, self.index(s.index + offset)), False, False, True)
            return
        dtype, lanes = s.array.dtype, self.schedule.lanes
        type = self.types.type(dtype)
        whole = [self.names.fresh("low"), self.names.fresh("high")]
        for number, name in enumerate(whole):
            place = address(array, self.index(s.index + number * lanes))
            self.w.line(f"const {type} {name} = {self.speller.load(dtype, place)};")
        for offset, target in enumerate((s.first, s.second)):
            picks = [2 * lane + offset for lane in range(lanes)]
            self.bind(target, self.shuffled(dtype, whole[0], whole[1], picks), True, False, True)

    def store_pair(self, s: StorePair) -> None:
        array = self.arrays[s.array]
        values = [self.operand(s.first), self.operand(s.second)]
        if self.vector_axis is None:
            for offset, value in enumerate(values):
                self.w.line(f"{Index(array, self.index(s.index + offset))} = {value.expr};")
            return
        dtype, lanes = s.array.dtype, self.schedule.lanes
        names = [self.settled(value) for value in values]
        for half in (0, 1):
            picks = [lane for n in range(lanes // 2) for lane in (half * lanes // 2 + n, lanes + half * lanes // 2 + n)]
            place = address(array, self.index(s.index + half * lanes))
            mixed = Vec(self.shuffled(dtype, names[0], names[1], picks), dtype, True)
            target, number = self.speller.store(dtype, place, mixed)
            self.w.line(f"{target} = {number};")

    def shuffled(self, dtype: DType, x: str, y: str, picks: Sequence[int]) -> Expr:
        self.need("shuffle")
        kind = Name(self.types.mask(dtype.size))
        return Call("ST_SHUFFLE", (kind, Name(x), Name(y), *(Literal(str(pick)) for pick in picks)))

    def open_guards(self, guards: Sequence[Bound]) -> list[Bound] | None:
        """The guards that the piece of a loop that is being written does not decide; None: one of them fails in all of it."""
        found: list[Bound] = []
        for guard in guards:
            axis = next((axis for axis in guard.index.axes if axis in self.segments), None)
            if axis is None:
                found.append(guard)
            elif not 0 <= self.segments[axis][0] + guard.index.offset < guard.extent:
                return None
        return found

    def condition(self, bounds: Sequence[Bound]) -> Expr:
        parts: list[Expr] = []
        for bound in bounds:
            inside = self.index(bound.index)
            parts += [Infix(">=", inside, Literal("0")), Infix("<", inside, Literal(str(bound.extent)))]
        condition = parts[0]
        for part in parts[1:]:
            condition = Infix("&&", condition, part)
        return condition

    def copy(self, target: ArrayRef, source: ArrayRef) -> None:
        """The rest of an array that is changed in part; in place there is nothing to do."""
        self.need("memcpy")
        a, b = self.arrays[target], self.arrays[source]
        count = str(target.size)
        if target.dim is not None:
            row = target.size // bound_of(target.dim)
            count = f"(size_t){self.size(target.dim)}" + (f" * {row}" if row != 1 else "")
        with self.block(f"if ({a} != {b})"):
            self.w.line(f"memcpy({a}, {b}, {count} * sizeof({target.dtype.c_name}));")

    def size(self, dim: Dim) -> Expr:
        """The parameter that holds the size of a dimension."""
        self.sizes_read.add(self.nest.counts[dim])
        return self.values[self.nest.counts[dim]].expr

    def operand(self, operand: Operand) -> Vec:
        if isinstance(operand, Constant):
            return Vec(self.number(operand), operand.dtype, False)
        return self.values[operand]

    def number(self, constant: Constant) -> Expr:
        if constant.dtype.is_float and not math.isfinite(constant.value):
            self.need("math")
        return literal(constant.value, constant.dtype)

    def compute(self, s: Compute) -> None:
        operands = [self.operand(o) for o in s.operands]
        varies = any(o.varies for o in operands)
        dtypes = [o.dtype for o in operands]
        result = s.target.dtype
        named = s.target.name != s.op
        if s.op in RANDOM_NAMES and self.vector_axis is not None and self.is_drawn_along(s):
            self.draw_vector(s, [o.expr for o in operands])
            return
        if not varies:
            exprs = [o.expr for o in operands]
            if s.op in RANDOM_NAMES:
                expression = random_call(s.op, result, exprs, self.need)
            elif is_checked(s.op, result):
                self.need(f"checked_{s.op}_{result}")
                site = Literal(str(self.site(s.where)))
                expression = Call(f"st_checked_{s.op}_{result}", (Name("host"), site, *exprs))
                named = True
            else:
                expression = spell(s.op, dtypes, result, exprs, s.attrs, self.need)
            if s.op == "add" and all(map(is_zero, exprs)):
                expression = exprs[0]  # where guards leave nothing but what fills
                self.values[s.target] = Vec(expression, result, False)
                return
            self.bind(s.target, expression, False, True, named)
            return
        spelled = self.speller.spell(s.op, operands, result, s.attrs)
        if spelled is not None:
            self.bind(s.target, spelled, True, True, named)
            return
        self.vector_call(s, operands)

    def is_drawn_along(self, s: Compute) -> bool:
        """Whether the element numbers of a random op differ along the vector axis."""
        return s.operands[-1] in self.drawn

    def draw_vector(self, s: Compute, operands: Sequence[Expr]) -> None:
        dtype = s.target.dtype
        suffix = {"random_bits": "u32v", "bernoulli": "i32v"}.get(s.op, f"{dtype}v")
        function = f"st_{s.op}_{suffix}"
        self.need(function)
        name = self.fresh(s.target.name)
        self.w.line(f"{self.types.type(dtype)} {name};")
        self.w.line(f"{function}({', '.join(map(str, [f'&{name}', *operands]))});")
        self.values[s.target] = Vec(Name(name), dtype, True)

    def vector_call(self, s: Compute, operands: Sequence[Vec]) -> None:
        """A function on vectors: by pointers, or lane by lane."""
        result = s.target.dtype
        type = self.types.type(result)
        whole = [Name(self.settled(o)) for o in operands]
        name = self.fresh(s.target.name)
        function = self.speller.function(s.op, operands[0].dtype)
        self.w.line(f"{type} {name};")
        if function is not None:
            arguments = ", ".join(f"&{x}" for x in [Name(name), *whole])
            self.w.line(f"{function}({arguments});")
        else:
            lane = Name("lane")
            scalar = spell(
                s.op, [o.dtype for o in operands], result, [Index(x, lane) for x in whole], s.attrs, self.need
            )
            self.w.line(f"#pragma GCC unroll {self.schedule.lanes}")
            with self.block(f"for (int lane = 0; lane < {self.schedule.lanes}; ++lane)"):
                self.w.line(f"{name}[lane] = {scalar};")
        self.values[s.target] = Vec(Name(name), result, True)

    def named_mask(self, mask: Expr) -> Expr:
        """A mask that may be written twice."""
        if isinstance(mask, Name):
            return mask
        name = self.names.fresh("mask")
        self.w.line(f"const {self.types.mask()} {name} = {mask};")
        return Name(name)

    def settled(self, value: Vec) -> str:
        """A vector variable that holds `value` (its address can be taken)."""
        if value.varies and isinstance(value.expr, Name | Index):
            return str(value.expr)
        name = self.names.fresh("x")
        self.w.line(f"const {self.types.type(value.dtype)} {name} = {self.speller.splat(value)};")
        return name

    def guarded(self, s: Guarded) -> None:
        with self.block(f"if ({self.condition(s.bounds)})"):
            self.body(s.body)

    def position(self, target: Local, index: Affine) -> None:
        dtype = target.dtype
        axis = self.vector_axis
        stride = index.stride(axis) if axis is not None else 0
        self.drawn.discard(target)
        number = self.index(index)
        if dtype is not i64:
            number = Name(f"({dtype.c_name})({number})")
        if not stride:
            self.bind(target, number, False, True, False)
            return
        if target.name == ELEMENT:
            # Random numbers: a vector of them is made from the number of its first element.
            self.values[target] = Vec(number, dtype, False)
            self.drawn.add(target)
            return
        steps = ", ".join(str(literal(lane * stride, dtype)) for lane in range(self.schedule.lanes))
        vector = Infix("+", number, Name(f"({self.types.type(dtype)}){{{steps}}}"))
        self.bind(target, vector, True, False, True)

    def check_index(self, s: CheckIndex) -> None:
        index = self.operand(s.index)
        raw = self.names.fresh("index")
        extent = str(self.size(s.extent)) if isinstance(s.extent, Dim) else str(s.extent)
        self.w.line(f"int64_t {raw} = {index.expr};")
        with self.w.block(f"if ({raw} < 0)"):
            self.w.line(f"{raw} += {extent};")
        with self.w.block(f"if ({raw} < 0 || {raw} >= {extent})"):
            message = "index %lld is out of range for an axis of %lld elements"
            given = (
                f"(long long){index.expr}" if isinstance(index.expr, Name | Literal) else f"(long long)({index.expr})"
            )
            limit = f"(long long){extent}" if isinstance(s.extent, Dim) else f"{extent}LL"
            self.w.line(f'st_fail(host, ST_INDEX_ERROR, {self.site(s.where)}, "{message}", {given}, {limit});')
            self.w.line("return;")
        self.values[s.target] = Vec(Name(raw), i64, False)

    def store(self, s: Store) -> None:
        array = self.arrays[s.array]
        value = self.operand(s.value)
        index = self.index(s.index)
        if self.vector_axis is not None and s.index.stride(self.vector_axis):
            target, number = self.speller.store(s.array.dtype, address(array, index), value)
            self.w.line(f"{target} = {number};")
            return
        self.w.line(f"{Index(array, index)} = {value.expr};")

    # ---- loops ----

    def tile(self, tile: Tile) -> None:
        low, high = self.range_of(tile.axis)
        start, stop = self.names.fresh("first"), self.names.fresh("stop")
        with self.block(f"for ({self.index_type} {start} = {low}; {start} < {high}; {start} += {tile.size})"):
            limit = f"{start} + {tile.size} < {high} ? {start} + {tile.size} : {high}"
            self.w.line(f"const {self.index_type} {stop} = {limit};")
            before = self.ranges.get(tile.axis)
            self.ranges[tile.axis] = (start, stop)
            self.body(tile.body)
            if before is None:
                del self.ranges[tile.axis]
            else:
                self.ranges[tile.axis] = before

    def range_of(self, axis: Axis) -> tuple[str, str]:
        return self.ranges[axis] if axis in self.ranges else ("0", self.turns(axis))

    def turns(self, axis: Axis) -> str:
        """How many turns a loop over all of an axis has, as C."""
        if axis.dim is None:
            return str(axis.extent)
        return str(self.size(axis.dim)) if axis.factor == 1 else f"{self.size(axis.dim)} * {axis.factor}"

    def loop(self, loop: Loop) -> None:
        for reduction in loop.reductions:
            self.start(reduction, loop)
        if loop.axis.extent == 1 and loop.axis not in self.ranges:
            self.axes[loop.axis] = Literal("0")
            with self.block(""):
                self.body(loop.body)
        elif loop in self.schedule.vectorised:
            self.vector_loops(loop)
        else:
            low, high = self.range_of(loop.axis)
            i = self.scoped(loop.axis)
            with self.block(f"for ({self.index_type} {i} = {low}; {i} < {high}; ++{i})"):
                self.body(loop.body)
            self.leave(i)
        for reduction in loop.reductions:
            self.finish(reduction, loop)

    def scoped(self, axis: Axis) -> str:
        name = self.names.fresh(axis.name)
        self.axes[axis] = Name(name)
        self.loop_names.append(name)
        return name

    def leave(self, name: str, reusable: bool = True) -> None:
        self.loop_names.pop()
        if reusable:
            self.names.used.discard(name)

    def vector_loops(self, loop: Loop) -> None:
        """One vector loop, or one for each piece of the range in which what the loads' guards say does not change."""
        pieces = segments(loop)
        if len(pieces) <= 1:
            self.vector_loop(loop)
            return
        axis, whole = loop.axis, self.ranges.get(loop.axis)
        for low, high in pieces:
            self.segments[axis] = low, high
            if whole is None:
                self.ranges[axis] = str(low), str(high)
                self.vector_loop(loop)
                continue
            with self.block(""):  # what this piece has in common with the piece of a tile or of a thread
                first, stop = self.names.fresh("first"), self.names.fresh("stop")
                self.w.line(f"const int64_t {first} = {whole[0]} > {low} ? {whole[0]} : {low};")
                self.w.line(f"const int64_t {stop} = {whole[1]} < {high} ? {whole[1]} : {high};")
                self.ranges[axis] = first, stop
                with self.block(f"if ({first} < {stop})"):
                    self.vector_loop(loop)
        del self.segments[axis]
        if whole is None:
            del self.ranges[axis]
        else:
            self.ranges[axis] = whole

    def vector_loop(self, loop: Loop) -> None:
        """Whole turns of several vectors where totals gain from it, then vectors, then what is left one by one."""
        lanes = self.schedule.lanes
        axis = loop.axis
        fed = [r for r, total in self.totals.items() if total.vector is not None and feeds(loop, r)]
        count = self.unroll_of(loop) if fed else 1
        low, high = self.range_of(axis)
        i = self.scoped(axis)
        static = low.isdigit() and high.isdigit()
        extent = int(high) - int(low) if static else 0
        start, left = low, extent
        if count > 1:
            step = lanes * count
            left = extent % step
            stop = str(int(high) - left) if static else self.whole_turns(low, high, step)
            with self.block(f"for (int64_t {i} = {start}; {i} < {stop}; {i} += {step})"):
                u = self.names.fresh("u")
                self.w.line(f"#pragma GCC unroll {count}")
                with self.block(f"for (int {u} = 0; {u} < {count}; ++{u})"):
                    self.unrolled = Name(u)
                    self.axes[axis] = Infix("+", Name(i), Infix("*", Name(u), Literal(str(lanes))))
                    self.vector_body(loop)
                    self.unrolled = None
            self.axes[axis] = Name(i)
            start = stop
        if not static or left >= lanes:
            left %= lanes
            stop = str(int(high) - left) if static else self.whole_turns(low, high, lanes)
            with self.block(f"for (int64_t {i} = {start}; {i} < {stop}; {i} += {lanes})"):
                self.vector_body(loop)
            start = stop
        if left and extent >= lanes and self.may_repeat(loop):
            self.axes[axis] = Literal(str(int(high) - lanes))
            self.repeats = self.repeats or any(isinstance(s, Store) for s in loop.body)
            with self.block(""):
                self.w.line(f"// the last {lanes}, {lanes - left} of them a second time")
                self.repeated = lanes - left
                self.vector_body(loop)
                self.repeated = 0
        elif not static or left:
            with self.block(f"for (int64_t {i} = {start}; {i} < {high}; ++{i})"):
                self.body(loop.body)
        self.leave(i)

    def may_repeat(self, loop: Loop) -> bool:
        """Whether the last vector of a loop may cover elements a second time, and pays: it calls functions, or takes totals.

        Nothing may be read that the loop writes; `function` then says that no result lies where an operand does.
        """
        pays = False
        read: set[ArrayRef] = set()
        written: set[ArrayRef] = set()
        for s in loop.body:
            match s:
                case Compute(_, op) if op in RANDOM_NAMES:
                    return False
                case Compute(target, op):
                    pays = pays or self.speller.has_function(op, target.dtype)
                case Load(_, array, _, guards) if not guards:
                    read.add(array)
                case Store(array):
                    written.add(array)
                case Accumulate(reduction) if reduction.op in ("sum", "max", "min"):
                    pays = True
                case PositionOf():
                    pass
                case _:
                    return False
        return pays and not read & written

    def whole_turns(self, low: str, high: str, step: int) -> str:
        """A local: where whole turns of `step` items (a power of two) from `low` end."""
        name = self.names.fresh(f"whole_{step}")
        value = f"{high} & -{step}" if low == "0" else f"{low} + (({high} - {low}) & -{step})"
        self.w.line(f"const int64_t {name} = {value};")
        return name

    def vector_body(self, loop: Loop) -> None:
        self.vector_axis = loop.axis
        self.body(loop.body)
        self.vector_axis = None

    # ---- indices ----

    def index(self, index: Affine) -> Expr:
        terms: list[Expr] = []
        for name, stride in sorted(index.terms, key=lambda term: -abs(term[1])):
            part = self.axes[name] if isinstance(name, Axis) else self.values[name].expr
            if isinstance(part, Literal):
                if part.text != "0":
                    terms.append(Literal(str(int(part.text) * stride)))
                continue
            term = scaled(part, stride)
            if term is not None:
                terms.append(term)
        if index.offset or not terms:
            terms.append(Literal(str(index.offset)))
        return infix_sum(terms)


def address(array: Expr, index: Expr) -> Expr:
    """`array + i * 100 + j`."""
    if isinstance(index, Literal) and index.text == "0":
        return array
    if isinstance(index, Infix) and index.op == "+":
        return Infix("+", address(array, index.left), index.right)
    return Infix("+", array, index)


def rounded(array: ArrayRef) -> int:
    """Bytes of a scratch array, in whole cache lines."""
    return -(-array.size * array.dtype.size // 64) * 64


def may_stop(s: Statement) -> bool:
    """Whether a statement may stop the program."""
    return isinstance(s, CheckIndex) or isinstance(s, Compute) and is_checked(s.op, s.target.dtype)


def used_sources(nest: Nest) -> set[ArrayRef | Local]:
    """The parameters that a nest reads at all."""
    used: set[ArrayRef | Local] = set()
    for s in walk(nest.body):
        match s:
            case LoadPair(_, _, array):
                used.add(array)
            case StorePair(array, _, first, second):
                used.add(array)
                used.update(o for o in (first, second) if isinstance(o, Local))
            case Load(_, array, index):
                used.add(array)
                used.update(n for n, _ in index.terms if isinstance(n, Local))
            case Compute(_, _, operands):
                used.update(o for o in operands if isinstance(o, Local))
            case Store(array, index, value):
                used.add(array)
                used.update(o for o in (value,) if isinstance(o, Local))
                used.update(n for n, _ in index.terms if isinstance(n, Local))
            case Accumulate(_, value, index):
                used.update(o for o in (value,) if isinstance(o, Local))
                if index is not None:
                    used.update(n for n, _ in index.terms if isinstance(n, Local))
            case CheckIndex(_, index):
                used.update(o for o in (index,) if isinstance(o, Local))
            case PositionOf(_, index):
                used.update(n for n, _ in index.terms if isinstance(n, Local))
            case Copy(target, source):
                used.update((target, source))
            case CallSupport(_, _, arguments):
                used.update(a for a in arguments if not isinstance(a, Constant))
    return used


def wrapped(signature: str, width: int = 116) -> str:
    """A function head, broken after a comma where it is long."""
    if len(signature) <= width:
        return signature
    lines, line = [], ""
    for piece in signature.split(", "):
        if line and len(line) + len(piece) + 3 > width:
            lines.append(line + ",")
            line = "        " + piece
        else:
            line = f"{line}, {piece}" if line else piece
    return "\n".join([*lines, line])
