"""GPT-2 as others publish and compute it: random weights in both published formats, and its scores and losses in PyTorch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from examples.gpt2.model import Config


def published(config: Config, deviation: float) -> dict[str, np.ndarray]:
    """Random weights by the names and layouts of a `GPT2Model` of Hugging Face's."""
    rng = np.random.default_rng(1)
    L, C = config.layers, config.width
    shapes: dict[str, tuple[int, ...]] = {"wte.weight": (config.vocabulary, C), "wpe.weight": (config.places, C)}
    for layer in range(L):
        for name, shape in (("ln_1", (C,)), ("attn.c_attn", (C, 3 * C)), ("attn.c_proj", (C, C)), ("ln_2", (C,))):
            shapes |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[-1:]}
        for name, shape in (("mlp.c_fc", (C, 4 * C)), ("mlp.c_proj", (4 * C, C))):
            shapes |= {f"h.{layer}.{name}.weight": shape, f"h.{layer}.{name}.bias": shape[-1:]}
    shapes |= {"ln_f.weight": (C,), "ln_f.bias": (C,)}
    drawn = {name: rng.normal(0.0, deviation, shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: value + ("ln" in name and name.endswith("weight")) for name, value in drawn.items()}


def llmc(config: Config, state: Mapping[str, np.ndarray], version: int) -> bytes:
    """The weights as `write_model` of llm.c's `train_gpt2.py` writes them, from modules whose matrices are (outputs, inputs)."""
    padded = -(-config.vocabulary // 128) * 128
    header = np.zeros(256, np.int32)
    header[:7] = 20240326, version, config.places, config.vocabulary, config.layers, config.heads, config.width
    table = state["wte.weight"]
    if version > 1:
        header[7] = padded
        table = np.concatenate([table, np.zeros((padded - len(table), config.width), np.float32)])
    arrays = [table, state["wpe.weight"]]
    for name in (
        "ln_1.weight", "ln_1.bias", "attn.c_attn.weight", "attn.c_attn.bias", "attn.c_proj.weight", "attn.c_proj.bias",
        "ln_2.weight", "ln_2.bias", "mlp.c_fc.weight", "mlp.c_fc.bias", "mlp.c_proj.weight", "mlp.c_proj.bias",
    ):  # fmt: skip
        for layer in range(config.layers):
            value = state[f"h.{layer}.{name}"]
            arrays.append(value.T if value.ndim == 2 else value)
    arrays += [state["ln_f.weight"], state["ln_f.bias"]]
    numbers = np.concatenate([array.reshape(-1) for array in arrays])
    if version == 5:
        numbers = (numbers.view(np.uint32) >> 16).astype(np.uint16)
    return header.tobytes() + numbers.tobytes()


def torch_scores(torch: Any, config: Config, state: Mapping[str, Any], tokens: Any) -> Any:
    """Scores by PyTorch's functions, of arrays by Hugging Face's names."""
    F = torch.nn.functional
    (B, T), C = tokens.shape, config.width

    def normed(x: Any, name: str) -> Any:
        return F.layer_norm(x, (C,), state[f"{name}.weight"], state[f"{name}.bias"])

    def linear(x: Any, name: str) -> Any:
        return F.linear(x, state[f"{name}.weight"].T, state[f"{name}.bias"])

    x = F.embedding(tokens, state["wte.weight"]) + state["wpe.weight"][:T]
    for layer in range(config.layers):
        q, k, v = linear(normed(x, f"h.{layer}.ln_1"), f"h.{layer}.attn.c_attn").split(C, dim=2)
        q, k, v = (part.view(B, T, config.heads, -1).transpose(1, 2) for part in (q, k, v))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + linear(y, f"h.{layer}.attn.c_proj")
        inner = F.gelu(linear(normed(x, f"h.{layer}.ln_2"), f"h.{layer}.mlp.c_fc"), approximate="tanh")
        x = x + linear(inner, f"h.{layer}.mlp.c_proj")
    return F.linear(normed(x, "ln_f"), state["wte.weight"])


def torch_losses(
    torch: Any,
    config: Config,
    arrays: Mapping[str, np.ndarray],
    batches: Sequence[Sequence[tuple[np.ndarray, np.ndarray]]],
    lr: float,
    warmup: int,
    clip: float,
) -> np.ndarray:
    """The loss of each step of the examples' training: AdamW, accumulated gradients, clipping, warm-up and cosine.

    `batches` has tokens and those that follow them, for each part of each step.
    """
    state = {name: torch.tensor(array, requires_grad=True) for name, array in arrays.items()}
    groups = [
        {"params": [each for each in state.values() if each.ndim > 1], "weight_decay": 0.1},
        {"params": [each for each in state.values() if each.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
    schedules = torch.optim.lr_scheduler
    schedule = schedules.SequentialLR(
        optimizer,
        [
            schedules.LinearLR(optimizer, 1.0 / (warmup + 1), total_iters=warmup),
            schedules.CosineAnnealingLR(optimizer, len(batches) - warmup, eta_min=0.1 * lr),
        ],
        milestones=[warmup],
    )
    losses = []
    for parts in batches:
        optimizer.zero_grad()
        total = 0.0
        for x, y in parts:
            scores = torch_scores(torch, config, state, torch.tensor(x))
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, 1), torch.tensor(y).flatten())
            (loss / len(parts)).backward()
            total += loss.item() / len(parts)
        torch.nn.utils.clip_grad_norm_(state.values(), clip)
        optimizer.step()
        schedule.step()
        losses.append(total)
    return np.array(losses)
