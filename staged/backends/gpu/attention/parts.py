"""The parts that attention's kernels share: tiles in shared memory, products of their rows, what a query sees.

Tested by `tests/backends/cublas_cudnn/test_attention_kernels.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from staged.backends.gpu.attention.sizes import SMALL, WARPS, AttentionSizes
from staged.backends.gpu.dialect import GpuDialect
from staged.backends.gpu.geometry import Launch
from staged.backends.gpu.kernel_text import GpuKernel
from staged.backends.gpu.nest.statements import array_of
from staged.backends.gpu.packs import pack_name
from staged.backends.gpu.reductions import reduction_name
from staged.backends.gpu.terms import Term, both, chosen
from staged.code.expr import (
    Call,
    Cast,
    Expr,
    Group,
    Infix,
    Literal,
    Name,
    Prefix,
    Variable,
    literal,
)
from staged.code.kernel_text import kernel_comments
from staged.code.printer import print_function
from staged.code.scalars import cast
from staged.code.tree import (
    Assign,
    Barrier,
    CodeBuilder,
    Constants,
    Declare,
    ForAny,
    Function,
    Parameter,
)
from staged.code.types import INDEX, SHORT_INDEX, CType, Space, lanes, pointer, scalar
from staged.code.unused import drop_unused_variables, names_used
from staged.ir.declaration import Declaration
from staged.ir.nodes import Op
from staged.ir.types import DType, bool_, f32
from staged.library.sequences.blocks import index_of, parted

QUERIES, KEYS, WIDTH, DEPTH = (Term(Name(name)) for name in ("QUERIES", "KEYS", "WIDTH", "DEPTH"))
BLOCKS, BLOCK, ROWS, TILE = (Term(Name(name)) for name in ("BLOCKS", "BLOCK", "ROWS", "TILE"))


class AttentionCode:
    """A kernel under way. `first` is the first row of a thread's warp in the block, `start` that of the block."""

    def __init__(self, sizes: AttentionSizes, op: Op, dialect: GpuDialect) -> None:
        self.sizes, self.op, self.dialect = sizes, op, dialect
        self.code = CodeBuilder()
        self.snippets: set[str] = set()
        self.given: list[Variable] = []
        self.results = iter(op.results)
        self.causal: bool = op.attrs["causal"]
        self.scale: float = op.attrs["scale"]
        self.total = sizes.dtype
        """The dtype of sums."""
        self.constants = {
            "QUERIES": sizes.queries,
            "KEYS": sizes.keys,
            "WIDTH": sizes.width,
            "DEPTH": sizes.depth,
            "BLOCKS": sizes.blocks,
            "BLOCK": sizes.block,
            "ROWS": sizes.rows,
            "TILE": sizes.tile,
        }
        """Sizes by their names in the text."""

    def size(self, constant: Term) -> int:
        """The number that such a name stands for."""
        return self.constants[str(constant.expr)]

    # ---- declarations ----

    def parameter(self, name: str, type: CType) -> Term:
        self.given.append(Variable(name, type))
        return Term(self.given[-1])

    def operand(self, name: str, number: int) -> Term:
        """The operand of this number, which is only read."""
        dtype = self.op.operands[number].tensor.dtype
        return self.parameter(name, pointer(scalar(dtype), Space.GLOBAL, is_const=True))

    def result(self, name: str) -> Term:
        """The next result, of its dtype."""
        return self.parameter(name, pointer(scalar(next(self.results).tensor.dtype), Space.GLOBAL))

    def constant(self, name: str, type: CType, value: Term) -> Term:
        variable = Variable(name, type)
        self.code.add(Declare(variable, value.expr))
        return Term(variable)

    def number(self, name: str, value: Term) -> Term:
        """A constant in the dtype of sums."""
        return self.constant(name, scalar(self.total), value)

    def variable(self, name: str, value: Term) -> Term:
        variable = Variable(name, scalar(self.total))
        self.code.add(Declare(variable, value.expr, is_const=False))
        return Term(variable)

    def registers(self, name: str, *extents: Term | int) -> Term:
        """An array of a thread's own, whose indices are all known to the compiler."""
        variable = Variable(name, array_of(self.total))
        self.code.add(Declare(variable, is_const=False, sizes=tuple(map(_size, extents))))
        return Term(variable)

    def shared(self, name: str, rows: Term | int, pitch: int) -> Term:
        """Rows in shared memory, whose elements are read in packs."""
        variable = Variable(name, array_of(self.total, Space.SHARED))
        alignment = self.sizes.gpu.access_bytes
        self.code.add(Declare(variable, is_const=False, sizes=(_size(rows), _size(pitch)), alignment=alignment))
        return Term(variable)

    @contextmanager
    def loop(
        self,
        name: str,
        start: Term | int,
        stop: Term | int,
        step: Term | int = 1,
        unroll: int = 0,
        is_rolled: bool = False,
    ) -> Iterator[Term]:
        """A loop that the compiler writes out, or must not, or may."""
        index = Variable(name, SHORT_INDEX)
        by = None if isinstance(step, int) and step == 1 else _size(step)
        count = 1 if is_rolled else unroll if unroll > 1 else 0
        with self.code.loop(index, _size(start), _size(stop), by, count):
            yield Term(index)

    @contextmanager
    def each_row(self) -> Iterator[Term]:
        """The rows of a warp, written out: what belongs to a row is in registers."""
        with self.loop("r", 0, ROWS, unroll=self.sizes.rows) as r:
            yield r

    @contextmanager
    def tiles(self, name: str, start: Term | int, extent: Term, until: Term | None) -> Iterator[Term]:
        """Tiles of `extent` rows, those that begin before `until`."""
        index = Variable(name, SHORT_INDEX)
        begin = Term(index)
        with self.code.nested() as inner:
            yield begin
        condition = both(begin < extent, None if until is None else begin < until)
        assert condition is not None
        onwards = Assign(index, TILE.expr, "+")
        self.code.add(ForAny(index, _size(start), condition.expr, onwards, tuple(inner)))

    def assign(self, target: Term, value: Term, op: str = "") -> None:
        self.code.add(Assign(target.expr, value.expr, op))

    def barrier(self, note: str = "", is_warp: bool = False) -> None:
        self.code.add(Barrier(is_warp, note))

    # ---- numbers ----

    def need(self, name: str) -> None:
        self.snippets.add(name)

    def literal(self, value: float) -> Term:
        return Term(literal(value, self.total))

    def maths(self, name: str, x: Term) -> Term:
        return Term(Call(self.dialect.maths[name, self.total], (x.expr,)))

    def read(self, array: Term, place: Term | int) -> Term:
        """An element of an operand in the dtype of sums."""
        assert isinstance(array.expr, Variable) and array.expr.type.dtype is not None
        return Term(cast(array[place].expr, array.expr.type.dtype, self.total, self.need))

    def of_warp(self, op: Declaration, x: Term) -> Term:
        """The largest, or the sum, of what the lanes of a warp have."""
        name = reduction_name("warp", op, self.total)
        self.need(name)
        return Term(Call(f"st_{name}", (x.expr,)))

    def pack(self, name: str, place: Term) -> Term:
        """Neighbours in shared memory, read at once."""
        at = Term(Prefix("*", Cast(pointer(self.pack_type, Space.SHARED, is_const=True), Prefix("&", place.expr))))
        return self.constant(name, self.pack_type, at)

    @property
    def pack_type(self) -> CType:
        kind = pack_name(self.total, self.sizes.lanes)
        self.need(kind)
        return lanes(self.total, self.sizes.lanes, self.dialect.words.function(f"st_{kind}"))

    # ---- where a thread is ----

    def place(self) -> None:
        """The thread's place in its block, and the rows of that: the heavy ones first where blocks differ."""
        warp = self.sizes.gpu.warp
        self.thread = self.constant("thread", SHORT_INDEX, Term(self.dialect.thread))
        self.lane = self.constant("lane", SHORT_INDEX, self.thread % warp)
        self.first = self.constant("first", SHORT_INDEX, self.thread // warp * ROWS)
        block = self.constant("block", SHORT_INDEX, Term(self.dialect.block))
        self.head = self.constant("key_head" if self.sizes.of_keys else "head", SHORT_INDEX, block // BLOCKS)
        number = block % BLOCKS
        if self.causal and not self.sizes.of_keys and self.sizes.blocks > 1:
            number = Term(Group((BLOCKS - 1 - number).expr))
        self.start = self.constant("start", SHORT_INDEX, number * BLOCK)

    def of_head(self, name: str, array: Term, index: Any, *extents: Term, is_const: bool = True) -> Term:
        """The part of an operand, or of a result, that belongs to an element of its leading axes."""
        if isinstance(index, int) and index == 0:
            return array
        index = index if isinstance(index, Term) else Term(Literal(str(index)))
        expr: Term = Term(Cast(INDEX.text, Group(index.expr) if isinstance(index.expr, Infix) else index.expr))
        for extent in extents:
            expr = expr * extent
        assert isinstance(array.expr, Variable)
        return self.constant(name, array.expr.type, array + expr)

    # ---- shared memory ----

    def load(
        self,
        tile: Term,
        source: Term,
        rows: Term,
        pitch: int,
        features: Term,
        begin: Term,
        extent: Term,
        scale: float = 1.0,
    ) -> None:
        """Rows from `begin` on into shared memory by all threads, zeros beyond the last one and the last feature."""
        threads = self.sizes.gpu.warp * WARPS
        tall = self.sizes.tile if rows is TILE else self.sizes.block
        with self.loop("i", self.thread, rows * pitch, threads) as i:
            row = self.constant("row", SHORT_INDEX, i // pitch)
            column = self.constant("column", SHORT_INDEX, i % pitch)
            inside = both(
                begin + row < extent if self.size(extent) % tall else None,
                column < features if self.size(features) < pitch else None,
            )
            place = Term(Group((begin + row).expr)) * features + column
            value = self.read(source, place)
            if scale != 1.0:
                value = value * self.literal(scale).expr
            self.assign(tile[row][column], chosen(inside, value, self.literal(0.0)))

    def dots(self, own: Term, tile: Term, features: int, totals: Term, names: tuple[str, str]) -> None:
        """totals[r] += own[first + r] . tile[lane], pack by pack."""
        width, e_step = self.sizes.padded(features), self.sizes.lanes
        with self.loop("e", 0, width, e_step, is_rolled=True) as e:
            right = self.pack(names[1], tile[self.lane][e])
            with self.each_row() as r:
                left = self.pack(names[0], own[self.first + r][e])
                with self.loop("u", 0, e_step, unroll=e_step) as u:
                    self.assign(totals[r], left.member("at")[u] * right.member("at")[u], "+")

    def add_up(self, totals: Term, shares: Term, tile: Term, columns: int, names: tuple[str, str]) -> None:
        """totals[r][c] += shares[first + r][t] * tile[t][column c of the lane], over the rows t of a tile.

        `names` are for a pack of shares and for the elements of the tile that a lane holds.
        """
        step = self.sizes.lanes
        with self.loop("t", 0, TILE, step, is_rolled=True) as t:
            held = self.registers(names[1], step, columns)
            with self.loop("u", 0, step, unroll=step) as u, self.loop("c", 0, columns, unroll=columns) as c:
                self.assign(held[u][c], tile[t + u][self.lane + c * self.sizes.gpu.warp])
            with self.each_row() as r:
                weight = self.pack(names[0], shares[self.first + r][t])
                with self.loop("u", 0, step, unroll=step) as u, self.loop("c", 0, columns, unroll=columns) as c:
                    self.assign(totals[r][c], weight.member("at")[u] * held[u][c], "+")

    def clear(self, *totals: tuple[Term, int]) -> None:
        """Zeros for each row; for each column of it where there are some."""
        with self.each_row() as r:
            for total, columns in totals:
                if not columns:
                    self.assign(total[r], self.literal(0.0))
                    continue
                with self.loop("c", 0, columns, unroll=columns) as c:
                    self.assign(total[r][c], self.literal(0.0))

    def store(self, target: Term, row: Term, features: Term, value: Callable[[Term], Term]) -> None:
        """value(c) for each column c of a row of a result, in the result's dtype."""
        columns, warp = self.sizes.columns(self.size(features)), self.sizes.gpu.warp
        assert isinstance(target.expr, Variable) and target.expr.type.dtype is not None
        dtype = target.expr.type.dtype
        with self.loop("c", 0, columns, unroll=columns) as c:
            column = self.constant("column", SHORT_INDEX, self.lane + c * warp)
            if self.size(features) % warp:
                with self.code.branch((column < features).expr):
                    self.assign(target[row * features + column], self.stored(value(c), dtype))
            else:
                self.assign(target[row * features + column], self.stored(value(c), dtype))

    def stored(self, value: Term, dtype: DType) -> Term:
        """A sum in the dtype of a result."""
        return Term(cast(value.expr, self.total, dtype, self.need))

    @contextmanager
    def rows_there(self, row: Term, extent: Term) -> Iterator[None]:
        """Inside, code is executed for rows that exist."""
        if self.size(extent) % self.sizes.block:
            with self.code.branch((row < extent).expr):
                yield
        else:
            yield

    # ---- what a query sees ----

    def declare_mask(self) -> None:
        """The parameters of a mask and of the streams of dropout."""
        mask = self.sizes.mask
        self.mask = None if mask is None else self.operand("mask", 3)
        self.key: tuple[Term, Term] | None = None
        if "r" in self.op.attrs["parts"]:
            self.key = self.parameter("seed", INDEX), self.parameter("counter", INDEX)

    def mask_of(self, head: Any) -> Term | None:
        """The mask of a head."""
        if self.mask is None or self.sizes.mask is None:
            return None
        *lead, rows, columns = (int(extent) for extent in self.sizes.mask.shape)  # type: ignore[arg-type]
        extents = [name for name, extent in ((QUERIES, rows), (KEYS, columns)) if extent != 1]
        return self.of_head("head_mask", self.mask, index_of(tuple(lead), self.sizes.lead, head), *extents)

    def score(self, value: Term, query: Term, key: Term, mask: Term | None) -> tuple[Term | None, Term]:
        """(whether the query sees the key, None if it always does; the score with what a mask adds)."""
        sizes = self.sizes
        ragged_queries = sizes.queries % (sizes.tile if sizes.of_keys else sizes.block)
        ragged_keys = sizes.keys % (sizes.block if sizes.of_keys else sizes.tile)
        needs_query = ragged_queries and (sizes.of_keys or mask is not None)
        needs_key = ragged_keys and (not sizes.of_keys or mask is not None)
        conditions = [
            query < QUERIES if needs_query else None,
            key < KEYS if needs_key else None,
            key <= query if self.causal else None,
        ]
        if mask is None or sizes.mask is None:
            return both(*conditions), value
        rows, columns = (int(extent) for extent in sizes.mask.shape[-2:])  # type: ignore[arg-type]
        place: Any = 0
        if rows != 1:
            is_small = rows * columns <= SMALL
            place = (query if is_small else Term(Cast(INDEX.text, query.expr))) * KEYS if columns != 1 else query
        if columns != 1:
            place = key if isinstance(place, int) else place + key
        if sizes.mask.dtype.is_bool:
            return both(*conditions, mask[place]), value
        return both(*conditions), value + self.read(mask, place)

    def is_kept(self, head: Term, query: Term, key: Term) -> Term | None:
        """Whether dropout keeps a share, by the streams that the composite draws from; None without dropout."""
        if self.key is None:
            return None
        attrs, sizes, (seed, counter) = self.op.attrs, self.sizes, self.key
        (nq, bq), (nk, bk) = parted(sizes.queries, attrs["blocks"][0], 12), parted(sizes.keys, attrs["blocks"][1], 16)
        # Each of the composite's blocks of scores has a stream; an element's number is its place in the block.
        stream = Term(Cast(INDEX.text, head.expr))
        for number, count, size in ((query, nq, bq), (key, nk, bk)):
            stream = stream if count == 1 else Term(Group((stream * count + number // size).expr))
        stream = self.constant("stream", INDEX, stream + 1)
        row, column = query % bq if nq > 1 else query, key % bk if nk > 1 else key
        self.need("st_bernoulli")
        chance = literal(1.0 - attrs["p"], f32)
        drawn = Call("st_bernoulli", (seed.expr, stream.expr, counter.expr, chance, (row * bk + column).expr))
        return self.constant("is_kept", scalar(bool_), Term(drawn))

    def dropped(self, share: Term, is_kept: Term | None) -> Term:
        """A share with dropout."""
        return chosen(
            is_kept,
            share if is_kept is None else share * self.literal(1.0 / (1.0 - self.op.attrs["p"])).expr,
            self.literal(0.0),
        )

    # ---- the kernel ----

    def kernel(self, name: str, what: str) -> GpuKernel:
        """The kernel, called `name`; `what` says what it does."""
        sizes = self.sizes
        body = drop_unused_variables(self.code.body)
        used = names_used(body)
        shown = tuple((each, size) for each, size in self.constants.items() if each in used)
        rows = "keys" if sizes.of_keys else "queries"
        how = f"a block of {WARPS} warps for {sizes.block} {rows} of a head"
        launch = Launch(sizes.heads * sizes.blocks, sizes.heads * sizes.blocks, WARPS * sizes.gpu.warp, how=how)
        parameters = tuple(Parameter(variable, is_alone=variable.type.is_pointer) for variable in self.given)
        comments = (*kernel_comments(self.op, has_ops=True), what, f"{launch}")
        code = Function(name, parameters, (Constants(shown), *body), comments, launch.threads)
        return GpuKernel(
            name,
            print_function(code, self.dialect),
            tuple((variable.type.before_name, variable.text) for variable in self.given),
            1,
            snippets=frozenset(self.snippets),
            code=code,
            launch=launch,
        )


def _size(given: Term | int) -> Expr:
    return given.expr if isinstance(given, Term) else Literal(str(given))
