"""A GPT in the words of torch: one text, which makes the model of torch's modules or of ours.

What is written here is what somebody with a torch program has; only the training loop, where gradients are values, is ours.
"""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import staged as st
from staged import nn, optim


@dataclass
class Config:
    block_size: int = 8
    vocab_size: int = 11
    n_layer: int = 2
    n_head: int = 2
    n_embd: int = 16
    dropout: float = 0.0
    bias: bool = True


def define(lib, nn, F):
    """The model, of the library's arrays, layers and functions."""

    class CausalSelfAttention(nn.Module):
        def __init__(self, config):
            super().__init__()
            assert config.n_embd % config.n_head == 0
            self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
            self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
            self.attn_dropout = nn.Dropout(config.dropout)
            self.resid_dropout = nn.Dropout(config.dropout)
            self.n_head = config.n_head
            self.n_embd = config.n_embd
            mask = lib.tril(lib.ones(config.block_size, config.block_size))
            self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

        def forward(self, x):
            B, T, C = x.size()
            q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
            k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
            att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
            att = att.masked_fill(self.bias[:, :, :T, :T] == 0, float("-inf"))
            att = F.softmax(att, dim=-1)
            att = self.attn_dropout(att)
            y = att @ v
            y = y.transpose(1, 2).contiguous().view(B, T, C)
            return self.resid_dropout(self.c_proj(y))

    class MLP(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.c_fc = nn.Linear(config.n_embd, 4 * config.n_embd, bias=config.bias)
            self.gelu = nn.GELU()
            self.c_proj = nn.Linear(4 * config.n_embd, config.n_embd, bias=config.bias)
            self.dropout = nn.Dropout(config.dropout)

        def forward(self, x):
            return self.dropout(self.c_proj(self.gelu(self.c_fc(x))))

    class Block(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.ln_1 = nn.LayerNorm(config.n_embd, bias=config.bias)
            self.attn = CausalSelfAttention(config)
            self.ln_2 = nn.LayerNorm(config.n_embd, bias=config.bias)
            self.mlp = MLP(config)

        def forward(self, x):
            x = x + self.attn(self.ln_1(x))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, config):
            super().__init__()
            self.config = config
            self.transformer = nn.ModuleDict(
                dict(  # noqa: C408  (as it is written everywhere)
                    wte=nn.Embedding(config.vocab_size, config.n_embd),
                    drop=nn.Dropout(config.dropout),
                    h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
                    ln_f=nn.LayerNorm(config.n_embd, bias=config.bias),
                )
            )
            self.wpe = nn.Parameter(lib.zeros(config.block_size, config.n_embd))
            self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
            self.transformer.wte.weight = self.lm_head.weight
            self.apply(self._init_weights)
            for pn, p in self.named_parameters():
                if pn.endswith("c_proj.weight"):
                    nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

        def get_num_params(self):
            return sum(p.numel() for p in self.parameters())

        def _init_weights(self, module):
            if isinstance(module, nn.Linear):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)
                if module.bias is not None:
                    nn.init.zeros_(module.bias)
            elif isinstance(module, nn.Embedding):
                nn.init.normal_(module.weight, mean=0.0, std=0.02)

        def forward(self, idx, targets=None):
            b, t = idx.size()
            assert t <= self.config.block_size, f"block size is {self.config.block_size}"
            x = self.transformer.drop(self.transformer.wte(idx) + self.wpe[:t])
            for block in self.transformer.h:
                x = block(x)
            x = self.transformer.ln_f(x)
            logits = self.lm_head(x)
            if targets is None:
                return logits[:, [-1], :], None
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
            return logits, loss

    return GPT


GPT = define(st, nn, st)
TOKENS = np.random.default_rng(3).integers(0, Config.vocab_size, (5, 4, Config.block_size + 1))
STEPS, CLIP = len(TOKENS), 0.5


@st.function
def train(model, opt, tokens):
    losses = st.zeros(STEPS)
    for step in st.range(STEPS):
        x, y = tokens[step, :, :-1], tokens[step, :, 1:]
        loss, grads = st.value_and_grad(lambda x, y: model(x, y)[1], wrt=model)(x, y)
        grads, norm = optim.clip_grad_norm(grads, CLIP)
        opt.step(grads)
        losses[step] = loss
    return losses


def adamw(library, model):
    return library.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)


def test_it_trains_with_its_tied_weight_and_agrees_with_eager_mode():
    def run():
        model = GPT(Config())
        rng = np.random.default_rng(7)
        state = {name: 0.1 * rng.standard_normal(value.shape) for name, value in model.state_dict().items()}
        model.load_state_dict({**state, **mask(model), "lm_head.weight": state["transformer.wte.weight"]})
        losses = train(model, adamw(optim, model), TOKENS)
        return model, losses

    model, losses = run()
    assert model.transformer.wte.weight is model.lm_head.weight
    assert len(model.state_dict()) == len(model.named_parameters()) + 1 + Config.n_layer  # the tied one twice, the masks
    assert model.get_num_params() == sum(p.size for p in model.parameters())
    with st.eager():
        eager_model, eager_losses = run()
    np.testing.assert_allclose(losses, eager_losses, rtol=1e-5)
    for name, value in model.state_dict().items():
        np.testing.assert_allclose(value, eager_model.state_dict()[name], rtol=1e-3, atol=2e-5, err_msg=name)

    @st.function
    def following(idx):
        logits, _ = model(idx)
        return st.softmax(logits[:, -1], dim=-1)

    model.eval()
    np.testing.assert_allclose(following(TOKENS[0, :, :5]).sum(axis=1), 1.0, rtol=1e-5)


def mask(model):
    return {name: value for name, value in model.state_dict().items() if name.endswith("attn.bias")}


@pytest.mark.slow
def test_it_takes_torchs_weights_and_makes_torchs_steps(library):
    torch = library("torch")
    torch.manual_seed(0)
    theirs = define(torch, torch.nn, torch.nn.functional)(Config())
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter += 0.1 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
    ours = GPT(Config())
    assert str(ours.load_state_dict(theirs.state_dict())) == "<All keys matched successfully>"
    assert [name for name, _ in ours.named_parameters()] == [name for name, _ in theirs.named_parameters()]
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert repr(ours) == repr(theirs)
    opt, expected = adamw(torch.optim, theirs), []
    for tokens in torch.as_tensor(TOKENS):
        _, loss = theirs(tokens[:, :-1], tokens[:, 1:].contiguous())
        opt.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(theirs.parameters(), CLIP)
        opt.step()
        expected.append(loss.item())
    np.testing.assert_allclose(train(ours, adamw(optim, ours), TOKENS), expected, rtol=1e-4)
    for name, value in theirs.state_dict().items():
        found, wanted = ours.state_dict()[name], value.numpy()
        if name.endswith("c_attn.bias"):
            # A softmax takes no notice of what all keys share: their bias has no gradient but roundings, of which Adam makes steps.
            found, wanted = (np.delete(bias, slice(len(bias) // 3, 2 * len(bias) // 3)) for bias in (found, wanted))
        np.testing.assert_allclose(found, wanted, rtol=2e-2, atol=2e-4, err_msg=name)


def test_a_pair_fed_to_step_is_refused_with_the_line():
    model = nn.Linear(2, 1)
    opt = optim.SGD(model.parameters(), lr=0.1)

    @st.function
    def step(x):
        grads = st.grad(lambda: st.sum(model(x)), wrt=model)()
        opt.step(optim.clip_grad_norm(grads, 1.0))

    with pytest.raises(st.ArgumentError, match="clip_grad_norm") as refused:
        step(np.ones((3, 2), np.float32))
    assert "opt.step(optim.clip_grad_norm(grads, 1.0))" in str(refused.value)
    assert "grads, norm = optim.clip_grad_norm(grads, max_norm)" in str(refused.value)
