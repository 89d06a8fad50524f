"""Schedules of schedules: together, or one after another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import staged as st
from staged.errors import article
from staged.optim.lr_scheduler.plateau import ReduceLROnPlateau
from staged.optim.lr_scheduler.schedule import LRScheduler, counter, number, owners_of, scalar_of
from staged.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """Base: schedules of one optimiser."""

    def hold(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None) -> None:
        """Keep the schedules. Raises: ArgumentError if there are none, or if one is of another optimiser."""
        self.schedulers = list(schedulers)
        if not self.schedulers:
            self.refuse("got no schedules")
        for index, scheduler in enumerate(self.schedulers):
            if not isinstance(scheduler, LRScheduler) or isinstance(scheduler, ReduceLROnPlateau):
                self.refuse(f"schedule {index} is {article(type(scheduler).__name__)}, whose steps it cannot make")
        self.optimizer = self.checked(self.schedulers[0].optimizer if optimizer is None else optimizer)
        for index, scheduler in enumerate(self.schedulers):
            if scheduler.optimizer is not self.optimizer:
                self.refuse(f"schedule {index} is of another optimiser")
        self.owners = owners_of(self.optimizer)
        self.rates = self.schedulers[0].rates

    def undo(self) -> None:
        """Count one step less in all."""
        for scheduler in self.schedulers:
            scheduler.undo()

    def state_dict(self) -> dict[str, Any]:
        """The states of the schedules, and the rates."""
        return {"_schedulers": [one.state_dict() for one in self.schedulers], "_last_lr": self.get_last_lr()}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another one of the same schedules was."""
        states = state_dict.get("_schedulers", ()) if isinstance(state_dict, Mapping) else ()
        if len(states) != len(self.schedulers):
            raise st.StateDictError(
                f"state_dict does not fit: {type(self).__name__} has {len(self.schedulers)} schedules, the state_dict "
                f"{len(states)}",
                where=st.here(),
            )
        for scheduler, state in zip(self.schedulers, states, strict=True):
            scheduler.load_state_dict(state)


class ChainedScheduler(_Combined):
    """Several schedules at once: each changes the rate that the one before it has left."""

    def __init__(self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None) -> None:
        self.hold(schedulers, optimizer)

    def advance(self, active: Any = True, restart: Any = False) -> None:
        """Advance each of the schedules."""
        for scheduler in self.schedulers:
            scheduler.advance(active, restart)


class SequentialLR(_Combined):
    """One schedule after another: the next one begins, from the first rate, at each of the `milestones`."""

    def __init__(
        self, optimizer: Optimizer, schedulers: Sequence[LRScheduler], milestones: Sequence[int], last_epoch: int = -1
    ) -> None:
        self.hold(schedulers, optimizer)
        if len(milestones) != len(self.schedulers) - 1:
            self.refuse(f"{len(self.schedulers)} schedules have one milestone less, got {len(milestones)}")
        if any(first > second for first, second in pairwise(milestones)):
            self.refuse(f"milestones rise, got {list(milestones)}")
        self.milestones = list(milestones)
        self.last_epoch = counter(f"{self.word}_last_epoch", last_epoch + 1)
        self.write_first_rates()
        self.undo()
        first = sum(milestone <= 0 for milestone in self.milestones)
        self.schedulers[first].begin()

    def write_first_rates(self, where: Any = True) -> None:
        """Write the rates that training began with."""
        for rate, group in zip(self.rates, self.optimizer.groups, strict=True):
            first = scalar_of(group["initial_lr"], rate.dtype)
            rate.value = first if where is True else st.where(where, first, rate.value)

    def advance(self, active: Any = True, restart: Any = False) -> None:
        """Advance the schedule whose time it is."""
        super().count(restart)
        epoch = self.last_epoch.value
        begins = [None, *self.milestones]
        for index, (scheduler, begin) in enumerate(zip(self.schedulers, begins, strict=True)):
            end = self.milestones[index] if index < len(self.milestones) else None
            is_now = active if end is None else (epoch < end) & active
            is_begin: Any = False
            if begin is not None:
                has_begun = epoch >= begin
                is_now, is_begin = has_begun & is_now, epoch == begin
                begins_now = is_now & is_begin
                if scheduler.has_first_rate:
                    self.write_first_rates(begins_now)
            scheduler.advance(is_now, is_begin)

    def state_dict(self) -> dict[str, Any]:
        """The states of the schedules, the number of steps and the milestones."""
        return {**super().state_dict(), "last_epoch": number(self.last_epoch), "_milestones": list(self.milestones)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another one of the same schedules was."""
        super().load_state_dict(state_dict)
        self.milestones = list(state_dict["_milestones"])
        self.last_epoch.value = scalar_of(state_dict["last_epoch"], st.i64)
