"""The local variables of one call of a converted function, as an object whose states can be compared and joined.

Converted code reads and writes `L.x` where the user wrote `x`. A staged construct takes a snapshot, traces a body, and
compares: what was one name per function in Python becomes a value per branch or iteration in the program.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from staged.errors import StagedError, UnboundNameError
from staged.ir.names import LibraryName, as_name, has_name
from staged.ops.array import StagedArray
from staged.source import Position, here, running_part


@dataclass(frozen=True)
class Unbound:
    """The reason why a name cannot be read here; the error is raised by the first read, not where the paths met."""

    error: type[StagedError]
    message: str
    details: tuple[str, ...] = ()
    hint: str | None = None
    where: Position | None = None
    """The place to show; None: the read itself."""
    construct: str | None = None
    """The construct behind which the name has no value: `the loop at line 5`."""
    retry: Callable[[], None] | None = field(default=None, compare=False)
    """Requests another trace in which the name has a value, if possible: called before the error is raised."""

    def throw(self) -> None:
        if self.retry is not None:
            self.retry()
        read = here()
        details = self.details
        if self.where is not None and read is not None:
            details = (*details, f"read at line {read.line}")
        raise self.error(self.message, where=self.where or read, details=details, hint=self.hint)


_PLAIN = frozenset((bool, int, float, complex, str, type(None)))
"""Values without a position of their own, unlike staged values: the line that binds them is kept."""

Snapshot = tuple[dict[str, Any], dict[str, Unbound]]


class Locals:
    """Local variables as attributes. The only names of its own are slots that no user's name collides with."""

    __slots__ = ("__dict__", "_staged_function", "_staged_lines", "_staged_unbound")

    def __init__(self, function: str) -> None:
        object.__setattr__(self, "_staged_function", function)
        object.__setattr__(self, "_staged_unbound", {})
        object.__setattr__(self, "_staged_lines", {})

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        if self._staged_unbound:
            self._staged_unbound.pop(name, None)
        if type(value) is StagedArray and (not value.value.hint or type(value.value.hint) is not str):
            value.value.hint = name  # the program speaks in the user's names
        elif type(value) in _PLAIN:
            self._staged_lines.setdefault(name, {})[sys._getframe(1).f_lineno] = value

    def _staged_bind(self, name: str, value: Any) -> None:
        """Set a parameter. The result of a layer keeps the layer's name."""
        if type(value) is StagedArray and type(value.value.hint) is LibraryName:
            self.__dict__[name] = value
        else:
            setattr(self, name, value)

    def __repr__(self) -> str:
        """List the variables, for a debugger in eager mode."""
        return "\n".join(f"{name} = {value!r}" for name, value in self.__dict__.items())

    def _staged_line(self, name: str, value: Any) -> int | None:
        """The line that bound `name` to this Python number, string or None; None where several lines did, or it is
        unknown.
        """
        lines = [line for line, bound in self._staged_lines.get(name, {}).items() if bound is value]
        return lines[0] if len(lines) == 1 else None

    def _staged_unbind(self, name: str, reason: Unbound) -> None:
        """Unbind `name`; a later read says why."""
        self.__dict__.pop(name, None)
        self._staged_unbound[name] = reason

    def __getattr__(self, name: str) -> Any:
        unbound = self._staged_unbound.get(name)
        if unbound is not None:
            unbound.throw()
        raise UnboundNameError(f"`{name}` is read before it is bound", where=here())


class LibraryLocals(Locals):
    """The locals of a function of this package, whose names give way to the user's."""

    __slots__ = ()

    def __setattr__(self, name: str, value: Any) -> None:
        self.__dict__[name] = value
        if self._staged_unbound:
            self._staged_unbound.pop(name, None)
        if type(value) is StagedArray and not has_name(value.value.hint):
            function = self._staged_function
            of = running_part() or ("" if function == "forward" else function.strip("_"))
            value.value.hint = LibraryName(as_name(f"{of}_{name}"), word=name) if of else ""
        elif type(value) in _PLAIN:
            self._staged_lines.setdefault(name, {})[sys._getframe(1).f_lineno] = value


NOTHING = object()
"""Stands for a name that is not bound."""


def snapshot(scope: Locals) -> Snapshot:
    """The state of `scope`: a shallow copy, since staged values are immutable."""
    return dict(scope.__dict__), dict(scope._staged_unbound)


def restore(scope: Locals, state: Snapshot) -> None:
    """Put `scope` back to `state`."""
    values, unbound = state
    scope.__dict__.clear()
    scope.__dict__.update(values)
    object.__setattr__(scope, "_staged_unbound", dict(unbound))


def unbind(scope: Locals, name: str, reason: Unbound) -> None:
    """Unbind `name`; a later read says why."""
    scope._staged_unbind(name, reason)


def default(scope: Locals, name: str) -> Any:
    """The value that an unbound name stands for: none for locals, the entry value for Variables under a transform."""
    return scope.entry(name) if isinstance(scope, VariableStates) else NOTHING


class VariableStates(Locals):
    """The values of Variables inside differentiated code, tracked like locals: state passing by the same joins.

    `entries` holds what each Variable was when the transform began; a name appears among the locals once written.
    """

    __slots__ = ("entries",)

    def __init__(self, entries: dict[str, Any]) -> None:
        super().__init__("the differentiated function")
        object.__setattr__(self, "entries", entries)

    def entry(self, name: str) -> Any:
        return self.entries.get(name, NOTHING)


def all_names(states: Iterable[dict[str, Any]]) -> list[str]:
    """The names of several states, each once, in order of appearance (so that programs print the same everywhere)."""
    names: dict[str, None] = {}
    for state in states:
        names.update(dict.fromkeys(state))
    return list(names)
