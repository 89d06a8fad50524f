"""PyTorch, one call at a time: eager and `torch.compile`; the steps of `pytorch.py` are called so already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.call_rows import (
    AHEAD,
    BLOCK_HEADS,
    BLOCK_RATE,
    BLOCK_WIDTH,
    TICK,
    block_parameters,
    control_parameters,
)
from benchmarks.frameworks import pytorch
from benchmarks.rows import BATCHES, ROWS, Row
from benchmarks.workload import Workload


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        wide = BLOCK_WIDTH
        self.norm1, self.norm2 = nn.LayerNorm(wide), nn.LayerNorm(wide)
        self.qkv, self.out = nn.Linear(wide, 3 * wide), nn.Linear(wide, wide)
        self.up, self.down = nn.Linear(wide, 4 * wide), nn.Linear(4 * wide, wide)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, time, wide = x.shape
        q, k, v = (
            part.view(batch, time, BLOCK_HEADS, wide // BLOCK_HEADS).transpose(1, 2)
            for part in self.qkv(self.norm1(x)).chunk(3, 2)
        )
        seen = F.scaled_dot_product_attention(q, k, v)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, time, wide))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


class Blocks(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Block() for _ in range(count)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
        return x


def build(framework: str, row: Row, threads: int, data: Any) -> Workload:
    if row.steps_of:
        return pytorch.build(framework, replace(ROWS[row.steps_of], batch=row.batch), threads, data)
    torch.set_num_threads(threads)

    def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
        return torch.compile(function) if framework == "torch-compile" else function

    if row.blocks:
        return blocks(row, data, compiled)
    if row.name == "call_add":
        return add(data, compiled)
    return control(data, compiled)


def add(data: Any, compiled: Callable[..., Any]) -> Workload:
    function, x = compiled(lambda x: x + 1), torch.from_numpy(data)

    def run(calls: int) -> torch.Tensor:
        for _ in range(calls):
            result = function(x)
        return result

    return Workload(run, lambda result: result.numpy())


def blocks(row: Row, data: Any, compiled: Callable[..., Any]) -> Workload:
    model = Blocks(row.blocks)
    model.load_state_dict({name: torch.from_numpy(value) for name, value in block_parameters(row.blocks).items()})
    optimizer = torch.optim.AdamW(model.parameters(), BLOCK_RATE, fused=True)
    x, y = map(torch.from_numpy, data)
    loss_of = compiled(lambda x, y: F.mse_loss(model(x), y))

    def run(steps: int) -> torch.Tensor:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_of(x, y)
            loss.backward()
            optimizer.step()
        return loss

    return Workload(run, lambda loss: loss.item())


def control(data: Any, compiled: Callable[..., Any]) -> Workload:
    w = {name: torch.from_numpy(value) for name, value in control_parameters().items()}
    states = list(torch.from_numpy(data))

    @compiled
    def cost(x: torch.Tensor) -> torch.Tensor:
        total = torch.zeros(())
        for _ in range(AHEAD):
            u = torch.tanh(x @ w["w1"] + w["b1"]) @ w["w2"]
            x = x + TICK * (x @ w["drift"] + torch.sin(x) @ w["pull"] + u @ w["push"])
            total = total + (x * x).sum() + 0.1 * (u * u).sum()
        return total

    def run(calls: int) -> torch.Tensor:
        with torch.no_grad():
            for call in range(calls):
                result = cost(states[call % BATCHES])
        return result

    return Workload(run, lambda result: result.item())
