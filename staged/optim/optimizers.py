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


class Optimizer:
    """Base: the parameters, the learning rate, and the loop over both."""

    def __init__(self, params: Iterable[Any] | Mapping[str, Any], lr: Any) -> None:
        self.params = list(params.values()) if isinstance(params, Mapping) else list(params)
        if not self.params:
            raise ValueError("the optimiser got no parameters")
        self.lr = lr

    def state(self, name: str, fill: float = 0.0) -> list[Any]:
        """One state Variable per parameter, filled with a number and named after the parameter."""
        return [
            st.Variable(st.full(param.shape, fill, dtype=param.dtype), name=f"{name}_{param.name or index}")
            for index, param in enumerate(self.params)
        ]

    def gradients(self, grads: Any) -> list[Any]:
        """The gradients in the order of the parameters: a list of them, or what `wrt=model` gives (a dict by name)."""
        ordered = list(grads.values()) if isinstance(grads, Mapping) else list(grads)
        if len(ordered) != len(self.params):
            raise ValueError(f"the optimiser has {len(self.params)} parameters, got {len(ordered)} gradients")
        for param, grad in zip(self.params, ordered, strict=True):
            if tuple(param.shape) != tuple(grad.shape):
                raise st.ShapeError(f"parameter `{param.name}` has shape {param.shape}, its gradient {grad.shape}")
        return ordered

    def step(self, grads: Any) -> None:
        """Update every parameter once."""
        self.begin_step()
        for index, (param, grad) in enumerate(zip(self.params, self.gradients(grads), strict=True)):
            self.update(index, param, grad)

    def begin_step(self) -> None:
        """What happens once per step, before the parameters are updated."""

    def update(self, index: int, param: Any, grad: Any) -> None:
        """Update one parameter; every subclass has its own."""
        raise TypeError(f"{type(self).__name__} has no update()")


class SGD(Optimizer):
    """p -= lr * (g + weight_decay * p), with momentum and Nesterov's variant as in torch.

    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        nesterov: bool = False,
    ) -> None:
        super().__init__(params, lr)
        if nesterov and momentum <= 0.0:
            raise ValueError("Nesterov's variant needs a momentum above 0")
        self.momentum = momentum
        self.weight_decay = weight_decay
        self.nesterov = nesterov
        self.velocity = self.state("velocity") if momentum else []

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        if self.weight_decay:
            grad = grad + self.weight_decay * param.value
        if self.momentum:
            # torch starts the velocity as the first gradient; from zeros the same formula gives the same.
            velocity = self.momentum * self.velocity[index].value + grad
            self.velocity[index].value = velocity
            grad = grad + self.momentum * velocity if self.nesterov else velocity
        param.value = param.value - self.lr * grad


class Adagrad(Optimizer):
    """p -= lr * g / (sqrt(sum of g^2) + eps). Source: Duchi, Hazan and Singer, 2011."""

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-2,
        lr_decay: float = 0.0,
        weight_decay: float = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: float = 1e-10,
    ) -> None:
        super().__init__(params, lr)
        self.lr_decay = lr_decay
        self.weight_decay = weight_decay
        self.eps = eps
        self.total = self.state("total", initial_accumulator_value)
        self.steps = st.Variable(st.zeros((), dtype=st.i64), name="adagrad_steps") if lr_decay else None
        self.rate = lr

    def begin_step(self) -> None:
        """Count the step and let the rate decay."""
        if self.steps is not None:
            self.rate = self.lr / (1.0 + self.lr_decay * st.astype(self.steps.value, st.f64))
            self.steps.value = self.steps.value + 1

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        if self.weight_decay:
            grad = grad + self.weight_decay * param.value
        total = self.total[index].value + grad * grad
        self.total[index].value = total
        rate = st.astype(self.rate, param.dtype) if self.steps is not None else self.rate
        param.value = param.value - rate * grad / (st.sqrt(total) + self.eps)


class Adam(Optimizer):
    """Adam with bias correction. Source: Kingma and Ba, 2015; `weight_decay` is added to the gradient, as in torch."""

    decoupled = False

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(params, lr)
        self.betas = betas
        self.eps = eps
        self.weight_decay = weight_decay
        self.mean = self.state("mean")
        self.variance = self.state("variance")
        self.steps = st.Variable(st.zeros((), dtype=st.i64), name="adam_steps")
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
        first, second = self.betas
        value = param.value
        if self.weight_decay and self.decoupled:
            value = value * (1.0 - self.lr * self.weight_decay)
        elif self.weight_decay:
            grad = grad + self.weight_decay * value
        mean = first * self.mean[index].value + (1.0 - first) * grad
        variance = second * self.variance[index].value + (1.0 - second) * grad * grad
        self.mean[index].value = mean
        self.variance[index].value = variance
        rate = st.astype(self.lr / self.correction[0], param.dtype)
        scale = st.astype(self.correction[1], param.dtype)
        param.value = value - rate * mean / (st.sqrt(variance) / scale + self.eps)


class AdamW(Adam):
    """Adam with decoupled weight decay. Source: Loshchilov and Hutter, 2019."""

    decoupled = True

    def __init__(
        self,
        params: Iterable[Any] | Mapping[str, Any],
        lr: Any = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
    ) -> None:
        super().__init__(params, lr, betas, eps, weight_decay)
