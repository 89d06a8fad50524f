"""State that a construct keeps in the trace: a dataclass of its own, known by its class, with a lifetime.

The trace holds three tables of them (`TraceState.of`, `put`). What is put back is the table, by reference: so what ends
with a body, or with an attempt, is immutable.
"""

from __future__ import annotations

from typing import ClassVar


class Held:
    """State of a construct; without arguments its class makes what holds where none has been put."""

    lifetime: ClassVar[str]
    """The attribute of the trace that is its table."""


class OfBody(Held):
    """Immutable state that holds to the end of the body (`TraceState.inside`) in which it is put."""

    lifetime = "of_body"


class OfAttempt(Held):
    """Immutable state that holds until the attempt in which it is put is taken back."""

    lifetime = "of_attempt"


class OfTrace(Held):
    """Mutable state that is kept whatever is taken back: what has been found out once."""

    lifetime = "of_trace"
