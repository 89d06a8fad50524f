"""Gradient accumulation: the step of an optimiser by the mean of several gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import staged as st
from staged.errors import article
from staged.optim.lr_scheduler.schedule import converted, counter
from staged.optim.optimizer import Optimizer


class MultiSteps:
    """An optimiser that steps at each `every`th call of `step`, along the mean of the gradients since the last one.

    `step(grads)` returns whether it did: `if accumulated.step(grads): schedule.step()`. The name is optax's.
    """

    def __init__(self, optimizer: Optimizer, every: int) -> None:
        if not isinstance(optimizer, Optimizer):
            raise st.ArgumentError(
                f"MultiSteps takes an optimiser, got {article(type(optimizer).__name__)}", where=st.here()
            )
        if isinstance(every, bool) or not isinstance(every, int) or every < 1:
            raise st.ArgumentError(f"MultiSteps: every is an integer of at least 1, got {every!r}", where=st.here())
        self.optimizer, self.every = optimizer, every
        with optimizer.having({"split": None}):  # gradients are whole
            self.total = optimizer.state("total")
        self.count: Any = counter("count", 0)

    def step(self, grads: Any) -> Any:
        """Add gradients, as an optimiser's `step` takes them, and step if they are enough."""
        for total, grad in zip(self.total, self.optimizer.gradients(grads), strict=True):
            total.value = total.value + grad
        self.count.value = self.count.value + 1
        is_time = self.count.value >= self.every
        converted(step_where)(self, is_time)
        return is_time

    def state_dict(self) -> dict[str, Any]:
        """The state of the optimiser, the sum so far and the number of gradients in it."""
        own = {"total": [total.saved() for total in self.total], "count": self.count.saved()}
        return {**self.optimizer.state_dict(), **own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another one was."""
        missing = [name for name in ("total", "count") if name not in state_dict]
        if missing or len(state_dict["total"]) != len(self.total):
            raise st.StateDictError(
                "state_dict does not fit: MultiSteps has `total`, a sum for each parameter, and `count`",
                where=st.here(),
            )
        self.optimizer.load_state_dict(state_dict)
        for total, value in zip(self.total, state_dict["total"], strict=True):
            total.value = value
        self.count.value = state_dict["count"]


def step_where(accumulated: MultiSteps, is_time: Any) -> None:
    """Step along the mean, and begin a new sum, if it is time."""
    if is_time:
        every = accumulated.every
        accumulated.optimizer.step([total.value / every for total in accumulated.total])
        for total in accumulated.total:
            total.value = st.zeros(total.shape, dtype=total.dtype)
        accumulated.count.value = 0
