"""PyTorch: eager, `torch.compile`, and `torch.compile(mode="max-autotune")`, on a GPU also `mode="reduce-overhead"`.

Training as its users write it: a module, cross entropy, `backward()`, and SGD with its fused CPU kernel. The compiled
frameworks compile the loss with its backward pass; the optimiser's one fused call stays outside, as compiling it too
was no faster. On a GPU f32 is f32 here as it is in `staged`: no TF32, which PyTorch else allows convolutions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.frameworks import pytorch_recurrent
from benchmarks.frameworks.pytorch_recurrent import CPU, finish
from benchmarks.rows import BATCHES, LEARNING_RATE, Row, parameters
from benchmarks.workload import NotWritten, Workload

OPS: dict[str, Callable[..., Any]] = {
    "softmax": lambda x: torch.softmax(x, -1),
    "layer_norm": lambda x, gain, bias: F.layer_norm(x, (x.shape[-1],), gain, bias),
    "row_sum": lambda x, y, z: (torch.exp(x) + y * z).sum(1),
    "sgemm_64": torch.matmul,
    "sgemm_256": torch.matmul,
    "sgemm_1024": torch.matmul,
    "conv2d": lambda x, w: F.conv2d(x, w, padding=1),
}


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(784, 256), nn.Linear(256, 128), nn.Linear(128, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))


class Cnn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 10, 5), nn.Conv2d(10, 20, 5)
        self.fc1, self.fc2 = nn.Linear(320, 50), nn.Linear(50, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # Pool, then relu: the same values as relu, then pool, and up to three times faster here when compiled.
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2(x), 2))
        return self.fc2(F.relu(self.fc1(x.flatten(1))))


MODELS = {"mlp_mnist": Mlp, "cnn_mnist": Cnn}


MODES = {"torch-max": "max-autotune", "torch-graphs": "reduce-overhead"}


def build(framework: str, row: Row, threads: int, data: Any, device: str = "cpu") -> Workload:
    torch.set_num_threads(threads)
    if device == "gpu":
        torch.backends.cudnn.allow_tf32 = False
    where = torch.device("cuda" if device == "gpu" else "cpu")
    if row.kind in ("recurrent", "trees"):
        return pytorch_recurrent.build(framework, row, threads, data, where)

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        if framework == "torch-eager":
            return function
        return torch.compile(function, mode=MODES.get(framework))

    if row.kind == "train":
        return training(row, data, compiled, where)
    if device != "cpu":
        raise NotWritten
    return op(row, data, compiled)


def training(row: Row, data: tuple[Any, ...], compiled: Callable[..., Any], where: torch.device = CPU) -> Workload:
    model = MODELS[row.name]().to(where)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in parameters(row).items()})
    optimizer = torch.optim.SGD(model.parameters(), LEARNING_RATE, fused=True)
    images, labels = data
    batches = [
        (torch.from_numpy(images[i]).to(where), torch.from_numpy(labels[i]).long().to(where)) for i in range(BATCHES)
    ]

    @compiled
    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x), y)

    def run(steps: int) -> torch.Tensor:
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(*batches[step % BATCHES])
            loss.backward()
            optimizer.step()
        finish(where)
        return loss

    return Workload(run, lambda loss: loss.item())


def op(row: Row, data: tuple[Any, ...], compiled: Callable[..., Any]) -> Workload:
    function = compiled(OPS[row.name])
    inputs = [torch.from_numpy(value) for value in data]

    def run(calls: int) -> torch.Tensor:
        with torch.no_grad():
            for _ in range(calls):
                result = function(*inputs)
        return result

    return Workload(run, lambda result: result.numpy())
