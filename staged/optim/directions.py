"""Optimisers whose step has a size that does not follow the gradient's: Rprop, Lion, Muon."""

from __future__ import annotations

import math
from typing import Any

import staged as st
from staged.optim.groups import Params
from staged.optim.optimizer import Optimizer


class Rprop(Optimizer):
    """Each element moves against its gradient's sign by a step, which grows while the sign stays.

    Source: Riedmiller and Braun, A Direct Adaptive Method for Faster Backpropagation Learning, 1993.
    """

    options = ("lr", "etas", "step_sizes", "maximize")
    shared_options = ("lr",)
    slots = (("prev", "before"), ("step_size", "size"))

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-2,
        etas: tuple[Any, Any] = (0.5, 1.2),
        step_sizes: tuple[Any, Any] = (1e-6, 50),
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(etas=etas, step_sizes=step_sizes)
        self.before = self.state("before")
        self.size = self.state("size", lr)
        self.steps = self.counter()

    def check_option(self, name: str, value: Any) -> None:
        """Raises: ArgumentError if a number is negative, or `etas` are not below 1 and above 1."""
        super().check_option(name, value)
        if (
            name == "etas"
            and not any(isinstance(each, st.Array) for each in value)
            and not 0.0 < value[0] < 1.0 < value[1]
        ):
            raise st.ArgumentError(f"Rprop: etas are below 1 and above 1, got {value}", where=st.here())

    def first(self, name: str) -> Any:
        """The initial value of a slot."""
        return self.lr if name == "step_size" else 0.0

    def begin_step(self) -> None:
        """Count the step."""
        self.counted()

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        (less, more), (least, most) = self.numbers(param, "etas", "step_sizes")
        agreement = grad * self.before[index].value
        turns = agreement < 0.0
        factor = st.where(agreement > 0.0, more, st.where(turns, less, st.ones((), dtype=param.dtype)))
        size = st.clip(self.size[index].value * factor, least, most)
        grad = st.where(turns, st.zeros((), dtype=param.dtype), grad)
        self.size[index].value = size
        self.before[index].value = grad
        param.value = param.value - st.sign(grad) * size


class Lion(Optimizer):
    """p -= lr * sign of a mean of g, with decoupled weight decay; the mean is kept with another share.

    Source: Chen et al., Symbolic Discovery of Optimization Algorithms, 2023, whose names and defaults it has.
    """

    options = ("lr", "betas", "weight_decay", "maximize")
    slots = (("exp_avg", "mean"),)

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-4,
        betas: tuple[Any, Any] = (0.9, 0.99),
        weight_decay: Any = 0.0,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(betas=betas, weight_decay=weight_decay)
        self.mean = self.state("mean")

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        (first, second), lr = self.numbers(param, "betas", "lr")
        mean, value = self.mean[index].value, self.shrunk(param)
        param.value = value - lr * st.sign(first * mean + (1.0 - first) * grad)
        self.mean[index].value = second * mean + (1.0 - second) * grad


class Muon(Optimizer):
    """p -= lr * the orthogonal matrix nearest to the velocity, by `ns_steps` steps of Newton and Schulz.

    Every parameter is a matrix. The steps are computed in the parameter's dtype (torch rounds to bf16). Source: Jordan
    et al., Muon: An optimizer for hidden layers in neural networks, 2024.
    """

    options = (
        "lr", "weight_decay", "momentum", "nesterov", "ns_coefficients", "eps", "ns_steps", "adjust_lr_fn",
    )  # fmt: skip
    shared_options = ("ns_coefficients", "ns_steps", "adjust_lr_fn")
    slots = (("momentum_buffer", "velocity"),)

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-3,
        weight_decay: Any = 0.1,
        momentum: Any = 0.95,
        nesterov: bool = True,
        ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
        eps: Any = 1e-7,
        ns_steps: int = 5,
        adjust_lr_fn: str | None = None,
    ) -> None:
        super().__init__(params, lr)
        self.take(weight_decay=weight_decay, momentum=momentum, eps=eps)
        if adjust_lr_fn not in (None, "original", "match_rms_adamw"):
            raise st.ArgumentError(
                f'Muon: adjust_lr_fn is one of None, "original", "match_rms_adamw", got {adjust_lr_fn!r}',
                where=st.here(),
            )
        if isinstance(ns_steps, bool) or not isinstance(ns_steps, int) or not 0 <= ns_steps < 100:
            raise st.ArgumentError(f"Muon: ns_steps is an integer below 100, got {ns_steps!r}", where=st.here())
        if len(ns_coefficients) != 3:
            raise st.ArgumentError(f"Muon: ns_coefficients are 3 numbers, got {ns_coefficients}", where=st.here())
        for param in self.params:
            if len(param.shape) != 2:
                raise st.ShapeError(
                    f"Muon trains matrices, the Variable `{param.name}` has shape {param.shape}",
                    where=st.here(),
                    hint="train the others with an AdamW",
                )
        self.nesterov, self.ns_coefficients = nesterov, tuple(ns_coefficients)
        self.ns_steps, self.adjust_lr_fn = ns_steps, adjust_lr_fn
        self.velocity = self.state("velocity")

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, momentum, eps = self.numbers(param, "lr", "momentum", "eps")
        before = self.velocity[index].value
        velocity = before + (1.0 - momentum) * (grad - before)
        self.velocity[index].value = velocity
        change = self.orthogonal(grad + momentum * (velocity - grad) if self.nesterov else velocity, eps)
        rows, columns = param.shape
        ratio = math.sqrt(max(1.0, rows / max(1, columns)))
        if self.adjust_lr_fn == "match_rms_adamw":
            ratio = 0.2 * math.sqrt(max(rows, columns))
        param.value = self.shrunk(param) - lr * ratio * change

    def orthogonal(self, x: Any, eps: Any) -> Any:
        """The matrix with all singular values near 1: odd polynomials of `x`, of the smaller side's size."""
        is_tall = x.shape[0] > x.shape[1]
        x = x.mT if is_tall else x
        x = x / st.maximum(st.sqrt(st.sum(x * x)), eps)
        a, b, c = self.ns_coefficients
        for _ in range(self.ns_steps):
            gram = x @ x.mT
            x = a * x + (b * gram + c * (gram @ gram)) @ x
        return x.mT if is_tall else x
