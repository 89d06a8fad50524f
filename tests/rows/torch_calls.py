"""Calls of PyTorch's functions with our arguments. Each is a function of the module `torch`, which may not be installed."""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter
from typing import Any

OfTorch = Callable[[Any], Callable[..., Any]]


def along(name: str, **defaults: Any) -> OfTorch:
    """A reduction along some axes, or all."""

    def of(torch: Any) -> Callable[..., Any]:
        def run(x: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
            axes = tuple(range(x.ndim)) if axis is None else axis
            return attrgetter(name)(torch)(x, dim=axes, keepdim=keepdims, **{**defaults, **rest})

        return run

    return of


def of_labels(name: str) -> OfTorch:
    """A loss of classes, which are in the second axis there."""

    def of(torch: Any) -> Callable[..., Any]:
        def run(x: Any, labels: Any, ignore_index: int = -100, axis: int = -1, **options: Any) -> Any:
            function = getattr(torch.nn.functional, name)
            return function(x.movedim(axis, 1), labels.long(), ignore_index=ignore_index, **options)

        return run

    return of
