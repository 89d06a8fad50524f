"""Schedules that let the rate rise and fall, and the momentum against it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import staged as st
from staged.optim.lr_scheduler.schedule import LRScheduler, as_variable, converted, owners_of, rates_of, scalar_of
from staged.optim.optimizer import Optimizer


class _CyclesMomentum(LRScheduler):
    """Base: the momentum of the optimiser, or the first of its `betas`, is a Variable that each step writes."""

    momentum: Any = None

    def hold_momentum(self, base: Any, most: Any, last_epoch: int) -> None:
        """Make the momentum a Variable, which begins at `most`."""
        owner = vars(self.optimizer)
        options = self.optimizer.options
        if "momentum" not in options and "betas" not in options:
            self.refuse(
                f"{type(self.optimizer).__name__} has neither a momentum nor betas", hint="write `cycle_momentum=False`"
            )
        for name, given in {"base_momentum": base, "max_momentum": most}.items():
            if len(set(self.each_group(name, given))) > 1:
                self.refuse(f"{name} is one number for all groups, got {given}")
        self.base_momentum, self.max_momentum = (self.each_group("", given)[0] for given in (base, most))
        option = "betas" if "betas" in options else "momentum"
        first = owner[option][0] if option == "betas" else owner[option]
        self.momentum = as_variable({"momentum": first}, "momentum")
        for each in (owner, *self.optimizer.groups):
            if option in each:
                each[option] = (self.momentum, *each[option][1:]) if option == "betas" else self.momentum
        if last_epoch == -1:
            self.momentum.value = st.full((), self.max_momentum, dtype=self.momentum.dtype)

    def write_momentum(self, value: Any) -> None:
        """Write the momentum."""
        self.momentum.value = scalar_of(value, self.momentum.dtype)


class CyclicLR(_CyclesMomentum):
    """The rate between `base_lr` and `max_lr`, up in `step_size_up` steps and down in `step_size_down`.

    Source: Smith, Cyclical Learning Rates for Training Neural Networks, 2017.
    """

    saved = ("max_lrs", "total_size", "step_ratio", "mode", "gamma", "scale_mode", "cycle_momentum")

    def __init__(
        self,
        optimizer: Optimizer,
        base_lr: Any,
        max_lr: Any,
        step_size_up: int = 2000,
        step_size_down: int | None = None,
        mode: str = "triangular",
        gamma: float = 1.0,
        scale_fn: Callable[[Any], Any] | None = None,
        scale_mode: str = "cycle",
        cycle_momentum: bool = True,
        base_momentum: float = 0.8,
        max_momentum: float = 0.9,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = self.checked(optimizer)
        if scale_fn is None and mode not in _SCALES:
            self.refuse(f'mode is one of "triangular", "triangular2", "exp_range", got {mode!r}')
        base_lrs = self.each_group("base_lr", base_lr)
        self.max_lrs = self.each_group("max_lr", max_lr)
        if last_epoch == -1:
            for rate, lr in zip(rates_of(owners_of(optimizer)), base_lrs, strict=True):
                rate.value = st.full((), lr, dtype=rate.dtype)
        down = step_size_up if step_size_down is None else step_size_down
        self.total_size = float(step_size_up) + float(down)
        self.step_ratio = float(step_size_up) / self.total_size
        self.mode, self.gamma, self.custom = mode, gamma, scale_fn
        self.scale_mode = scale_mode if scale_fn is not None else "iterations" if mode == "exp_range" else "cycle"
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.hold_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)
        self.base_lrs = base_lrs

    def scale_fn(self, x: Any) -> Any:
        """The height of a cycle, from its number or from the number of steps (`scale_mode`)."""
        return _SCALES[self.mode](x, self.gamma) if self.custom is None else converted(self.custom)(x)

    def get_lr(self) -> list[Any]:
        """The point of the triangle; writes the momentum too."""
        epoch = self.epoch
        cycle = st.floor(1.0 + epoch / self.total_size)
        at = 1.0 + epoch / self.total_size - cycle
        rise, ratio = at / self.step_ratio, self.step_ratio
        fall = (at - 1.0) / (ratio - 1.0) if ratio != 1.0 else rise
        height = st.where(at <= ratio, rise, fall) * self.scale_fn(cycle if self.scale_mode == "cycle" else epoch)
        if self.cycle_momentum:
            self.write_momentum(self.max_momentum - (self.max_momentum - self.base_momentum) * height)
        return [base + (most - base) * height for base, most in zip(self.base_lrs, self.max_lrs, strict=True)]


_SCALES: Mapping[str, Callable[[Any, float], Any]] = {
    "triangular": lambda cycle, gamma: 1.0,
    "triangular2": lambda cycle, gamma: 2.0 ** (1.0 - cycle),
    "exp_range": lambda epoch, gamma: gamma**epoch,
}
"""The height of a cycle in each mode."""


class OneCycleLR(_CyclesMomentum):
    """The rate up from `max_lr / div_factor` to `max_lr`, then down to `max_lr / div_factor / final_div_factor`.

    Source: Smith and Topin, Super-Convergence: Very Fast Training of Neural Networks Using Large Learning Rates, 2019.
    """

    saved = ("total_steps", "cycle_momentum")

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: Any,
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: Any = 0.85,
        max_momentum: Any = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = self.checked(optimizer)
        if total_steps is None:
            if epochs is None or steps_per_epoch is None:
                self.refuse("give `total_steps`, or `epochs` and `steps_per_epoch`")
            self.positive(epochs=epochs, steps_per_epoch=steps_per_epoch)
            total_steps = int(epochs or 0) * int(steps_per_epoch or 0)
        self.positive(total_steps=total_steps)
        if isinstance(pct_start, bool) or not isinstance(pct_start, float) or not 0.0 <= pct_start <= 1.0:
            self.refuse(f"pct_start is a float between 0 and 1, got {pct_start!r}")
        if anneal_strategy not in _ANNEAL:
            self.refuse(f'anneal_strategy is one of "cos", "linear", got {anneal_strategy!r}')
        self.total_steps = total_steps
        self.anneal = _ANNEAL[anneal_strategy]
        first, last = float(pct_start * total_steps) - 1.0, float(total_steps - 1)
        up, down, end = (0, 1, "most", "base"), (1, 2, "base", "most"), (0, 2, "most", "most")
        back = (1, 0, "base", "most")
        self.phases = (
            [(first, up), (2.0 * pct_start * total_steps - 2.0, back), (last, end)]
            if three_phase
            else [(first, up), (last, down)]
        )
        ends = [0.0, *(end for end, _ in self.phases)]
        if 0.0 in [end - begin for begin, end in zip(ends, ends[1:], strict=False)]:
            self.refuse(f"a phase has no steps, with total_steps={total_steps} and pct_start={pct_start}")
        most = self.each_group("max_lr", max_lr)
        self.corners = [(each / div_factor, each, each / div_factor / final_div_factor) for each in most]
        if last_epoch == -1:
            for group, (start, _, _) in zip(optimizer.groups, self.corners, strict=True):
                group["initial_lr"] = start
        self.cycle_momentum = cycle_momentum
        if cycle_momentum:
            self.hold_momentum(base_momentum, max_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The point of the phase that this step is in; writes the momentum too."""
        steps = self.last_epoch.value
        converted(stop_after)(steps, self.total_steps)
        if self.cycle_momentum:
            self.write_momentum(self._at({"base": self.base_momentum, "most": self.max_momentum}, 2))
        return [self._at(corners, 0) for corners in self.corners]

    def _at(self, corners: Any, place: int) -> Any:
        """The point between the two corners that the phase of this step names at `place` and the next place."""
        epoch, begin = self.epoch, 0.0
        points = []
        for end, between in self.phases:
            start, stop = between[place : place + 2]
            points.append((end, self.anneal(corners[start], corners[stop], (epoch - begin) / (end - begin))))
            begin = end
        found = points[-1][1]
        for end, point in reversed(points[:-1]):
            found = st.where(epoch <= end, point, found)
        return found


def stop_after(steps: Any, total: int) -> None:
    """Raises: ValueError, in a program when it runs, if `steps` is above `total`."""
    if steps > total:
        raise ValueError(f"OneCycleLR: step {steps} of a cycle of {total} steps")


def _cosine(start: Any, end: Any, share: Any) -> Any:
    return end + (start - end) / 2.0 * (st.cos(math.pi * share) + 1.0)


def _line(start: Any, end: Any, share: Any) -> Any:
    return (end - start) * share + start


_ANNEAL: Mapping[str, Callable[[Any, Any, Any], Any]] = {"cos": _cosine, "linear": _line}
"""The curves of a phase from its start to its end."""
