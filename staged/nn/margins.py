"""Losses with margins, and of counts and normal distributions, as layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import staged as st
from staged.nn.channels import PairwiseDistance
from staged.nn.containers import ModuleList, Sequential
from staged.nn.layers import Linear
from staged.nn.losses import Loss
from staged.nn.module import Module
from staged.nn.parameters import check_dtype, check_sizes


class MarginRankingLoss(Loss):
    """max(0, -target * (x1 - x2) + margin): with target 1 the first is to be the larger."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, x1: Any, x2: Any, target: Any) -> Any:
        """All of the same shape; the target is 1 or -1."""
        return st.margin_ranking_loss(x1, x2, target, self.margin, reduction=self.reduction)


class HingeEmbeddingLoss(Loss):
    """x where the target is 1, max(0, margin - x) where it is -1."""

    def __init__(self, margin: float = 1.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, x: Any, target: Any) -> Any:
        """Both of the same shape; the target is 1 or -1."""
        return st.hinge_embedding_loss(x, target, self.margin, reduction=self.reduction)


class CosineEmbeddingLoss(Loss):
    """1 - cos(x1, x2) where the target is 1, max(0, cos - margin) where it is -1."""

    def __init__(self, margin: float = 0.0, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.margin = margin

    def forward(self, x1: Any, x2: Any, target: Any) -> Any:
        """Shapes: x1 and x2 (N, D), target (N,) of 1 or -1."""
        return st.cosine_embedding_loss(x1, x2, target, self.margin, reduction=self.reduction)


class TripletMarginLoss(Loss):
    """max(0, d(anchor, positive) - d(anchor, negative) + margin), of p-norms. Source: Balntas et al., 2016."""

    def __init__(
        self, margin: float = 1.0, p: float = 2.0, eps: float = 1e-6, swap: bool = False, *, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.margin, self.p, self.eps, self.swap = margin, p, eps, swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """All of the same shape (.., D)."""
        options = self.margin, self.p, self.eps, self.swap
        return st.triplet_margin_loss(anchor, positive, negative, *options, reduction=self.reduction)


class TripletMarginWithDistanceLoss(Loss):
    """`TripletMarginLoss` with any function of two arrays as the distance."""

    def __init__(
        self,
        *,
        distance_function: Callable[[Any, Any], Any] | None = None,
        margin: float = 1.0,
        swap: bool = False,
        reduction: str = "mean",
    ) -> None:
        super().__init__(reduction=reduction)
        self.distance_function = PairwiseDistance() if distance_function is None else distance_function
        self.margin, self.swap = margin, swap

    def forward(self, anchor: Any, positive: Any, negative: Any) -> Any:
        """All of the same shape."""
        return st.triplet_margin_with_distance_loss(
            anchor,
            positive,
            negative,
            distance_function=self.distance_function,
            margin=self.margin,
            swap=self.swap,
            reduction=self.reduction,
        )


class _Weighted(Loss):
    """Base of losses with a factor for each class, which is not trained."""

    def hold(self, weight: Any) -> None:
        """Keep the factors: a Variable as a buffer."""
        if isinstance(weight, st.Variable):
            self.register_buffer("weight", weight)
        self.weight = weight


class MultiMarginLoss(_Weighted):
    """The mean over the other classes i of max(0, margin - x[label] + x[i])^p."""

    def __init__(self, p: int = 1, margin: float = 1.0, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        if p not in (1, 2):
            raise st.ArgumentError(f"MultiMarginLoss: p is 1 or 2, got {p!r}", where=st.here())
        self.p, self.margin = p, margin
        self.hold(weight)

    def forward(self, x: Any, target: Any) -> Any:
        """Shapes: x (N, C), target (N,) integer."""
        return st.multi_margin_loss(x, target, self.p, self.margin, self.weight, reduction=self.reduction)


class MultiLabelMarginLoss(Loss):
    """The sum over labels j and other classes i of max(0, 1 - x[j] + x[i]), over the classes."""

    def forward(self, x: Any, target: Any) -> Any:
        """Both (N, C); a row's labels end before its first negative number."""
        return st.multilabel_margin_loss(x, target, reduction=self.reduction)


class MultiLabelSoftMarginLoss(_Weighted):
    """The mean over classes of the negative log-likelihood of 0 or 1 under sigmoid(x)."""

    def __init__(self, weight: Any = None, *, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.hold(weight)

    def forward(self, x: Any, target: Any) -> Any:
        """Both (N, C)."""
        return st.multilabel_soft_margin_loss(x, target, self.weight, reduction=self.reduction)


class SoftMarginLoss(Loss):
    """log(1 + exp(-target * x)), for targets 1 and -1."""

    def forward(self, x: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.soft_margin_loss(x, target, reduction=self.reduction)


class PoissonNLLLoss(Loss):
    """Negative log-likelihood of counts under Poisson distributions of mean exp(x), or of mean x."""

    def __init__(
        self, log_input: bool = True, full: bool = False, *, eps: float = 1e-8, reduction: str = "mean"
    ) -> None:
        super().__init__(reduction=reduction)
        self.log_input, self.full, self.eps = log_input, full, eps

    def forward(self, log_input: Any, target: Any) -> Any:
        """Both of the same shape."""
        return st.poisson_nll_loss(log_input, target, self.log_input, self.full, eps=self.eps, reduction=self.reduction)


class GaussianNLLLoss(Loss):
    """Negative log-likelihood of targets under normal distributions of mean x and variance `var`."""

    def __init__(self, *, full: bool = False, eps: float = 1e-6, reduction: str = "mean") -> None:
        super().__init__(reduction=reduction)
        self.full, self.eps = full, eps

    def forward(self, x: Any, target: Any, var: Any) -> Any:
        """Both of the same shape; a variance for each element, for each row, or one."""
        return st.gaussian_nll_loss(x, target, var, self.full, self.eps, self.reduction)


# ---- of many classes ------------------------------------------------------------------------------


class Output(NamedTuple):
    """The result of `AdaptiveLogSoftmaxWithLoss`: each row's log-probability of its label, and the mean loss."""

    output: Any
    loss: Any


class AdaptiveLogSoftmaxWithLoss(Module):
    """Log-probabilities of many classes, the frequent ones first: rare ones in clusters of smaller projections.

    Classes below `cutoffs[0]` are in the head; those between two cutoffs share one class of the head and have a
    cluster, of in_features / div_value^k features. Source: Grave et al., Efficient softmax approximation, 2017.
    """

    def __init__(
        self,
        in_features: int,
        n_classes: int,
        cutoffs: Sequence[int],
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: Any = st.f32,
    ) -> None:
        layer, cuts = "AdaptiveLogSoftmaxWithLoss", list(cutoffs)
        check_sizes(layer, in_features=in_features, n_classes=n_classes, cutoffs=tuple(cuts))
        if not cuts or cuts != sorted(set(cuts)) or cuts[-1] > n_classes - 1:
            raise st.ArgumentError(
                f"{layer}: cutoffs are numbers that grow, between 1 and n_classes - 1, got {cuts}", where=st.here()
            )
        self.in_features, self.n_classes, self.cutoffs = in_features, n_classes, [*cuts, n_classes]
        self.div_value, self.head_bias = div_value, head_bias
        self.shortlist_size, self.n_clusters = cuts[0], len(cuts)
        self.head_size = self.shortlist_size + self.n_clusters
        self.head = Linear(in_features, self.head_size, bias=head_bias, dtype=dtype)
        clusters = []
        for number in range(self.n_clusters):
            hidden = int(in_features // div_value ** (number + 1))
            size = self.cutoffs[number + 1] - self.cutoffs[number]
            clusters.append(
                Sequential(
                    Linear(in_features, hidden, bias=False, dtype=dtype), Linear(hidden, size, bias=False, dtype=dtype)
                )
            )
        self.tail = ModuleList(clusters)

    def forward(self, x: Any, target: Any) -> Output:
        """Shapes: x (N, in_features) and target (N,), or (in_features,) and ()."""
        check_dtype("AdaptiveLogSoftmaxWithLoss", x, self.head.weight)
        labels = st.astype(st.asarray(target), st.i64)
        log_probs = self.log_prob(st.expand_dims(x, 0) if x.ndim == 1 else x)
        rows = st.expand_dims(labels, 0) if x.ndim == 1 else labels
        losses = st.nll_loss(log_probs, rows, reduction="none")
        output = -(st.reshape(losses, ()) if x.ndim == 1 else losses)
        return Output(output, -st.mean(output))

    def log_prob(self, x: Any) -> Any:
        """The log-probabilities of all classes: (N, in_features) to (N, n_classes)."""
        head = st.log_softmax(self.head(x), -1)
        parts = [head[..., : self.shortlist_size]]
        for number, cluster in enumerate(self.tail):
            place = self.shortlist_size + number
            parts.append(st.log_softmax(cluster(x), -1) + head[..., place : place + 1])
        return st.concat(parts, -1)

    def predict(self, x: Any) -> Any:
        """The most probable class of each row."""
        return st.argmax(self.log_prob(x), -1)
