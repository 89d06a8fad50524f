"""`LRScheduler`, the base of all: the rates of an optimiser, the number of steps, saving and loading.

A schedule makes each rate of its optimiser a Variable of f64 and writes it in `step()`. The next rate is computed from
the rate as it is then, as in torch, so that several schedules of one optimiser act together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

import staged as st
from staged.eager_mode.context import is_plain
from staged.errors import article
from staged.optim.optimizer import Optimizer

_CAPITALS = re.compile(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
"""The places before the capitals of a class's name."""


class LRScheduler:
    """Base: subclasses define `get_lr()`, the rates after a step, from `last_epoch`, `base_lrs` and `get_last_lr()`.

    Parameters: optimizer, whose rates become Variables; last_epoch, the number of steps so far where training
    continues, with an optimiser that has loaded its state (-1: it begins).
    """

    saved: tuple[str, ...] = ()
    """The attributes, besides the count and the rates, that a `state_dict` has."""
    is_initial = False
    """True while the constructor computes the rates of the first step."""
    restarts: Any = False
    """True in the step in which a `SequentialLR` begins this schedule; it may be staged."""
    has_first_rate = True
    """True if the rate after no steps is the one that training began with; else it is the one that is there."""

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        self.optimizer = self.checked(optimizer)
        self.owners = owners_of(optimizer)
        self.rates = rates_of(self.owners)
        if last_epoch == -1:
            for group, rate in zip(optimizer.groups, self.get_last_lr(), strict=True):
                group.setdefault("initial_lr", rate)
        elif not all("initial_lr" in group for group in optimizer.groups):
            self.refuse(
                "last_epoch needs the rates that training began with, which the optimiser does not have",
                hint="load its `state_dict` first, or leave `last_epoch` out and load the schedule's",
            )
        self.base_lrs = [group["initial_lr"] for group in optimizer.groups]
        self.last_epoch: Any = counter(f"{self.word}_last_epoch", last_epoch)
        self.begin()

    @property
    def word(self) -> str:
        """The beginning of the names of its Variables: `cosine_annealing` for `CosineAnnealingLR`."""
        return _CAPITALS.sub("_", type(self).__name__.removesuffix("LR")).lower()

    # ---- steps ----

    def begin(self) -> None:
        """Compute the rates of the first step."""
        self.is_initial = True
        self.advance()
        self.is_initial = False

    def get_lr(self) -> list[Any]:
        """The rates after this step, one for each group; every schedule defines it."""
        raise TypeError(f"{type(self).__name__} has no get_lr()")

    def step(self) -> None:
        """Count a step and write the rates that follow it."""
        self.advance()

    def advance(self, active: Any = True, restart: Any = False) -> None:
        """Count a step, or begin again at 0 if `restart`; nothing changes unless `active`. Both may be staged."""
        self.take_back_rates()
        before = [(variable, variable.value) for variable in self.variables()] if active is not True else []
        self.count(restart)
        self.restarts = restart
        for rate, lr in zip(self.rates, converted(self.get_lr)(), strict=True):
            rate.value = scalar_of(lr, rate.dtype)
        self.restarts = False
        for variable, value in before:
            variable.value = st.where(active, variable.value, value)

    def count(self, restart: Any) -> None:
        """Write the number of steps."""
        following = self.last_epoch.value + 1
        self.last_epoch.value = following if restart is False else st.where(restart, 0, following)

    def undo(self) -> None:
        """Count one step less; the rates stay."""
        self.last_epoch.value = self.last_epoch.value - 1

    def variables(self) -> list[Any]:
        """The Variables that a step writes."""
        return [*(value for value in vars(self).values() if isinstance(value, st.Variable)), *self.rates]

    def take_back_rates(self) -> None:
        """Write numbers that were assigned to `opt.lr` to the rates, and make these the optimiser's again."""
        for owner, rate in zip(self.owners, self.rates, strict=True):
            if owner["lr"] is not rate:
                rate.value = scalar_of(owner["lr"], rate.dtype)
                owner["lr"] = rate

    def get_last_lr(self) -> list[Any]:
        """The rates of the groups as they are now: numbers in plain Python."""
        return [number(rate) for rate in self.rates]

    @property
    def epoch(self) -> Any:
        """The number of steps as f64."""
        return st.astype(self.last_epoch.value, st.f64)

    @property
    def is_first(self) -> Any:
        """Return whether the rates of this step are those that are there already."""
        return self.is_initial or self.restarts

    def scaled(self, factor: Any) -> list[Any]:
        """The rates as they are now times `factor`."""
        return [rate.value * factor for rate in self.rates]

    # ---- what it is made with ----

    def refuse(self, what: str, hint: str | None = None) -> None:
        """Raises: ArgumentError that begins with the schedule's name."""
        raise st.ArgumentError(f"{type(self).__name__}: {what}", where=st.here(), hint=hint)

    def checked(self, optimizer: Any) -> Optimizer:
        """`optimizer`. Raises: ArgumentError if it is none."""
        if not isinstance(optimizer, Optimizer):
            self.refuse(f"the first argument is an optimiser, got {article(type(optimizer).__name__)}")
        made: Optimizer = optimizer
        return made

    def positive(self, **sizes: Any) -> None:
        """Raises: ArgumentError if a number of steps is not an integer above 0."""
        for name, size in sizes.items():
            if isinstance(size, bool) or not isinstance(size, int) or size < 1:
                self.refuse(f"{name} is an integer of at least 1, got {size!r}")

    def each_group(self, name: str, given: Any) -> list[Any]:
        """`given` for each group: a list has one entry for each, anything else is for all."""
        groups = len(self.optimizer.groups)
        if not isinstance(given, list | tuple):
            return [given] * groups
        if len(given) != groups:
            self.refuse(f"{name} has {len(given)} entries, the optimiser has {groups} group(s)")
        return list(given)

    # ---- saving and loading ----

    def state_dict(self) -> dict[str, Any]:
        """The number of steps, the rates and the arguments, with torch's keys."""
        state = {name: saved(getattr(self, name)) for name in (*self.saved, "base_lrs", "last_epoch")}
        return {**state, "_step_count": state["last_epoch"] + 1, "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another schedule of this kind was, ours or torch's: all of it is set, or nothing.

        The rates are the optimiser's, and are loaded with it.
        """
        names = (*self.saved, "base_lrs", "last_epoch")
        missing = [name for name in names if not isinstance(state_dict, Mapping) or name not in state_dict]
        if missing:
            raise st.StateDictError(
                f"state_dict does not fit: {type(self).__name__} has {', '.join(names)}, missing {missing}",
                where=st.here(),
            )
        for name in names:
            held, value = getattr(self, name), state_dict[name]
            if isinstance(held, st.Variable):
                held.value = scalar_of(value, held.dtype)
            elif isinstance(held, list | tuple):
                setattr(self, name, list(value))
            else:
                setattr(self, name, value)


# ---- the numbers of an optimiser ----


class Attributes:
    """The attributes of an optimiser by key, as the options of a group.

    `vars(optimizer)` is not used: a trace that reads it depends on all attributes, and steps change some of them.
    """

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer

    def __getitem__(self, name: str) -> Any:
        return getattr(self.optimizer, name)

    def __setitem__(self, name: str, value: Any) -> None:
        setattr(self.optimizer, name, value)


Owner = dict[str, Any] | Attributes


def owners_of(optimizer: Optimizer) -> list[Owner]:
    """The objects that hold the rates: the attributes of the optimiser if it has one group, else the groups."""
    if len(optimizer.groups) > 1:
        for group in optimizer.groups:
            group.setdefault("lr", optimizer.lr)
    return [group if "lr" in group else Attributes(optimizer) for group in optimizer.groups]


def rates_of(owners: Sequence[Owner]) -> list[Any]:
    """The Variables that hold the rates: `lr`, or `group0_lr` and so on."""
    names = [f"group{index}_lr" for index in range(len(owners))] if len(owners) > 1 else ["lr"]
    return [as_variable(owner, "lr", name) for owner, name in zip(owners, names, strict=True)]


def as_variable(owner: Owner, name: str, label: str = "") -> Any:
    """Return the Variable that holds a number of an optimiser; a new one is called `label`."""
    held = owner[name]
    if not isinstance(held, st.Variable):
        held = owner[name] = st.Variable(st.full((), held, dtype=st.f64), name=label or name)
    return held


def scalar_of(value: Any, dtype: Any) -> Any:
    """A number as an array of `dtype`."""
    if isinstance(value, st.Array):
        return st.astype(value, dtype)
    return st.full((), value.item() if hasattr(value, "item") else value, dtype=dtype)


def counter(name: str, start: Any) -> Any:
    """A Variable that counts."""
    return st.Variable(st.full((), start, dtype=st.i64), name=name)


def number(value: Any) -> Any:
    """The value of a Variable: a number in plain Python, an array in a program."""
    array = value.value if isinstance(value, st.Variable) else value
    return np.asarray(array).item() if is_plain() and isinstance(array, st.Array) else array


def saved(value: Any) -> Any:
    """An attribute as a `state_dict` has it."""
    if isinstance(value, list | tuple):
        return [number(each) for each in value]
    return number(value)


def converted(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function`, whose conditions and loops are the program's where there is one."""
    return function if is_plain() else st.function(function)


def product(factors: Iterable[Any]) -> Any:
    """The product of all factors."""
    total: Any = 1.0
    for factor in factors:
        total = total * factor
    return total
