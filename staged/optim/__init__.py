"""Optimisers and schedules with the names, defaults and formulas of `torch.optim`, and gradient clipping."""

from typing import TYPE_CHECKING, Any

from staged.optim import lr_scheduler, swa_utils
from staged.optim.accumulation import MultiSteps
from staged.optim.adaptive import Adadelta, Adafactor, Adamax, NAdam, RAdam, RMSprop
from staged.optim.clipping import clip_grad_norm, clip_grad_value
from staged.optim.directions import Lion, Muon, Rprop
from staged.optim.grad_scaler import GradScaler
from staged.optim.lbfgs import LBFGS
from staged.optim.optimizer import Optimizer
from staged.optim.optimizers import ASGD, SGD, Adagrad, Adam, AdamW

__all__ = [
    "ASGD",
    "LBFGS",
    "SGD",
    "Adadelta",
    "Adafactor",
    "Adagrad",
    "Adam",
    "AdamW",
    "Adamax",
    "GradScaler",
    "Lion",
    "MultiSteps",
    "Muon",
    "NAdam",
    "Optimizer",
    "RAdam",
    "RMSprop",
    "Rprop",
    "clip_grad_norm",
    "clip_grad_value",
    "lr_scheduler",
    "swa_utils",
]


def __dir__() -> list[str]:
    return __all__


if not TYPE_CHECKING:  # a type checker reports an unknown name

    def __getattr__(name: str) -> Any:
        from staged.base.other_names import IN_OPTIM, answer_from, no_attribute, slip_of

        raise no_attribute(
            "module 'staged.optim' has", name, answer_from((IN_OPTIM,), name) or slip_of(name, __all__, "optim.")
        )
