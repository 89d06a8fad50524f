"""Optimisers with torch's names, defaults and formulas; `step` takes the gradients.

    opt = optim.SGD(model.parameters(), lr=0.05)
    loss, grads = st.value_and_grad(loss_fn, wrt=model)(x, y)
    opt.step(grads)

An optimiser updates its parameters in place (they are `staged.Variable`s); its own state are Variables too, so that it
lives in the program, or keeps its buffers between calls, as the model does. `lr` may be a number or a staged scalar.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import staged as st
from staged.optim.optimizer import Optimizer, scalar


def _is_off(number: Any) -> bool:
    """Return whether an option is the Python number 0; a staged one is not known."""
    return not isinstance(number, st.Array) and not number


class SGD(Optimizer):
    """p -= lr * (g + weight_decay * p), with momentum, dampening and Nesterov's variant as in torch.

    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """

    options = ("lr", "momentum", "dampening", "weight_decay", "nesterov")
    slots = (("momentum_buffer", "velocity"),)

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        self.check_number("momentum", momentum)
        self.check_number("weight_decay", weight_decay)
        if nesterov and (_is_off(momentum) or not _is_off(dampening)):
            raise st.ArgumentError("SGD: Nesterov's variant needs a momentum above 0 and no dampening", where=st.here())
        self.momentum = momentum
        self.dampening = dampening
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.velocity = [] if _is_off(momentum) else self.state("velocity")
        self.steps = None if _is_off(momentum) or _is_off(dampening) else self.counter()
        self.share: Any = 1.0

    def begin_step(self) -> None:
        """The factor of a gradient in the velocity: 1 for the first one, then 1 - dampening."""
        if _is_off(self.momentum):
            return
        self.must_have(self.velocity, "momentum")
        if self.steps is None:
            self.share = 1.0
            if not _is_off(self.dampening):
                self.must_have(self.steps, "dampening")
            return
        self.share = st.where(self.steps.value == 0, 1.0, 1.0 - self.dampening)
        self.steps.value = self.steps.value + 1

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, momentum, weight_decay = self.numbers(param, "lr", "momentum", "weight_decay")
        if not _is_off(weight_decay):
            grad = grad + weight_decay * param.value
        if not _is_off(momentum):
            # torch starts the velocity as the first gradient; from zeros the same formula gives the same.
            velocity = momentum * self.velocity[index].value
            velocity = velocity + (grad if self.steps is None else st.astype(self.share, grad.dtype) * grad)
            self.velocity[index].value = velocity
            grad = grad + momentum * velocity if self.nesterov else velocity
        param.value = param.value - lr * grad


class Adagrad(Optimizer):
    """p -= lr * g / (sqrt(sum of g^2) + eps). Source: Duchi, Hazan and Singer, 2011."""

    options = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps")
    slots = (("sum", "total"),)

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-2,
        lr_decay: Any = 0.0,
        weight_decay: Any = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: Any = 1e-10,
    ) -> None:
        super().__init__(params, lr)
        for name, number in {"lr_decay": lr_decay, "weight_decay": weight_decay, "eps": eps}.items():
            self.check_number(name, number)
        self.check_number("initial_accumulator_value", initial_accumulator_value)
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.eps = eps
        self.initial_accumulator_value = initial_accumulator_value
        self.total = self.state("total", initial_accumulator_value)
        self.steps = None if _is_off(lr_decay) else self.counter()
        self.decay: Any = 1.0

    def first(self, name: str) -> float:
        """The initial value of the sum of squares."""
        return self.initial_accumulator_value

    def begin_step(self) -> None:
        """Count the step and let the rate decay."""
        if self.steps is None:
            if not _is_off(self.lr_decay):
                self.must_have(self.steps, "lr_decay")
            return
        self.decay = 1.0 + self.lr_decay * st.astype(self.steps.value, st.f64)
        self.steps.value = self.steps.value + 1

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, weight_decay, eps = self.numbers(param, "lr", "weight_decay", "eps")
        if not _is_off(weight_decay):
            grad = grad + weight_decay * param.value
        total = self.total[index].value + grad * grad
        self.total[index].value = total
        rate = lr if self.steps is None else st.astype(self.lr / self.decay, param.dtype)
        param.value = param.value - rate * grad / (st.sqrt(total) + eps)


class Adam(Optimizer):
    """Adam with bias correction. Source: Kingma and Ba, 2015; `weight_decay` is added to the gradient, as in torch."""

    decoupled = False
    options = ("lr", "betas", "eps", "weight_decay")
    slots = (("exp_avg", "mean"), ("exp_avg_sq", "variance"))

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.check_number("eps", eps)
        self.check_number("weight_decay", weight_decay)
        for place, beta in enumerate(betas):
            self.check_number(f"betas[{place}]", beta, below=1.0)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self.mean = self.state("mean")
        self.variance = self.state("variance")
        self.steps = self.counter()
        self.correction: tuple[Any, Any] = (1.0, 1.0)

    def begin_step(self) -> None:
        """Count the step; the corrections are computed once, in f64, for all parameters."""
        steps = self.steps.value + 1
        self.steps.value = steps
        count = st.astype(steps, st.f64)
        first, second = self.betas
        self.correction = (1.0 - first**count, st.sqrt(1.0 - second**count))

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        first, second = (scalar(beta, param.dtype) for beta in self.betas)
        weight_decay, eps = self.numbers(param, "weight_decay", "eps")
        value = param.value
        if not _is_off(weight_decay) and self.decoupled:
            value = value * scalar(1.0 - self.lr * self.weight_decay, param.dtype)
        elif not _is_off(weight_decay):
            grad = grad + weight_decay * value
        mean = first * self.mean[index].value + (1.0 - first) * grad
        variance = second * self.variance[index].value + (1.0 - second) * grad * grad
        self.mean[index].value = mean
        self.variance[index].value = variance
        rate = st.astype(self.lr / self.correction[0], param.dtype)
        scale = st.astype(self.correction[1], param.dtype)
        param.value = value - rate * mean / (st.sqrt(variance) / scale + eps)


class AdamW(Adam):
    """Adam with decoupled weight decay. Source: Loshchilov and Hutter, 2019."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
