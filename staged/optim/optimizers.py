"""Optimisers with torch's names, defaults and formulas; `step` takes the gradients.

    opt = optim.SGD(model.parameters(), lr=0.05)
    loss, grads = st.value_and_grad(loss_fn, wrt=model)(x, y)
    opt.step(grads)

An optimiser updates its parameters in place (they are `staged.Variable`s); its own state are Variables too, so that it
lives in the program, or keeps its buffers between calls, as the model does. `lr` may be a number or a staged scalar.
"""

from __future__ import annotations

from typing import Any

import staged as st
from staged.optim.groups import Params
from staged.optim.optimizer import Optimizer, Slots, is_off


class SGD(Optimizer):
    """p -= lr * (g + weight_decay * p), with momentum, dampening and Nesterov's variant as in torch.

    Source: Sutskever et al., On the importance of initialization and momentum in deep learning, 2013.
    """

    options = ("lr", "momentum", "dampening", "weight_decay", "nesterov", "maximize")
    slots = (("momentum_buffer", "velocity"),)
    kept_for = {"momentum": "velocity"}

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-3,
        momentum: Any = 0.0,
        dampening: Any = 0.0,
        weight_decay: Any = 0.0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        self.dampening, self.nesterov = dampening, nesterov
        super().__init__(params, lr, maximize, ways)
        self.take(momentum=momentum, weight_decay=weight_decay)
        for group in self.groups:
            with self.having(self.own_numbers(group)):
                if self.nesterov and (is_off(self.momentum) or not is_off(self.dampening)):
                    message = "SGD: Nesterov's variant needs a momentum above 0 and no dampening"
                    raise st.ArgumentError(message, where=st.here())
        self.velocity = self.state("velocity", option="momentum")
        self.steps = self.counter() if self._is_damped() else None
        self.is_first: Any = False

    def check_option(self, name: str, value: Any) -> None:
        """Raises: ArgumentError if a number other than the dampening is negative."""
        if name != "dampening":
            super().check_option(name, value)

    def _is_damped(self) -> bool:
        """Whether the velocity of some parameter takes less than the whole of a gradient."""
        return any(all(both) for both in zip(self.having_on("momentum"), self.having_on("dampening"), strict=True))

    def begin_step(self) -> None:
        """Count the steps with momentum, where one has to be known as the first."""
        if self._is_damped():
            self.must_have(self.steps, "dampening")
        if self.steps is not None and any(self.having_on("momentum")):
            self.is_first = self.steps.value == 0
            self.steps.value = self.steps.value + 1

    def begin_group(self) -> dict[str, Any]:
        """The factor of a gradient in the velocity: 1 for the first one, then 1 - dampening."""
        if is_off(self.momentum) or is_off(self.dampening):
            return {"share": 1.0}
        return {"share": st.where(self.is_first, 1.0, 1.0 - self.dampening)}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, momentum, share = self.numbers(param, "lr", "momentum", "share")
        grad = self.with_decay(param, grad)
        if not is_off(momentum):
            # torch starts the velocity as the first gradient; from zeros the same formula gives the same.
            velocity = momentum * self.velocity[index].value
            velocity = velocity + (grad if is_off(self.dampening) else share * grad)
            self.velocity[index].value = velocity
            grad = grad + momentum * velocity if self.nesterov else velocity
        param.value = param.value - lr * grad


class ASGD(Optimizer):
    """SGD with a decay towards 0 and a falling rate; the mean of the parameters is kept as `ax`.

    Source: Polyak and Juditsky, Acceleration of Stochastic Approximation by Averaging, 1992.
    """

    options = ("lr", "lambd", "alpha", "t0", "weight_decay", "maximize")
    shared_options = ("lr", "lambd", "alpha", "t0")
    slots = (("ax", "ax"),)
    shared = ("eta", "mu")

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-2,
        lambd: Any = 1e-4,
        alpha: Any = 0.75,
        t0: Any = 1e6,
        weight_decay: Any = 0.0,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(weight_decay=weight_decay)
        self.lambd, self.alpha, self.t0 = lambd, alpha, t0
        self.ax = self.state("ax")
        self.eta = st.Variable(st.full((), lr, dtype=st.f64), name="eta")
        self.mu = st.Variable(st.ones((), dtype=st.f64), name="mu")
        self.steps = self.counter()
        self.rates: tuple[Any, Any] = (1.0, 1.0)

    def first(self, name: str) -> Any:
        """The initial value of a slot, of the rate, or of the share of the mean."""
        return {"eta": self.lr, "mu": 1.0}.get(name, 0.0)

    def begin_step(self) -> None:
        """Count the step, whose rates the step before has computed."""
        self.rates = (self.eta.value, self.mu.value)
        count = self.counted()
        self.eta.value = st.astype(self.lr / (1.0 + self.lambd * self.lr * count) ** self.alpha, st.f64)
        self.mu.value = 1.0 / st.maximum(1.0, count - self.t0)

    def begin_group(self) -> dict[str, Any]:
        """The rate, the share of the mean, and the share of a parameter that the decay leaves."""
        eta, share = self.rates
        return {"eta": eta, "share": share, "left": 1.0 - self.lambd * eta}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        eta, share, left = self.numbers(param, "eta", "share", "left")
        value, grad = param.value, self.with_decay(param, grad)
        value = value * left - eta * grad
        param.value = value
        self.ax[index].value = self.ax[index].value + (value - self.ax[index].value) * share


class Adagrad(Optimizer):
    """p -= lr * g / (sqrt(sum of g^2) + eps). Source: Duchi, Hazan and Singer, 2011."""

    options = ("lr", "lr_decay", "weight_decay", "initial_accumulator_value", "eps", "maximize")
    shared_options = ("initial_accumulator_value",)
    slots = (("sum", "total"),)

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-2,
        lr_decay: Any = 0.0,
        weight_decay: Any = 0.0,
        initial_accumulator_value: float = 0.0,
        eps: Any = 1e-10,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(lr_decay=lr_decay, weight_decay=weight_decay, eps=eps)
        self.take(initial_accumulator_value=initial_accumulator_value)
        self.total = self.state("total", initial_accumulator_value)
        self.steps = self.counter() if any(self.having_on("lr_decay")) else None
        self.before: Any = 0.0

    def first(self, name: str) -> Any:
        """The initial value of the sum of squares."""
        return self.initial_accumulator_value

    def begin_step(self) -> None:
        """Count the step, where a rate decays."""
        if any(self.having_on("lr_decay")):
            self.must_have(self.steps, "lr_decay")
        if self.steps is not None:
            self.before = st.astype(self.steps.value, st.f64)
            self.steps.value = self.steps.value + 1

    def begin_group(self) -> dict[str, Any]:
        """The rate, which may decay."""
        return {"rate": self.lr if is_off(self.lr_decay) else self.lr / (1.0 + self.lr_decay * self.before)}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        rate, eps = self.numbers(param, "rate", "eps")
        grad = self.with_decay(param, grad)
        total = self.total[index].value + grad * grad
        self.total[index].value = total
        param.value = param.value - rate * grad / (st.sqrt(total) + eps)


class Adam(Optimizer):
    """Adam with bias correction. Source: Kingma and Ba, 2015; `weight_decay` is added to the gradient, as in torch.

    With `amsgrad` the largest mean square so far divides. Source: Reddi, Kale and Kumar, 2018.
    """

    options: tuple[str, ...] = (
        "lr", "betas", "eps", "weight_decay", "amsgrad", "maximize", "decoupled_weight_decay",
    )  # fmt: skip
    slots: Slots = (("exp_avg", "mean"), ("exp_avg_sq", "variance"), ("max_exp_avg_sq", "largest"))
    kept_for = {"amsgrad": "largest"}

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        decoupled_weight_decay: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(betas=betas, eps=eps, weight_decay=weight_decay)
        self.amsgrad = amsgrad
        self.decoupled_weight_decay = decoupled_weight_decay
        self.mean = self.state("mean")
        self.variance = self.state("variance")
        self.largest = self.state("largest", option="amsgrad")
        self.steps = self.counter()
        self.count: Any = 0.0

    def begin_step(self) -> None:
        """Count the step."""
        self.count = self.counted()

    def begin_group(self) -> dict[str, Any]:
        """The step size and the correction of deviations are computed once, in f64, for all parameters of a group."""
        first, second = self.betas
        mean_correction = 1.0 - first**self.count
        variance_correction = 1.0 - second**self.count
        deviation_correction = st.sqrt(variance_correction)
        step_size = self.lr / mean_correction
        return {"step_size": step_size, "deviation_correction": deviation_correction}

    def decayed(self, param: Any, grad: Any) -> tuple[Any, Any]:
        """The parameter and the gradient with the decay of weights in one of them."""
        if self.decoupled_weight_decay:
            return self.shrunk(param), grad
        return param.value, self.with_decay(param, grad)

    def moments(self, index: int, param: Any, grad: Any) -> tuple[Any, Any]:
        """The running means of the gradient and of its square, with this gradient."""
        ((first, second),) = self.numbers(param, "betas")
        mean = first * self.mean[index].value + (1.0 - first) * grad
        variance = second * self.variance[index].value + (1.0 - second) * grad * grad
        self.mean[index].value = mean
        self.variance[index].value = variance
        return mean, variance

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        rate, scale, eps = self.numbers(param, "step_size", "deviation_correction", "eps")
        value, grad = self.decayed(param, grad)
        mean, variance = self.moments(index, param, grad)
        if self.amsgrad:
            variance = st.maximum(self.largest[index].value, variance)
            self.largest[index].value = variance
        param.value = value - rate * mean / (st.sqrt(variance) / scale + eps)


class AdamW(Adam):
    """Adam with decoupled weight decay. Source: Loshchilov and Hutter, 2019."""

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(
            params, lr, betas, eps, weight_decay, amsgrad, maximize=maximize, decoupled_weight_decay=True, **ways
        )
