"""The tree LSTM of the example in PyTorch: recursion over one tree, as its users write it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tests.torch_reference import reference


def torch_losses(
    weights: Mapping[str, np.ndarray], trees: Any, table: np.ndarray, steps: int, lr: float, batch: int = 1
) -> np.ndarray:
    """The losses of `steps` Adagrad steps from the initial weights of the example's model.

    A step takes the next `batch` trees, from the start again where there are no more, and its loss is their mean.
    """
    parts = (trees.words, trees.lefts, trees.rights, trees.labels, trees.starts)
    return reference(_losses, dict(weights), parts, table, steps, lr, batch)


def _losses(
    torch: Any, weights: dict[str, np.ndarray], trees: Any, table: np.ndarray, steps: int, lr: float, batch: int
) -> np.ndarray:
    F = torch.nn.functional
    torch.set_num_threads(1)
    w = {name: torch.from_numpy(np.array(value)).requires_grad_() for name, value in weights.items()}
    optimizer = torch.optim.Adagrad(list(w.values()), lr)
    *children, label, starts = trees
    vectors, labels = torch.from_numpy(table), torch.from_numpy(label)
    words, lefts, rights = (part.tolist() for part in children)

    def visit(node: int) -> tuple[Any, Any, Any]:
        if lefts[node] < 0:
            i, o, u = (vectors[words[node]] @ w["w_leaf"] + w["b_leaf"]).chunk(3)
            c, below = torch.sigmoid(i) * torch.tanh(u), 0.0
        else:
            (h_l, c_l, loss_l), (h_r, c_r, loss_r) = visit(lefts[node]), visit(rights[node])
            gates = h_l @ w["u_left"] + h_r @ w["u_right"] + w["b_node"]
            i, f_l, f_r, o, u = gates.chunk(5)
            c = torch.sigmoid(i) * torch.tanh(u) + torch.sigmoid(f_l) * c_l + torch.sigmoid(f_r) * c_r
            below = loss_l + loss_r
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, c, below + F.cross_entropy(F.linear(h, w["out.weight"], w["out.bias"]), labels[node])

    losses = []
    batches = (len(starts) - 1) // batch
    for step in range(steps):
        optimizer.zero_grad()
        first = step % batches * batch
        loss = sum(visit(int(root) - 1)[2] for root in starts[first + 1 : first + batch + 1]) / batch
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return np.array(losses)
