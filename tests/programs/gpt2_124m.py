"""GPT-2 with 124 million weights against PyTorch's, from files in both published formats: `python -m tests.programs.gpt2_124m`.

It takes some ten minutes and 6 GB of memory, so it is run by hand; the tests of `test_gpt2.py` have the same with small sizes. The
weights are random, of the size of a network before training. Ends with status 1 where a bar is missed.
"""

from __future__ import annotations

import gc
import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

import staged as st
from examples.gpt2 import weights
from examples.gpt2.model import GPT2, SIZES
from examples.gpt2.train import Training, generate, train
from tests.programs.gpt2_reference import llmc, published, torch_losses, torch_scores

CONFIG = SIZES["124M"]
LENGTH, STEPS, WARMUP, LR, CLIP, WRITTEN = 64, 10, 3, 3e-4, 1.0, 256
TOKENS = np.random.default_rng(5).integers(0, CONFIG.vocabulary, 10_000)


def seconds() -> float:
    """Processor time of this process and of the compilers that it has waited for."""
    others = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + others.ru_utime + others.ru_stime


def check(what: str, found: float, bar: float) -> bool:
    print(f"{'ok  ' if found <= bar else 'MISS'} {what}: {found:.3g}, the bar {bar:.3g}", flush=True)
    return found <= bar


def scores_of(state: dict[str, np.ndarray], tokens: np.ndarray, dtype: Any) -> np.ndarray:
    model = GPT2(CONFIG, dtype=dtype)
    assert str(model.load_state_dict(state)) == "<All keys matched successfully>"
    return np.asarray(st.function(lambda model, tokens: model(tokens))(model, tokens)).astype(np.float32)


def logits(torch: Any, state: dict[str, np.ndarray]) -> bool:
    tokens = TOKENS[:LENGTH].reshape(1, -1)
    tensors = {name: torch.tensor(array) for name, array in state.items()}
    with torch.no_grad():
        exact = torch_scores(torch, CONFIG, tensors, torch.tensor(tokens)).numpy()
        halves = {name: value.bfloat16() for name, value in tensors.items()}
        rounded = torch_scores(torch, CONFIG, halves, torch.tensor(tokens)).float().numpy()
    del tensors, halves
    largest = float(abs(exact).max())
    ours, in_bf16 = scores_of(state, tokens, st.f32), scores_of(state, tokens, st.bf16)
    print(f"     the largest logit {largest:.3g}; PyTorch's in bf16 from its own in f32: {abs(rounded - exact).max():.3g}")
    return all(
        [
            check("f32 logits, distance from PyTorch's", abs(ours - exact).max(), 1e-4),
            check("bf16 logits, from PyTorch's in f32, relative", abs(in_bf16 - exact).max() / largest, 2e-2),
            check("bf16 logits, from PyTorch's in bf16, relative", abs(in_bf16 - rounded).max() / largest, 2e-2),
        ]
    )


def losses(torch: Any, state: dict[str, np.ndarray]) -> bool:
    def start() -> Training:
        model = GPT2(CONFIG)
        model.load_state_dict(state)
        return Training(model, LR, STEPS, WARMUP, seed=4)

    def steps(training: Training, count: int) -> np.ndarray:
        return np.asarray(train(training, TOKENS, 0, count, STEPS, batch=1, length=LENGTH, clip=CLIP))[:count]

    draws = start().draws
    first = [int(np.asarray(draws.integers(0, len(TOKENS) - LENGTH, (1, 1)))[0, 0]) for _ in range(STEPS)]
    batches = [[(TOKENS[at : at + LENGTH][None], TOKENS[at + 1 : at + LENGTH + 1][None])] for at in first]
    begin = seconds()
    expected = torch_losses(torch, CONFIG, state, batches, LR, WARMUP, CLIP)
    print(f"     PyTorch's ten steps: {seconds() - begin:.1f} s of processor time")
    gc.collect()
    begin = seconds()
    steps(start(), 0)
    print(f"     staging and compiling: {seconds() - begin:.1f} s")
    training = start()
    begin = seconds()
    found = steps(training, STEPS)
    print(f"     our ten steps: {seconds() - begin:.1f} s; losses {found[0]:.4f} ... {found[-1]:.4f}")
    return check("ten losses of AdamW, relative", float(abs(found / expected - 1.0).max()), 1e-4)


def writing(state: dict[str, np.ndarray]) -> bool:
    model = GPT2(CONFIG)
    model.load_state_dict(state)
    no_letters = np.zeros(1, np.int64), np.zeros(CONFIG.vocabulary + 1, np.int64)
    given = (model, TOKENS[:1], *no_letters, 0.8, 0)
    generate.stage(*given, length=WRITTEN, top_k=40).compile()
    begin = seconds()
    tokens = np.asarray(generate(*given, length=WRITTEN, top_k=40))
    print(f"     {1000 * (seconds() - begin) / WRITTEN:.0f} ms a token")
    scores = np.asarray(st.function(lambda model, tokens: model(tokens))(model, tokens[None]))[0]
    least = np.sort(scores, axis=1)[:, -40]
    short = [least[place] - scores[place, tokens[place + 1]] for place in range(WRITTEN - 1)]
    return check(f"{WRITTEN} tokens, below the 40 likeliest of the whole text's", max(0.0, float(max(short))), 1e-3)


def main() -> int:
    import torch

    state = published(CONFIG, 0.02)
    with tempfile.TemporaryDirectory() as folder:
        save_file({f"transformer.{name}": value for name, value in state.items()}, Path(folder) / "model.safetensors")
        (Path(folder) / "model.bin").write_bytes(llmc(CONFIG, state, 3))
        read = [weights.read(Path(folder) / name) for name in ("model.safetensors", "model.bin")]
    same = [config == CONFIG and all(np.array_equal(found[name], state[name]) for name in state) for config, found in read]
    parts: list[Callable[[], bool]] = [
        lambda: check("files of Hugging Face's and of llm.c's format that differ when read", same.count(False), 0),
        lambda: logits(torch, state),
        lambda: losses(torch, state),
        lambda: writing(state),
    ]
    read.clear()
    held = [part() for part in parts]
    print(f"     peak memory {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20:.1f} GiB, PyTorch's included")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
