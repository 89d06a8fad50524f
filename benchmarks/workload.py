"""The workload that a framework gives to the worker: something to run, and the results of the run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """One row in one framework, weights and data in place.

    `run(n)` makes n calls, or trains n steps starting at batch 0, and returns the last result or loss when it is really
    there. `read` turns that into an array in the row's own layout. `figures` are further measured seconds by name, such
    as staging.
    """

    run: Callable[[int], Any]
    read: Callable[[Any], Any] = lambda result: result
    figures: Mapping[str, float] = field(default_factory=dict)


class NotWritten(Exception):
    """This framework has no such row (a loop around one op, a convolutional network in NumPy)."""
