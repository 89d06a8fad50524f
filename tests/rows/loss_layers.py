"""Rows of the layers of `st.nn` that are losses and distances."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.cells.draw import Draw, NotACell
from tests.fuzz.plain.core import FUNCTIONS, Plain, plain, widest_of
from tests.rows.draws import rows_of, signs
from tests.rows.layers import F32, Layer, Linear, made, of_function
from tests.rows.table import Call, row


def _loss(second: str, *options: str) -> Call:
    """A loss of a prediction and a target."""

    def text(d: Draw) -> str:
        reduction = d.pick("", "reduction='sum'", "reduction='none'")
        made(d, ", ".join(part for part in (reduction, d.pick("", *options)) if part), dtype=False)
        if second == "labels":
            shape = (0, 3) if d.kind == "empty" else (33, 5) if d.kind == "block" else d.shape(2)
            labels = d.new(shape[:1], "i64", f"below {max(shape[1], 1)}")
            d.main = ""
            return f"layer({d.new(shape, values='small')}, {labels})"
        shape = d.shape(ranks=(0, 1, 2))
        first = "prob" if d.name == "nn.BCELoss" else "small"
        return f"layer({d.new(shape, values=first)}, {d.new(shape, values=second)})"

    return text


row("nn.MSELoss", _loss("small"), of_function("mse_loss"))
row("nn.L1Loss", _loss("small"), of_function("l1_loss"))
row("nn.HuberLoss", _loss("small", "delta=0.5"), of_function("huber_loss"))
row("nn.SmoothL1Loss", _loss("small", "beta=0.5"), of_function("smooth_l1_loss"))
row("nn.BCELoss", _loss("prob"), of_function("binary_cross_entropy"))
row("nn.BCEWithLogitsLoss", _loss("prob"), of_function("binary_cross_entropy_with_logits"))
row("nn.KLDivLoss", _loss("prob"), of_function("kl_div"))
row("nn.CrossEntropyLoss", _loss("labels", "label_smoothing=0.1", "ignore_index=0"), of_function("cross_entropy"))
row("nn.NLLLoss", _loss("labels", "ignore_index=0"), of_function("nll_loss"))


def draw(d: Draw) -> str:
    if d.kind == "scalar":
        raise NotACell
    t, n, c, s = {"empty": (4, 0, 3, 2), "one": (1, 1, 2, 1), "odd": (5, 3, 5, 2)}.get(d.kind, (6, 2, 7, 3))
    x = d.new((t, n, c), values="unit")
    made(d, d.pick("", "reduction='sum'", "zero_infinity=True"), dtype=False)
    labels, steps = d.new((n, s), "i64", f"below {c - 1}"), d.new((n,), "i64", f"below {t}")
    sizes = d.new((n,), "i64", f"below {s + 1}")
    return f"layer(st.log_softmax({x}), {labels} + 1, {steps} + 1, {sizes})"


row("nn.CTCLoss", draw, of_function("ctc_loss", "blank"))


# ---- distances and margins ----------------------------------------------------------------------


def _of_rows(count: int, target: str, *options: str) -> Call:
    """A loss, or a distance, of so many arrays of rows and a target."""

    def text(d: Draw) -> str:
        shape = rows_of(d)
        arrays = [d.new(shape, values=("small", "positive", "nonzero")[number]) for number in range(count)]
        if target == "signs":
            arrays.append(signs(d, shape))
        elif target == "row signs":
            arrays.append(signs(d, shape[:1]))
        elif target == "labels":
            arrays.append(d.new(shape[:1], "i64", f"below {shape[1]}"))
        elif target == "rows of labels":
            arrays.append(d.new(shape, "i64", f"below {shape[1] + 1}") + " - 1")
        elif target:
            arrays.append(d.new(shape, values=target))
        reduction = d.pick("", "reduction='sum'", "reduction='none'") if d.name.endswith("Loss") else ""
        made(d, ", ".join(part for part in (d.pick("", *options), reduction) if part), dtype=False)
        return f"layer({', '.join(arrays)})"

    return text


_TRIPLETS = ("margin", "p", "eps", "swap")
row("nn.CosineSimilarity", _of_rows(2, "", "0", "dim=-1"), of_function("cosine_similarity", "dim", "eps", dim="axis"))
row(
    "nn.PairwiseDistance",
    _of_rows(2, "", "1.0", "keepdim=True"),
    of_function("pairwise_distance", "p", "eps", "keepdim", keepdim="keepdims"),
)
row("nn.MarginRankingLoss", _of_rows(2, "signs", "0.5"), of_function("margin_ranking_loss", "margin"))
row("nn.HingeEmbeddingLoss", _of_rows(1, "signs", "2.0"), of_function("hinge_embedding_loss", "margin"))
row("nn.CosineEmbeddingLoss", _of_rows(2, "row signs", "0.25"), of_function("cosine_embedding_loss", "margin"))
row("nn.TripletMarginLoss", _of_rows(3, "", "0.5", "swap=True"), of_function("triplet_margin_loss", *_TRIPLETS))
row(
    "nn.TripletMarginWithDistanceLoss",
    _of_rows(3, "", "margin=0.5", "swap=True"),
    of_function("triplet_margin_with_distance_loss"),
)
row(
    "nn.MultiMarginLoss",
    _of_rows(1, "labels", "2", "margin=0.5"),
    of_function("multi_margin_loss", "p", "margin", "weight"),
)
row("nn.MultiLabelMarginLoss", _of_rows(1, "rows of labels"), of_function("multilabel_margin_loss"))
row("nn.MultiLabelSoftMarginLoss", _of_rows(1, "prob"), of_function("multilabel_soft_margin_loss", "weight"))
row("nn.SoftMarginLoss", _of_rows(1, "signs"), of_function("soft_margin_loss"))
row(
    "nn.PoissonNLLLoss",
    _of_rows(1, "positive", "True, True", "full=True"),
    of_function("poisson_nll_loss", "log_input", "full"),
)
row("nn.GaussianNLLLoss", _of_rows(2, "positive", "full=True", "eps=1e-3"), of_function("gaussian_nll_loss"))


def draw(d: Draw) -> str:
    n = min(d.extent(), 33)
    x = d.new((n, 8), values="small")
    made(d, f"8, 9, [3, 5]{d.pick('', ', div_value=2.0', ', head_bias=True')}")
    labels = d.new((n,), "i64", "below 9")
    if not n:
        raise NotACell
    return f"layer({x}, {labels}){d.pick('[0]', '[1]')}"


@row("nn.AdaptiveLogSoftmaxWithLoss", draw)
class AdaptiveLogSoftmaxWithLoss(Layer):
    def __init__(
        self,
        features: int,
        classes: int,
        cutoffs: Any,
        div_value: float = 4.0,
        head_bias: bool = False,
        *,
        dtype: Any = F32,
    ) -> None:
        self.cutoffs = [*cutoffs, classes]
        self.head = Linear(features, cutoffs[0] + len(cutoffs), head_bias, dtype=dtype)
        self.tail = []
        for number in range(len(cutoffs)):
            hidden = int(features // div_value ** (number + 1))
            size = self.cutoffs[number + 1] - self.cutoffs[number]
            first = Linear(features, hidden, False, dtype=dtype)
            self.tail.append((first, Linear(hidden, size, False, dtype=dtype)))

    def forward(self, x: Any, target: Any) -> Any:
        head = FUNCTIONS["log_softmax"](self.head(x)).a
        found = np.zeros(len(head), head.dtype)
        for at, label in enumerate(plain(target).a):
            if label < self.cutoffs[0]:
                found[at] = head[at, label]
                continue
            number = next(k for k in range(len(self.tail)) if label < self.cutoffs[k + 1])
            first, second = self.tail[number]
            inner = FUNCTIONS["log_softmax"](second(first(x))).a
            found[at] = head[at, self.cutoffs[0] + number] + inner[at, label - self.cutoffs[number]]
        return Plain(found), Plain(np.asarray(-np.mean(widest_of(found))).astype(found.dtype))
