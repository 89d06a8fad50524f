"""Gradient clipping: functions from gradients to gradients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import staged as st
from staged import nn


def _values(name: str, grads: Any) -> list[Any]:
    """The gradients in a dict or a list. Raises: ArgumentError for parameters, which torch's function of that name takes."""
    if isinstance(grads, nn.Module) or not isinstance(grads, Mapping | Iterable):
        raise st.ArgumentError(f"{name} takes a dict or list of gradients, got a {type(grads).__name__}", where=st.here())
    values = list(grads.values()) if isinstance(grads, Mapping) else list(grads)
    if any(isinstance(value, nn.Parameter) for value in values) or hasattr(grads, "names"):
        raise st.ArgumentError(
            f"{name} takes gradients, got parameters",
            where=st.here(),
            hint=f"`loss, grads = st.value_and_grad(f, wrt=model)()`, then `optim.{name}(grads, ...)`",
        )
    return values


def _rebuild(grads: Any, values: list[Any]) -> Any:
    if isinstance(grads, Mapping):
        return dict(zip(grads, values, strict=True))
    return values


def clip_grad_norm(grads: Any, max_norm: Any) -> tuple[Any, Any]:
    """Scale all gradients so that their joint 2-norm is at most `max_norm`; returns (gradients, norm before).

    `grads` is a dict or list of arrays. The scale is min(1, max_norm / (norm + 1e-6)), as in torch.
    """
    values = _values("clip_grad_norm", grads)
    squares = [st.sum(value * value) for value in values]
    total = squares[0]
    for square in squares[1:]:
        total = total + square
    norm = st.sqrt(total)
    scale = st.minimum(max_norm / (norm + 1e-6), 1.0)
    return _rebuild(grads, [value * scale for value in values]), norm


def clip_grad_value(grads: Any, clip_value: Any) -> Any:
    """Clip every element of every gradient to [-clip_value, clip_value]."""
    values = _values("clip_grad_value", grads)
    return _rebuild(grads, [st.clip(value, -clip_value, clip_value) for value in values])
