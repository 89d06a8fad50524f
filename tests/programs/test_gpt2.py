"""The GPT-2 of the examples: published formats, logits, training steps and tokens against PyTorch's and by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import staged as st
from examples.gpt2 import weights
from examples.gpt2.model import GPT2, Config
from examples.gpt2.tokens import BytePairs, Characters, letters_of_bytes, pieces
from examples.gpt2.train import Training, generate, load, train
from tests.programs.gpt2_reference import llmc, published, torch_losses, torch_scores
from tests.torch_reference import reference

CONFIG = Config(layers=2, heads=2, width=128, places=16, vocabulary=61)
BATCH, LENGTH, ACCUMULATE, STEPS, WARMUP, LR, CLIP = 3, 12, 2, 10, 3, 3e-3, 0.5
TOKENS = np.random.default_rng(5).integers(0, CONFIG.vocabulary, 400)


WEIGHTS = published(CONFIG, 0.1)


def model() -> GPT2:
    net = GPT2(CONFIG)
    net.load_state_dict(WEIGHTS)
    return net


# ---- published formats ----


def test_logits_of_published_weights_are_torchs(tmp_path: Path) -> None:
    named = {f"transformer.{name}": value for name, value in WEIGHTS.items()}
    masks = {f"transformer.h.{layer}.attn.bias": np.tril(np.ones((1, 1, 16, 16), np.float32)) for layer in (0, 1)}
    save_file({**named, **masks, "lm_head.weight": named["transformer.wte.weight"]}, tmp_path / "whole.safetensors")
    save_file(WEIGHTS, tmp_path / "model.safetensors")
    (tmp_path / "old.bin").write_bytes(llmc(CONFIG, WEIGHTS, 1))
    (tmp_path / "model.bin").write_bytes(llmc(CONFIG, WEIGHTS, 3))
    tokens = TOKENS[: 2 * CONFIG.places].reshape(2, -1)
    expected = reference(
        lambda torch, arrays, tokens: torch_scores(
            torch, CONFIG, {name: torch.tensor(array) for name, array in arrays.items()}, torch.tensor(tokens)
        ),
        WEIGHTS,
        tokens,
    )
    for name in ("whole.safetensors", "model.safetensors", "old.bin", "model.bin"):
        config, state = weights.read(tmp_path / name)
        assert config == CONFIG
        net = GPT2(config)
        assert str(net.load_state_dict(state)) == "<All keys matched successfully>"
        scores = st.function(lambda net, tokens: net(tokens))(net, tokens)
        np.testing.assert_allclose(scores, expected, atol=1e-4)


def test_logits_in_bf16_are_torchs() -> None:
    tokens = TOKENS[: 2 * CONFIG.places].reshape(2, -1)

    def by_torch(torch: Any, arrays: dict[str, np.ndarray], tokens: np.ndarray) -> list[Any]:
        state, places = {name: torch.tensor(array) for name, array in arrays.items()}, torch.tensor(tokens)
        halves = {name: value.bfloat16() for name, value in state.items()}
        return [torch_scores(torch, CONFIG, state, places), torch_scores(torch, CONFIG, halves, places).float()]

    exact, halves = reference(by_torch, WEIGHTS, tokens, rtol=1e-2)
    net = GPT2(CONFIG, dtype=st.bf16)
    net.load_state_dict(WEIGHTS)
    scores = st.function(lambda net, tokens: net(tokens))(net, tokens)
    assert scores.dtype == st.bf16.numpy
    largest = abs(exact).max()
    for expected in (exact, halves):
        np.testing.assert_allclose(scores.astype(np.float32), expected, atol=2e-2 * largest, rtol=0)
    assert abs(scores.astype(np.float32) - exact).max() > 1e-4 * largest, "it was computed in bf16"


def test_weights_of_half_precision_are_read_to_their_precision(tmp_path: Path) -> None:
    (tmp_path / "model.bin").write_bytes(llmc(CONFIG, WEIGHTS, 5))
    config, state = weights.read(tmp_path / "model.bin")
    assert config == CONFIG and state.keys() == WEIGHTS.keys()
    for name, value in WEIGHTS.items():
        assert state[name].dtype == np.float32 and not np.array_equal(state[name], value)
        np.testing.assert_allclose(state[name], value, rtol=2.0**-7)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "not an llm.c checkpoint"),
        (llmc(CONFIG, WEIGHTS, 3)[:-4], "ends early"),
        (llmc(CONFIG, WEIGHTS, 3) + b"\0\0\0\0", "longer than its sizes say"),
        (b"\0\0\0\0" + llmc(CONFIG, WEIGHTS, 3)[4:], "magic 0"),
    ],
    ids=["empty", "short", "long", "magic"],
)
def test_a_file_that_is_no_checkpoint_is_refused(content: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        weights.of_llmc(content)


def test_weights_of_another_network_are_refused() -> None:
    with pytest.raises(ValueError, match="not a GPT-2"):
        weights.of_hugging_face({"embed.weight": np.zeros((2, 2), np.float32)})
    with pytest.raises(ValueError, match="differs"):
        weights.of_hugging_face({**WEIGHTS, "lm_head.weight": np.zeros((61, 128), np.float32)})


# ---- training ----


def test_ten_steps_have_torchs_losses_and_a_resumed_run_the_same_bits(tmp_path: Path, capfd: Any) -> None:
    def start() -> Training:
        return Training(model(), LR, STEPS, WARMUP, seed=4)

    def run(training: Training, begin: int, steps: int, **saving: Any) -> np.ndarray:
        sizes: dict[str, Any] = {"batch": BATCH, "length": LENGTH, "accumulate": ACCUMULATE, "clip": CLIP}
        return np.asarray(train(training, TOKENS, begin, steps, 5, **sizes, **saving))[:steps]

    draws = start().draws
    first = [np.asarray(draws.integers(0, len(TOKENS) - LENGTH, (BATCH, 1))) for _ in range(STEPS * ACCUMULATE)]
    places = (np.array(first) + np.arange(LENGTH)).reshape(STEPS, ACCUMULATE, BATCH, LENGTH)

    def by_torch(torch: Any, arrays: dict[str, np.ndarray], tokens: np.ndarray, places: np.ndarray) -> np.ndarray:
        batches = [[(tokens[rows], tokens[rows + 1]) for rows in step] for step in places]
        return torch_losses(torch, CONFIG, arrays, batches, LR, WARMUP, CLIP)

    expected = reference(by_torch, WEIGHTS, TOKENS, places)

    whole = start()
    losses = run(whole, 0, STEPS)
    np.testing.assert_allclose(losses, expected, rtol=1e-4)
    assert expected[-1] < 0.9 * expected[0]
    assert "step 5: loss" in capfd.readouterr().out

    checkpoint = str(tmp_path / "checkpoint.safetensors")
    np.testing.assert_array_equal(run(start(), 0, STEPS // 2, every=4, checkpoint=checkpoint), losses[: STEPS // 2])
    resumed = Training(GPT2(CONFIG), LR, STEPS, WARMUP)
    assert load(checkpoint, resumed) == STEPS // 2
    np.testing.assert_array_equal(run(resumed, STEPS // 2, STEPS // 2), losses[STEPS // 2 :])
    for name, value in whole.model.state_dict().items():
        np.testing.assert_array_equal(resumed.model.state_dict()[name], value, err_msg=name)


# ---- writing ----


def test_what_is_drawn_with_the_cache_has_the_scores_of_the_whole_text(capsys: Any) -> None:
    net = model()
    alphabet = Characters(np.arange(32, 32 + CONFIG.vocabulary))
    prompt = alphabet.encode("GPT")
    tokens = np.asarray(generate(net, prompt, *alphabet.spelling(), 1e-4, 0, length=CONFIG.places))
    np.testing.assert_array_equal(tokens[:3], prompt)
    # At this temperature each is the likeliest one, which the network without a cache says too.
    likeliest = np.argmax(np.asarray(net(tokens[None])[0]), axis=1)
    np.testing.assert_array_equal(tokens[3:], likeliest[2:-1])
    assert len(set(tokens[3:].tolist())) > 3
    printed = capsys.readouterr().out
    assert printed == "".join(chr(32 + token) for token in tokens) + "\n"


def test_scores_with_the_cache_are_those_of_the_whole_text_at_256_places() -> None:
    st.seed(3)
    net = GPT2(Config(layers=2, heads=2, width=32, places=256, vocabulary=CONFIG.vocabulary))
    tokens = TOKENS[:256]

    @st.function
    def step_by_step(net: Any, tokens: Any) -> Any:
        cache, found = net.cache(256), st.zeros((256, CONFIG.vocabulary))
        for place in st.range(256):
            scores, cache = net.step(tokens[place], place, cache)
            found[place] = scores
        return found

    whole = st.function(lambda net, tokens: net(tokens))(net, tokens[None])[0]
    np.testing.assert_allclose(step_by_step(net, tokens), whole, atol=1e-5)
    # A program that draws, too: at this temperature the likeliest token of each place follows it.
    alphabet = Characters(np.arange(32, 32 + CONFIG.vocabulary))
    drawn = np.asarray(generate(net, tokens[:200], *alphabet.spelling(), 1e-6, 0, length=256))
    np.testing.assert_array_equal(drawn[:200], tokens[:200])
    likeliest = np.argmax(np.asarray(net(drawn[None])[0]), axis=1)
    np.testing.assert_array_equal(drawn[200:], likeliest[199:-1])


def test_draws_are_among_the_likeliest() -> None:
    net = model()
    alphabet = Characters(np.arange(32, 32 + CONFIG.vocabulary))
    for seed in range(3):
        tokens = np.asarray(generate(net, alphabet.encode("A"), *alphabet.spelling(), 5.0, seed, length=16, top_k=3))
        scores = np.asarray(net(tokens[None])[0])
        ranks = [int((scores[place] > scores[place, tokens[place + 1]]).sum()) for place in range(15)]
        assert max(ranks) < 3
        assert max(ranks) > 0


# ---- tokens ----


def test_a_text_is_cut_as_gpt2_cuts_it() -> None:
    for text, expected in (
        ("I'll  be 3rd, said \"'s\"", ["I", "'ll", " ", " be", " 3", "rd", ",", " said", " \"'", "s", '"']),
        ("a\n\n b", ["a", "\n\n", " b"]),
        ("  \n", ["  \n"]),
        ("ünïcode ²x_1", ["ünïcode", " ²", "x", "_", "1"]),
        ("don't O'Neil", ["don", "'t", " O", "'", "Neil"]),
    ):
        assert pieces(text) == expected


def test_byte_pairs_are_merged_in_their_order(tmp_path: Path) -> None:
    letters = letters_of_bytes()
    space = letters[ord(" ")]
    merges = [("l", "o"), ("lo", "w"), ("e", "r"), (space, "low"), ("w", "er")]
    words = [*letters.values(), *("".join(pair) for pair in merges), "<|endoftext|>"]
    (tmp_path / "encoder.json").write_text(json.dumps({word: token for token, word in enumerate(words)}))
    (tmp_path / "vocab.bpe").write_text(
        "#version: 0.2\n" + "\n".join(" ".join(pair) for pair in merges) + "\n", "utf-8"
    )
    vocabulary = BytePairs(tmp_path)
    assert vocabulary.size == 262
    spelt = [words[token] for token in vocabulary.encode("lower low slower")]
    assert spelt == ["low", "er", space + "low", space, "s", "low", "er"]
    codes, edges = vocabulary.spelling()
    text = "Größe 5 €, low\n"
    tokens = vocabulary.encode(text)
    bytes_of = {letter: byte for byte, letter in letters.items()}
    assert bytes(bytes_of[letter] for token in tokens for letter in words[token]).decode("utf-8") == text
    written = ["".join(map(chr, codes[edges[token] : edges[token + 1]])) for token in tokens]
    assert "".join(written[-3:]) == ", low\n" and "\ufffd" in written


def test_characters_that_were_not_read_are_refused() -> None:
    with pytest.raises(ValueError, match="no 'z'"):
        Characters(np.array([ord("a")])).encode("az")
