"""The programs of the examples in PyTorch, as its users write them: `PEERS[name](compiled)` is a function that takes so many steps.

`compiled` is `torch.compile` or does nothing; it gets the loss, which is differentiated after it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from benchmarks.example_rows import (
    GPT2_CONFIG,
    GPT2_SIZES,
    RESNET,
    images,
    random_tokens,
    speech,
)
from examples.deepspeech2.train import LETTERS
from examples.gaussian_process.regress import START, measurements
from examples.kalman_mpc import control as controller
from examples.neural_ode.train import spiral
from examples.pinn.train import CONDUCTIVITY
from examples.reinforce.train import CART, FORCE, GRAVITY, HALF_LENGTH, POLE, SECONDS
from examples.squeezenet.model import FIRES
from examples.transformer.train import BEGIN, DIGITS
from examples.vae.train import PIXELS, load

Compiled = Callable[[Any], Any]
Run = Callable[[int], None]


def stepping(optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor], clip: float = 0.0) -> Run:
    """Steps along the gradient of `loss`, clipped to a norm where `clip` is not 0."""
    weights = [weight for group in optimizer.param_groups for weight in group["params"]]

    def run(steps: int) -> None:
        for _ in range(steps):
            optimizer.zero_grad(set_to_none=True)
            loss().backward()
            if clip:
                nn.utils.clip_grad_norm_(weights, clip)
            optimizer.step()

    return run


def drawn(count: int, batch: int) -> Callable[[], torch.Tensor]:
    """The rows of the next batch: all rows in an order that is drawn, then in another."""
    waiting: list[torch.Tensor] = []

    def rows() -> torch.Tensor:
        if not waiting:
            waiting.extend(torch.randperm(count)[: count // batch * batch].split(batch))
        return waiting.pop()

    return rows


# ---- networks -------------------------------------------------------------------------------------


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        C = GPT2_CONFIG.width
        self.ln_1, self.ln_2 = nn.LayerNorm(C), nn.LayerNorm(C)
        self.c_attn, self.c_proj = nn.Linear(C, 3 * C), nn.Linear(C, C)
        self.fc, self.proj = nn.Linear(C, 4 * C), nn.Linear(4 * C, C)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        B, T, C = x.shape
        parts = self.c_attn(self.ln_1(x)).split(C, 2)
        q, k, v = (part.view(B, T, GPT2_CONFIG.heads, -1).transpose(1, 2) for part in parts)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(B, T, C))
        return x + self.proj(F.gelu(self.fc(self.ln_2(x)), approximate="tanh"))


class Gpt2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        C = GPT2_CONFIG.width
        self.wte, self.wpe = nn.Embedding(GPT2_CONFIG.vocabulary, C), nn.Embedding(GPT2_CONFIG.places, C)
        self.h, self.ln_f = nn.Sequential(*[Block() for _ in range(GPT2_CONFIG.layers)]), nn.LayerNorm(C)

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.ln_f(self.h(self.wte(x) + self.wpe.weight[: x.shape[1]]))
        return F.cross_entropy((h @ self.wte.weight.T).flatten(0, 1), y.flatten())


class Vae(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.fc1, self.fc21, self.fc22 = nn.Linear(PIXELS, 400), nn.Linear(400, 20), nn.Linear(400, 20)
        self.fc3, self.fc4 = nn.Linear(20, 400), nn.Linear(400, PIXELS)

    def forward(self, x: torch.Tensor, noise: torch.Tensor) -> torch.Tensor:
        h = self.fc1(x).relu()
        mean, log_variance = self.fc21(h), self.fc22(h)
        scores = self.fc4(self.fc3(mean + noise * (0.5 * log_variance).exp()).relu())
        unlikely = F.binary_cross_entropy_with_logits(scores, x, reduction="sum")
        return (unlikely - 0.5 * (1.0 + log_variance - mean**2 - log_variance.exp()).sum()) / len(x)


class Rewriter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table, self.places = nn.Embedding(DIGITS + 1, 32), nn.Embedding(10, 32)
        self.transformer = nn.Transformer(32, 4, 1, 1, 128, dropout=0.0, batch_first=True)
        self.out = nn.Linear(32, DIGITS)
        self.register_buffer("mask", nn.Transformer.generate_square_subsequent_mask(10))

    def forward(self, read: torch.Tensor) -> torch.Tensor:
        wanted = read.flip(1)
        written = torch.cat([torch.full((len(read), 1), BEGIN), wanted[:, :-1]], 1)
        x, y = (self.table(digits) + self.places.weight for digits in (read, written))
        y = self.transformer(x, y, tgt_mask=self.mask, tgt_is_causal=True)
        return F.cross_entropy(self.out(y).view(-1, DIGITS), wanted.reshape(-1))


class Fire(nn.Module):
    def __init__(self, channels: int, squeezed: int) -> None:
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeezed, 1)
        self.small = nn.Conv2d(squeezed, 4 * squeezed, 1)
        self.large = nn.Conv2d(squeezed, 4 * squeezed, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.squeeze(x).relu()
        return torch.cat([self.small(x).relu(), self.large(x).relu()], 1)


def squeezenet() -> nn.Module:
    layers, channels = [nn.Conv2d(3, 64, 3, padding=1), nn.ReLU()], 64
    for group, widths in enumerate(FIRES):
        layers += [nn.MaxPool2d(3, 2, ceil_mode=True)] if group else []
        for squeezed in widths:
            layers += [Fire(channels, squeezed)]
            channels = 8 * squeezed
    return nn.Sequential(
        *layers, nn.Dropout(0.5), nn.Conv2d(channels, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()
    )


class Bottleneck(nn.Module):
    def __init__(self, channels: int, inner: int, stride: int) -> None:
        super().__init__()
        outer = 4 * inner
        self.body = nn.Sequential(
            *(nn.Conv2d(channels, inner, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, inner, 3, stride, 1, bias=False), nn.BatchNorm2d(inner), nn.ReLU()),
            *(nn.Conv2d(inner, outer, 1, bias=False), nn.BatchNorm2d(outer)),
        )
        self.rest: nn.Module = nn.Identity()
        if stride > 1 or channels != outer:
            self.rest = nn.Sequential(nn.Conv2d(channels, outer, 1, stride, bias=False), nn.BatchNorm2d(outer))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.body(x) + self.rest(x)).relu()


def resnet() -> nn.Module:
    width, channels = RESNET["width"], RESNET["width"]
    layers: list[nn.Module] = [nn.Conv2d(3, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU()]
    for stage, count in enumerate(RESNET["blocks"]):
        for block in range(count):
            layers += [Bottleneck(channels, width * 2**stage, 2 if stage and not block else 1)]
            channels = 4 * width * 2**stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 10))


class DeepSpeech2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(1, 16, 11, (2, 2), 5, bias=False)
        self.conv2 = nn.Conv2d(16, 16, 11, (2, 1), 5, bias=False)
        self.bn1, self.bn2 = nn.BatchNorm2d(16), nn.BatchNorm2d(16)
        self.rnns = nn.ModuleList([nn.LSTM(96, 64, bidirectional=True), nn.LSTM(64, 64, bidirectional=True)])
        self.norms = nn.ModuleList([nn.BatchNorm1d(64), nn.BatchNorm1d(64)])
        self.out = nn.Linear(64, len(LETTERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.hardtanh(self.bn1(self.conv1(x[:, None])), 0.0, 20.0)
        y = F.hardtanh(self.bn2(self.conv2(y)), 0.0, 20.0).flatten(1, 2).permute(2, 0, 1)
        for rnn, norm in zip(self.rnns, self.norms, strict=True):
            both, _ = rnn(y)
            y = both[..., :64] + both[..., 64:]
            y = norm(y.flatten(0, 1)).view(y.shape)
        return F.log_softmax(self.out(y), dim=2)


# ---- training -------------------------------------------------------------------------------------


def gpt2(compiled: Compiled) -> Run:
    net, text = Gpt2(), torch.from_numpy(random_tokens())
    loss_of = compiled(net)
    groups = [
        {"params": [p for p in net.parameters() if p.ndim > 1], "weight_decay": 0.1},
        {"params": [p for p in net.parameters() if p.ndim == 1], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, 1e-3, betas=(0.9, 0.95), fused=True)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10_000, eta_min=1e-4)
    batch, length = GPT2_SIZES["batch"], GPT2_SIZES["length"]

    def loss() -> torch.Tensor:
        places = torch.randint(0, len(text) - length, (batch, 1)) + torch.arange(length)
        return loss_of(text[places], text[places + 1])

    step = stepping(optimizer, loss, GPT2_SIZES["clip"])

    def run(steps: int) -> None:
        for _ in range(steps):
            step(1)
            schedule.step()

    return run


def vae(compiled: Compiled) -> Run:
    net, x = Vae(), torch.from_numpy(load(None))
    loss_of, rows = compiled(net), drawn(len(x), 64)
    optimizer = torch.optim.Adam(net.parameters(), 1e-3, fused=True)
    return stepping(optimizer, lambda: loss_of(x[rows()], torch.randn(64, 20)))


def pinn(compiled: Compiled) -> Run:
    sizes = [2, 32, 32, 32, 1]
    layers = [layer for a, b in zip(sizes, sizes[1:], strict=False) for layer in (nn.Linear(a, b), nn.Tanh())][:-1]
    net = nn.Sequential(*layers).double()

    def field(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        return net(torch.stack([x, t], 1))[:, 0]

    @compiled
    def loss_of(x: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        ones, zeros = torch.ones_like(x), torch.zeros_like(x)
        _, u_t = torch.func.jvp(lambda t: field(x, t), (t,), (ones,))
        _, u_xx = torch.func.jvp(lambda x: torch.func.jvp(lambda x: field(x, t), (x,), (ones,))[1], (x,), (ones,))
        loss = ((u_t - CONDUCTIVITY * u_xx) ** 2).mean() + ((field(x, zeros) - torch.sin(torch.pi * x)) ** 2).mean()
        return loss + (field(zeros, t) ** 2 + field(ones, t) ** 2).mean()

    optimizer = torch.optim.Adam(net.parameters(), 3e-3, fused=True)
    return stepping(optimizer, lambda: loss_of(*torch.rand(2, 256, dtype=torch.float64)))


def transformer(compiled: Compiled) -> Run:
    net = Rewriter()
    loss_of = compiled(net)
    optimizer = torch.optim.Adam(net.parameters(), 3e-3, fused=True)
    return stepping(optimizer, lambda: loss_of(torch.randint(0, DIGITS, (64, 10))))


def deepspeech2(compiled: Compiled) -> Run:
    net = DeepSpeech2()
    scores_of = compiled(net)
    sound, texts, lengths = (torch.from_numpy(each) for each in speech())
    rows = drawn(len(sound), 16)
    places = torch.full((16,), sound.shape[2] // 2)

    def loss() -> torch.Tensor:
        at = rows()
        return F.ctc_loss(scores_of(sound[at]), texts[at], places, lengths[at])

    return stepping(torch.optim.Adam(net.parameters(), 3e-3, fused=True), loss, 5.0)


def classifying(net: nn.Module) -> Callable[[Compiled], Run]:
    def build(compiled: Compiled) -> Run:
        x, y = (torch.from_numpy(each) for each in images())
        rows, scores_of = drawn(len(x), 32), compiled(net)

        def loss() -> torch.Tensor:
            at = rows()
            return F.cross_entropy(scores_of(x[at]), y[at])

        return stepping(torch.optim.AdamW(net.parameters(), 1e-3, weight_decay=5e-4, fused=True), loss)

    return build


def reinforce(compiled: Compiled) -> Run:
    policy = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))
    optimizer = torch.optim.Adam(policy.parameters(), 0.0, fused=True)

    @compiled
    def moved(state: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        action = torch.multinomial(policy(state).softmax(1), 1)[:, 0]
        x, dx, angle, turning = state.unbind(1)
        force, sine, cosine, mass = torch.where(action == 1, FORCE, -FORCE), angle.sin(), angle.cos(), CART + POLE
        push = (force + POLE * HALF_LENGTH * turning**2 * sine) / mass
        ddangle = (GRAVITY * sine - cosine * push) / (HALF_LENGTH * (4.0 / 3.0 - POLE * cosine**2 / mass))
        ddx = push - POLE * HALF_LENGTH * ddangle * cosine / mass
        slopes = torch.stack([dx, ddx, turning, ddangle], 1)
        new = state + SECONDS * slopes
        return action, new, (new[:, 0].abs() > 2.4) | (new[:, 2].abs() > 0.20943951)

    def episodes() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        state, stands, seen = torch.rand(16, 4) * 0.1 - 0.05, torch.ones(16, dtype=torch.bool), []
        while len(seen) < 500 and stands.any():
            action, new, fell = moved(state)
            seen.append((state, action, stands.float()))
            state, stands = new, stands & ~fell
        states, actions, standing = (torch.stack(each) for each in zip(*seen, strict=True))
        return states, actions, standing

    def loss() -> torch.Tensor:
        with torch.no_grad():
            states, actions, standing = episodes()
            gains, after = torch.zeros_like(standing), torch.zeros(16)
            for place in reversed(range(len(standing))):
                gains[place] = after = standing[place] * (1.0 + 0.99 * after)
            mean = gains.sum() / standing.sum()
            deviation = (standing * (gains - mean) ** 2).sum().div(standing.sum()).sqrt()
            gains = standing * (gains - mean) / (deviation + 1e-6)
        unlikely = F.cross_entropy(policy(states).flatten(0, 1), actions.flatten(), reduction="none")
        return (unlikely * gains.flatten()).sum() / (500 * 16)

    return stepping(optimizer, loss)


def neural_ode(compiled: Compiled) -> Run:
    from torchdiffeq import odeint

    net = nn.Sequential(nn.Linear(2, 50), nn.Tanh(), nn.Linear(50, 2)).double()
    slope_of = compiled(lambda y: net(y**3))
    times, path = (torch.from_numpy(each) for each in spiral())

    def loss() -> torch.Tensor:
        first = torch.randint(0, len(path) - 10, (16,))
        wanted = path[first + torch.arange(10)[:, None]]
        found = odeint(lambda t, y: slope_of(y), path[first], times[:10], rtol=1e-6, atol=1e-8)
        return (found - wanted).abs().mean()

    return stepping(torch.optim.RMSprop(net.parameters(), 1e-3), loss)


def gaussian_process(compiled: Compiled) -> Run:
    x, y = (torch.from_numpy(each) for each in measurements())

    @compiled
    def surprise(scales: torch.Tensor) -> torch.Tensor:
        width, height, noise = scales
        distance = (x[:, None] - x) * (-width).exp()
        covariance = (2.0 * height - 0.5 * distance * distance).exp() + (2.0 * noise).exp() * torch.eye(40, dtype=x.dtype)
        factor = torch.linalg.cholesky(covariance)
        z = torch.linalg.solve_triangular(factor, y[:, None], upper=False)
        return 0.5 * (z * z).sum() + factor.diagonal().log().sum() + 0.5 * 40 * math.log(2.0 * math.pi)

    def fit() -> None:
        scales = torch.tensor([float(each) for each in START], dtype=torch.float64, requires_grad=True)
        optimizer = torch.optim.LBFGS(
            [scales], max_iter=200, tolerance_grad=1e-5, tolerance_change=1e-12, history_size=10, line_search_fn="strong_wolfe"
        )

        def value() -> torch.Tensor:
            optimizer.zero_grad(set_to_none=True)
            loss = surprise(scales)
            loss.backward()
            return loss

        optimizer.step(value)

    def run(fits: int) -> None:
        for _ in range(fits):
            fit()

    return run


def kalman_mpc(compiled: Compiled) -> Run:
    fast = controller.discrete(controller.PERIOD)
    H, force_of = controller.problem()
    horizon, penalty, limit = controller.HORIZON, controller.PENALTY, controller.LIMIT
    inverse = torch.from_numpy(H + penalty * np.eye(horizon)).inverse()
    a, b, force_of = torch.from_numpy(fast.a), torch.from_numpy(fast.b), torch.from_numpy(force_of)
    disturbance, noise = (torch.tensor(each, dtype=a.dtype).diag() for each in (controller.DISTURBANCE, controller.NOISE))
    unit = torch.eye(4, dtype=a.dtype)
    sensors = unit[list(controller.MEASURED)]

    @compiled
    def control(
        estimate: torch.Tensor, covariance: torch.Tensor, plan: torch.Tensor, measurement: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        estimate = a @ estimate + b * plan[0, 0]
        covariance = a @ covariance @ a.T + disturbance
        gain = torch.linalg.solve(sensors @ covariance @ sensors.T + noise, sensors @ covariance).T
        estimate = estimate + gain @ (measurement - sensors @ estimate)
        slope, forces, pressure = force_of @ estimate, plan[0], plan[1]
        for _ in range(controller.ITERATIONS):
            free = inverse @ (penalty * (forces - pressure) - slope)
            forces = (free + pressure).clamp(-limit, limit)
            pressure = pressure + free - forces
        return estimate, (unit - gain @ sensors) @ covariance, torch.stack([forces, pressure])

    start = [torch.from_numpy(each) for each in controller.start()]

    def run(calls: int) -> None:
        with torch.no_grad():
            for _ in range(calls):
                control(*start)

    return run


PEERS: dict[str, Callable[[Compiled], Run]] = {
    "gpt2": gpt2,
    "vae": vae,
    "pinn": pinn,
    "transformer": transformer,
    "deepspeech2": deepspeech2,
    "squeezenet": lambda compiled: classifying(squeezenet())(compiled),
    "resnet50": lambda compiled: classifying(resnet())(compiled),
    "reinforce": reinforce,
    "neural_ode": neural_ode,
    "gaussian_process": gaussian_process,
    "kalman_mpc": kalman_mpc,
}
