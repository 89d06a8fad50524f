"""Schedules that are functions of the number of steps: steps, lines, powers and cosines."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from types import FunctionType
from typing import Any

import staged as st
from staged.eager_mode.context import is_plain
from staged.optim.lr_scheduler.schedule import LRScheduler, converted, number, product, scalar_of
from staged.optim.optimizer import Optimizer

Lambda = Callable[[Any], Any]


class LambdaLR(LRScheduler):
    """The first rate times `lr_lambda(epoch)`; a list has one function for each group.

    In a program `epoch` is an f64, with which rates are computed, and conditions are the program's.
    """

    def __init__(self, optimizer: Optimizer, lr_lambda: Lambda | list[Lambda], last_epoch: int = -1) -> None:
        self.optimizer = self.checked(optimizer)
        self.lr_lambdas = self.each_group("lr_lambda", lr_lambda)
        for function in self.lr_lambdas:
            if not callable(function):
                self.refuse(f"lr_lambda is a function of the number of steps, got {function!r}")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The first rates times the functions' results."""
        return [base * factor for base, factor in zip(self.base_lrs, self.factors(), strict=True)]

    def factors(self) -> list[Any]:
        """The result of each group's function."""
        return [
            converted(function)(number(self.last_epoch) if is_plain() else self.epoch) for function in self.lr_lambdas
        ]

    def state_dict(self) -> dict[str, Any]:
        """The state; of callable objects their attributes, and None for functions, as in torch."""
        own = [None if isinstance(one, FunctionType) else dict(vars(one)) for one in self.lr_lambdas]
        return {**super().state_dict(), "lr_lambdas": own}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another schedule was; the attributes of callable objects are loaded too."""
        super().load_state_dict(state_dict)
        for function, own in zip(self.lr_lambdas, state_dict.get("lr_lambdas", ()), strict=False):
            if own is not None:
                vars(function).update(own)


class MultiplicativeLR(LambdaLR):
    """The rate times `lr_lambda(epoch)` at every step."""

    has_first_rate = False

    def get_lr(self) -> list[Any]:
        """The rates times the functions' results, but at the first step."""
        if self.is_initial:
            return self.scaled(1.0)
        return [rate.value * factor for rate, factor in zip(self.rates, self.factors(), strict=True)]


class StepLR(LRScheduler):
    """The rate times `gamma` every `step_size` steps."""

    saved = ("step_size", "gamma")

    def __init__(self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1) -> None:
        self.positive(step_size=step_size)
        self.step_size, self.gamma = step_size, gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times `gamma` at each multiple of `step_size`."""
        epoch = self.last_epoch.value
        return self.scaled(st.where((epoch != 0) & (epoch % self.step_size == 0), self.gamma, 1.0))


class MultiStepLR(LRScheduler):
    """The rate times `gamma` at each of the `milestones`."""

    saved = ("milestones", "gamma")

    def __init__(
        self, optimizer: Optimizer, milestones: Iterable[int], gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.milestones, self.gamma = Counter(milestones), gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times one `gamma` for each milestone that is here."""
        epoch = self.last_epoch.value
        at = self.milestones.items()
        return self.scaled(product(st.where(epoch == milestone, self.gamma**count, 1.0) for milestone, count in at))


class ConstantLR(LRScheduler):
    """The rate times `factor` for the first `total_iters` steps."""

    saved = ("factor", "total_iters")

    def __init__(
        self, optimizer: Optimizer, factor: float = 1.0 / 3, total_iters: int = 5, last_epoch: int = -1
    ) -> None:
        if not 0.0 < factor <= 1.0:
            self.refuse(f"factor is above 0 and at most 1, got {factor}")
        self.factor, self.total_iters = factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times `factor` at the first step, and divided by it after `total_iters`."""
        epoch = self.last_epoch.value
        back = st.where(epoch == self.total_iters, 1.0 / self.factor, 1.0)
        return self.scaled(st.where(epoch == 0, self.factor, back))


class LinearLR(LRScheduler):
    """The rate times a factor that goes from `start_factor` to `end_factor` in `total_iters` equal steps."""

    saved = ("start_factor", "end_factor", "total_iters")

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        if not 0.0 < start_factor <= 1.0:
            self.refuse(f"start_factor is above 0 and at most 1, got {start_factor}")
        if not 0.0 <= end_factor <= 1.0:
            self.refuse(f"end_factor is between 0 and 1, got {end_factor}")
        self.start_factor, self.end_factor, self.total_iters = start_factor, end_factor, total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times the quotient of two neighbours on the line."""
        epoch, rise = self.epoch, self.end_factor - self.start_factor
        onwards = 1.0 + rise / (self.total_iters * self.start_factor + (epoch - 1.0) * rise)
        stays = self.is_initial or epoch > self.total_iters
        lr_factor = st.where(epoch == 0.0, self.start_factor, st.where(stays, 1.0, onwards))
        return self.scaled(lr_factor)


class ExponentialLR(LRScheduler):
    """The rate times `gamma` at every step."""

    saved = ("gamma",)

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times `gamma`, but at the first step."""
        return self.scaled(st.where(self.is_first, 1.0, self.gamma))


class PolynomialLR(LRScheduler):
    """The first rate times (1 - epoch / total_iters) ^ power, down to 0."""

    saved = ("total_iters", "power")

    def __init__(self, optimizer: Optimizer, total_iters: int = 5, power: float = 1.0, last_epoch: int = -1) -> None:
        self.positive(total_iters=total_iters)
        self.total_iters, self.power = total_iters, power
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times the quotient of two neighbours on the polynomial."""
        epoch = self.epoch
        onwards = ((1.0 - epoch / self.total_iters) / (1.0 - (epoch - 1.0) / self.total_iters)) ** self.power
        return self.scaled(st.where(self.is_first | (epoch > self.total_iters), 1.0, onwards))


class CosineAnnealingLR(LRScheduler):
    """Half a cosine from the first rate to `eta_min` in `T_max` steps, and back.

    Source: Loshchilov and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """

    saved = ("T_max", "eta_min")

    def __init__(self, optimizer: Optimizer, T_max: int, eta_min: float = 0.0, last_epoch: int = -1) -> None:
        self.positive(T_max=T_max)
        self.T_max, self.eta_min = T_max, eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates times the quotient of two neighbours on the cosine; after its lowest point a first step up."""
        epoch, least = self.epoch, self.eta_min
        now, before = (1.0 + st.cos(math.pi * each / self.T_max) for each in (epoch, epoch - 1.0))
        is_up = (self.last_epoch.value - 1 - self.T_max) % (2 * self.T_max) == 0
        up = (1.0 - math.cos(math.pi / self.T_max)) / 2.0
        cosine_ratio = now / before
        found = []
        for rate, base in zip(self.get_rates(), self.base_lrs, strict=True):
            onwards = st.where(is_up, rate + (base - least) * up, cosine_ratio * (rate - least) + least)
            found.append(st.where(self.is_first, rate, onwards))
        return found

    def get_rates(self) -> list[Any]:
        """The rates as they are now, as arrays."""
        return [rate.value for rate in self.rates]


class CosineAnnealingWarmRestarts(LRScheduler):
    """Half a cosine from the first rate to `eta_min` in `T_0` steps, then in `T_mult` times as many, and so on.

    `step(epoch)` sets the number of steps, which may be a fraction: `step(epoch + batch / batches)`. Source: Loshchilov
    and Hutter, SGDR: Stochastic Gradient Descent with Warm Restarts, 2017.
    """

    saved = ("T_0", "T_mult", "eta_min", "T_i", "T_cur")

    def __init__(
        self, optimizer: Optimizer, T_0: int, T_mult: int = 1, eta_min: float = 0.0, last_epoch: int = -1
    ) -> None:
        self.positive(T_0=T_0, T_mult=T_mult)
        self.T_0, self.T_mult, self.eta_min = T_0, T_mult, eta_min
        self.T_i = st.Variable(st.full((), T_0, dtype=st.f64), name="T_i")
        self.T_cur = st.Variable(st.full((), last_epoch, dtype=st.f64), name="T_cur")
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The cosine at this step of the period."""
        share = (1.0 + st.cos(math.pi * self.T_cur.value / self.T_i.value)) / 2.0
        return [self.eta_min + (base - self.eta_min) * share for base in self.base_lrs]

    def step(self, epoch: Any = None) -> None:
        """Count a step, or set the number of steps, and write the rates that follow it."""
        if epoch is None:
            self.advance()
            return
        if not isinstance(epoch, st.Array) and epoch < 0:
            self.refuse(f"epoch is at least 0, got {epoch}")
        at = scalar_of(epoch, st.f64)
        if self.T_mult == 1:
            before = self.T_0 * st.floor(at / self.T_0)
            period = st.full((), self.T_0, dtype=st.f64)
        else:
            periods = st.floor(st.log(at / self.T_0 * (self.T_mult - 1) + 1.0) / math.log(self.T_mult))
            times = float(self.T_mult) ** periods
            before, period = self.T_0 * (times - 1.0) / (self.T_mult - 1), self.T_0 * times
        self.T_cur.value, self.T_i.value = at - before, period
        self.last_epoch.value = st.astype(st.floor(at), st.i64)
        self.take_back_rates()
        for rate, lr in zip(self.rates, self.get_lr(), strict=True):
            rate.value = scalar_of(lr, rate.dtype)

    def count(self, restart: Any) -> None:
        """Write the number of steps, of this period too."""
        super().count(restart)
        at, period = self.T_cur.value + 1.0, self.T_i.value
        is_over = at >= period
        self.T_cur.value = st.where(restart, 0.0, st.where(is_over, at - period * st.floor(at / period), at))
        self.T_i.value = st.where(restart, float(self.T_0), st.where(is_over, period * self.T_mult, period))

    def undo(self) -> None:
        """Count one step less, of this period too."""
        super().undo()
        self.T_cur.value = self.T_cur.value - 1.0
