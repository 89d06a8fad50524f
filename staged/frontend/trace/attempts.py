"""Bodies and attempts: the surroundings of the code that is being traced, and how tracing is undone and repeated.

Staged constructs are traced optimistically and traced again when an assumption fails (a static name that turns staged
inside a loop, an early return out of a helper). So all that tracing changes can be undone: ops, locals, and the Python
objects that converted code mutates.

    with trace.attempt(scopes) as attempt:
        ...                                 # `raise Again(attempt, reason)` from anywhere inside ends it
    if attempt.is_taken_back:               # and puts back what it has changed
        ...                                 # `attempt.reason` says what to do instead

`until_settled` repeats an attempt until it is not taken back.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, TypeVar

from staged.frontend.trace.bodies import Mutation, OpenBody
from staged.frontend.trace.lifetimes import Held
from staged.frontend.trace.locals import Locals, VariableStates, restore
from staged.frontend.trace.signals import Again, Body, Target
from staged.ir.builder import Builder, OpenBlock
from staged.ir.nodes import Value, VariableRef
from staged.ir.sizes import Dim
from staged.ops.record import RecordContext
from staged.source import Position

H = TypeVar("H", bound=Held)
R = TypeVar("R")

MAX_ATTEMPTS = 30
"""More attempts than names and types can change: reaching it is a bug of ours."""


TransformKind = Literal["derivative", "checkpoint", "function"]
"""A 'checkpoint' computes the results of its function; a 'function' is a function of the program."""


@dataclass
class OpenTransform:
    """An open transform: the Variables inside it are passed as state, and become effects again after it."""

    names: VariableStates
    outer: OpenBlock
    """The block around it: entry values are read there."""
    kind: TransformKind = "derivative"


class TraceState(RecordContext):
    """The part of a trace that bodies and attempts put back. Stacks are tuples, so that a reference keeps what they
    were.
    """

    def __init__(self, builder: Builder, locate: Callable[[], Position | None]) -> None:
        super().__init__(builder, locate=locate)
        # ---- what surrounds the code that is being traced, innermost last ----
        self.targets: tuple[Target, ...] = ()
        self.conditional: tuple[OpenBody, ...] = ()
        """The bodies of which the program decides whether they run."""
        self.bodies: tuple[OpenBody, ...] = ()
        """These, and the bodies of scopes, which staged paths leave early."""
        self.transforms: tuple[OpenTransform, ...] = ()
        """The open transforms."""
        self.path: tuple[object, ...] = ()
        """The loops and iterations."""
        self.next_run: Callable[[Locals, Body], Any] | None = None
        """Consumed by the next `run`: executes the body as a separate function, so that `return` leaves only it."""
        self.of_body: dict[type[Held], Any] = {}
        # ---- what has been recorded ----
        self.log: list[Mutation] = []
        self.shared: tuple[Locals, ...] = ()
        """Locals that nested functions write (`nonlocal`), and the Variables of transforms:
        tracked by every construct."""
        self.hidden: dict[int, tuple[Any, Value]] = {}
        """The inputs that are no arguments, by the id of the array of Python."""
        self.met: list[tuple[Any, Value]] = []
        """The inputs in the order of their first reads. An attempt that ends early leaves its inputs here."""
        self.variables: list[VariableRef] = []
        self.refs: dict[int, VariableRef] = {}
        """By the id of the Python-side Variable, which the reference keeps alive."""
        self.keys: dict[int, str] = {}
        """The name under which transforms track a variable, by the id of its reference."""
        self.dims: tuple[tuple[Dim, OpenBlock], ...] = ()
        """The dimensions that have been given a size, and where."""
        self.of_attempt: dict[type[Held], Any] = {}
        # ---- what is kept ----
        self.program: Attempt | None = None
        """The attempt that the whole trace is."""
        self.of_trace: dict[type[Held], Any] = {}
        self.kept_alive: list[object] = []
        """References and arrays of attempts that were taken back, so that ids stay unique."""
        self.retired: list[tuple[Any, Value]] = []
        """The arrays of Python that attempts read before they ended early, until the next attempt reads them."""

    @property
    def block(self) -> OpenBlock:
        assert self.builder.current is not None
        return self.builder.current

    # ---- state of constructs ----

    def of(self, kind: type[H]) -> H:
        """The state that a construct keeps here; `kind()` at first."""
        table = self.__dict__[kind.lifetime]
        if kind not in table:
            table[kind] = kind()
        held: H = table[kind]
        return held

    def put(self, state: Held) -> None:
        """Let `state` hold from here on, for its lifetime."""
        tables = self.__dict__
        tables[state.lifetime] = {**tables[state.lifetime], state.__class__: state}

    # ---- bodies and attempts ----

    @contextmanager
    def entered(self, block: OpenBlock) -> Iterator[None]:
        """Record into `block` until the end of the `with`."""
        outer = self.builder.current
        self.builder.current = block
        try:
            yield
        finally:
            self.builder.current = outer

    def inside(self, block: OpenBlock, is_closed: bool = False) -> Inside:
        """The body of a construct, recorded into `block`;
        what a closed one shares with nested functions ends with it."""
        return Inside(self, block, is_closed)

    def attempt(self, scopes: list[Locals]) -> Attempt:
        """A body that can be taken back; `scopes` are the locals that are put back with it."""
        return Attempt(self, scopes)

    def until_settled(
        self,
        what: str,
        scopes: Callable[[], list[Locals]],
        run: Callable[[Attempt], R],
        learn: Callable[[Any], None],
        limit: int | None = MAX_ATTEMPTS,
    ) -> R:
        """`run` in an attempt, repeated until it is not taken back; `learn` is given the reason of each that is."""
        for _ in itertools.count() if limit is None else range(limit):
            with self.attempt(scopes()) as attempt:
                return run(attempt)
            learn(attempt.reason)
        raise AssertionError(f"tracing {what} does not settle")


class Inside:
    """Inside of a body: at its end, on every way out, what surrounds it is what it was before.

    A construct adds to the stacks inside of it (`trace.targets += (target,)`), and takes nothing off them.
    """

    __slots__ = (
        "block", "bodies", "conditional", "inner", "is_closed", "next_run", "of_body", "path", "shared", "targets",
        "trace", "transforms",
    )  # fmt: skip

    def __init__(self, trace: TraceState, inner: OpenBlock | None = None, is_closed: bool = False) -> None:
        self.trace = trace
        self.inner = inner
        self.is_closed = is_closed
        self.shared = trace.shared
        self.block = trace.builder.current
        self.targets = trace.targets
        self.conditional = trace.conditional
        self.bodies = trace.bodies
        self.transforms = trace.transforms
        self.path = trace.path
        self.next_run = trace.next_run
        self.of_body = trace.of_body

    def __enter__(self) -> None:
        if self.inner is not None:
            self.trace.builder.current = self.inner

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        trace = self.trace
        trace.builder.current = self.block
        trace.targets = self.targets
        trace.conditional = self.conditional
        trace.bodies = self.bodies
        trace.transforms = self.transforms
        trace.path = self.path
        trace.next_run = self.next_run
        trace.of_body = self.of_body
        if self.is_closed:
            trace.shared = self.shared


class Attempt(Inside):
    """A body that `Again` takes back: then all is what it was at its beginning,
    and `reason` says what to do instead."""

    __slots__ = (
        "dims", "is_taken_back", "log", "met", "of_attempt", "ops", "reason", "scopes", "variables",
    )  # fmt: skip

    def __init__(self, trace: TraceState, scopes: list[Locals]) -> None:
        super().__init__(trace)
        assert self.block is not None
        self.ops = len(self.block.ops)
        self.log = len(trace.log)
        self.met = len(trace.met)
        self.variables = len(trace.variables)
        self.dims = trace.dims
        self.of_attempt = trace.of_attempt
        saved = []
        for scope in scopes:
            saved.append((scope, {**scope.__dict__}, {**scope._staged_unbound}))
        self.scopes = saved
        self.is_taken_back = False
        self.reason: Any = None

    def __enter__(self) -> Attempt:  # type: ignore[override]
        return self

    def __exit__(  # type: ignore[override]
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> bool:
        super().__exit__(kind, error, traceback)
        if type(error) is not Again or error.attempt is not self:
            return False
        self.take_back()
        self.reason = error.reason
        return True

    def has_bound(self) -> bool:
        """Return whether a name has been bound, or bound to another value, since the attempt began."""
        return any(
            scope.__dict__.keys() != before.keys() or any(scope.__dict__[name] is not before[name] for name in before)
            for scope, before, _ in self.scopes
        )

    def take_back(self) -> None:
        """Undo everything that has been recorded and changed since the attempt began."""
        trace, block = self.trace, self.block
        assert block is not None and trace.builder.current is block, (
            "an attempt is taken back from inside of another block"
        )
        self.is_taken_back = True
        del block.ops[self.ops :]
        block.ending = None
        for mutation in reversed(trace.log[self.log :]):
            mutation.undo()
        del trace.log[self.log :]
        later = trace.variables[self.variables :]
        for ref in later:
            if not ref.outer:
                trace.refs.pop(id(ref.identity), None)
                trace.keys.pop(id(ref), None)
                trace.kept_alive.append(ref)
        trace.variables[self.variables :] = [ref for ref in later if ref.outer]
        trace.shared = self.shared
        trace.dims = self.dims
        trace.of_attempt = self.of_attempt
        retired = {id(value): (array, value) for array, value in [*trace.retired, *trace.met[self.met :]]}
        trace.retired = list(retired.values())
        for scope, values, unbound in self.scopes:
            restore(scope, (values, unbound))
