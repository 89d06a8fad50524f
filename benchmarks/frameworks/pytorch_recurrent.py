"""PyTorch, recurrent rows and trees.

`torch-eager` has its fused `nn.RNN` and `nn.LSTM` over the whole sequence, `torch-cells` a Python loop of `nn.RNNCell` and
`nn.LSTMCell`; trees are recursion, one node at a time, as there is no other way to write them for one tree per step.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.rows import (
    BATCHES,
    CLIP,
    HIDDEN,
    LENGTH,
    RECURRENT_RATE,
    TREE_RATE,
    TREES,
    VOCABULARY,
    Row,
    Trees,
    parameters,
)
from benchmarks.workload import NotWritten, Workload

CPU = torch.device("cpu")


def build(framework: str, row: Row, threads: int, data: Any, where: torch.device = CPU) -> Workload:
    torch.set_num_threads(threads)
    if row.kind == "recurrent" and framework not in ("torch-max", "torch-graphs"):
        return recurrent(framework, row, data, where)
    if row.kind == "trees" and framework == "torch-eager":
        return trees(row, data, where)
    raise NotWritten


def finish(where: torch.device) -> None:
    """Waits for what a GPU still has to do."""
    if where.type == "cuda":
        torch.cuda.synchronize()


class Sequence(nn.Module):
    """Scores of the next character after each of a sequence, from one-hot inputs (time, batch, vocabulary)."""

    def __init__(self, row: Row, cells: bool) -> None:
        super().__init__()
        kinds: tuple[Callable[..., nn.Module], ...] = (
            (nn.LSTM, nn.LSTMCell) if row.name == "char_lstm" else (nn.RNN, nn.RNNCell)
        )
        self.cells = cells
        self.is_lstm = row.name == "char_lstm"
        self.recurrent = kinds[cells](VOCABULARY, HIDDEN)
        self.out = nn.Linear(HIDDEN, VOCABULARY)
        values = {name: torch.from_numpy(value) for name, value in parameters(row).items()}
        suffix = "" if cells else "_l0"
        state = {
            f"recurrent.weight_ih{suffix}": values["embed"].T,
            f"recurrent.weight_hh{suffix}": values["recur"].T,
            f"recurrent.bias_ih{suffix}": values["bias"],
            f"recurrent.bias_hh{suffix}": torch.zeros_like(values["bias"]),
            "out.weight": values["out.weight"],
            "out.bias": values["out.bias"],
        }
        self.load_state_dict(state)
        # The model has one bias, which here is the sum of two.
        getattr(self.recurrent, f"bias_hh{suffix}").requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.cells:
            return self.out(self.recurrent(x)[0])
        h = torch.zeros(x.shape[1], HIDDEN, device=x.device)
        c, states = h, []
        for t in range(LENGTH):
            if self.is_lstm:
                h, c = self.recurrent(x[t], (h, c))
            else:
                h = self.recurrent(x[t], h)
            states.append(h)
        return self.out(torch.stack(states))


def adagrad(parameters: Any, rate: float, where: torch.device) -> torch.optim.Optimizer:
    """Fused where PyTorch has that, which is on a processor alone; on a GPU it updates all parameters at once anyway."""
    return torch.optim.Adagrad(parameters, rate, fused=True if where == CPU else None)


def recurrent(framework: str, row: Row, data: Any, where: torch.device = CPU) -> Workload:
    model = Sequence(row, framework == "torch-cells").to(where)
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = adagrad(trained, RECURRENT_RATE, where)
    texts = torch.from_numpy(data).to(where)
    inputs = [F.one_hot(text[:-1], VOCABULARY).float() for text in texts]  # ready before the clock starts
    targets = [text[1:].reshape(-1) for text in texts]

    def loss_of(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(model(x).view(-1, VOCABULARY), y)

    loss_fn = torch.compile(loss_of) if framework == "torch-compile" else loss_of

    def run(steps: int) -> torch.Tensor:
        for step in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss = loss_fn(inputs[step % BATCHES], targets[step % BATCHES])
            loss.backward()
            nn.utils.clip_grad_value_(trained, CLIP)
            optimizer.step()
        finish(where)
        return loss

    return Workload(run, lambda loss: loss.item())


class Tree(nn.Module):
    """The tree LSTM, one node at a time."""

    def __init__(self, row: Row) -> None:
        super().__init__()
        for name, value in parameters(row).items():
            self.register_parameter(name.replace(".", "_"), nn.Parameter(torch.from_numpy(value)))

    def leaf(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        i, o, u = torch.addmm(self.b_leaf, x, self.w_leaf).chunk(3, 1)
        c = torch.sigmoid(i) * torch.tanh(u)
        return torch.sigmoid(o) * torch.tanh(c), c

    def node(self, left: Any, right: Any) -> tuple[torch.Tensor, torch.Tensor]:
        gates = torch.addmm(torch.addmm(self.b_node, left[0], self.u_left), right[0], self.u_right)
        i, f_l, f_r, o, u = gates.chunk(5, 1)
        c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_l) * left[1] + torch.sigmoid(f_r) * right[1]
        return torch.sigmoid(o) * torch.tanh(c), c

    def loss(self, h: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        return F.cross_entropy(F.linear(h, self.out_weight, self.out_bias), label)


def trees(row: Row, data: Trees, where: torch.device = CPU) -> Workload:
    model = Tree(row).to(where)
    optimizer = adagrad(model.parameters(), TREE_RATE, where)
    table, labels = torch.from_numpy(data.table).to(where), torch.from_numpy(data.labels).to(where)
    words, lefts, rights = data.words.tolist(), data.lefts.tolist(), data.rights.tolist()

    def visit(node: int) -> tuple[Any, Any]:
        if lefts[node] < 0:
            state = model.leaf(table[words[node] : words[node] + 1])
            return state, model.loss(state[0], labels[node : node + 1])
        left, loss_l = visit(lefts[node])
        right, loss_r = visit(rights[node])
        state = model.node(left, right)
        return state, loss_l + loss_r + model.loss(state[0], labels[node : node + 1])

    def run(epochs: int) -> torch.Tensor:
        for _ in range(epochs):
            for first in range(0, TREES, row.batch):
                optimizer.zero_grad(set_to_none=True)
                roots = data.starts[first + 1 : first + row.batch + 1] - 1
                loss = sum(visit(int(root))[1] for root in roots) / row.batch
                loss.backward()
                optimizer.step()
        finish(where)
        return loss

    return Workload(run, lambda loss: loss.item())
