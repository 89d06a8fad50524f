"""Lists, dicts and objects that converted code changes in place under staged control flow.

`p.pos = ...` and `t["h"] = ...` inside a staged branch or loop change an object that other names may hold, too. So the
object keeps its identity, and its contents (attributes, elements, entries) are tracked like the locals of a call: what
the paths leave in them is joined, carried and passed on by the same machinery. Tracking begins with the first change;
the construct it happens in is then traced again, from its start, with the object among what it tracks.

Only objects made while tracing can be changed so: others outlive the program, which cannot change them.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from staged.errors import StaticStateError, UnboundNameError, article
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.bodies import Mutation, OpenBody
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.lifetimes import OfBody, OfTrace
from staged.frontend.trace.locals import Locals, Unbound
from staged.frontend.trace.signals import Again
from staged.frontend.values.join import describe, is_one
from staged.frontend.values.trees import is_dataclass, map_leaves, mutable_nodes
from staged.ops.array import Array
from staged.source import here

R = TypeVar("R")


class _Elements(MutableMapping[str, Any]):
    """The elements of a list by their index, as text."""

    def __init__(self, owner: list[Any]) -> None:
        self.owner = owner

    def _index(self, name: str) -> int:
        # An attribute's name is no element: it is asked for where an earlier attempt at a loop had another object in
        # this place.
        if not name.isdigit() or int(name) >= len(self.owner):
            raise KeyError(name)
        return int(name)

    def __getitem__(self, name: str) -> Any:
        return self.owner[self._index(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        if int(name) == len(self.owner):
            self.owner.append(value)
        else:
            self.owner[int(name)] = value

    def __delitem__(self, name: str) -> None:
        del self.owner[self._index(name)]

    def __iter__(self) -> Iterator[str]:
        return map(str, range(len(self.owner)))

    def __len__(self) -> int:
        return len(self.owner)

    def clear(self) -> None:
        self.owner.clear()


class _Entries(MutableMapping[str, Any]):
    """The entries of a dict: keys that are names stand for themselves, others for how Python writes them."""

    def __init__(self, owner: dict[Any, Any]) -> None:
        self.owner = owner
        self.keys_of: dict[str, Any] = {}

    def _key(self, name: str) -> Any:
        if name not in self.keys_of:
            list(self)
        return self.keys_of[name]

    def __getitem__(self, name: str) -> Any:
        return self.owner[self._key(name)]

    def __setitem__(self, name: str, value: Any) -> None:
        self.owner[self._key(name)] = value

    def __delitem__(self, name: str) -> None:
        del self.owner[self._key(name)]

    def __iter__(self) -> Iterator[str]:
        for key in list(self.owner):
            name = key if isinstance(key, str) and key.isidentifier() else repr(key)
            self.keys_of[name] = key
            yield name

    def __len__(self) -> int:
        return len(self.owner)

    def clear(self) -> None:
        self.owner.clear()


class _Slots(MutableMapping[str, Any]):
    """The attributes of an object that keeps them in slots."""

    def __init__(self, owner: object) -> None:
        self.owner = owner
        slots = [getattr(cls, "__slots__", ()) for cls in reversed(type(owner).__mro__)]
        self.names = [name for group in slots for name in ([group] if isinstance(group, str) else group)]

    def __getitem__(self, name: str) -> Any:
        try:
            return object.__getattribute__(self.owner, name)
        except AttributeError:
            raise KeyError(name) from None

    def __setitem__(self, name: str, value: Any) -> None:
        object.__setattr__(self.owner, name, value)

    def __delitem__(self, name: str) -> None:
        object.__delattr__(self.owner, name)

    def __iter__(self) -> Iterator[str]:
        return (name for name in self.names if name in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and hasattr(self.owner, name)

    def __len__(self) -> int:
        return sum(1 for _ in self)


def contents_of(owner: object) -> MutableMapping[str, Any] | None:
    """A view of what an object holds, by name; None for an object that cannot be tracked."""
    if isinstance(owner, list):
        return _Elements(owner)
    if isinstance(owner, dict):
        return _Entries(owner)
    if isinstance(owner, Array | Locals | type):
        return None
    if hasattr(owner, "__dict__"):
        return owner.__dict__
    return _Slots(owner) if hasattr(type(owner), "__slots__") and not isinstance(owner, tuple | set) else None


class ObjectState(Locals):
    """The contents of an object, tracked like the local variables of a call."""

    __slots__ = ("contents", "label", "owner", "trace")

    def __init__(self, trace: TraceContext, owner: object, label: str) -> None:
        super().__init__(article(type(owner).__name__))
        contents = contents_of(owner)
        assert contents is not None
        for name, value in (("owner", owner), ("contents", contents), ("label", label), ("trace", trace)):
            object.__setattr__(self, name, value)

    @property
    def __dict__(self) -> Any:  # type: ignore[override]
        return self.contents

    def _staged_unbind(self, name: str, reason: Unbound) -> None:
        """Contents cannot be missing: refuse now, with the change that led here."""
        where = reason.where
        for mutation in reversed(self.trace.log):
            if mutation.owner is self.owner and mutation.where is not None:
                where = mutation.where
                break
        shown = self._shown(name)
        message = reason.message.replace(f"`{name}`", f"`{shown}`")
        if isinstance(self.owner, list) and issubclass(reason.error, UnboundNameError):
            named = self.label if self.label == describe(self.owner) else f"the list `{self.label}`"
            raise StaticStateError(
                f"{named} changes its length inside {reason.construct or 'a staged construct'}",
                where=where or here(),
                hint="collect values in `st.Stack(like, max=...)`, or write to an array: `out[i] = x`",
            )
        hint = (reason.hint or "").replace(f"`{name}`", f"`{shown}`").replace("bind `", "set `")
        raise reason.error(message, where=where or here(), details=reason.details, hint=hint or None)

    def _shown(self, name: str) -> str:
        if isinstance(self.owner, list):
            return f"{self.label}[{name}]"
        if isinstance(self.owner, dict):
            return f'{self.label}["{name}"]' if name.isidentifier() else f"{self.label}[{name}]"
        return f"{self.label}.{name}"


def check_order(scope: Locals, first: Iterable[str], second: Iterable[str]) -> None:
    """Refuse a dict whose keys, two states of which are given, are in another order on one path than on another."""
    if not isinstance(scope, ObjectState) or not isinstance(scope.owner, dict):
        return
    before, after = dict.fromkeys(first), dict.fromkeys(second)
    if [name for name in before if name in after] != [name for name in after if name in before]:
        raise StaticStateError(
            f"the order of the keys of `{scope.label}` depends on the path, which is known only when the program runs",
            where=here(),
            hint="set a key that is there (`d[key] = x`) without removing it before",
        )


# ---- when tracking begins -----------------------------------------------------------------------


def is_tracked(trace: TraceContext, owner: object) -> bool:
    """Return whether the contents of `owner` are among what constructs track."""
    return any(isinstance(scope, ObjectState) and scope.owner is owner for scope in trace.shared)


@dataclass
class Copied(OfTrace):
    """Arguments of functions of the program, which are copies there: by id, with the function's name."""

    arguments: dict[int, tuple[object, str]] = field(default_factory=dict)


def before_change(trace: TraceContext, owner: object, label: str) -> None:
    """`owner` is about to change: see to it that every open construct that is older than `owner` tracks it.

    Raises Again for the outermost of these; StaticStateError where two names may hold one object.
    """
    copied = trace.of(Copied).arguments
    if id(owner) in copied:
        name = copied[id(owner)][1]
        raise StaticStateError(
            f"`{label}` is an argument of the recursive function `{name}`, which changes it in place: its caller would "
            "not "
            "see that",
            where=here(),
            hint="return what changed (`dataclasses.replace(p, ...)`, `{**t, ...}`), or keep it in an `st.Variable`",
        )
    if trace.of(Origins).by_id:
        _check_aliases(trace, owner, label)
    depth = _depth_of(trace, owner)
    if depth is None or is_tracked(trace, owner) or any(body.function is not None for body in trace.bodies[depth:]):
        return
    if id(owner) in trace.made and contents_of(owner) is not None:
        raise _tracking(trace, owner, label, depth)


def _depth_of(trace: TraceContext, owner: object) -> int | None:
    """The outermost open body that is younger than `owner`."""
    return next((depth for depth, body in enumerate(trace.bodies) if id(owner) not in body.made), None)


def with_objects(trace: TraceContext, scopes: Callable[[], list[Locals]], run: Callable[[], R]) -> R:
    """`run()` of a staged construct, again from its start whenever an object turns out to need tracking.

    `scopes()` are the locals that the construct tracks.
    """

    def watched_run(attempt: Attempt) -> R:
        watched = _watched(trace)
        trace.put(OpenConstructs((*trace.of(OpenConstructs).attempts, (len(trace.bodies), attempt)), watched))
        try:
            made = run()
            check_unnoticed(trace)
        except Again:
            for owner, held in watched:
                _put_back(owner, held)
            raise
        return made

    def track(change: Change) -> None:
        _track(trace, change.owner, change.label)
        for owner in change.others:
            _track(trace, owner, "")

    # Each time there are more objects that are tracked: it ends.
    return trace.until_settled("a construct", scopes, watched_run, track, limit=None)


@dataclass(frozen=True)
class OpenConstructs(OfBody):
    """The attempts of staged constructs that are open, and how many bodies were open when each began."""

    attempts: tuple[tuple[int, Attempt], ...] = ()
    watched: Sequence[tuple[object, dict[str, Any]]] = ()
    """The objects that the innermost construct does not track, and what they held when it began."""


@dataclass(frozen=True)
class Change:
    """An object that is older than a staged construct changes in it: the construct has to track it."""

    owner: object
    label: str
    others: tuple[object, ...] = ()
    """Objects that have changed with it."""


def _tracking(trace: TraceContext, owner: object, label: str, depth: int, others: tuple[object, ...] = ()) -> Again:
    """Has the construct whose body is at `depth` traced again, with `owner` among what it tracks, and `others`."""
    attempts = reversed(trace.of(OpenConstructs).attempts)
    return Again(next(attempt for bodies, attempt in attempts if bodies == depth), Change(owner, label, others))


def _watched(trace: TraceContext) -> list[tuple[object, dict[str, Any]]]:
    """The objects that methods may change which Python calls itself (operators, properties), and what they hold."""
    found = []
    for owner in trace.made.values():
        if not isinstance(owner, list | dict | type) and hasattr(owner, "__dict__") and not is_tracked(trace, owner):
            found.append((owner, dict(owner.__dict__)))
    return found


def check_unnoticed(trace: TraceContext) -> None:
    """Let objects that have changed without a statement of converted code be tracked, too."""
    changed: dict[int, list[object]] = {}
    for owner, held in trace.of(OpenConstructs).watched:
        now = owner.__dict__
        if not is_tracked(trace, owner) and (
            now.keys() != held.keys() or any(now[name] is not value for name, value in held.items())
        ):
            body = _depth_of(trace, owner)
            changed.setdefault(len(trace.bodies) if body is None else body, []).append(owner)
    if changed:  # the outermost construct first; together, since a trace of the construct each would be many
        depth = min(changed)
        owner, *others = changed[depth]
        raise _tracking(trace, owner, "", depth, tuple(others))


def _put_back(owner: object, held: dict[str, Any]) -> None:
    owner.__dict__.clear()
    owner.__dict__.update(held)


def _track(trace: TraceContext, owner: object, label: str) -> None:
    state = ObjectState(trace, owner, label or article(type(owner).__name__))
    held = dict(state.contents)
    if hasattr(owner, "__dict__"):  # what the class gives is what a path leaves that does not set it
        for cls in type(owner).__mro__:
            for name, value in vars(cls).items():
                if not name.startswith("__") and not callable(value) and not hasattr(value, "__get__"):
                    state.contents.setdefault(name, value)

    def undo() -> None:
        state.contents.clear()
        state.contents.update(held)

    # What constructs put into it is not in the log: taken back past this point, it has what it has now.
    trace.log.append(Mutation(owner, "", held, lambda: dict(state.contents), undo))
    trace.shared += (state,)


# ---- objects that stand for others --------------------------------------------------------------


@dataclass
class Origins(OfTrace):
    """By the id of an object that came out of a join: what it was on the paths that met."""

    by_id: dict[int, dict[int, object]] = field(default_factory=dict)


def note_joined(trace: TraceContext, joined: object, *sources: object) -> None:
    """`joined` is a new tree for what was `sources` on the paths that meet: its mutable nodes stand for theirs."""
    nodes = mutable_nodes(joined)
    if not nodes:
        return
    others = [mutable_nodes(source) for source in sources]
    known = trace.of(Origins).by_id
    for number, node in enumerate(nodes):
        origins: dict[int, object] = {}
        for group in others:
            if number < len(group) and group[number] is not node:
                origins[id(group[number])] = group[number]
                origins.update(known.get(id(group[number]), {}))
        if origins:
            known[id(node)] = origins


def either_of(trace: TraceContext, first: Any, second: Any) -> Any:
    """Merge two trees with equal leaves at a join; a new tree unless both are the same object."""
    if is_one(first, second):
        return first
    made = map_leaves(lambda leaf: leaf, first)
    note_joined(trace, made, first, second)
    return made


def _check_aliases(trace: TraceContext, owner: object, label: str) -> None:
    """Refuse a change of an object that may be another one that is still in use: only the program would know."""
    origins = trace.of(Origins).by_id
    own = origins.get(id(owner), {})
    if any(not trace.is_made(other) for other in own.values()):
        raise StaticStateError(
            f"`{label or describe(owner)}` changes in place, and may be an object that is older than the call: which "
            "path was taken is known only when the program runs",
            where=here(),
            hint="change a copy (`dict(t)`, `list(xs)`, `dataclasses.replace(p)`)",
        )
    mine = {id(owner), *own}
    seen: dict[int, object] = {}
    for scope in [*trace.running_locals, *trace.shared]:
        for name, value in list(scope.__dict__.items()):
            for node in _reachable(trace, value, seen):
                if node is owner:
                    continue
                if mine & {id(node), *origins.get(id(node), {})}:
                    raise StaticStateError(
                        f"`{label or describe(owner)}` changes in place, and `{name}` may be the same object: which "
                        "path was taken is known only when the program runs",
                        where=here(),
                        hint="change a copy (`dict(t)`, `list(xs)`, `dataclasses.replace(p)`), or set all names anew",
                    )


def _reachable(trace: TraceContext, value: object, seen: dict[int, object]) -> Iterator[object]:
    """The mutable nodes of a tree and of the attributes of objects in it, each once."""
    if id(value) in seen:
        return
    if isinstance(value, list | dict | tuple | deque) or id(value) in trace.made:
        seen[id(value)] = value
        if not isinstance(value, tuple):
            yield value
        items: Any = value if isinstance(value, list | tuple | deque) else (contents_of(value) or {}).values()
        for item in list(items):
            yield from _reachable(trace, item, seen)


def check_passed(trace: TraceContext, body: OpenBody, passed: list[list[object]], stand_ins: list[object]) -> None:
    """At the end of a loop's body: refuse changes of carried objects that the next iteration would have under two
    names.

    `passed` are the mutable nodes that each exit passes on, `stand_ins` those that stood for them in this iteration.
    """
    doubtful: dict[int, object] = {}
    for nodes in passed:
        times = Counter(map(id, nodes))
        for node in nodes:
            if times[id(node)] > 1 or id(node) not in body.made:
                doubtful[id(node)] = node
    if not doubtful:
        return
    doubtful.update((id(node), node) for node in stand_ins)
    for mutation in trace.log[body.log_start :]:
        if id(mutation.owner) in doubtful:
            raise StaticStateError(
                f"{mutation.text} changes in place inside {body.what}, where it may be under two names in the next "
                "iteration",
                where=mutation.where,
                hint="change a copy (`dict(t)`, `list(xs)`, `dataclasses.replace(p)`), or carry it under one name",
            )


# ---- values that leave a block ------------------------------------------------------------------


def replace_leaves(tree: Any, replace: Callable[[Any], Any], done: dict[int, Any]) -> Any:
    """`tree` with its leaves replaced: mutable nodes are changed in place and keep their identity.

    Objects that are no trees are entered, too, when `done` does not hold them yet.
    """
    if id(tree) in done:
        return done[id(tree)]
    if isinstance(tree, tuple):
        items = [replace_leaves(item, replace, done) for item in tree]
        if all(new is old for new, old in zip(items, tree, strict=True)):
            return tree
        return type(tree)(*items) if hasattr(tree, "_fields") else tuple(items)
    if is_dataclass(tree) or isinstance(tree, list | dict):
        done[id(tree)] = tree
        contents = contents_of(tree)
        assert contents is not None
        for name in list(contents):
            new = replace_leaves(contents[name], replace, done)
            if new is not contents[name]:
                contents[name] = new
        return tree
    return replace(tree)
