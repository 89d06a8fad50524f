"""The networks in PyTorch, with the parameters of ours."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.frameworks.pytorch import MODELS
from tests.gpu_check.timing.steps import Network, Sizes, weight


class Block(nn.Module):
    """A block of GPT-2, with the names of the published weights."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = nn.ModuleDict({"c_attn": nn.Linear(width, 3 * width), "c_proj": nn.Linear(width, width)})
        self.mlp = nn.ModuleDict({"c_fc": nn.Linear(width, 4 * width), "c_proj": nn.Linear(4 * width, width)})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        parts = self.attn["c_attn"](self.ln_1(x)).split(C, 2)
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.attn["c_proj"](y.transpose(1, 2).reshape(B, T, C))
        return x + self.mlp["c_proj"](F.gelu(self.mlp["c_fc"](self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self, layers: int, heads: int, width: int, places: int, vocabulary: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(places, width)
        self.h, self.ln_f = nn.Sequential(*[Block(width, heads) for _ in range(layers)]), nn.LayerNorm(width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]]))
        return (h @ self.wte.weight.T).flatten(0, 1)


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.bn1 = nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv2, self.bn2 = nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner)
        self.conv3, self.bn3 = nn.Conv2d(inner, 4 * inner, 1, bias=False), nn.BatchNorm2d(4 * inner)
        self.downsample: nn.Module = nn.Identity()
        if stride != 1 or channels != 4 * inner:
            shortcut = nn.Conv2d(channels, 4 * inner, 1, stride, bias=False)
            self.downsample = nn.Sequential(shortcut, nn.BatchNorm2d(4 * inner))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.bn1(self.conv1(x)).relu()
        y = self.bn2(self.conv2(y)).relu()
        return (self.bn3(self.conv3(y)) + self.downsample(x)).relu()


class ResNet(nn.Module):
    """As `examples.resnet50.model.ResNet`, names of parameters included."""

    def __init__(self, size: int, classes: int, blocks: tuple[int, ...], width: int) -> None:
        super().__init__()
        small = size < 64
        self.conv1 = nn.Conv2d(3, width, 3 if small else 7, 1 if small else 2, 1 if small else 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.Identity() if small else nn.MaxPool2d(3, 2, 1)
        channels, self.stages = width, len(blocks)
        for stage, count in enumerate(blocks):
            inner = width * 2**stage
            strides = [2 if stage and not block else 1 for block in range(count)]
            layer = [Bottleneck(channels if not block else 4 * inner, inner, s) for block, s in enumerate(strides)]
            setattr(self, f"layer{stage + 1}", nn.Sequential(*layer))
            channels = 4 * inner
        self.fc = nn.Linear(channels, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.bn1(self.conv1(x)).relu())
        for stage in range(self.stages):
            x = getattr(self, f"layer{stage + 1}")(x)
        return self.fc(x.mean((2, 3)))


class CharLstm(nn.Module):
    """cuDNN's LSTM over the sequence, from one-hot characters; it has the one bias of ours, and zeros for the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.out = nn.LSTM(26, 50), nn.Linear(50, 26)
        self.lstm.bias_hh_l0.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(self.lstm(F.one_hot(x, 26).float())[0]).flatten(0, 1)


NAMES = {"lstm.weight_ih_l0": ("embed", True), "lstm.weight_hh_l0": ("recur", True), "lstm.bias_ih_l0": ("bias", False)}
"""Of parameters that have another name in ours: the name there, and whether the matrix is transposed there."""


def loss_of(network: Network, sizes: Sizes, where: str) -> tuple[nn.Module, Callable[[Any, Any], Any]]:
    """(the network with our first values, the loss of a batch)."""
    model: nn.Module = {
        "mlp": MODELS["mlp_mnist"],
        "cnn": MODELS["cnn_mnist"],
        "char-lstm": CharLstm,
        "resnet50": lambda: ResNet(**sizes.options),
        "gpt2": lambda: Gpt2(**sizes.options),
    }[network.name]()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name == "lstm.bias_hh_l0":
                parameter.zero_()
                continue
            # GPT-2's published matrices are (inputs, outputs).
            is_turned = network.name == "gpt2" and ".c_" in name and name.endswith("weight")
            theirs, is_turned = NAMES.get(name, (name, is_turned))
            shape = tuple(parameter.shape)[::-1] if is_turned else tuple(parameter.shape)
            values = torch.from_numpy(weight(theirs, shape))
            parameter.copy_(values.T if is_turned else values)
    model.to(where)
    return model, lambda x, y: F.cross_entropy(model(x).reshape(y.numel(), -1), y.reshape(-1))
