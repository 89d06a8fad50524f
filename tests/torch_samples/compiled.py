"""Samples of torch's as compiled programs: those of one record in one program, value, vjp and jvp of each.

All tensors of a sample are arguments of the program, so that nothing about their elements is known while staging.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import optree
import torch

import staged as st
from staged.runtime.options import CompileOptions
from tests.torch_samples.check import (
    Expected,
    Failure,
    alike,
    arguments,
    array_of,
    by_torch,
    compare,
    converted,
    in_eager_mode,
    results,
    says,
)

OPTIONS = CompileOptions("1", (), ("-g0", "-w"))


class Place:
    """The place of a tensor in a sample's arguments."""

    def __init__(self, number: int) -> None:
        self.number = number


@dataclass
class Case:
    """A sample of a record. Without `values` only shapes and dtypes are compared."""

    record: Any
    sample: Any
    dtype: Any
    values: bool

    @cached_property
    def expected(self) -> Expected:
        """torch's results."""
        return by_torch(self.record, self.sample, self.dtype, self.values)

    def agrees_in_eager_mode(self, function: Callable[..., Any]) -> bool:
        """Return whether eager mode has torch's results: what does not is excused there."""
        return in_eager_mode(self.expected, self.sample, function, self.dtype, self.values) is None


def signature(case: Case) -> Any:
    """The differences of samples that make other programs: numbers of axes, dtypes, elements or none, options."""

    def of(tree: Any) -> Any:
        if isinstance(tree, torch.Tensor):
            return tree.ndim, tree.dtype, tree.numel() > 0
        if isinstance(tree, list | tuple):
            return type(tree), tuple(map(of, tree))
        if isinstance(tree, dict):
            return tuple((key, of(value)) for key, value in sorted(tree.items()))
        return str(tree) if isinstance(tree, str | bool | torch.dtype | None) else type(tree)

    return case.dtype, *(of(tree) for tree in arguments(case.sample))


def spread(cases: Sequence[Case], count: int) -> list[Case]:
    """At most `count` cases, the first of a signature each, from all over the list."""
    first = list({signature(case): case for case in reversed(cases)}.values())[::-1]
    step = max(1.0, len(first) / count)
    return [first[int(number * step)] for number in range(min(count, len(first)))]


def _call(case: Case, function: Callable[..., Any]) -> tuple[Callable[..., Any], Any]:
    """The case as a function of arrays, and these: (leaves, other tensors, cotangents, tangents)."""
    expected = case.expected
    numbers = {id(leaf): number for number, leaf in enumerate(expected.leaves)}
    others: list[np.ndarray] = []

    def place(tensor: Any) -> Place:
        if id(tensor) in numbers:
            return Place(numbers[id(tensor)])
        others.append(array_of(tensor))
        return Place(len(numbers) + len(others) - 1)

    trees = [converted(tree, place) for tree in arguments(case.sample)]
    items, tree = optree.tree_flatten(trees, none_is_leaf=True)
    differentiable = expected.chosen

    def run(leaves: Any, rest: Any, cotangents: Any, tangents: Any) -> Any:
        def value(*xs: Any) -> Any:
            arrays = [*xs, *rest]
            filled = [arrays[item.number] if isinstance(item, Place) else item for item in items]
            args, kwargs = optree.tree_unflatten(tree, filled)
            made = results(function(*args, **kwargs))
            return [made[index] for index in differentiable], made

        if not differentiable:
            return [value(*leaves)[1]]
        _, pullback, made = st.vjp(value, *leaves, has_aux=True)
        back = pullback(cotangents)
        if expected.d_values is None:
            return [made, back]
        return [made, back, st.jvp(value, tuple(leaves), tuple(tangents), has_aux=True)[1]]

    given = ([array_of(leaf) for leaf in expected.leaves], others, expected.cotangents, expected.tangents)
    return run, given


def failures(cases: Sequence[Case], function: Callable[..., Any]) -> list[tuple[Case, Failure]]:
    """The cases that do not agree with torch's results when they are parts of one program."""
    if not cases:
        return []
    calls = [_call(case, function) for case in cases]
    runs = [run for run, _ in calls]

    @st.function
    def everything(given: Any) -> Any:
        return [run(*arrays) for run, arrays in zip(runs, given, strict=True)]

    everything.options = OPTIONS
    try:
        found = everything([arrays for _, arrays in calls])
    except Exception as error:  # any refusal or fault is the failure that is reported
        if len(cases) == 1:
            return [(cases[0], Failure("program", says(error)))]
        return [failure for case in cases for failure in failures([case], function)]
    return [
        (case, failure)
        for case, made in zip(cases, found, strict=True)
        if (failure := _compared(case, made)) is not None
    ]


def _compared(case: Case, made: Any) -> Failure | None:
    expected, values = case.expected, made[0]
    assert expected is not None
    if not case.values:
        return None if alike(values, expected.values) else Failure("program's value", "other shapes or dtypes")
    wanted = [expected.values, expected.d_leaves, expected.d_values]
    for what, have, want in zip(("value", "vjp", "jvp"), made, wanted, strict=False):
        failure = compare(f"program's {what}", list(have), list(want or ()), case.dtype)
        if failure is not None:
            return failure
    return None

