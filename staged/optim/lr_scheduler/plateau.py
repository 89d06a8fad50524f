"""A schedule by a metric that the caller measures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import staged as st
from staged.optim.lr_scheduler.schedule import LRScheduler, counter, owners_of, rates_of, scalar_of
from staged.optim.optimizer import Optimizer


class ReduceLROnPlateau(LRScheduler):
    """The rate times `factor` when the metric has not become better for more than `patience` steps.

    `step(metric)` receives the metric: a loss (`mode="min"`), or a share of right answers (`mode="max"`).
    """

    saved = (
        "factor", "min_lrs", "patience", "cooldown", "eps", "mode", "threshold", "threshold_mode",
        "best", "num_bad_epochs", "cooldown_counter",
    )  # fmt: skip

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: Any = 0.0,
        eps: float = 1e-8,
    ) -> None:
        self.optimizer = self.checked(optimizer)
        if not factor < 1.0:
            self.refuse(f"factor is below 1, got {factor}")
        if mode not in ("min", "max"):
            self.refuse(f'mode is one of "min", "max", got {mode!r}')
        if threshold_mode not in ("rel", "abs"):
            self.refuse(f'threshold_mode is one of "rel", "abs", got {threshold_mode!r}')
        self.min_lrs = self.each_group("min_lr", min_lr)
        self.mode, self.factor, self.patience, self.cooldown = mode, factor, patience, cooldown
        self.threshold, self.threshold_mode, self.eps = threshold, threshold_mode, eps
        self.owners = owners_of(optimizer)
        self.rates = rates_of(self.owners)
        self.base_lrs = self.get_last_lr()
        self.last_epoch = counter("last_epoch", 0)
        worst = math.inf if mode == "min" else -math.inf
        self.best = st.Variable(st.full((), worst, dtype=st.f64), name="best")
        self.num_bad_epochs = counter("num_bad_epochs", 0)
        self.cooldown_counter = counter("cooldown_counter", 0)

    def step(self, metrics: Any) -> None:  # type: ignore[override]
        """Count a step with its metric, a scalar, and reduce the rates where it is time."""
        if getattr(metrics, "shape", ()):
            raise st.ShapeError(f"ReduceLROnPlateau: the metric is a scalar, got {metrics.shape}", where=st.here())
        metric = scalar_of(metrics, st.f64)
        self.take_back_rates()
        self.last_epoch.value = self.last_epoch.value + 1
        is_better = self.is_better(metric, self.best.value)
        self.best.value = st.where(is_better, metric, self.best.value)
        rests = self.cooldown_counter.value > 0
        bad = st.where(is_better | rests, 0, self.num_bad_epochs.value + 1)
        is_time = bad > self.patience
        resting = self.cooldown_counter.value - st.astype(rests, st.i64)
        self.cooldown_counter.value = st.where(is_time, self.cooldown, resting)
        self.num_bad_epochs.value = st.where(is_time, 0, bad)
        for rate, least in zip(self.rates, self.min_lrs, strict=True):
            before = rate.value
            lower = st.maximum(before * self.factor, least)
            rate.value = st.where(is_time & (before - lower > self.eps), lower, before)

    def is_better(self, metric: Any, best: Any) -> Any:
        """Return whether a metric is better than the best one by more than the threshold."""
        sign = 1.0 if self.mode == "max" else -1.0
        bound = best * (1.0 + sign * self.threshold) if self.threshold_mode == "rel" else best + sign * self.threshold
        return metric > bound if self.mode == "max" else metric < bound

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another schedule of this kind was, ours or torch's."""
        own = {"base_lrs": self.base_lrs}  # which torch does not have here
        super().load_state_dict({**own, **state_dict} if isinstance(state_dict, Mapping) else state_dict)
