"""Residuals: what the reverse needs of the primal, and how it gets there.

The reverse of a block is first written in terms of the primal's own values. Those that its place cannot see, because
they are made inside a branch or a loop body, are then *fetched*:

- a value that is cheap to recompute from values at hand is recomputed (constants, the index, broadcasts, views, cheap
  arithmetic);
- a value that is the same in every iteration of a loop is recomputed once, before the reverse loop;
- the next value of a carried one is carried by the reverse loop itself: it is the value of the iteration after;
- any other becomes an *extra* result of the primal op: a branch yields it (the other branch yields zeros), a loop
  collects it in a sequence that the reverse loop reads by index, a function returns it (a recursive one in a frame).
  Slices that are together as large as their array are read from the array, which is kept instead.

A dimension that a branch or body gives a size has that size again in the reverse: the `dim` op is repeated, unchecked.
(In the other branch it has size 0, so that its zeros are none.)

`Residuals` writes these decisions down; `PrimalCopier` (`copiers.py`) carries them out when the primal is finally
emitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from staged.ir.builder import Builder, OpenBlock
from staged.ir.declaration import prims
from staged.ir.names import as_name, first_named
from staged.ir.nodes import PURE, Block, Op, Value
from staged.ir.nouns import noun_of
from staged.ir.sizes import Size, dims_in
from staged.ir.structure import COMPOSITE, FOR, SEQUENCE_GET
from staged.ir.trips import COUNT, Integers, constant_of, trip_bound
from staged.ir.types import SequenceType, TensorType, dims_of
from staged.ir.views import Loop

_CHEAP_KINDS = frozenset(("elementwise", "broadcast", "view", "source", "size"))
_MOST_RECOMPUTED = 12
"""Ops in a row that are worth redoing for one value: beyond, reading it back is cheaper."""
_TOO_MUCH = _MOST_RECOMPUTED + 1


@dataclass
class ExtraResults:
    """The results that a primal op gets for the reverse.

    For `if`, `for` and `while`: (value inside, its stand-in outside).
    """

    values: list[tuple[Value, Value]] = field(default_factory=list)
    count: Value | None = None
    """For a `while`: the stand-in for the number of its iterations."""
    function: str = ""
    """For a `call`: the function that is called instead."""
    own: list[Value] = field(default_factory=list)
    """For a `call` or `custom_vjp`: stand-ins for the residuals that it returns."""

    @property
    def stand_ins(self) -> list[Value]:
        """The stand-ins of all further results."""
        return [*(outside for _, outside in self.values), *self.own, *([] if self.count is None else [self.count])]


class Residuals:
    """The values that the reverse fetches. `alias` maps a primal value to its stand-in at the place that fetched it."""

    def __init__(self) -> None:
        self.extras: dict[Op, ExtraResults] = {}
        self.alias: dict[Value, Value] = {}
        self.free: set[Value] = set()
        """Primal values that every place can see at no cost: parameters of the differentiated code."""

    def resolve(self, value: Value) -> Value:
        while value in self.alias:
            value = self.alias[value]
        return value

    def extra(self, op: Op) -> ExtraResults:
        return self.extras.setdefault(op, ExtraResults())

    def fetch_from_branch(
        self, op: Op, block: Block, made: set[Value], needed: Iterable[Value], prologue: Prologue
    ) -> list[Value]:
        """Fetch `needed` values made in a branch of the primal `if`; returns the stand-ins of those that become extra
        results.
        """
        return [outside for _, outside in _Fetcher(self, op, block, made, prologue, None).fetch_all(needed)]

    def fetch_from_loop(
        self, op: Op, made: set[Value], needed: Iterable[Value], prologue: Prologue, count: Value
    ) -> tuple[list[Value], list[HandedDown]]:
        """Fetch `needed` values made in the body of a primal loop into the reverse body, in iteration `count`.

        Returns the stand-ins of those that become extra results, and the values that the reverse loop is to carry.
        """
        fetcher = _Fetcher(self, op, op.blocks[-1], made, prologue, count)
        return [outside for _, outside in fetcher.fetch_all(needed)], fetcher.handed_down

    def fetch_from_function(
        self, block: Block, made: set[Value], needed: Iterable[Value], prologue: Prologue
    ) -> list[tuple[Value, Value]]:
        """Fetch `needed` values made in a function's body into its reverse: (value, its stand-in) of those to keep."""
        return _Fetcher(self, None, block, made, prologue, None).fetch_all(needed)

    def trip_count(self, op: Op, made: set[Value]) -> Value:
        """The stand-in for the number of iterations of a primal `while`."""
        extra = self.extra(op)
        if extra.count is None:
            extra.count = Value(COUNT, "trips")
            made.add(extra.count)
        return extra.count


@dataclass(frozen=True)
class HandedDown:
    """A value that a reverse loop carries: the one that the primal's iteration has passed to the next.

    It begins as the loop's result `index`; each reverse iteration passes on what the carried value was when it began.
    """

    index: int
    param: Value
    next: Value


class Prologue:
    """The front of a block that is built already: ops appended here run before all that it holds."""

    def __init__(self, builder: Builder, opened: OpenBlock) -> None:
        self.builder = builder
        self.opened = opened

    @contextmanager
    def open(self) -> Iterator[None]:
        prefix = OpenBlock((), self.opened.parent)
        before, self.builder.current = self.builder.current, prefix
        try:
            yield
        finally:
            self.builder.current = before
            self.opened.ops[:0] = prefix.ops

    @contextmanager
    def before(self) -> Iterator[None]:
        """The block around it, which is still open."""
        current, self.builder.current = self.builder.current, self.opened.parent
        try:
            yield
        finally:
            self.builder.current = current


@dataclass
class _Fetcher:
    """One fetch: decides for each value, in program order, whether it is recomputed or kept."""

    residuals: Residuals
    op: Op | None
    """The `if` or loop; None for a function."""
    block: Block
    made: set[Value]
    prologue: Prologue
    count: Value | None
    kept: list[tuple[Value, Value]] = field(default_factory=list)
    handed_down: list[HandedDown] = field(default_factory=list)
    invariant: dict[Value, bool] = field(default_factory=dict)
    hoisted: dict[Value, Value] = field(default_factory=dict)
    whole: set[Value] = field(default_factory=set)
    """The arrays that are kept in place of pieces of them."""

    def fetch_all(self, needed: Iterable[Value]) -> list[tuple[Value, Value]]:
        wanted = dict.fromkeys(value for value in needed if value in self.made)
        sizes = [op for op in self.block.ops if op.declared is prims.DIM]
        if not wanted and not sizes:
            return []
        order = [*self.block.params, *(result for op in self.block.ops for result in op.results)]
        ordered = [value for value in order if value in wanted]
        # Stand-ins for residuals of nested ops are made by no op of the primal: they come last, as they were met.
        ordered += [value for value in wanted if value not in set(ordered)]
        self.whole = self.kept_whole(ordered)
        with self.prologue.open():
            for op in sizes:
                self.remake(op.result)
            for value in ordered:
                if value not in self.residuals.alias:
                    self.fetch(value)
        return self.kept

    def fetch(self, value: Value) -> None:
        if self.is_index(value):
            assert self.count is not None and self.op is not None
            integers = Integers(self.prologue.builder, self.op.where)
            self.residuals.alias[value] = integers.index(self.op, self.count)
        elif self.is_invariant(value) and not (value.producer is not None and _is_cheap(value.producer)):
            self.residuals.alias[value] = self.hoist(value)
        elif self.cost(value, _is_array(value)) <= _MOST_RECOMPUTED:
            self.remake(value)
        else:
            root = self.root(value)
            if root not in self.residuals.alias and not self.hand_down(root):
                self.keep(root)
            if value not in self.residuals.alias:
                self.remake(value)

    def root(self, value: Value) -> Value:
        """The value to keep for `value`: one no larger that it is cheaply made of, which others may need too."""
        steps = 0
        for_array = _is_array(value)
        while value not in self.whole and value.producer is not None and _is_cheap(value.producer):
            producer = value.producer
            costs = {operand: self.cost(operand, for_array) for operand in producer.operands}
            missing = [operand for operand, cost in costs.items() if cost > _MOST_RECOMPUTED]
            steps += 1 + sum(cost for cost in costs.values() if cost <= _MOST_RECOMPUTED)
            if len(missing) != 1 or missing[0] not in self.made or steps > _MOST_RECOMPUTED:
                break
            if not _is_no_larger(missing[0], value) and missing[0] not in self.whole:
                break
            (value,) = missing
        return value

    def kept_whole(self, values: Iterable[Value]) -> set[Value]:
        """The arrays to keep whole, since pieces of them that the reverse needs are together as large."""
        pieces: dict[Value, dict[object, int]] = {}
        for value in values:
            if value in self.residuals.alias or self.is_index(value) or self.is_invariant(value):
                continue
            if self.cost(value, _is_array(value)) <= _MOST_RECOMPUTED:
                continue
            piece = self.root(value)
            cut = piece.made_by(prims.SLICE)
            if cut is not None and cut.operands[0] in self.made and cut.operands[0].tensor.is_static:
                place = cut.attrs["start"], cut.attrs["stop"], cut.attrs["step"]
                pieces.setdefault(cut.operands[0], {})[place] = piece.tensor.nbytes
        return {whole for whole, sizes in pieces.items() if sum(sizes.values()) >= whole.tensor.nbytes}

    @property
    def is_branch(self) -> bool:
        return self.op is not None and self.count is None

    def is_index(self, value: Value) -> bool:
        return self.op is not None and self.op.declared is FOR and value is Loop(self.op).index

    def cost(self, value: Value, for_array: bool) -> int:
        """The number of ops that recompute `value` from values at hand; more than any limit where that is not cheap.

        For an array, scalars may be kept on the way: an element's index instead of the element.
        """
        if value in self.residuals.alias:
            return 0
        is_number = isinstance(value.type, TensorType) and not _is_array(value)
        if value not in self.made:
            if not self.is_branch or value in self.residuals.free or constant_of(value) is not None:
                return 0
            return 1 if for_array and is_number else _TOO_MUCH
        if self.is_index(value):
            return 1
        producer = value.producer
        if producer is None or not _is_cheap(producer):
            if self.is_invariant(value):
                return 0
            return 1 if for_array and is_number else _TOO_MUCH
        if self.is_branch and producer.declared.kind == "broadcast" and producer.operands[0] not in self.made:
            return 1  # what is repeated is smaller than the repeats
        total = 1
        for operand in producer.operands:
            total += self.cost(operand, for_array)
            if total > _MOST_RECOMPUTED:
                break
        return total

    # ---- what every iteration computes alike ----

    def is_invariant(self, value: Value) -> bool:
        """Return whether a loop computes `value` without data of the iteration, and without effects.

        Exact: ops that may stop the program, draw or read a Variable are not hoisted before a loop, which may have no
        iterations.
        """
        if self.count is None:
            return False
        if value not in self.made:
            return True
        if value not in self.invariant:
            producer = value.producer
            self.invariant[value] = (
                producer is not None
                and producer.declared.kind not in ("structured", "launch")
                and not producer.blocks
                and not producer.effects
                and not self.depends_on_size(producer)
                and all(self.is_invariant(operand) for operand in producer.operands)
            )
        return self.invariant[value]

    def depends_on_size(self, op: Op) -> bool:
        """Return whether an op works on a dimension that has its size here, another one in every iteration."""
        own = {size.attrs["dim"] for size in self.block.ops if size.declared is prims.DIM}
        mentioned = {dim for value in (*op.operands, *op.results) for dim in dims_of(value.type)}
        attrs = {dim for attr in op.attrs.values() if isinstance(attr, Size) for dim in dims_in(attr)}
        return bool(own & {*mentioned, *attrs})

    def hoist(self, value: Value) -> Value:
        """Recompute `value`, and all that it is made of, before the reverse loop; returns its copy there."""
        if value not in self.made:
            return value
        if value not in self.hoisted:
            producer = value.producer
            assert producer is not None
            operands = [self.hoist(operand) for operand in producer.operands]
            with self.prologue.before():
                again = self.prologue.builder.append(producer.replace(operands=operands))
            self.hoisted.update(zip(producer.results, again.results, strict=True))
        return self.hoisted[value]

    # ---- what the next iteration begins with ----

    def hand_down(self, value: Value) -> bool:
        """Let the reverse loop carry `value`, where it is the next value of a carried one that is kept anyway.

        Exact: the next value is the very bits of the carried one of the iteration behind; only where both are kept
        whole.
        """
        if self.count is None or self.op is None or value.producer is None:
            return False
        carried = Loop(self.op).carried
        kept = {inside for inside, _ in self.kept}
        for index, param in enumerate(carried):
            if self.block.end.operands[index] is value and param in kept:
                down = Value(value.type, value.hint)
                self.handed_down.append(HandedDown(index, down, self.residuals.alias[param]))
                self.residuals.alias[value] = down
                return True
        return False

    def remake(self, value: Value) -> None:
        """Make a value again from what is at hand.

        Exact: the same op on the same bits gives the same bits; its checks have been made by the primal, in this very
        block.
        """
        producer = value.producer
        assert producer is not None
        for operand in producer.operands:
            if operand in self.made and operand not in self.residuals.alias:
                self.fetch(operand)
        # Its operands are primal values too: the final copy puts their stand-ins in.
        # A check has been made by the primal: it does not stop the program a second time.
        again = self.prologue.builder.append(producer.replace(effects=PURE))
        self.residuals.alias[value] = again.result

    def keep(self, value: Value) -> None:
        if self.count is None or self.op is None:
            outside = Value(value.type, described(value))
            self.residuals.alias[value] = outside
        else:
            history = f"{described(value) or 'value'}_history"
            outside = Value(SequenceType(value.type, trip_bound(self.op)), history)
            place = Integers(self.prologue.builder, self.op.where).place(self.op, self.count)
            get = self.prologue.builder.op(
                SEQUENCE_GET, [outside, place], [value.type], device=self.op.device, where=self.op.where
            )
            get.result.hint = value.hint
            self.residuals.alias[value] = get.result
        if self.op is not None:
            self.residuals.extra(self.op).values.append((value, outside))
        self.kept.append((value, outside))


def described(value: Value) -> str:
    """The residual's name: the user's, else what it is of its operand (`c_squashed`), else empty."""
    if value.hint:
        return value.hint
    producer = value.producer
    if isinstance(value.type, TensorType) and value.type.dtype.is_bool and not value.type.shape:
        return "taken"
    if producer is None:
        return ""
    declared, name = producer.declared, producer.name
    if declared is COMPOSITE:
        name = str(producer.attrs["name"])
        word = producer.blocks[0].end.operands[value.index].hint
        layer = as_name(producer.where.part) if producer.where is not None else ""
        if word:
            return f"{layer or name}_{word}"
    elif declared.kind == "structured" or declared is prims.CONSTANT:
        return ""
    elif producer.operands and (_is_part(producer) or declared.kind in ("view", "broadcast")):
        return described(producer.operands[0])
    name = noun_of(producer) if declared is not COMPOSITE else name
    of = first_named(producer) if not value.tensor.shape or len(producer.operands) == 1 else ""
    return f"{of}_{name}" if of else name


def _is_part(op: Op) -> bool:
    """Return whether the result is some of the first operand, or all of it in another dtype."""
    return op.declared in (prims.CAST, prims.FIT, prims.INDEX_CHECK, prims.TAKE)


def _is_array(value: Value) -> bool:
    return isinstance(value.type, TensorType) and bool(value.type.shape)


def _is_no_larger(value: Value, other: Value) -> bool:
    left, right = value.type, other.type
    if not isinstance(left, TensorType) or not isinstance(right, TensorType):
        return False
    if left.shape == right.shape:
        return left.dtype.size <= right.dtype.size
    return left.is_static and right.is_static and left.nbytes <= right.nbytes


def _is_cheap(op: Op) -> bool:
    if op.blocks or len(op.results) != 1:
        return False
    if op.declared in (prims.FIT, prims.INDEX_CHECK, SEQUENCE_GET):
        return True  # in spite of its effect, or although it is no primitive
    if op.effects:
        return False
    return op.declared.kind in _CHEAP_KINDS and not op.declared.expensive
