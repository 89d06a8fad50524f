"""Loss scaling for f16, whose small numbers end at 6e-8: gradients are computed of the loss times a scale."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import staged as st
from staged.call.api import plain_number
from staged.optim.clipping import _leaves, _mapped, _refuse_parameters, _tree
from staged.optim.lr_scheduler.schedule import converted
from staged.optim.optimizer import Optimizer
from staged.optim.pieces import computed_in

KEYS = ("scale", "growth_factor", "backoff_factor", "growth_interval", "_growth_tracker")


class GradScaler:
    """Scale a loss, take the scale out of its gradients, and skip steps whose gradients are not finite.

        loss, grads = st.value_and_grad(lambda x, y: scaler.scale(loss_fn(x, y)), wrt=model)(x, y)
        scaler.step(optimizer, grads)
        scaler.update()

    After a step with an infinity or NaN the scale is multiplied by `backoff_factor`, after `growth_interval` steps
    without one by `growth_factor`. It works inside of programs and in plain Python. To clip gradients, take the scale
    out first: `grads = scaler.unscale(grads)`. Semantics and defaults are those of `torch.amp.GradScaler`, whose first
    argument, a kind of device, changes nothing. Source: Micikevicius et al., Mixed precision training, 2018.
    """

    def __init__(
        self,
        device: str = "cuda",
        init_scale: float = 2.0**16,
        growth_factor: float = 2.0,
        backoff_factor: float = 0.5,
        growth_interval: int = 2000,
        enabled: bool = True,
    ) -> None:
        if enabled and (not growth_factor > 1.0 or not 0.0 < backoff_factor < 1.0 or not init_scale > 0.0):
            raise st.ArgumentError(
                "GradScaler: growth_factor is above 1, backoff_factor between 0 and 1, init_scale above 0, got "
                f"{growth_factor}, {backoff_factor}, {init_scale}",
                where=st.here(),
            )
        self.growth_factor, self.backoff_factor = plain_number(growth_factor), plain_number(backoff_factor)
        self.growth_interval, self.enabled = growth_interval, enabled
        self.factor: Any = st.Variable(st.full((), init_scale, dtype=st.f32), name="loss_scale")
        self.growth_tracker: Any = st.Variable(st.zeros((), dtype=st.i32), name="growth_tracker")
        self.found_inf: Any = st.Variable(st.zeros((), dtype=st.bool_), name="found_inf")
        """Whether gradients since the last `update` were not finite."""
        self.is_unscaled: Any = st.Variable(st.zeros((), dtype=st.bool_), name="is_unscaled")
        """Whether `unscale` was called since then."""

    def scale(self, outputs: Any) -> Any:
        """A loss, or a tree of them, times the scale: f32."""
        return _mapped(lambda loss: loss * self.factor.value, outputs) if self.enabled else outputs

    def unscale(self, grads: Any) -> Any:
        """Gradients without the scale, a tree like `grads`; a second time until `update` they stay as they are."""
        grads = _tree(grads)
        _refuse_parameters("unscale", grads)
        if not self.enabled:
            return grads
        factor = st.where(self.is_unscaled.value, 1.0, 1.0 / self.factor.value)
        self.found_inf.value = self.found_inf.value | ~_are_finite(grads)
        self.is_unscaled.value = st.ones((), dtype=st.bool_)
        return _mapped(lambda grad: _times(st.asarray(grad), factor), grads)

    def step(self, optimizer: Any, grads: Any) -> None:
        """Take the scale out, unless `unscale` has done so, and step, unless gradients are not finite."""
        if not isinstance(optimizer, Optimizer):
            raise st.ArgumentError("GradScaler.step takes an optimiser and its gradients", where=st.here())
        if not self.enabled:
            optimizer.step(grads)
            return
        grads = _tree(grads)
        were_found = self.found_inf.value & self.is_unscaled.value
        is_finite = _are_finite(grads)
        self.found_inf.value = self.found_inf.value | ~is_finite
        factor = st.where(self.is_unscaled.value, 1.0, 1.0 / self.factor.value)
        grads = _mapped(lambda grad: _times(st.asarray(grad), factor), grads)
        converted(step_where)(optimizer, grads, is_finite & ~were_found)

    def update(self, new_scale: Any = None) -> None:
        """Adapt the scale to what the steps since the last `update` found, or set it."""
        if not self.enabled:
            return
        if new_scale is not None:
            self.factor.value = st.astype(st.asarray(new_scale), st.f32)
        else:
            found, tracker = self.found_inf.value, self.growth_tracker.value + 1
            grows = ~found & (tracker >= self.growth_interval)
            larger = self.factor.value * self.growth_factor
            larger = st.where(st.isfinite(larger), larger, self.factor.value)
            smaller = self.factor.value * self.backoff_factor
            self.factor.value = st.where(found, smaller, st.where(grows, larger, self.factor.value))
            self.growth_tracker.value = st.where(found | grows, 0, tracker)
        self.found_inf.value = st.zeros((), dtype=st.bool_)
        self.is_unscaled.value = st.zeros((), dtype=st.bool_)

    def get_scale(self) -> Any:
        """The scale; 1.0 if it is not enabled."""
        return self.factor.saved() if self.enabled else 1.0

    def is_enabled(self) -> bool:
        """Return whether it does anything."""
        return self.enabled

    def state_dict(self) -> dict[str, Any]:
        """The state with torch's keys; empty if it is not enabled."""
        if not self.enabled:
            return {}
        numbers = (self.growth_factor, self.backoff_factor, self.growth_interval)
        return dict(zip(KEYS, (self.factor.saved(), *numbers, self.growth_tracker.saved()), strict=True))

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Continue where another one was, ours or torch's."""
        if not self.enabled:
            return
        missing = [key for key in KEYS if key not in state_dict]
        if missing:
            raise st.StateDictError(f"state_dict does not fit GradScaler: missing {missing}", where=st.here())
        self.factor.value = st.astype(st.asarray(state_dict["scale"]), st.f32)
        self.growth_factor = plain_number(state_dict["growth_factor"])
        self.backoff_factor = plain_number(state_dict["backoff_factor"])
        self.growth_interval = state_dict["growth_interval"]
        self.growth_tracker.value = st.astype(st.asarray(state_dict["_growth_tracker"]), st.i32)


def _are_finite(grads: Any) -> Any:
    found = st.ones((), dtype=st.bool_)
    for grad in map(st.asarray, _leaves(grads)):
        found = found & st.all(st.isfinite(grad))
    return found


def _times(grad: Any, factor: Any) -> Any:
    """Return the product; in f32 for f16 and bf16, which do not hold small gradients without their scale."""
    dtype = computed_in(grad)
    return st.astype(st.astype(grad, dtype) * factor, dtype)


def step_where(optimizer: Optimizer, grads: Any, is_finite: Any) -> None:
    """Step if the gradients are finite."""
    if is_finite:
        optimizer.step(grads)
