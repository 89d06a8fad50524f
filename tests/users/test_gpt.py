"""A GPT in torch's words: tied weights, warm-up and cosine, clipping, dropout, sampling by temperature and top-k."""

import numpy as np

import staged as st
from staged import nn, optim
from tests.torch_reference import reference

TEXT = "the quick brown fox jumps over the lazy dog. " * 6
CHARS = sorted(set(TEXT))
CODES = np.array([ord(c) for c in CHARS])
DATA = np.array([CHARS.index(c) for c in TEXT])
V, T, C, HEADS, STEPS = len(CHARS), 16, 32, 4, 10


def define(lib, nn, F):
    """The model's text, for staged and for torch."""

    class Block(nn.Module):
        def __init__(self, dropout):
            super().__init__()
            self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
            self.qkv = nn.Linear(C, 3 * C, bias=False)
            self.proj = nn.Linear(C, C)
            self.mlp = nn.Sequential(nn.Linear(C, 4 * C), nn.GELU(), nn.Linear(4 * C, C), nn.Dropout(dropout))

        def forward(self, x):
            B, T, _ = x.size()
            q, k, v = (p.view(B, T, HEADS, C // HEADS).transpose(1, 2) for p in self.qkv(self.ln_1(x)).split(C, dim=2))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.proj(y.transpose(1, 2).contiguous().view(B, T, C))
            return x + self.mlp(self.ln_2(x))

    class GPT(nn.Module):
        def __init__(self, dropout=0.0):
            super().__init__()
            self.wte, self.wpe = nn.Embedding(V, C), nn.Embedding(T, C)
            self.blocks = nn.ModuleList([Block(dropout) for _ in range(2)])
            self.ln_f = nn.LayerNorm(C)
            self.head = nn.Linear(C, V, bias=False)
            self.head.weight = self.wte.weight

        def forward(self, idx, targets=None):
            x = self.wte(idx) + self.wpe(lib.arange(idx.size(1)))
            for block in self.blocks:
                x = block(x)
            logits = self.head(self.ln_f(x))
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.view(-1, V), targets.reshape(-1))

    return GPT


GPT = define(st, nn, st)


def schedule(optim, opt, steps):
    warm = optim.lr_scheduler.LinearLR(opt, 0.1, total_iters=4)
    cosine = optim.lr_scheduler.CosineAnnealingLR(opt, T_max=steps - 4)
    return optim.lr_scheduler.SequentialLR(opt, [warm, cosine], milestones=[4])


@st.function
def train(model, batches):
    opt = optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    rate = schedule(optim, opt, len(batches))
    losses = st.zeros(len(batches))
    for i, batch in enumerate(batches):
        (loss, grads) = st.value_and_grad(lambda x, y: model(x, y)[1], wrt=model)(batch[:, :-1], batch[:, 1:])
        grads, norm = optim.clip_grad_norm(grads, 1.0)
        opt.step(grads)
        rate.step()
        losses[i] = loss
    return losses


@st.function
def write(model, start, temperature, k=5, length=20):
    window = st.zeros((1, T), dtype=st.i64)
    window[0, -1] = start
    for _ in st.range(length):
        logits = model(window)[0][0, -1] / temperature
        best, places = st.topk(logits, k)
        token = places[st.random.categorical(best)]
        print(f"{CODES[token]:c}", end="")
        window = st.roll(window, -1, axis=1)
        window[0, -1] = token
    print()


def batches(steps):
    starts = np.random.default_rng(0).integers(0, len(DATA) - T - 1, (steps, 4))
    return DATA[starts[..., None] + np.arange(T + 1)]


def torch_losses(torch, weights, batches):
    model = define(torch, torch.nn, torch.nn.functional)()
    model.load_state_dict({name: torch.tensor(value) for name, value in weights.items()})
    opt = torch.optim.AdamW(model.parameters(), lr=1e-2, betas=(0.9, 0.95), weight_decay=0.1)
    rate = schedule(torch.optim, opt, len(batches))
    losses = []
    for batch in torch.tensor(batches):
        opt.zero_grad()
        _, loss = model(batch[:, :-1], batch[:, 1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        opt.step()
        rate.step()
        losses.append(loss.item())
    return np.array(losses)


def test_it_has_torchs_losses():
    model = GPT()
    expected = reference(torch_losses, model.state_dict(), batches(STEPS), computed=True)
    np.testing.assert_allclose(train(model, batches(STEPS)), expected, rtol=1e-4)


def test_it_learns_the_text_with_dropout_and_writes(capsys):
    st.seed(1)
    model = GPT(dropout=0.1)
    losses = train(model, batches(50))
    assert losses[:3].mean() > 2.5 and losses[-3:].mean() < 1.5
    model.eval()
    write(model, CHARS.index("q"), 0.5)
    text = capsys.readouterr().out
    assert len(text) == 21 and set(text) <= {*CHARS, "\n"} and "ui" in text
