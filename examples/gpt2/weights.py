"""Weights of GPT-2 in the formats that they are published in: Hugging Face's safetensors, and llm.c's checkpoints."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from examples.gpt2.model import Config

MAGIC, FLOATS = 20240326, {1: 4, 3: 4, 5: 2}
"""The first number of an llm.c file, and the bytes of a number in each version of its format: f32, f32 with a padded
vocabulary, bf16 with a padded vocabulary.
"""


def read(path: str | Path, heads: int | None = None) -> tuple[Config, dict[str, np.ndarray]]:
    """(sizes, arrays by the names of `GPT2.state_dict()`) of a `.safetensors` or an llm.c `.bin` file.

    `heads` is read from the file where the format has it (llm.c's), and is otherwise 64 columns each, as in all of
    GPT-2's sizes. Raises: ValueError if the file is neither, or something else than a GPT-2.
    """
    if Path(path).suffix == ".safetensors":
        from safetensors.numpy import load_file

        return of_hugging_face(load_file(path), heads)
    return of_llmc(Path(path).read_bytes())


def of_hugging_face(tensors: dict[str, np.ndarray], heads: int | None = None) -> tuple[Config, dict[str, np.ndarray]]:
    """Arrays by Hugging Face's names, which a `GPT2LMHeadModel` begins with `transformer.`, a `GPT2Model` does not."""
    state = {name.removeprefix("transformer."): array for name, array in tensors.items()}
    head = state.pop("lm_head.weight", None)
    # Old files hold the masks of causal attention as well.
    state = {name: array for name, array in state.items() if not name.endswith((".attn.bias", ".attn.masked_bias"))}
    if "wte.weight" not in state or "wpe.weight" not in state:
        raise ValueError(f"not a GPT-2: no `wte.weight` and `wpe.weight` among {sorted(tensors)[:5]}")
    if head is not None and not np.array_equal(head, state["wte.weight"]):
        raise ValueError("`lm_head.weight` differs from `wte.weight`: GPT-2 has one table for both")
    (vocabulary, width), places = state["wte.weight"].shape, len(state["wpe.weight"])
    layers = 1 + max(int(name.split(".")[1]) for name in state if name.startswith("h."))
    return Config(layers, heads or width // 64, width, places, vocabulary), state


def of_llmc(content: bytes) -> tuple[Config, dict[str, np.ndarray]]:
    """The bytes of an llm.c checkpoint: 256 integers, then each array of all layers.

    Source: `write_model` in Karpathy's llm.c, `train_gpt2.py`.
    """
    header = np.frombuffer(content, "<i4", 256) if len(content) >= 1024 else np.zeros(256, np.int32)
    magic, version, places, vocabulary, layers, heads, width, padded = (int(number) for number in header[:8])
    if magic != MAGIC or version not in FLOATS:
        raise ValueError(f"not an llm.c checkpoint of a known version: magic {magic}, version {version}")
    rows = vocabulary if version == 1 else padded
    bits = np.frombuffer(content, f"<u{FLOATS[version]}", offset=1024)
    numbers = bits.view("<f4") if version != 5 else (bits.astype("<u4") << 16).view("<f4")
    begin, state = 0, {}

    def take(*shape: int) -> np.ndarray:
        nonlocal begin
        begin += int(np.prod(shape))
        if begin > numbers.size:
            raise ValueError(f"the llm.c checkpoint ends early: {numbers.size} numbers, at least {begin} expected")
        return numbers[begin - int(np.prod(shape)) : begin].reshape(shape)

    state["wte.weight"] = take(rows, width)[:vocabulary]
    state["wpe.weight"] = take(places, width)
    for name, *shape in (
        ("ln_1.weight", width), ("ln_1.bias", width),
        ("attn.c_attn.weight", 3 * width, width), ("attn.c_attn.bias", 3 * width),
        ("attn.c_proj.weight", width, width), ("attn.c_proj.bias", width),
        ("ln_2.weight", width), ("ln_2.bias", width),
        ("mlp.c_fc.weight", 4 * width, width), ("mlp.c_fc.bias", 4 * width),
        ("mlp.c_proj.weight", width, 4 * width), ("mlp.c_proj.bias", width),
    ):  # fmt: skip
        for layer, array in enumerate(take(layers, *shape)):
            state[f"h.{layer}.{name}"] = array.T  # a matrix is (outputs, inputs) there
    state["ln_f.weight"], state["ln_f.bias"] = take(width), take(width)
    if begin != numbers.size:
        raise ValueError(f"the llm.c checkpoint is longer than its sizes say: {numbers.size} numbers, {begin} expected")
    return Config(layers, heads, width, places, vocabulary), state
