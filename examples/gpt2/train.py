"""Train GPT-2 and let it write; both are generated C programs, the training with its whole loop.

python -m examples.gpt2.train                              # a tiny one on the Zen of Python, offline
python -m examples.gpt2.train --data FOLDER --size baby    # FOLDER/input.txt, such as tinyshakespeare
python -m examples.gpt2.train --weights gpt2.safetensors --tokenizer FOLDER --steps 0 --prompt "Hello"
python -m examples.gpt2.train --resume                     # go on where the last run ended
mpiexec -n 4 python -m examples.gpt2.train --shard         # on four MPI ranks, each with its part of every batch
python -m examples.gpt2.train --show                       # print the generated C and stop
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[2]))  # also for `python examples/gpt2/train.py`

import staged as st
from examples.char_rnn import corpus
from examples.command_line import add_flags, run
from examples.gpt2 import weights
from examples.gpt2.model import GPT2, SIZES
from examples.gpt2.tokens import BytePairs, Characters
from staged import optim

MAX_STEPS = 100_000


class Training:
    """The state that training carries from step to step: the weights, AdamW's moments, the rate, and the draws of batches."""

    def __init__(self, model: GPT2, lr: float, steps: int, warmup: int = 0, decay: float = 0.1, seed: int = 0) -> None:
        matrices = [parameter for parameter in model.parameters() if parameter.ndim > 1]
        others = [parameter for parameter in model.parameters() if parameter.ndim == 1]
        self.model, self.parameters = model, matrices + others
        groups = [{"params": matrices, "weight_decay": decay}, {"params": others, "weight_decay": 0.0}]
        self.optimizer = optim.AdamW(groups, lr=lr, betas=(0.9, 0.95))
        begin = optim.lr_scheduler.LinearLR(self.optimizer, 1.0 / (warmup + 1), total_iters=warmup)
        rest = optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=max(steps - warmup, 1), eta_min=0.1 * lr)
        self.schedule = optim.lr_scheduler.SequentialLR(self.optimizer, [begin, rest], milestones=[warmup])
        self.draws = st.random.Generator(seed)

    def state_dict(self) -> dict[str, Any]:
        """All of it as a tree of arrays and numbers: training that loads it goes on with the same bits."""
        return {name: getattr(self, name).state_dict() for name in ("model", "optimizer", "schedule", "draws")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another training was."""
        for name, saved in state.items():
            getattr(self, name).load_state_dict(saved)


@st.function(static=("batch", "length", "accumulate", "clip", "checkpoint", "shard"))
def train(
    training, tokens, begin, steps, report, batch=12, length=64, accumulate=1, clip=1.0, every=0, checkpoint=None,
    shard=False,
):  # fmt: skip
    """Take `steps` steps after the first `begin`; returns the loss (nats per token) of each, and prints some.

    With the path `checkpoint`, the file is written anew after each `every` steps and after the last one.

    Each step goes along the mean gradient of `accumulate` batches of `batch` texts of `length` tokens, which begin
    anywhere in `tokens`. Its norm is at most `clip`. With `shard` each rank of an MPI job has its part of every batch.
    """
    model = training.model

    def loss_fn(x, y):
        scores = model(x)
        loss = st.cross_entropy(scores.view(-1, scores.shape[-1]), y.reshape(-1))
        return st.all_reduce(loss, "mean") if shard else loss

    def gradient():
        first = training.draws.integers(0, tokens.shape[0] - length, (batch, 1))
        first = st.shard(first) if shard else first
        places = first + st.arange(length)
        return st.value_and_grad(loss_fn, wrt=training.parameters)(tokens[places], tokens[places + 1])

    def mean_gradient():
        if accumulate == 1:
            return gradient()
        loss, grads = 0.0, [st.zeros_like(parameter) for parameter in training.parameters]
        for _ in st.range(accumulate):
            more, others = gradient()
            loss += more / accumulate
            grads = [grad + other / accumulate for grad, other in zip(grads, others, strict=True)]
        return loss, grads

    losses = st.zeros(MAX_STEPS, dtype=model.dtype)
    assert steps <= MAX_STEPS, f"at most {MAX_STEPS} steps in a call, got {steps}"
    for step in st.range(steps):
        loss, grads = mean_gradient()
        grads, norm = optim.clip_grad_norm(grads, clip)
        training.optimizer.step(grads)
        rate = training.schedule.get_last_lr()[0]
        training.schedule.step()
        losses[step] = loss
        if (begin + step + 1) % report == 0:
            print(f"step {begin + step + 1}: loss {loss:.4f}, gradient {norm:.3f}, rate {rate:.2e}")
        if checkpoint is not None and ((begin + step + 1) % every == 0 or step + 1 == steps):
            st.save(checkpoint, {"steps": begin + step + 1, **training.state_dict()})
    return losses


@st.function(static=("length", "top_k"))
def generate(model, prompt, codes, edges, temperature, seed, length=256, top_k=0):
    """Print `prompt` and what the model draws after it, `length` tokens together; returns them.

    `codes` and `edges` spell the tokens (`Characters.spelling`). A draw is one from softmax(scores / temperature), of
    the `top_k` likeliest alone if that is not 0. What each layer needs of earlier places stays in the cache, so that a
    token costs the same at any place.
    """
    st.seed(seed)
    tokens = st.concat([prompt, st.zeros((length - prompt.shape[0],), dtype=st.i64)])
    cache = model.cache(length)
    for place in st.range(length):
        token = tokens[place]
        for letter in st.range(edges[token], edges[token + 1]):
            print(f"{codes[letter]:c}", end="")
        scores, cache = model.step(token, place, cache)
        if place + 1 >= prompt.shape[0] and place + 1 < length:
            if top_k > 0:
                least = st.topk(scores, top_k).values[-1]
                scores = st.where(scores < least, -st.inf, scores)
            tokens[place + 1] = st.random.categorical(scores / temperature)
    print()
    return tokens


def load(path: str | Path, training: Training) -> int:
    """Read a checkpoint; returns the number of steps that it is after."""
    state = st.load(path)
    steps: int = state.pop("steps")
    training.load_state_dict(state)
    return steps


def main() -> None:
    """The command line."""
    out = Path(__file__).parent / "out"
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", metavar="FOLDER", help="folder with input.txt (default: the Zen of Python)")
    parser.add_argument(
        "--tokenizer", metavar="FOLDER", help="GPT-2's encoder.json and vocab.bpe (default: characters)"
    )
    parser.add_argument("--size", choices=SIZES, default="tiny")
    parser.add_argument(
        "--weights", metavar="FILE", help="begin with these: .safetensors (Hugging Face) or .bin (llm.c)"
    )
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--batch", type=int, default=12)
    parser.add_argument("--length", type=int, default=64, help="tokens of a text in training")
    parser.add_argument("--accumulate", type=int, default=1, help="batches of one step")
    parser.add_argument("--lr", type=float, default=3e-3, help="the largest rate; the last one is a tenth of it")
    parser.add_argument("--warmup", type=int, default=20, help="steps until the largest rate")
    parser.add_argument("--decay", type=float, default=0.1, help="weight decay of the matrices")
    parser.add_argument("--dropout", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument(
        "--checkpoint", metavar="FILE", default=str(out / "checkpoint.safetensors"), help="what is saved"
    )
    parser.add_argument("--every", type=int, default=250, help="steps between two checkpoints")
    parser.add_argument("--resume", action="store_true", help="go on from the checkpoint")
    parser.add_argument("--prompt", default="\n", help="what the written text begins with")
    parser.add_argument("--sample", type=int, default=256, help="tokens to write, the prompt included")
    parser.add_argument("--temperature", type=float, default=0.8)
    parser.add_argument("--top-k", type=int, default=40, help="draw from so many of the likeliest tokens (0: all)")
    parser.add_argument("--shard", action="store_true", help="divide every batch among the ranks of an MPI job")
    add_flags(parser)
    options = parser.parse_args()

    text, alphabet = corpus.read(options.data)
    vocabulary = BytePairs(options.tokenizer) if options.tokenizer else Characters(alphabet)
    tokens = vocabulary.encode("".join(chr(code) for code in alphabet[text])) if options.tokenizer else text
    config, state = replace(SIZES[options.size], vocabulary=vocabulary.size), None
    if options.weights:
        config, state = weights.read(options.weights)
    st.seed(options.seed)
    model = GPT2(config, options.dropout)
    if state is not None:
        model.load_state_dict(state)
    training = Training(model, options.lr, options.steps, options.warmup, options.decay, options.seed)
    sizes = {"batch": options.batch, "length": options.length, "accumulate": options.accumulate}
    sizes["shard"] = options.shard
    begin = load(options.checkpoint, training) if options.resume else 0
    Path(options.checkpoint).parent.mkdir(parents=True, exist_ok=True)
    report = max(options.steps // 10, 1)
    if begin < options.steps:
        saving = {"every": options.every, "checkpoint": options.checkpoint}
        run(options, train, training, tokens, begin, options.steps - begin, report, **sizes, **saving)
    codes, edges = vocabulary.spelling()
    prompt, length = vocabulary.encode(options.prompt), min(options.sample, config.places)
    given = (model, prompt, codes, edges, options.temperature, options.seed)
    if st.rank() == 0:
        run(options, generate, *given, length=length, top_k=options.top_k)


if __name__ == "__main__":
    main()
