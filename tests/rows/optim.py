"""Rows of `st.optim`: the formulas of PyTorch's documentation, in f64, rounded to the parameter's dtype after each step."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, as_float, bare, plain, widest_of
from tests.rows.table import row

OPTIONS = {
    "SGD": (
        "",
        ", lr=0.1",
        ", lr=0.1, momentum=0.9",
        ", 0.1, 0.9, weight_decay=0.1, nesterov=True",
        ", 0.1, 0.5, 0.25",
    ),
    "Adagrad": ("", ", lr=0.1, lr_decay=0.1", ", weight_decay=0.1, initial_accumulator_value=0.5", ", eps=0.1"),
    "Adam": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", eps=0.1"),
    "AdamW": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", weight_decay=0.0, eps=0.1"),
    "Adadelta": ("", ", lr=0.1, rho=0.5", ", weight_decay=0.1, eps=0.1"),
    "RMSprop": ("", ", lr=0.1, alpha=0.5", ", momentum=0.5, centered=True", ", eps=0.1, weight_decay=0.1"),
    "Adamax": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", eps=0.1"),
    "NAdam": ("", ", lr=0.1", ", betas=(0.5, 0.9), weight_decay=0.1", ", momentum_decay=0.1, eps=0.1"),
    "RAdam": ("", ", lr=0.1", ", betas=(0.5, 0.6), weight_decay=0.1", ", eps=0.1"),
}
"""The options that are drawn for each optimiser with a smooth step; all take `eps=0.1` but the first."""
BENT = {
    "ASGD": ("", ", lr=0.1, lambd=0.1, alpha=0.5", ", weight_decay=0.1"),
    "Rprop": ("", ", lr=0.1, etas=(0.25, 1.5), step_sizes=(0.001, 1.0)"),
    "Adafactor": ("", ", lr=0.1, beta2_decay=-0.5", ", eps=(0.001, 0.1), d=2.0, weight_decay=0.1"),
    "Lion": ("", ", lr=0.1, betas=(0.5, 0.75)", ", weight_decay=0.1"),
    "Muon": ("", ", lr=0.1, momentum=0.5, nesterov=False", ", ns_steps=3, weight_decay=0.0"),
}
"""Those of the others, which are not differentiated, and have no scene of their own."""
DRAWN = {**OPTIONS, **BENT}


def _optimiser(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    if name in BENT and d.smooth:
        raise NotACell(f"the step of {name} is not smooth")
    shape = d.shape(ranks=(2,) if name == "Muon" else (0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    # A step of the size of its gradient's sign bends without end where the gradient is next to 0.
    options = d.pick(*DRAWN[name]) if name == "SGD" or not d.smooth else ", eps=0.1"
    if "lr" not in options and options[:3] != ", 0" and d.likely(40):
        d.keywords.add("lr")
        options += f", lr={d.new((), values='prob')}"
    d.lines.append(f"p = {d.pick('st.nn.Parameter', 'st.Variable')}({x})")
    slopes = (slope,) if name in ("Rprop", "Lion") else (slope, f"{slope} * p.value", f"{slope} + p.value")
    params, given = "[p]", f"[{d.pick(*slopes)}]"
    if len(slopes) > 1 and d.likely(40):
        other = d.new(shape if name == "Muon" else d.pick(shape, (3,)), values="small")
        d.lines.append(f"q = st.Variable({other})")
        params, given = d.pick(
            ("[p, q]", f"{given[:-1]}, q.value]"), ("{'p': p, 'q': q}", f"{{'q': q.value, 'p': {given[1:-1]}}}")
        )
    d.lines.append(f"opt = st.{d.name}({params}{options})")
    step = f"opt.step({given})"
    d.lines += d.pick([step], [step, step], [f"for i in st.range({d.pick(0, 1, 3)}):", f"    {step}"])
    return "(p.value, q.value)" if params != "[p]" and d.likely(50) else "p.value"


class _Optimizer:
    """One step for each parameter, from its number, its value and its gradient in f64."""

    def __init__(self, params: Any, **options: Any) -> None:
        self.params = list(params.values()) if isinstance(params, dict) else list(params)
        self.names = list(params) if isinstance(params, dict) else []
        self.options = {
            name: widest_of(value.a) if isinstance(value, Plain) else value for name, value in options.items()
        }
        self.steps = 0
        self.kept: dict[tuple[int, str], Any] = {}

    def step(self, grads: Any) -> None:
        self.steps += 1
        ordered = [grads[name] for name in self.names] if isinstance(grads, dict) else list(grads)
        for number, (param, grad) in enumerate(zip(self.params, ordered, strict=True)):
            with np.errstate(all="ignore"):
                value, slope = widest_of(param.a), widest_of(plain(grad).a)
                param.value = Plain(self.after(number, value, slope))

    def after(self, number: int, value: Any, grad: Any) -> Any:
        raise NotImplementedError

    def blend(self, number: int, name: str, old: Any, new: Any) -> Any:
        """A running mean: `old` of what it was, from 0, and what is new."""
        before = self.kept.get((number, name), 0.0)
        self.kept[number, name] = found = old * before + new
        return found


@row("optim.SGD", _optimiser)
class SGD(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, momentum=momentum, dampening=dampening, decay=weight_decay, nesterov=nesterov)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        if o["momentum"]:
            share = 1.0 if self.steps == 1 else 1.0 - o["dampening"]
            velocity = self.blend(number, "velocity", o["momentum"], share * grad)
            grad = grad + o["momentum"] * velocity if o["nesterov"] else velocity
        return value - o["lr"] * grad


@row("optim.Adagrad", _optimiser)
class Adagrad(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        lr_decay: Any = 0.0,
        weight_decay: Any = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: Any = 1e-10,
    ) -> None:
        super().__init__(params, lr=lr, lr_decay=lr_decay, decay=weight_decay, eps=eps)
        for number in range(len(self.params)):
            self.kept[number, "total"] = initial_accumulator_value

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        total = self.blend(number, "total", 1.0, grad * grad)
        rate = o["lr"] / (1.0 + (self.steps - 1) * o["lr_decay"])
        return value - rate * grad / (np.sqrt(total) + o["eps"])


@row("optim.Adam", _optimiser)
class Adam(_Optimizer):
    decoupled = False

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0
    ) -> None:
        super().__init__(params, lr=lr, betas=betas, eps=eps, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        if self.decoupled:
            value = value - o["lr"] * o["decay"] * value
        else:
            grad = grad + o["decay"] * value
        mean = self.blend(number, "mean", first, (1.0 - first) * grad) / (1.0 - first**self.steps)
        square = self.blend(number, "square", second, (1.0 - second) * grad * grad) / (1.0 - second**self.steps)
        return value - o["lr"] * mean / (np.sqrt(square) + o["eps"])


@row("optim.AdamW", _optimiser)
class AdamW(Adam):
    decoupled = True

    def __init__(
        self, params: Any, lr: Any = 1e-3, betas: Any = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 1e-2
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)


@row("optim.Adadelta", _optimiser)
class Adadelta(_Optimizer):
    def __init__(self, params: Any, lr: Any = 1.0, rho: Any = 0.9, eps: Any = 1e-6, weight_decay: Any = 0.0) -> None:
        super().__init__(params, lr=lr, rho=rho, eps=eps, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        square = self.blend(number, "square", o["rho"], (1.0 - o["rho"]) * grad * grad)
        change = np.sqrt((self.kept.get((number, "change"), 0.0) + o["eps"]) / (square + o["eps"])) * grad
        self.blend(number, "change", o["rho"], (1.0 - o["rho"]) * change * change)
        return value - o["lr"] * change


@row("optim.RMSprop", _optimiser)
class RMSprop(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        alpha: Any = 0.99,
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        momentum: Any = 0.0,
        centered: bool = False,
    ) -> None:
        super().__init__(params, lr=lr, alpha=alpha, eps=eps, decay=weight_decay, momentum=momentum, centered=centered)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        grad = grad + o["decay"] * value
        square = self.blend(number, "square", o["alpha"], (1.0 - o["alpha"]) * grad * grad)
        mean = self.blend(number, "mean", o["alpha"], (1.0 - o["alpha"]) * grad)
        spread = square - mean * mean if o["centered"] else square
        change = self.blend(number, "velocity", o["momentum"], grad / (np.sqrt(spread) + o["eps"]))
        return value - o["lr"] * change


@row("optim.Adamax", _optimiser)
class Adamax(Adam):
    def __init__(
        self, params: Any, lr: Any = 2e-3, betas: Any = (0.9, 0.999), eps: Any = 1e-8, weight_decay: Any = 0.0
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        grad = grad + o["decay"] * value
        mean = self.blend(number, "mean", first, (1.0 - first) * grad) / (1.0 - first**self.steps)
        largest = np.maximum(second * self.kept.get((number, "largest"), 0.0), np.abs(grad) + o["eps"])
        self.kept[number, "largest"] = largest
        return value - o["lr"] * mean / largest


@row("optim.NAdam", _optimiser)
class NAdam(Adam):
    def __init__(
        self,
        params: Any,
        lr: Any = 2e-3,
        betas: Any = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        momentum_decay: Any = 4e-3,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
        self.decay = momentum_decay

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        grad = grad + o["decay"] * value
        shares = [first * (1.0 - 0.5 * 0.96 ** (step * self.decay)) for step in range(1, self.steps + 2)]
        now, product = shares[-2], math.prod(shares[:-1])
        mean = self.blend(number, "mean", first, (1.0 - first) * grad)
        square = self.blend(number, "square", second, (1.0 - second) * grad * grad) / (1.0 - second**self.steps)
        ahead = (1.0 - now) / (1.0 - product) * grad + shares[-1] / (1.0 - product * shares[-1]) * mean
        return value - o["lr"] * ahead / (np.sqrt(square) + o["eps"])


@row("optim.RAdam", _optimiser)
class RAdam(Adam):
    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        grad = grad + o["decay"] * value
        mean = self.blend(number, "mean", first, (1.0 - first) * grad) / (1.0 - first**self.steps)
        square = self.blend(number, "square", second, (1.0 - second) * grad * grad)
        rest, longest = 1.0 - second**self.steps, 2.0 / (1.0 - second) - 1.0
        length = longest - 2.0 * self.steps * (1.0 - rest) / rest
        if length <= 5.0:
            return value - o["lr"] * mean
        share = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        return value - o["lr"] * mean * math.sqrt(share * rest) / (np.sqrt(square) + o["eps"])


@row("optim.ASGD", _optimiser)
class ASGD(_Optimizer):
    def __init__(
        self, params: Any, lr: Any = 1e-2, lambd: Any = 1e-4, alpha: Any = 0.75, t0: Any = 1e6, weight_decay: Any = 0.0
    ) -> None:
        super().__init__(params, lr=lr, lambd=lambd, alpha=alpha, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o = self.options
        rate = o["lr"]
        if self.steps > 1:
            rate = rate / (1.0 + o["lambd"] * rate * (self.steps - 1)) ** o["alpha"]
        return value * (1.0 - o["lambd"] * rate) - rate * (grad + o["decay"] * value)


@row("optim.Rprop", _optimiser)
class Rprop(_Optimizer):
    def __init__(self, params: Any, lr: Any = 1e-2, etas: Any = (0.5, 1.2), step_sizes: Any = (1e-6, 50)) -> None:
        super().__init__(params, lr=lr, etas=etas, limits=step_sizes)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        before, size = self.kept.get((number, "grad"), 0.0), self.kept.get((number, "size"), self.options["lr"])
        less, more = self.options["etas"]
        agreement = np.sign(grad * before)
        size = np.clip(size * np.choose((agreement + 1).astype(int), (less, 1.0, more)), *self.options["limits"])
        grad = np.where(agreement < 0, 0.0, grad)
        self.kept[number, "grad"], self.kept[number, "size"] = grad, size
        return value - np.sign(grad) * size


@row("optim.Adafactor", _optimiser)
class Adafactor(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-2,
        beta2_decay: Any = -0.8,
        eps: Any = (None, 1e-3),
        d: Any = 1.0,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(params, lr=lr, power=beta2_decay, eps=eps, d=d, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, dtype = self.options, self.params[number].dtype
        least = np.finfo(dtype).eps if o["eps"][0] is None else o["eps"][0]
        new = self.steps ** o["power"]
        size = np.sqrt(np.mean(value * value)) if value.size else np.nan
        rate = np.maximum(o["eps"][1], size) * np.minimum(o["lr"], self.steps**-0.5)
        value = value * (1.0 - o["lr"] * o["decay"])
        if grad.ndim > 1:
            rows, columns = (
                self.blend(number, axis, 1.0 - new, new * np.mean(grad * grad, axis, keepdims=True))
                for axis in (-1, -2)
            )
            square = rows * columns / np.maximum(np.mean(rows, -2, keepdims=True), least)
        else:
            square = self.blend(number, "square", 1.0 - new, new * grad * grad)
        change = grad / np.sqrt(np.maximum(square, least * least))
        length = np.sqrt(np.mean(change * change)) if change.size else np.nan
        return value - rate / np.maximum(1.0, length / o["d"]) * change


@row("optim.Lion", _optimiser)
class Lion(_Optimizer):
    def __init__(self, params: Any, lr: Any = 1e-4, betas: Any = (0.9, 0.99), weight_decay: Any = 0.0) -> None:
        super().__init__(params, lr=lr, betas=betas, decay=weight_decay)

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (first, second) = self.options, self.options["betas"]
        direction = np.sign(first * self.kept.get((number, "mean"), 0.0) + (1.0 - first) * grad)
        self.blend(number, "mean", second, (1.0 - second) * grad)
        return value * (1.0 - o["lr"] * o["decay"]) - o["lr"] * direction


@row("optim.Muon", _optimiser)
class Muon(_Optimizer):
    def __init__(
        self,
        params: Any,
        lr: Any = 1e-3,
        weight_decay: Any = 0.1,
        momentum: Any = 0.95,
        nesterov: bool = True,
        ns_coefficients: Any = (3.4445, -4.775, 2.0315),
        eps: Any = 1e-7,
        ns_steps: int = 5,
    ) -> None:
        super().__init__(params, lr=lr, decay=weight_decay, momentum=momentum, eps=eps)
        self.nesterov, self.polynomial, self.turns = nesterov, ns_coefficients, ns_steps

    def after(self, number: int, value: Any, grad: Any) -> Any:
        o, (a, b, c) = self.options, self.polynomial
        velocity = self.blend(number, "velocity", o["momentum"], (1.0 - o["momentum"]) * grad)
        x = (1.0 - o["momentum"]) * grad + o["momentum"] * velocity if self.nesterov else velocity
        u, sizes, v = np.linalg.svd(x / np.maximum(np.linalg.norm(x), o["eps"]), full_matrices=False)
        for _ in range(self.turns):
            sizes = a * sizes + b * sizes**3 + c * sizes**5
        ratio = max(1.0, value.shape[0] / value.shape[1]) ** 0.5 if value.size else 1.0
        return value * (1.0 - o["lr"] * o["decay"]) - o["lr"] * ratio * (u * sizes) @ v


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    options = d.pick(*OPTIONS["SGD"])
    d.lines += [f"p = st.Variable({x})", f"opt = st.optim.MultiSteps(st.optim.SGD([p]{options}), {d.pick(1, 2, 3)})"]
    d.lines += [f"for i in st.range({d.pick(1, 3, 4)}):", f"    opt.step([{d.pick(slope, f'{slope} + p.value')}])"]
    return "p.value"


@row("optim.MultiSteps", draw)
class MultiSteps:
    """An optimiser that steps along the mean of `every` gradients."""

    def __init__(self, optimizer: Any, every: int) -> None:
        self.optimizer, self.every, self.kept = optimizer, every, []

    def step(self, grads: Any) -> bool:
        self.kept.append([widest_of(plain(grad).a) for grad in grads])
        if len(self.kept) < self.every:
            return False
        self.optimizer.step([Plain(sum(each) / self.every) for each in zip(*self.kept, strict=True)])
        self.kept = []
        return True


def draw(d: Draw) -> str:
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    options = d.pick(
        "init_scale=8.0, growth_factor=4.0, growth_interval=2", "'cpu', 16.0, backoff_factor=0.25, enabled=True",
        "device='cpu', init_scale=2.0, growth_interval=1", "enabled=False",
    )  # fmt: skip
    # The derivative of a step that is skipped is 0 times infinity.
    factor = "" if d.smooth else d.pick("", "", " * st.where(i == 1, np.inf, 1.0)")
    d.lines += [f"p = st.Variable({x})", "opt = st.optim.SGD([p], lr=0.25)", f"scaler = st.optim.GradScaler({options})"]
    d.lines += [f"for i in st.range({d.pick(1, 3, 4)}):"]
    if "enabled=False" in options:
        d.lines += [f"    scaler.step(opt, [scaler.scale({slope})])"]
    else:
        d.lines += [f"    grads = [st.astype(scaler.scale({slope}){factor}, {slope}.dtype)]"]
        d.lines += [d.pick("    grads = scaler.unscale(grads)", "    pass"), "    scaler.step(opt, grads)"]
    d.lines += ["    scaler.update()"]
    return "p.value + st.astype(scaler.get_scale(), p.dtype)"


@row("optim.GradScaler", draw)
class GradScaler:
    """A scale that falls after steps that are not finite, which are skipped, and grows after some that are."""

    def __init__(
        self, device: str = "", init_scale: float = 65536.0, growth_factor: float = 2.0, backoff_factor: float = 0.5,
        growth_interval: int = 2000, enabled: bool = True,
    ) -> None:  # fmt: skip
        self.factor, self.grows, self.falls = (init_scale if enabled else 1.0), growth_factor, backoff_factor
        self.interval, self.enabled, self.good, self.found, self.taken_out = growth_interval, enabled, 0, False, False

    def scale(self, loss: Any) -> Plain:
        return Plain(plain(loss).a * plain(loss).a.dtype.type(self.factor))

    def unscale(self, grads: Any) -> list[Plain]:
        made = [Plain(plain(grad).a / plain(grad).a.dtype.type(self.factor)) for grad in grads]
        self.found, self.taken_out = self.found or not self.finite(grads), True
        return made

    @staticmethod
    def finite(grads: Any) -> bool:
        return all(bool(np.isfinite(plain(grad).a).all()) for grad in grads)

    def step(self, optimizer: Any, grads: Any) -> None:
        if not self.enabled or (self.finite(grads) and not (self.taken_out and self.found)):
            optimizer.step(grads if self.taken_out else self.unscale(grads))
        self.found = self.found or not self.finite(grads)

    def update(self) -> None:
        if self.enabled:
            self.good = 0 if self.found else self.good + 1
            self.factor *= self.falls if self.found else self.grows if self.good >= self.interval else 1.0
            self.good = 0 if self.good >= self.interval else self.good
        self.found = self.taken_out = False

    def get_scale(self) -> float:
        return self.factor


def draw(d: Draw) -> str:
    if d.smooth:
        raise NotACell("the first step of LBFGS has a kink where the gradient's sum is 1")
    shape = d.shape(ranks=(0, 1, 2))
    x, slope = d.new(shape, values="small"), d.new(shape, values="nonzero")
    d.keywords |= {"lr", "max_iter"}
    d.lines += [
        f"p = st.Variable({x})",
        f"opt = st.optim.LBFGS([p], lr={d.pick(0.5, 1, 0.25)}, max_iter={d.pick(1, 2, 3)})",
    ]
    d.lines += [f"opt.step(lambda: st.sum({slope} * p.value))"]
    return "p.value"


@row("optim.LBFGS", draw)
class LBFGS:
    """L-BFGS of a linear function: all iterations go along its gradient, which is its differences."""

    def __init__(self, params: Any, lr: float, max_iter: int) -> None:
        (self.param,), self.lr, self.max_iter = params, lr, max_iter

    def step(self, closure: Any) -> None:
        x = widest_of(self.param.a)
        grad = np.zeros(x.shape)
        for place in np.ndindex(x.shape):
            unit = np.zeros(x.shape)
            unit[place] = 1.0
            self.param.value = Plain(unit.astype(self.param.dtype))
            grad[place] = bare(closure())
        most, total = np.abs(grad).max(initial=0.0), np.abs(grad).sum()
        evaluations = 1
        for iteration in range(self.max_iter):
            length = self.lr * (min(1.0, 1.0 / total) if iteration == 0 and total else 1.0)
            if most <= 1e-7 or np.sum(grad * grad) < 1e-9:
                break
            x = x - length * grad
            evaluations += iteration < self.max_iter - 1
            if length * most <= 1e-9 or length * np.sum(grad * grad) < 1e-9 or evaluations >= self.max_iter * 5 // 4:
                break
        self.param.value = Plain(x.astype(self.param.dtype))


def _clipped(d: Draw) -> str:
    name = d.name.rpartition(".")[2]
    shape = d.shape(ranks=(0, 1, 2))
    x, y = d.new(shape, values="nonzero"), d.new(d.pick(shape, (3,)), values="nonzero")
    grads = d.pick(f"[{x}, {y}]", f"{{'a': {x}, 'b': {y}}}", f"[{x}]")
    most = d.pick("0.5", "1000.0", "1.0") if d.likely(70) else d.new((), values="positive")
    key = "'a'" if grads[0] == "{" else "0"
    if name == "clip_grad_value":
        return f"st.{d.name}({grads}, {most})[{key}]"
    return f"st.{d.name}({grads}, {most}){d.pick('[1]', f'[0][{key}]')}"


def _floats(grad: Any) -> Any:
    array = plain(grad)
    return array.a.astype(as_float(array.dtype, False))


def _like(grads: Any, change: Any) -> Any:
    """Each gradient changed: of integers, as floats."""
    if isinstance(grads, dict):
        return {name: change(_floats(grad)) for name, grad in grads.items()}
    return [change(_floats(grad)) for grad in grads]


@row("optim.clip_grad_norm", _clipped)
def clip_grad_norm(grads: Any, max_norm: Any) -> tuple[Any, Plain]:
    values = [_floats(grad) for grad in (grads.values() if isinstance(grads, dict) else grads)]
    norm = math.sqrt(sum(float(np.sum(np.square(widest_of(value)))) for value in values))
    scale = min(1.0, float(bare(max_norm)) / (norm + 1e-6)) if norm == norm else norm
    return _like(grads, lambda grad: Plain((grad * scale).astype(grad.dtype))), Plain(np.asarray(norm, values[0].dtype))


@row("optim.clip_grad_value", _clipped)
def clip_grad_value(grads: Any, clip_value: Any) -> Any:
    clip, most = FUNCTIONS["clip"], plain(clip_value)
    least = FUNCTIONS["negative"](most)
    if isinstance(grads, dict):
        return {name: clip(grad, least, most) for name, grad in grads.items()}
    return [clip(grad, least, most) for grad in grads]
