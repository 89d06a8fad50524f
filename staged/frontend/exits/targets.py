"""Targets of exits: loops, scopes and functions, with the state that every path into them must agree on.

A target is traced under an assumption (which names it carries, with which types). An exit that does not fit widens the
next assumption; the target is then `stale`, and its attempt is taken back.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from staged.errors import CarriedValueError, StagingError, UnboundNameError
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.lifetimes import OfBody
from staged.frontend.trace.locals import NOTHING, Locals, Unbound, all_names, default, restore, unbind
from staged.frontend.trace.signals import Signal, Target
from staged.frontend.values import trees
from staged.frontend.values.join import (
    MismatchError,
    Static,
    Template,
    describe,
    is_one,
    join,
    join_leaf,
    materialise,
    mismatch,
    same,
    template_of,
)
from staged.frontend.values.objects import check_order, note_joined
from staged.frontend.values.trees import mutable_nodes
from staged.ir.builder import OpenBlock
from staged.ir.nodes import EndKind, Label, Value
from staged.ir.sizes import Dim
from staged.ir.types import TensorType, dims_of
from staged.ops.array import StagedArray
from staged.source import Position, here

Key = tuple[int, str]
"""A tracked name: which of the tracked locals, and the name in it."""

Carry = dict[Key, Template | Unbound]


class Closable(Protocol):
    """A thing that an exit closes as it leaves it: a file of the program."""

    def close(self) -> None: ...


@dataclass(frozen=True)
class Files(OfBody):
    """The files whose `with` is open, and how many targets there were when it began."""

    open: tuple[tuple[Closable, int], ...] = ()


@dataclass
class CarryingTarget(Target):
    """A target with a label: all exits pass the carried state.

    `scopes` are the locals whose names are tracked and `entry` their values when the construct began.
    """

    trace: TraceContext
    scopes: list[Locals] = field(default_factory=list)
    entry: list[dict[str, Any]] = field(default_factory=list)
    carry: Carry = field(default_factory=dict)
    joins_entry: bool = True
    label: Label = field(default_factory=lambda: Label("scope"))
    demands: Carry = field(default_factory=dict)
    stale: bool = False
    result: Template | None = None
    """The template of the value that the exits return (function targets)."""
    has_result: bool = False
    returned: list[Any] = field(default_factory=list)
    """The values that the exits return, one per exit."""
    result_where: Position | None = None
    """The position of the first return."""
    exits: int = 0
    breaks: bool = False
    passed: dict[tuple[Key, int], bool] = field(default_factory=dict)
    """Per carried leaf: whether some exit passed something else than the loop's own parameter."""
    params: dict[tuple[Key, int], Value] = field(default_factory=dict)
    passed_trees: dict[Key, list[Any]] = field(default_factory=dict)
    """Per carried name: what the exits passed."""
    late: frozenset[Key] = frozenset()
    """Names of a loop that have no value at entry, and one after it: what the exits in `ends` pass."""
    ends: frozenset[EndKind] = frozenset()
    dims: tuple[tuple[Dim, OpenBlock], ...] = ()
    """The dimensions that have a size before a loop."""
    by: Callable[[str], tuple[str, str]] = lambda name: ("before", "after")

    def exit(self, signal: Signal) -> None:
        assert signal.kind == "break" or signal.kind == "continue", f"a loop is left by {signal.kind}"
        self.leave(signal.kind, signal.value, signal.where)

    def leave(self, kind: EndKind, value: Any = None, where: Position | None = None) -> None:
        """End the current block with the state as it is now; `where` is the statement that does so."""
        close_left(self.trace, self)
        self.exits += 1
        self.breaks = self.breaks or kind == "break"
        where = where or here()
        operands = self.operands(kind, value, where)
        self.trace.builder.end(kind, operands, None if kind == "yield" or kind == "return" else self.label, where)

    # ---- the state ----

    def operands(self, kind: EndKind, value: Any, where: Position | None) -> list[Value]:
        """The values that this exit passes; those that do not fit the assumption are entered into `demands`."""
        out: list[Value] = []
        for index, scope in enumerate(self.scopes):
            check_order(scope, self.entry[index], scope.__dict__)
            for name in all_names([self.entry[index], scope.__dict__]):
                key = (index, name)
                if key not in self.carry:
                    self._check_unchanged(key, kind)
        for key in sorted(self.late) if kind in self.ends else ():
            if self.value_now(key) is NOTHING:
                self._missing(key)
        for key, template in self.carry.items():
            if isinstance(template, Template):
                if key in self.late and kind not in self.ends:
                    # Dead here: the next iteration rebinds it first.
                    out += [param for (owner, _), param in self.params.items() if owner == key]
                else:
                    out += self._pass(key, template)
        if self.has_result:
            out += self._pass_result(value, where)
        return out

    def value_at_entry(self, key: Key) -> Any:
        index, name = key
        value = self.entry[index].get(name, NOTHING)
        return default(self.scopes[index], name) if value is NOTHING else value

    def value_now(self, key: Key) -> Any:
        index, name = key
        value = self.scopes[index].__dict__.get(name, NOTHING)
        return default(self.scopes[index], name) if value is NOTHING else value

    def _check_unchanged(self, key: Key, kind: EndKind) -> None:
        before, now = self.value_at_entry(key), self.value_now(key)
        if now is before:
            return
        if before is NOTHING and self.joins_entry:
            if key in self.late and kind in self.ends and self._can_be_late(now):
                self._demand(key, NOTHING, now)
            return  # else made in the body: its own
        if before is not NOTHING and now is not NOTHING and is_one(before, now):
            return
        self._demand(key, before if self.joins_entry else NOTHING, now)

    def _demand(self, key: Key, before: Any, now: Any) -> None:
        name = key[1]
        self.stale = True
        wanted = self.demands.get(key, before)
        if isinstance(wanted, Unbound):
            return
        if now is NOTHING:
            self.demands[key] = self._missing(key)
            return
        if wanted is NOTHING:
            self.demands[key] = template_of(now)
            return
        try:
            self.demands[key] = join(wanted, now)
        except MismatchError as why:
            self.demands[key] = mismatch(self.scopes[key[0]], name, wanted, now, self.by(name), str(why), here())

    def _can_be_late(self, value: Any) -> bool:
        """Return whether zeros can serve as the unused initial value of a name that gets `value`."""
        leaves, _ = trees.flatten(value)
        known = {dim for dim, _ in self.dims}
        return all(known.issuperset(dims_of(leaf.type)) for leaf in leaves if isinstance(leaf, StagedArray))

    def _missing(self, key: Key) -> Unbound:
        """Why a name has no value at this exit; where a loop before it can give it one, the program is traced again."""
        reason: Unbound | None = self.scopes[key[0]]._staged_unbound.get(key[1])
        if reason is not None and reason.retry is not None:
            reason.retry()
        if reason is not None and reason.error is CarriedValueError:
            return reason  # it was bound, to values that do not join
        return unbound(key[1], self.what)

    def _pass(self, key: Key, template: Template) -> list[Value]:
        now = self.value_now(key)
        if now is NOTHING:
            self.demands[key] = self._missing(key)
            self.stale = True
            return []
        leaves, spec = trees.flatten(now)
        if not trees.same_structure(spec, template.spec) or not fits(leaves, template):
            self._demand(key, template, now)
            return []
        self.passed_trees.setdefault(key, []).append(now)
        out = []
        for number, (leaf, slot) in enumerate(zip(leaves, template.leaves, strict=True)):
            if isinstance(slot, TensorType):
                value = materialise(self.trace, leaf, slot)
                slot_key = (key, number)
                if value is not self.params.get(slot_key):
                    self.passed[slot_key] = True
                out.append(value)
        return out

    def _pass_result(self, value: Any, where: Position | None) -> list[Value]:
        if self.result is None:
            self.result = template_of(value)
            self.result_where = where
        self.returned.append(value)
        leaves, spec = trees.flatten(value)
        if not trees.same_structure(spec, self.result.spec) or not fits(leaves, self.result):
            self.result = join_results(self.result, value, self.what, self.result_where or where)
            self.stale = True
            return []
        return [
            materialise(self.trace, leaf, slot)
            for leaf, slot in zip(leaves, self.result.leaves, strict=True)
            if isinstance(slot, TensorType)
        ]

    def passed_nodes(self) -> list[list[object]]:
        """The mutable nodes that each exit passed, of all carried names."""
        exits = zip(*self.passed_trees.values(), strict=False)
        return [[node for tree in passed for node in mutable_nodes(tree)] for passed in exits]

    def next_carry(self) -> Carry:
        """The assumption for the next attempt."""
        return {**self.carry, **self.demands}

    @property
    def types(self) -> tuple[TensorType, ...]:
        """The types that every exit passes: carried leaves, then the result's."""
        out: list[TensorType] = []
        for template in self.carry.values():
            if isinstance(template, Template):
                out += template.types
        if self.has_result and self.result is not None:
            out += self.result.types
        return tuple(out)

    def hints(self) -> tuple[str, ...]:
        out: list[str] = []
        for (_, name), template in self.carry.items():
            if isinstance(template, Template):
                out += template.hints(name)
        return tuple(out)

    def bind(self, handles: list[StagedArray], inside: bool = False) -> None:
        """Give the carried names the values of block parameters or results (taken off the front).

        `inside` the loop, names that have no value at entry are not bound.
        """
        for key, template in self.carry.items():
            index, name = key
            if isinstance(template, Unbound):
                unbind(self.scopes[index], name, template)
            elif inside and key in self.late:
                del handles[: len(template.types)]
            else:
                value = self.scopes[index].__dict__[name] = template.rebuild(handles)
                note_joined(self.trace, value, self.value_at_entry(key), *self.passed_trees.get(key, ()))

    def forget_inner_names(self, made: list[dict[str, Any]], why: Callable[[Key], Unbound]) -> None:
        """After the construct: names bound only inside it are unbound, with the reason."""
        for index, names in enumerate(made):
            for name in names:
                if (index, name) not in self.carry and self.value_at_entry((index, name)) is NOTHING:
                    unbind(self.scopes[index], name, why((index, name)))


def fits(leaves: list[Any], template: Template) -> bool:
    """Return whether these leaves can be passed where `template` is assumed."""
    for leaf, slot in zip(leaves, template.leaves, strict=True):
        if isinstance(slot, Static):
            if not same(leaf, slot.value):
                return False
            continue
        try:
            if join_leaf(slot, leaf) != slot:
                return False
        except MismatchError:
            return False
    return True


def unbound(name: str, what: str, why: str = "", construct: str = "") -> Unbound:
    """A name that is not bound on every path through `what`: a construct, or words about one."""
    return Unbound(
        UnboundNameError,
        f"`{name}` is not bound on every path through {what}{why}",
        hint=f"bind `{name}` before {what}",
        construct=construct or what,
    )


def join_results(a: Any, b: Any, what: str, where: Position | None) -> Template:
    """The template of what two `return`s give; a StagingError or CarriedValueError when they do not agree."""
    for mine, other in ((a, b), (b, a)):
        if is_none(mine) and not is_none(other):
            raise StagingError(
                f"missing return: {what} returns {describe(other)} on one path and nothing on another",
                where=where,
                hint="return a value of the same type on every path",
            )
    try:
        return join(a, b)
    except MismatchError as why:
        raise CarriedValueError(
            f"{what} returns {describe(a)} on one path and {describe(b)} on another: {why}",
            where=where,
            hint="strings cannot differ by path: write an `if`, and print in its branches"
            if strings_of(a, b)
            else "return the same structure, dtype and shape on every path",
        ) from None


def strings_of(*values: Any) -> list[str]:
    """The strings among the static leaves of values and templates."""
    leaves: list[Any] = []
    for value in values:
        if isinstance(value, Template):
            leaves += [leaf.value for leaf in value.leaves if isinstance(leaf, Static)]
        else:
            leaves += trees.flatten(value)[0]
    return [leaf for leaf in leaves if isinstance(leaf, str)]


def is_none(value: Any) -> bool:
    if isinstance(value, Template):
        return len(value.leaves) == 1 and isinstance(value.leaves[0], Static) and value.leaves[0].value is None
    return value is None


def tracked(trace: TraceContext, scope: Locals) -> list[Locals]:
    """The locals a construct in `scope` must compare: its own, and those that nested functions write."""
    return [scope, *(other for other in trace.shared if other is not scope)]


def restore_all(scopes: list[Locals], states: list[Any]) -> None:
    for scope, state in zip(scopes, states, strict=True):
        restore(scope, state)


def target_of(trace: TraceContext, signal: Signal) -> Target:
    """The target of a signal, from the innermost construct outwards."""
    return next(target for target in reversed(trace.targets) if signal.kind in target.catches)


def close_left(trace: TraceContext, target: object) -> None:
    """Before an exit towards `target`: close the files whose `with` it leaves."""
    files = trace.of(Files).open
    if not files:
        return
    depth = next(depth for depth, other in enumerate(trace.targets) if other is target)
    for file, entered in reversed(files):
        if entered > depth:
            file.close()
