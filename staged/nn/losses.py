"""Losses as layers."""

from __future__ import annotations

from typing import Any

import staged as st
from staged.nn.module import Module
from staged.nn.parameters import check_option, check_probability


class Loss(Module):
    """Base of all losses: `reduction` is "mean", "sum" or "none".

    Arguments that torch has at other positions, behind deprecated ones of its own, are keyword-only.
    """

    reductions: tuple[str, ...] = ("mean", "sum", "none")

    def __init__(self, *, reduction: str = "mean") -> None:
        check_option(type(self).__name__, "reduction", reduction, self.reductions)
        self.reduction = reduction


def _keep_weight(loss: Loss, name: str, of: str, weight: Any) -> None:
    """Keep a weight, which is not trained; refuse what torch has at this position behind deprecated arguments."""
    if isinstance(weight, str):
        raise st.ArgumentError(
            f"{type(loss).__name__} takes the weight of each {of} first, got {weight!r}",
            where=st.here(),
            hint=f"`reduction={weight!r}`",
        )
    if isinstance(weight, st.Variable):
        loss.register_buffer(name, weight)
    setattr(loss, name, weight)


class _ClassLoss(Loss):
    """Base of losses on labels: `weight` has a factor for each class, and rows labelled `ignore_index` do not count.

    torch ignores -100 by default; here nothing is ignored by default, and a negative label is an error. `axis` is that
    of the classes: the last one if it is not given, or 1 for images (N, C, H, W), as torch has them.
    """

    def __init__(
        self, weight: Any = None, *, ignore_index: int | None = None, reduction: str = "mean", axis: int | None = None
    ) -> None:
        super().__init__(reduction=reduction)
        _keep_weight(self, "weight", "class", weight)
        self.ignore_index = ignore_index
        self.axis = axis


class CrossEntropyLoss(_ClassLoss):
    """Mean negative log-likelihood of integer labels, or shares of classes, under softmax(logits), in nats."""

    def __init__(
        self,
        weight: Any = None,
        *,
        ignore_index: int | None = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
        axis: int | None = None,
    ) -> None:
        super().__init__(weight, ignore_index=ignore_index, reduction=reduction, axis=axis)
        check_probability("CrossEntropyLoss", label_smoothing)
        self.label_smoothing = label_smoothing

    def forward(self, logits: Any, labels: Any) -> Any:
        """Shapes: logits (batch, classes), labels (batch,) integer, or floats of the shape of the logits."""
        return st.cross_entropy(
            logits,
            labels,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
            axis=self.axis,
        )


class NLLLoss(_ClassLoss):
    """Mean of minus the log-probability of each label."""

    def forward(self, log_probs: Any, labels: Any) -> Any:
        """Shapes: log_probs (batch, classes), labels (batch,) integer."""
        return st.nll_loss(
            log_probs,
            labels,
            self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            axis=self.axis,
        )


class MSELoss(Loss):
    """Mean of the squared differences."""

    def forward(self, prediction: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.mse_loss(prediction, target, reduction=self.reduction)


class L1Loss(Loss):
    """Mean of the absolute differences."""

    def forward(self, prediction: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.l1_loss(prediction, target, reduction=self.reduction)


class HuberLoss(Loss):
    """Half the squared differences up to `delta`, linear beyond."""

    def __init__(self, reduction: str = "mean", delta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.delta = delta

    def forward(self, prediction: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.huber_loss(prediction, target, reduction=self.reduction, delta=self.delta)


class SmoothL1Loss(Loss):
    """`HuberLoss` divided by `beta`."""

    def __init__(self, *, reduction: str = "mean", beta: float = 1.0) -> None:
        super().__init__(reduction=reduction)
        self.beta = beta

    def forward(self, prediction: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.smooth_l1_loss(prediction, target, reduction=self.reduction, beta=self.beta)


class BCEWithLogitsLoss(Loss):
    """Negative log-likelihood of targets in [0, 1] under sigmoid(logits).

    `weight` is a factor of each loss, `pos_weight` one of what targets of 1 add; both broadcast.
    """

    def __init__(self, weight: Any = None, *, reduction: str = "mean", pos_weight: Any = None) -> None:
        super().__init__(reduction=reduction)
        _keep_weight(self, "weight", "loss", weight)
        _keep_weight(self, "pos_weight", "positive target", pos_weight)

    def forward(self, logits: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.binary_cross_entropy_with_logits(
            logits, target, self.weight, reduction=self.reduction, pos_weight=self.pos_weight
        )


class BCELoss(Loss):
    """Negative log-likelihood of targets in [0, 1] under probabilities; `weight` is a factor of each."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        _keep_weight(self, "weight", "loss", weight)

    def forward(self, probabilities: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.binary_cross_entropy(probabilities, target, self.weight, reduction=self.reduction)


class KLDivLoss(Loss):
    """The Kullback-Leibler divergence of targets from log-probabilities; "batchmean" divides by the first axis."""

    reductions = ("mean", "sum", "none", "batchmean")

    def __init__(self, *, reduction: str = "mean", log_target: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.log_target = log_target

    def forward(self, log_probs: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.kl_div(log_probs, target, reduction=self.reduction, log_target=self.log_target)


class CTCLoss(Loss):
    """Minus the log-likelihood of label sequences under all their alignments. Source: Graves et al., 2006."""

    def __init__(self, blank: int = 0, reduction: str = "mean", zero_infinity: bool = False) -> None:
        super().__init__(reduction=reduction)
        self.blank = blank
        self.zero_infinity = zero_infinity

    def forward(self, log_probs: Any, targets: Any, input_lengths: Any, target_lengths: Any) -> Any:
        """Shapes: log_probs (T, N, C), targets (N, S) integer, lengths (N,) integer."""
        return st.ctc_loss(
            log_probs, targets, input_lengths, target_lengths, self.blank, self.reduction, self.zero_infinity
        )
