"""Weights of others: torch's `state_dict`, safetensors, halves, GPT-2's names."""

import io

import numpy as np
import pytest

import staged as st
from staged import nn
from tests.torch_reference import reference


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.c_attn = Conv1D(3 * width, width)
        self.c_proj = Conv1D(width, width)

    def forward(self, x):
        B, T, C = x.shape
        q, k, v = (part.view(B, T, self.heads, -1).transpose(1, 2) for part in self.c_attn(x).split(C, dim=-1))
        y = st.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.c_proj(y.transpose(1, 2).reshape(B, T, C))


class Conv1D(nn.Module):
    """GPT-2's linear layer, whose weight is (inputs, outputs)."""

    def __init__(self, n_out, n_in):
        super().__init__()
        self.weight = nn.Parameter(st.empty(n_in, n_out))
        self.bias = nn.Parameter(st.zeros(n_out))
        nn.init.normal_(self.weight, std=0.02)

    def forward(self, x):
        return x @ self.weight + self.bias


class MLP(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.c_fc, self.c_proj = Conv1D(4 * width, width), Conv1D(width, 4 * width)

    def forward(self, x):
        return self.c_proj(st.gelu(self.c_fc(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.mlp = Attention(width, heads), MLP(width)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT2(nn.Module):
    def __init__(self, vocab=20, length=8, width=12, heads=3, layers=2):
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocab, width), nn.Embedding(length, width)
        self.h = nn.ModuleList([Block(width, heads) for _ in range(layers)])
        self.ln_f = nn.LayerNorm(width)

    def forward(self, idx):
        x = self.wte(idx) + self.wpe(st.arange(idx.size(-1)))
        for block in self.h:
            x = block(x)
        return self.ln_f(x) @ self.wte.weight.T


def published(dtype):
    """Weights as they are published: GPT-2's names, in one dtype."""
    rng = np.random.default_rng(0)
    shapes = {name: value.shape for name, value in GPT2().state_dict().items()}
    return {name: (rng.normal(size=shape) * 0.3).astype(dtype) for name, shape in shapes.items()}


def in_torch(torch, weights, idx):
    F = torch.nn.functional
    w = {name: torch.tensor(value) for name, value in weights.items()}
    x = w["wte.weight"][torch.tensor(idx)] + w["wpe.weight"][: idx.shape[1]]
    B, T, C = x.shape
    for i in range(2):
        p = lambda name, i=i: w[f"h.{i}.{name}"]
        y = F.layer_norm(x, (C,), p("ln_1.weight"), p("ln_1.bias")) @ p("attn.c_attn.weight") + p("attn.c_attn.bias")
        q, k, v = (part.view(B, T, 3, -1).transpose(1, 2) for part in y.split(C, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(B, T, C)
        x = x + y @ p("attn.c_proj.weight") + p("attn.c_proj.bias")
        y = F.layer_norm(x, (C,), p("ln_2.weight"), p("ln_2.bias")) @ p("mlp.c_fc.weight") + p("mlp.c_fc.bias")
        x = x + F.gelu(y, approximate="tanh") @ p("mlp.c_proj.weight") + p("mlp.c_proj.bias")
    return F.layer_norm(x, (C,), w["ln_f.weight"], w["ln_f.bias"]) @ w["wte.weight"].T


IDX = np.random.default_rng(1).integers(0, 20, (2, 8))


@st.function
def logits(model, idx):
    return model(idx)


def test_published_weights_give_torchs_logits():
    weights = published(np.float32)
    model = GPT2()
    model.load_state_dict(weights)
    np.testing.assert_allclose(logits(model, IDX), reference(in_torch, weights, IDX), rtol=1e-4, atol=1e-4)


def test_weights_in_halves_are_taken():
    weights = published(np.float16)
    model = GPT2()
    model.load_state_dict(weights)
    exact = GPT2()
    exact.load_state_dict({name: value.astype(np.float32) for name, value in weights.items()})
    np.testing.assert_array_equal(logits(model, IDX), logits(exact, IDX))
    halves = model.half()
    assert halves.wte.weight.dtype == st.f16
    np.testing.assert_allclose(logits(halves, IDX), logits(exact, IDX), rtol=0.05, atol=0.1)

    @st.function
    def first_rows(weight):
        return weight[:2] * 2

    assert first_rows(weights["wte.weight"]).dtype == np.float16


def test_files_of_safetensors_and_numpy(tmp_path):
    numpy_files = pytest.importorskip("safetensors.numpy")
    model = GPT2()
    model.load_state_dict(published(np.float32))
    numpy_files.save_file(model.state_dict(), tmp_path / "theirs.safetensors")
    st.save(tmp_path / "ours.safetensors", model.state_dict())
    for read in (st.load, numpy_files.load_file):
        for file in ("ours", "theirs"):
            other = GPT2()
            other.load_state_dict(read(tmp_path / f"{file}.safetensors"))
            np.testing.assert_array_equal(logits(other, IDX), logits(model, IDX))
    file = io.BytesIO()
    np.savez(file, **model.state_dict())
    file.seek(0)
    assert np.allclose(np.load(file)["wte.weight"], model.state_dict()["wte.weight"])


@pytest.mark.live
def test_torchs_state_dict_as_it_is(library):
    torch = library("torch")
    theirs = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    ours = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True)
    ours.load_state_dict(theirs.state_dict())
    x = np.random.default_rng(2).normal(size=(3, 5, 8)).astype(np.float32)
    found = st.function(lambda x: ours(x))(x)
    np.testing.assert_allclose(found, theirs(torch.tensor(x)).detach().numpy(), rtol=1e-4, atol=1e-5)
