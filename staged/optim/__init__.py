"""Optimisers with the names, defaults and formulas of `torch.optim`, and gradient clipping."""

from typing import Any

from staged.optim.clipping import clip_grad_norm, clip_grad_value
from staged.optim.optimizer import Optimizer
from staged.optim.optimizers import SGD, Adagrad, Adam, AdamW

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "clip_grad_norm", "clip_grad_value"]


def __getattr__(name: str) -> Any:
    from staged.other_names import IN_OPTIM, answer_from, no_attribute, slip_of

    raise no_attribute(
        "module 'staged.optim' has", name, answer_from((IN_OPTIM,), name) or slip_of(name, __all__, "optim.")
    )
