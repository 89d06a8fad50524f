"""Layers with the names, defaults, `state_dict` keys and layouts of `torch.nn`."""

from staged.nn.layers import (
    GELU,
    AvgPool2d,
    Conv2d,
    CrossEntropyLoss,
    Dropout,
    Embedding,
    Flatten,
    LayerNorm,
    Linear,
    MaxPool2d,
    MSELoss,
    ReLU,
    Sigmoid,
    Softmax,
    Tanh,
)
from staged.nn.module import Module, Sequential

__all__ = [
    "GELU",
    "AvgPool2d",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "LayerNorm",
    "Linear",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ReLU",
    "Sequential",
    "Sigmoid",
    "Softmax",
    "Tanh",
]
