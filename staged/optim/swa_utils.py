"""Running means of the weights of a model, with the names and arguments of `torch.optim.swa_utils`."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import staged as st
from staged import nn
from staged.call.api import plain_number
from staged.optim.lr_scheduler.schedule import LRScheduler
from staged.optim.optimizer import Optimizer

__all__ = [
    "SWALR",
    "AveragedModel",
    "get_ema_avg_fn",
    "get_ema_multi_avg_fn",
    "get_swa_avg_fn",
    "get_swa_multi_avg_fn",
    "update_bn",
]

Average = Callable[[Any, Any, Any], Any]


class AveragedModel(nn.Module):
    """A copy of a model whose parameters are running means of that model's, over the calls of `update_parameters`.

    Parameters: avg_fn(mean, parameter, n), the next mean from that of `n` models, the mean of all if it is left out;
    multi_avg_fn(means, parameters, n), the same for lists; use_buffers, whether buffers of floats are averaged too
    (else they are copied, as all integers are). Source: Izmailov et al., Averaging Weights Leads to Wider Optima and
    Better Generalization, 2018.
    """

    def __init__(
        self,
        model: nn.Module,
        device: Any = None,
        avg_fn: Average | None = None,
        multi_avg_fn: Average | None = None,
        use_buffers: bool = False,
    ) -> None:
        if device is not None:
            raise st.ArgumentError(
                "AveragedModel: weights are where their region is", where=st.here(), hint="leave `device` out"
            )
        if avg_fn is not None and multi_avg_fn is not None:
            raise st.ArgumentError("AveragedModel: give avg_fn or multi_avg_fn, not both", where=st.here())
        if not isinstance(model, nn.Module):
            raise st.ArgumentError(f"AveragedModel averages a Module, got {type(model).__name__}", where=st.here())
        self.module = copy.deepcopy(model)
        self.register_buffer("n_averaged", st.zeros((), dtype=st.i64))
        self.avg_fn = avg_fn or get_swa_avg_fn()
        self.multi_avg_fn = multi_avg_fn
        self.use_buffers = use_buffers

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The copy's result."""
        return self.module(*args, **kwargs)

    def update_parameters(self, model: nn.Module) -> None:
        """Take the model's present weights into the means; the first ones are the means."""
        means, news = self._pairs(self.module, self.use_buffers), self._pairs(model, self.use_buffers)
        n = self.n_averaged.value
        before, after = [mean.value for mean in means], [new.value for new in news]
        if self.multi_avg_fn is not None:
            found = self.multi_avg_fn(before, after, n)
            if not isinstance(found, Sequence) or len(found) != len(means):
                raise st.ArgumentError(
                    "AveragedModel: multi_avg_fn returns the list of the next means", where=st.here()
                )
        else:
            found = [self.avg_fn(mean, new, n) for mean, new in zip(before, after, strict=True)]
        for mean, new, value in zip(means, after, found, strict=True):
            mean.value = st.where(n == 0, new, st.astype(value, mean.dtype))
        rest = [self._rest(each, self.use_buffers) for each in (self.module, model)]
        for kept, new in zip(*rest, strict=True):
            kept.value = new.value
        self.n_averaged.value = n + 1

    def _pairs(self, model: nn.Module, buffers: bool) -> list[Any]:
        """The Variables that are averaged."""
        found = [each for each in model.buffers() if each.dtype.is_float] if buffers else []
        return [*model.parameters(), *found]

    def _rest(self, model: nn.Module, buffers: bool) -> list[Any]:
        """The buffers that are copied."""
        return [each for each in model.buffers() if not (buffers and each.dtype.is_float)]


def get_swa_avg_fn() -> Average:
    """The function that gives the mean of all models, each with the same weight."""
    return lambda mean, new, n: mean + (new - mean) / st.astype(n + 1, mean.dtype)


def get_ema_avg_fn(decay: Any = 0.999) -> Average:
    """The function that gives an exponential moving average: `decay * mean + (1 - decay) * new`."""
    if not isinstance(decay, st.Array) and not 0.0 <= decay <= 1.0:
        raise st.ArgumentError(f"get_ema_avg_fn: decay is between 0 and 1, got {decay}", where=st.here())
    decay = plain_number(decay)
    return lambda mean, new, n: decay * mean + (1.0 - decay) * new


def get_swa_multi_avg_fn() -> Average:
    """`get_swa_avg_fn` for lists."""
    return _of_lists(get_swa_avg_fn())


def get_ema_multi_avg_fn(decay: Any = 0.999) -> Average:
    """`get_ema_avg_fn` for lists."""
    return _of_lists(get_ema_avg_fn(decay))


def _of_lists(average: Average) -> Average:
    return lambda means, news, n: [average(mean, new, n) for mean, new in zip(means, news, strict=True)]


def update_bn(loader: Iterable[Any], model: nn.Module, device: Any = None) -> None:
    """Take the running statistics of all batch norms of `model` anew: each the mean over the batches of `loader`.

    `loader` is a loop over batches, in staged code `st.batches(...)` too; of a batch that is a list or tuple the first
    array is the model's input. Afterwards momentum and training mode are as before.
    """
    if device is not None:
        raise st.ArgumentError(
            "update_bn: batches are where their region is", where=st.here(), hint="leave `device` out"
        )
    norms = [each for each in model.modules() if getattr(each, "running_mean", None) is not None]
    if not norms:
        return
    modes = [(each, each.training) for each in model.modules()]
    momenta = [each.momentum for each in norms]
    for norm in norms:
        norm.running_mean.value = st.zeros_like(norm.running_mean.value)
        norm.running_var.value = st.ones_like(norm.running_var.value)
        norm.num_batches_tracked.value = st.zeros_like(norm.num_batches_tracked.value)
        norm.momentum = None
    model.train()
    for batch in loader:
        model(batch[0] if isinstance(batch, list | tuple) else batch)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
    for module, mode in modes:
        module.training = mode


class SWALR(LRScheduler):
    """The rate from what it is to `swa_lr` in `anneal_epochs` steps, then constant."""

    saved = ("swa_lrs", "anneal_epochs")

    def __init__(
        self,
        optimizer: Optimizer,
        swa_lr: Any,
        anneal_epochs: int = 10,
        anneal_strategy: str = "cos",
        last_epoch: int = -1,
    ) -> None:
        self.optimizer = self.checked(optimizer)
        self.swa_lrs = self.each_group("swa_lr", swa_lr)
        if anneal_strategy not in ("cos", "linear"):
            self.refuse(f'anneal_strategy is one of "cos", "linear", got {anneal_strategy!r}')
        if isinstance(anneal_epochs, bool) or not isinstance(anneal_epochs, int) or anneal_epochs < 0:
            self.refuse(f"anneal_epochs is an integer of at least 0, got {anneal_epochs!r}")
        self.anneal_epochs, self.is_cosine = anneal_epochs, anneal_strategy == "cos"
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[Any]:
        """The rates as far towards the last ones as this step says, whatever they are now."""
        step = st.maximum(self.epoch, 1.0) if self.anneal_epochs == 0 else self.epoch
        before, now = self.share(step - 1.0), self.share(step)
        found = []
        for rate, last in zip(self.rates, self.swa_lrs, strict=True):
            rest = st.where(before == 1.0, 1.0, 1.0 - before)
            first = st.where(before == 1.0, last, (rate.value - before * last) / rest)
            found.append(last * now + first * (1.0 - now))
        return found

    def share(self, step: Any) -> Any:
        """The share of the last rate after a number of steps."""
        share = st.clip(step / max(1, self.anneal_epochs), 0.0, 1.0)
        return (1.0 - st.cos(math.pi * share)) / 2.0 if self.is_cosine else share
