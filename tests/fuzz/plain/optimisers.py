"""Readings of `st.optim`: the formulas of PyTorch's documentation, in f64, rounded to the parameter's dtype after each step."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, as_float, bare, plain


def full_like(x: Any, number: Any) -> Plain:
    return Plain(np.full(x.shape, number).astype(x.dtype))


class _Optimizer:
    """One step for each parameter, from its number, its value and its gradient in f64."""

    def __init__(self, params: Any, **options: Any) -> None:
        self.params = list(params.values()) if isinstance(params, dict) else list(params)
        self.names = list(params) if isinstance(params, dict) else []
        self.options = {name: value.a.astype(np.float64) if isinstance(value, Plain) else value for name, value in options.items()}
        self.steps = 0
        self.kept: dict[tuple[int, str], Any] = {}

    def step(self, grads: Any) -> None:
        self.steps += 1
        ordered = [grads[name] for name in self.names] if isinstance(grads, dict) else list(grads)
        for number, (param, grad) in enumerate(zip(self.params, ordered, strict=True)):
            with np.errstate(all="ignore"):
                value, slope = param.a.astype(np.float64), plain(grad).a.astype(np.float64)
                param.value = Plain(self.after(number, value, slope))

    def after(self, number: int, value: Any, grad: Any) -> Any:
        raise NotImplementedError

    def blend(self, number: int, name: str, old: Any, new: Any) -> Any:
        """A running mean: `old` of what it was, from 0, and what is new."""
        before = self.kept.get((number, name), 0.0)
        self.kept[number, name] = found = old * before + new
        return found


class SGD(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, decay=weight_decay, nesterov=nesterov)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        if o["momentum"]:
            share = 1.0 if self.steps == 1 else 1.0 - o["dampening"]
            velocity = self.blend(number, "velocity", o["momentum"], share * grad)
            grad = grad + o["momentum"] * velocity if o["nesterov"] else velocity
        return value - o["lr"] * grad


class Adagrad(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: Any = 0.0,
        weight_decay: Any = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: Any = 1e-10,
    ) -> None:
        super().__init__(params, lr=lr, lr_decay=lr_decay, decay=weight_decay, eps=eps)
        for number in range(len(self.params)):
            self.kept[number, "total"] = initial_accumulator_value

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        total = self.blend(number, "total", 1.0, grad * grad)
        rate = o["lr"] / (1.0 + (self.steps - 1) * o["lr_decay"])
        return value - rate * grad / (np.sqrt(total) + o["eps"])


class Adam(_Optimizer):
    decoupled = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        if self.decoupled:
            value = value - o["lr"] * o["decay"] * value
        else:
            grad = grad + o["decay"] * value
        mean = self.blend(number, "mean", first, (1.0 - first) * grad) / (1.0 - first**self.steps)
        square = self.blend(number, "square", second, (1.0 - second) * grad * grad) / (1.0 - second**self.steps)
        return value - o["lr"] * mean / (np.sqrt(square) + o["eps"])


class AdamW(Adam):
    decoupled = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 1e-2
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


def _like(grads: Any, change: Any) -> Any:
    """Each gradient changed: of integers, as floats."""
    if isinstance(grads, dict):
        return {name: change(_floats(grad)) for name, grad in grads.items()}
    return [change(_floats(grad)) for grad in grads]


def _floats(grad: Any) -> Any:
    array = plain(grad)
    return array.a.astype(as_float(array.dtype, False))


def clip_grad_norm(grads: Any, max_norm: Any) -> tuple[Any, Plain]:
    values = [_floats(grad) for grad in (grads.values() if isinstance(grads, dict) else grads)]
    norm = math.sqrt(sum(float(np.sum(np.square(value.astype(np.float64)))) for value in values))
    scale = min(1.0, float(bare(max_norm)) / (norm + 1e-6)) if norm == norm else norm
    return _like(grads, lambda grad: Plain((grad * scale).astype(grad.dtype))), Plain(np.asarray(norm, values[0].dtype))


def clip_grad_value(grads: Any, clip_value: Any) -> Any:
    clip, most = FUNCTIONS["clip"], plain(clip_value)
    least = FUNCTIONS["negative"](most)
    if isinstance(grads, dict):
        return {name: clip(grad, least, most) for name, grad in grads.items()}
    return [clip(grad, least, most) for grad in grads]


def optimisers() -> SimpleNamespace:
    """The stand-in for `st.optim`."""
    return SimpleNamespace(
        SGD=SGD,
        Adagrad=Adagrad,
        Adam=Adam,
        AdamW=AdamW,
        clip_grad_norm=clip_grad_norm,
        clip_grad_value=clip_grad_value,
    )
