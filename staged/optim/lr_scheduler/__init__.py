"""Learning-rate schedules with the names, arguments and rates of `torch.optim.lr_scheduler`."""

from staged.optim.lr_scheduler.combined import ChainedScheduler, SequentialLR
from staged.optim.lr_scheduler.cycles import CyclicLR, OneCycleLR
from staged.optim.lr_scheduler.factors import (
    ConstantLR,
    CosineAnnealingLR,
    CosineAnnealingWarmRestarts,
    ExponentialLR,
    LambdaLR,
    LinearLR,
    MultiplicativeLR,
    MultiStepLR,
    PolynomialLR,
    StepLR,
)
from staged.optim.lr_scheduler.plateau import ReduceLROnPlateau
from staged.optim.lr_scheduler.schedule import LRScheduler

__all__ = [
    "ChainedScheduler",
    "ConstantLR",
    "CosineAnnealingLR",
    "CosineAnnealingWarmRestarts",
    "CyclicLR",
    "ExponentialLR",
    "LRScheduler",
    "LambdaLR",
    "LinearLR",
    "MultiStepLR",
    "MultiplicativeLR",
    "OneCycleLR",
    "PolynomialLR",
    "ReduceLROnPlateau",
    "SequentialLR",
    "StepLR",
]
