"""Optimisers with the names, defaults and formulas of `torch.optim`, and gradient clipping."""

from staged.optim.clipping import clip_grad_norm, clip_grad_value
from staged.optim.optimizer import Optimizer
from staged.optim.optimizers import SGD, Adagrad, Adam, AdamW

__all__ = ["SGD", "Adagrad", "Adam", "AdamW", "Optimizer", "clip_grad_norm", "clip_grad_value"]
