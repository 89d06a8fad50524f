"""Optimisers with a rate of its own for each element: RMSprop, Adadelta, Adamax, NAdam, RAdam, Adafactor."""

from __future__ import annotations

from typing import Any

import numpy as np

import staged as st
from staged.optim.groups import Params
from staged.optim.optimizer import Optimizer, is_off
from staged.optim.optimizers import Adam
from staged.optim.pieces import computed_in


class RMSprop(Optimizer):
    """p -= lr * g / (sqrt(mean of g^2) + eps), with momentum; `centered` subtracts the square of the mean of g.

    Source: Tieleman and Hinton, Lecture 6.5, 2012; `centered` is of Graves, 2013.
    """

    options = ("lr", "momentum", "alpha", "eps", "centered", "weight_decay", "maximize")
    slots = (("square_avg", "square"), ("momentum_buffer", "velocity"), ("grad_avg", "mean"))
    kept_for = {"momentum": "velocity", "centered": "mean"}

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-2,
        alpha: Any = 0.99,
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        momentum: Any = 0.0,
        centered: bool = False,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(alpha=alpha, eps=eps, weight_decay=weight_decay, momentum=momentum)
        self.centered = centered
        self.square = self.state("square")
        self.velocity = self.state("velocity", option="momentum")
        self.mean = self.state("mean", option="centered")
        self.steps = self.counter()

    def begin_step(self) -> None:
        """Count the step."""
        self.counted()

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, alpha, eps, momentum = self.numbers(param, "lr", "alpha", "eps", "momentum")
        grad = self.with_decay(param, grad)
        square = alpha * self.square[index].value + (1.0 - alpha) * grad * grad
        self.square[index].value = square
        if self.centered:
            mean = self.mean[index].value
            mean = mean + (1.0 - alpha) * (grad - mean)
            self.mean[index].value = mean
            square = square - mean * mean
        change = grad / (st.sqrt(square) + eps)
        if not is_off(momentum):
            change = momentum * self.velocity[index].value + change
            self.velocity[index].value = change
        param.value = param.value - lr * change


class Adadelta(Optimizer):
    """p -= lr * g * sqrt(mean of changes^2 + eps) / sqrt(mean of g^2 + eps). Source: Zeiler, 2012."""

    options = ("lr", "rho", "eps", "weight_decay", "maximize")
    slots = (("square_avg", "square"), ("acc_delta", "change"))

    def __init__(
        self,
        params: Params,
        lr: Any = 1.0,
        rho: Any = 0.9,
        eps: Any = 1e-6,
        weight_decay: Any = 0.0,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(rho=rho, eps=eps, weight_decay=weight_decay)
        self.square = self.state("square")
        self.change = self.state("change")
        self.steps = self.counter()

    def check_option(self, name: str, value: Any) -> None:
        """Raises: ArgumentError if a number is negative, or rho above 1."""
        super().check_option(name, value)
        if name == "rho" and not isinstance(value, st.Array) and value > 1.0:
            raise st.ArgumentError(f"Adadelta: rho is between 0 and 1, got {value}", where=st.here())

    def begin_step(self) -> None:
        """Count the step."""
        self.counted()

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        lr, rho, eps = self.numbers(param, "lr", "rho", "eps")
        grad = self.with_decay(param, grad)
        square = rho * self.square[index].value + (1.0 - rho) * grad * grad
        changes = self.change[index].value
        change = st.sqrt(changes + eps) / st.sqrt(square + eps) * grad
        self.square[index].value = square
        self.change[index].value = rho * changes + (1.0 - rho) * change * change
        param.value = param.value - lr * change


class Adamax(Optimizer):
    """p -= lr * mean of g / largest |g|, which fades by `betas[1]`. Source: Kingma and Ba, 2015, section 7."""

    options = ("lr", "betas", "eps", "weight_decay", "maximize")
    slots = (("exp_avg", "mean"), ("exp_inf", "largest"))

    def __init__(
        self,
        params: Params,
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(betas=betas, eps=eps, weight_decay=weight_decay)
        self.mean = self.state("mean")
        self.largest = self.state("largest")
        self.steps = self.counter()
        self.count: Any = 0.0

    def begin_step(self) -> None:
        """Count the step."""
        self.count = self.counted()

    def begin_group(self) -> dict[str, Any]:
        """The step size is computed once, in f64."""
        return {"step_size": self.lr / (1.0 - self.betas[0] ** self.count)}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        (first, second), eps, rate = self.numbers(param, "betas", "eps", "step_size")
        grad = self.with_decay(param, grad)
        mean = first * self.mean[index].value + (1.0 - first) * grad
        largest = st.maximum(second * self.largest[index].value, st.abs(grad) + eps)
        self.mean[index].value = mean
        self.largest[index].value = largest
        param.value = param.value - rate * mean / largest


class NAdam(Adam):
    """Adam with Nesterov's momentum. Source: Dozat, Incorporating Nesterov Momentum into Adam, 2016."""

    options = (
        "lr", "betas", "eps", "weight_decay", "momentum_decay", "maximize", "decoupled_weight_decay",
    )  # fmt: skip
    shared_options = ("betas", "momentum_decay")
    slots = Adam.slots[:2]
    shared = ("mu_product",)
    kept_for = {}

    def __init__(
        self,
        params: Params,
        lr: Any = 2e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        momentum_decay: Any = 4e-3,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            maximize=maximize,
            decoupled_weight_decay=decoupled_weight_decay,
            **ways,
        )
        self.take(momentum_decay=momentum_decay)
        self.mu_product = st.Variable(st.ones((), dtype=st.f64), name="mu_product")
        self.shares: tuple[Any, Any] = (1.0, 1.0)
        self.deviation_correction: Any = 1.0

    def first(self, name: str) -> Any:
        """The initial value of a product is 1."""
        return 1.0 if name == "mu_product" else 0.0

    def begin_step(self) -> None:
        """Count the step; the shares of the gradient and of its mean are computed once, in f64."""
        count = self.counted()
        first, second = self.betas
        now, following = (first * (1.0 - 0.5 * 0.96 ** (each * self.momentum_decay)) for each in (count, count + 1.0))
        product = self.mu_product.value * now
        self.mu_product.value = product
        self.shares = ((1.0 - now) / (1.0 - product), following / (1.0 - product * following))
        self.deviation_correction = st.sqrt(1.0 - second**count)

    def begin_group(self) -> dict[str, Any]:
        """All groups have the same shares, but each has its rate."""
        of_grad, of_mean = self.shares
        return {
            "of_grad": self.lr * of_grad,
            "of_mean": self.lr * of_mean,
            "deviation_correction": self.deviation_correction,
        }

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        of_grad, of_mean, scale, eps = self.numbers(param, "of_grad", "of_mean", "deviation_correction", "eps")
        value, grad = self.decayed(param, grad)
        mean, variance = self.moments(index, param, grad)
        param.value = value - (of_grad * grad + of_mean * mean) / (st.sqrt(variance) / scale + eps)


class RAdam(Adam):
    """Adam that divides by the mean square only once its variance is bounded.

    Source: Liu et al., On the Variance of the Adaptive Learning Rate and Beyond, 2020.
    """

    options = ("lr", "betas", "eps", "weight_decay", "maximize", "decoupled_weight_decay")
    slots = Adam.slots[:2]
    kept_for = {}

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-3,
        betas: tuple[Any, Any] = (0.9, 0.999),
        eps: Any = 1e-8,
        weight_decay: Any = 0.0,
        decoupled_weight_decay: bool = False,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            maximize=maximize,
            decoupled_weight_decay=decoupled_weight_decay,
            **ways,
        )
        self.is_bounded: Any = False

    def begin_group(self) -> dict[str, Any]:
        """The length of the mean and the rectification are computed once, in f64, for all parameters of a group."""
        count = self.count
        first, second = self.betas
        power = second**count
        longest = 2.0 / (1.0 - second) - 1.0
        length = longest - 2.0 * count * power / (1.0 - power)
        self.is_bounded = length > 5.0
        share = (length - 4.0) * (length - 2.0) * longest / ((longest - 4.0) * (longest - 2.0) * length)
        return {
            "step_size": self.lr / (1.0 - first**count),
            "deviation_correction": st.sqrt(st.where(self.is_bounded, share, 0.0) * (1.0 - power)),
        }

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        rate, scale, eps = self.numbers(param, "step_size", "deviation_correction", "eps")
        value, grad = self.decayed(param, grad)
        mean, variance = self.moments(index, param, grad)
        root = st.sqrt(st.where(self.is_bounded, variance, 1.0))  # else a gradient through it may be NaN at 0
        param.value = value - rate * mean * st.where(self.is_bounded, scale / (root + eps), 1.0)


class Adafactor(Optimizer):
    """Adam without a mean, whose mean squares of a matrix are the product of a column and a row.

    The rate is `lr` or less, times the size of the parameter. Source: Shazeer and Stern, Adafactor: Adaptive Learning
    Rates with Sublinear Memory Cost, 2018.
    """

    options = ("lr", "beta2_decay", "eps", "d", "weight_decay", "maximize")
    slots = (("row_var", "rows"), ("col_var", "columns"), ("variance", "variance"))
    is_elementwise = False

    def __init__(
        self,
        params: Params,
        lr: Any = 1e-2,
        beta2_decay: Any = -0.8,
        eps: tuple[Any, Any] = (None, 1e-3),
        d: Any = 1.0,
        weight_decay: Any = 0.0,
        *,
        maximize: bool = False,
        **ways: Any,
    ) -> None:
        super().__init__(params, lr, maximize, ways)
        self.take(eps=eps, beta2_decay=beta2_decay, d=d, weight_decay=weight_decay)
        self.rows = [self._factor(param, -1, "rows") for param in self.params]
        self.columns = [self._factor(param, -2, "columns") for param in self.params]
        self.variance = [
            None if len(param.shape) > 1 else variable
            for param, variable in zip(self.params, self.state("variance"), strict=True)
        ]
        self.steps = self.counter()
        self.count: Any = 1.0
        self.most: Any = 1.0

    def check_option(self, name: str, value: Any) -> None:
        """Raises: ArgumentError if a number is negative, or `beta2_decay` above 0."""
        if name == "beta2_decay":
            if not isinstance(value, st.Array) and not value <= 0.0:
                raise st.ArgumentError(f"Adafactor: beta2_decay is at most 0, got {value}", where=st.here())
            return
        if name != "eps":
            super().check_option(name, value)
            return
        for place, number in enumerate(value):
            if number is not None:
                self.check_number(f"eps[{place}]", number)

    def _factor(self, param: Any, axis: int, name: str) -> Any:
        shape = list(param.shape)
        if len(shape) < 2:
            return None
        shape[axis] = 1
        return st.Variable(st.zeros(tuple(shape), dtype=computed_in(param)), name=f"{name}_{param.name}")

    def begin_step(self) -> None:
        """Count the step; the largest rate is computed once, in f64."""
        self.count = self.counted()
        self.most = 1.0 / st.sqrt(self.count)

    def begin_group(self) -> dict[str, Any]:
        """The share of this gradient and the largest rate are computed once, in f64."""
        return {"new": self.count**self.beta2_decay, "most": st.minimum(self.lr, self.most)}

    def update(self, index: int, param: Any, grad: Any) -> None:
        """One step for one parameter."""
        value, dtype = param.value, param.dtype
        (least, least_size), new, most, d = self.numbers(param, "eps", "new", "most", "d")
        least = float(np.finfo(dtype.numpy).eps) if least is None else least
        length = float(np.prod(param.shape)) ** 0.5
        rate = st.maximum(least_size, _norm(value) / length) * most
        value = self.shrunk(param)
        whole: Any = self.variance[index]
        if whole is not None:
            variance = whole.value + new * (grad * grad - whole.value)
            whole.value = variance
        else:
            factors = []
            for kept, axis in ((self.rows[index], -1), (self.columns[index], -2)):
                before = kept.value
                kept.value = before + new * (st.mean(grad * grad, axis=axis, keepdims=True) - before)
                factors.append(kept.value)
            rows, columns = factors
            variance = rows * columns / st.maximum(st.mean(rows, axis=-2, keepdims=True), least)
        change = grad / st.sqrt(st.maximum(variance, least * least))
        param.value = value - rate / st.maximum(1.0, _norm(change) / (length * d)) * change


def _norm(x: Any) -> Any:
    return st.sqrt(st.sum(x * x))
