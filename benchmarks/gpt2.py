"""Measure training steps of a small GPT-2 beside PyTorch's, one framework in each process.

python -m benchmarks.gpt2    # prints a table
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.__main__ import ROOT, environment
from examples.gpt2.model import GPT2, Config
from examples.gpt2.train import Training, train

CONFIG = Config(layers=4, heads=4, width=128, places=128, vocabulary=65)
BATCH, LENGTH, LR, CLIP = 12, 64, 1e-3, 1.0
FRAMEWORKS = ("staged", "torch-eager", "torch-compile")


def tokens() -> np.ndarray:
    """The text: random tokens."""
    return np.random.default_rng(0).integers(0, CONFIG.vocabulary, 10_000)


def ours() -> tuple[Callable[[int], None], dict[str, float]]:
    """(a function that takes so many steps, seconds of staging and of compiling)."""
    training, text = Training(GPT2(CONFIG), LR, 10_000), tokens()
    begin = time.perf_counter()
    program = train.stage(training, text, 0, 1, 100_000, batch=BATCH, length=LENGTH, clip=CLIP)
    staged = time.perf_counter()
    program(training, text, 0, 0, 100_000)
    compiled = time.perf_counter()

    def run(steps: int) -> None:
        program(training, text, 0, steps, 100_000)

    return run, {"staging": staged - begin, "compile": compiled - staged}


def torchs(framework: str, threads: int) -> tuple[Callable[[int], None], dict[str, float]]:
    """The same in PyTorch, with its own attention and its fused AdamW; the first step compiles."""
    import torch
    from torch import nn
    from torch.nn import functional as F

    torch.set_num_threads(threads)
    C = CONFIG.width

    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
            self.fc, self.proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

        def forward(self, x: Any) -> Any:
            B, T, _ = x.shape
            parts = self.c_attn(self.ln_1(x)).split(C, 2)
            q, k, v = (part.view(B, T, CONFIG.heads, -1).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
            return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.wte, self.wpe = nn.Embedding(CONFIG.vocabulary, C), nn.Embedding(CONFIG.places, C)
            self.h, self.ln_f = nn.Sequential(*[Block() for _ in range(CONFIG.layers)]), nn.LayerNorm(C)

        def forward(self, x: Any, y: Any) -> Any:
            h = self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]]))
            return F.cross_entropy((h @ self.wte.weight.T).flatten(0, 1), y.flatten())

    net, text = Net(), torch.from_numpy(tokens())
    loss_of = torch.compile(net) if framework == "torch-compile" else net
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, LR, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000, eta_min=0.1 * LR)

    def run(steps: int) -> None:
        for _ in range(steps):
            places = torch.randint(0, len(text) - LENGTH, (BATCH, 1)) + torch.arange(LENGTH)
            optimizer.zero_grad(set_to_none=True)
            loss_of(text[places], text[places + 1]).backward()
            nn.utils.clip_grad_norm_(net.parameters(), CLIP)
            optimizer.step()
            schedule.step()

    begin = time.perf_counter()
    run(1)
    return run, {"compile": time.perf_counter() - begin}


def measure(framework: str, threads: int, blocks: int, steps: int) -> dict[str, float]:
    """Medians of the clock and of processor time over `blocks` blocks of `steps` steps, and the largest memory."""
    run, figures = ours() if framework == "staged" else torchs(framework, threads)
    run(steps)
    seconds, processor = [], []
    for _ in range(blocks):
        begin, busy = time.perf_counter(), time.process_time()
        run(steps)
        seconds.append((time.perf_counter() - begin) / steps)
        processor.append((time.process_time() - busy) / steps)
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {**figures, "step": float(np.median(seconds)), "processor": float(np.median(processor)), "memory": memory}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gpt2", description=__doc__)
    parser.add_argument("--framework", choices=FRAMEWORKS, help="measure one, in this process")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--blocks", type=int, default=7)
    parser.add_argument("--steps", type=int, default=10, help="of a block")
    options = parser.parse_args()
    if options.framework:
        print(json.dumps(measure(options.framework, options.threads, options.blocks, options.steps)))
        return
    print("| framework | step | processor time | staging | compile | peak memory |\n|---|---|---|---|---|---|")
    for framework in FRAMEWORKS:
        words = [sys.executable, "-m", "benchmarks.gpt2", "--framework", framework, "--threads", str(options.threads)]
        words += ["--blocks", str(options.blocks), "--steps", str(options.steps)]
        with tempfile.TemporaryDirectory(prefix="staged-bench-") as cache:
            variables = environment(options.threads, cache)
            done = subprocess.run(words, check=True, capture_output=True, text=True, env=variables, cwd=ROOT)
        found = json.loads(done.stdout.splitlines()[-1])
        times = " | ".join(f"{1e3 * found[name]:.1f} ms" for name in ("step", "processor"))
        built = " | ".join(f"{found[name]:.2f} s" if name in found else "-" for name in ("staging", "compile"))
        print(f"| {framework} | {times} | {built} | {found['memory']:.0f} MiB |", flush=True)


if __name__ == "__main__":
    main()
