"""A loop nest and its schedule become one C function.

    // mlp.py:31  probabilities = softmax(logits)
    // fused: max, subtract, exp, sum, divide
    static void probabilities(const float *logits, float *probabilities, unsigned char *scratch, int64_t begin, int64_t end)

Loops print as loops; values keep the user's names; what is used once, in the loop that made it, is written in place.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from staged.backends.c_family.expr import Call, Cast, Index, Infix, Literal, Name, address, literal
from staged.backends.c_family.kernel_text import KernelText, Site, kernel_comments
from staged.backends.c_family.nest_uses import count_uses, used_sources
from staged.backends.c_family.scalars import is_checked, random_call, spell
from staged.backends.c_family.vector_loops import VectorLoops
from staged.backends.c_family.vectors import Vec, is_zero
from staged.backends.c_family.writer import safe_comment
from staged.ir.buffers import aligned
from staged.ir.loops import (
    OUT_OF_RANGE,
    Accumulate,
    Affine,
    ArrayRef,
    CallSupport,
    CheckIndex,
    Compute,
    Copy,
    Guarded,
    Load,
    LoadPair,
    Local,
    Loop,
    Nest,
    PositionOf,
    Statement,
    Store,
    StorePair,
    Tile,
    dims_in,
)
from staged.ir.machine import Machine
from staged.ir.nodes import Op
from staged.ir.schedule import Schedule
from staged.ir.types import Dim, i64
from staged.ir.types import bound as bound_of

ELEMENT = "element"


def emit_kernel(op: Op, name: str, machine: Machine, site: Site) -> KernelText:
    """The C function for a `kernel` op that carries its nest and schedule."""
    nest: Nest = op.attrs["nest"]
    schedule: Schedule = op.attrs["schedule"]
    emitter = LoopEmitter(nest, schedule, machine, site)
    return emitter.function(name, kernel_comments(op))


class LoopEmitter(VectorLoops):
    """Writes one nest."""

    # ---- the function ----

    def function(self, name: str, comments: Sequence[str]) -> KernelText:
        parameters = self.parameters()
        scratch_bytes = sum(aligned(a.nbytes) for a in self.nest.scratch)
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
        with w.block(f"static void {name}({text})"):
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
            self.in_place_pairs(),
            items_text=self.items_text(),
        )

    def in_place_pairs(self) -> tuple[tuple[int, int], ...]:
        """The (result, operand) pairs that may share a buffer.

        Exact: not a result whose last vector is written twice, and so read again after the first time.
        """
        return tuple(pair for pair in self.nest.in_place if self.nest.outputs[pair[0]] not in self.stored_twice)

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
            offset += aligned(array.nbytes)
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
        self.uses.update(count_uses(body))
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

    def copy(self, target: ArrayRef, source: ArrayRef | None) -> None:
        """The rest of an array that is changed in part; in place there is nothing to do."""
        self.need("memcpy")
        a = self.arrays[target]
        count = str(target.size)
        if target.dim is not None:
            row = target.size // bound_of(target.dim)
            count = f"(size_t){self.size(target.dim)}" + (f" * {row}" if row != 1 else "")
        size = f"{count} * sizeof({target.dtype.c_name})"
        if source is None:
            self.w.line(f"memset({a}, 0, {size});")
            return
        b = self.arrays[source]
        with self.block(f"if ({a} != {b})"):
            self.w.line(f"memcpy({a}, {b}, {size});")

    def compute(self, s: Compute) -> None:
        operands = [self.operand(o) for o in s.operands]
        varies = any(o.varies for o in operands)
        dtypes = [o.dtype for o in operands]
        result = s.target.dtype
        named = s.target.name != s.op
        if s.declared.kind == "random" and self.vector_axis is not None and self.is_drawn_along(s):
            self.draw_vector(s, [o.expr for o in operands])
            return
        if not varies:
            exprs = [o.expr for o in operands]
            if s.declared.kind == "random":
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
        if s.meaning == "index":
            with self.w.block(f"if ({raw} < 0)"):
                self.w.line(f"{raw} += {extent};")
        with self.w.block(f"if ({raw} < 0 || {raw} >= {extent})"):
            given = (
                f"(long long){index.expr}" if isinstance(index.expr, Name | Literal) else f"(long long)({index.expr})"
            )
            limit = f"(long long){extent}" if isinstance(s.extent, Dim) else f"{extent}LL"
            self.w.line(f'st_fail(host, ST_INDEX_ERROR, {self.site(s.where)}, "{OUT_OF_RANGE[s.meaning]}", {given}, {limit});')
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
        for reduction in tile.reductions:
            self.start(reduction, tile)
        low, high = self.range_of(tile.axis)
        with self.pieces(low, high, tile.size) as (start, stop):
            before = self.ranges.get(tile.axis)
            self.ranges[tile.axis] = (start, stop)
            self.body(tile.body)
            if before is None:
                del self.ranges[tile.axis]
            else:
                self.ranges[tile.axis] = before
        for reduction in tile.reductions:
            self.finish(reduction, tile)

    @contextmanager
    def pieces(self, low: object, high: object, size: int) -> Iterator[tuple[str, str]]:
        """A loop over pieces of at most `size` of a range; the names of a piece's first number and of the one after its last."""
        start, stop = self.names.fresh("first"), self.names.fresh("stop")
        with self.block(f"for ({self.index_type} {start} = {low}; {start} < {high}; {start} += {size})"):
            limit = f"{start} + {size} < {high} ? {start} + {size} : {high}"
            self.w.line(f"const {self.index_type} {stop} = {limit};")
            yield start, stop

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
