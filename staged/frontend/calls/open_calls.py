"""Calls of staged functions that are open, and what is known of the functions of the program."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from staged.frontend.calls.call_arguments import CallArguments, Slots, fits_slots, same_function, same_slots
from staged.frontend.exits.targets import Carry
from staged.frontend.trace.attempts import Attempt
from staged.frontend.trace.context import TraceContext
from staged.frontend.trace.lifetimes import OfBody, OfTrace
from staged.frontend.values.join import Template
from staged.frontend.values.variable import Variable
from staged.ir.nodes import Function, Value
from staged.ir.types import TensorType
from staged.source import Position


@dataclass(eq=False)
class Specialisation:
    """A staged function as a function of the program, for certain slots: what is assumed of it, or known once it is
    traced.
    """

    name: str
    slots: Slots
    level: int
    """The number of open transforms inside it: those around it, and its own state where there is any."""
    result: Template | None = None
    """None: nothing is known of its result, calls of it do not return."""
    state: list[Variable] = field(default_factory=list)
    """The Variables whose values it takes, under a transform."""
    written: Carry = field(default_factory=dict)
    """Those of them whose new values it returns."""
    captures: list[Value] = field(default_factory=list)
    """Values from outside: further parameters, the same in all calls."""
    calls_unknown: bool = False
    """True if a call of it was met while its result was unknown."""
    unknown_at: Position | None = None
    """The position of the last of these calls."""
    waits: bool = False
    """True if one of its paths ends in a call of a function around it whose result is unknown."""

    with_state: bool = False
    """True if Variables are passed as state, though no transform is open around it."""

    @property
    def is_unknown(self) -> bool:
        return self.calls_unknown and self.result is None

    @property
    def user_name(self) -> str:
        return self.name.split("#")[0]

    @property
    def written_types(self) -> list[TensorType]:
        return [type_ for kept in self.written.values() if isinstance(kept, Template) for type_ in kept.types]


@dataclass(eq=False)
class Activation:
    """An open call of a staged function: in place, or (with `special`) as a specialisation."""

    function: Callable[..., Any]
    call: CallArguments
    slots: Slots
    targets: int
    conditional: int
    attempt: Attempt
    """Taken back where the call has to become one of a function of the program."""
    special: Specialisation | None = None


@dataclass(frozen=True)
class CallsItself:
    """A call inside itself, under staged control: the outer one becomes a function of the program.

    `slots` say which leaves of its arguments are staged there, with which types; `with_state`, that it takes and
    returns what Variables hold.
    """

    slots: Slots
    with_state: bool = False


@dataclass(frozen=True, eq=False)
class KnownSpecialisation:
    """A function of the program that has been traced, and the calls that it serves.

    Only of functions that see nothing but their arguments and globals: these do not change inside a recursive function,
    so that what was traced once holds for all calls there.
    """

    function: Callable[..., Any]
    structure: tuple[Any, ...]
    special: Specialisation

    def is_of(self, function: Callable[..., Any], call: CallArguments, special: Specialisation) -> bool:
        """Return whether this is known of the function that `special` will be."""
        return (
            same_function(self.function, function)
            and self.structure == call.structure
            and self.special.with_state == special.with_state
            and same_slots(self.special.slots, special.slots)
        )

    def serves(self, trace: TraceContext, function: Callable[..., Any], call: CallArguments) -> bool:
        """Return whether a call here can be one of this function."""
        return (
            same_function(self.function, function)
            and self.structure == call.structure
            and self.special.level - self.special.with_state == len(trace.transforms)
            and fits_slots(self.special.slots, call)
        )


@dataclass(frozen=True)
class OpenCalls(OfBody):
    """The calls of staged functions that are open, innermost last."""

    activations: tuple[Activation, ...] = ()


@dataclass
class Functions(OfTrace):
    """The functions of the program."""

    by_name: dict[str, Function] = field(default_factory=dict)
    """By the name that calls use while tracing."""
    finished: list[KnownSpecialisation] = field(default_factory=list)
    """Those inside a function that is still being traced, which serve its other calls too."""
    expected: list[KnownSpecialisation] = field(default_factory=list)
    """Findings of attempts, right or nearly so: the next attempt starts from these."""
    numbers: Iterator[int] = field(default_factory=itertools.count)
    """Tell names of functions and calls apart."""


def awaits_result(trace: TraceContext) -> bool:
    """Return whether a path has ended in a call of a recursive function of whose result nothing is known yet."""
    return any(open_.special is not None and open_.special.is_unknown for open_ in trace.of(OpenCalls).activations)
