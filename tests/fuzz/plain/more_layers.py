"""Readings of the layers that pad, fold, pool, resize and drop channels, and of the losses with margins."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.fuzz.plain.core import FUNCTIONS, Plain, Variable, plain, widest_of
from tests.fuzz.plain.elementwise import dtype_of

F32 = np.dtype(np.float32)


def more_layers(layer: Any, of_function: Any, parameter: Any, convolution: Any, linear: Any) -> dict[str, Any]:
    """The classes by name, over the base and the makers of the other layers."""

    def trained(function: str, *names: str, **renamed: str) -> Any:
        """A layer of a function that knows whether it is trained."""

        class Made(of_function(function, *names, **renamed)):  # type: ignore[misc]
            def forward(self, *inputs: Any) -> Any:
                return FUNCTIONS[function](*inputs, training=self.training, **self.given)

        return Made

    def padding(kind: str, rank: int) -> Any:
        mode = {"Constant": "constant", "Zero": "constant", "Reflection": "reflect"}.get(
            kind, "edge" if kind == "Replication" else "wrap"
        )

        class Made(layer):  # type: ignore[misc]
            def __init__(self, padding: Any, value: float = 0.0) -> None:
                self.widths = padding if isinstance(padding, tuple) else (padding,) * (2 * rank)
                self.value = value

            def forward(self, x: Any) -> Any:
                array = plain(x).a
                pairs = [(self.widths[2 * a], self.widths[2 * a + 1]) for a in range(rank)][::-1]
                edges = [(0, 0)] * (array.ndim - rank) + pairs
                options = {"constant_values": self.value} if mode == "constant" else {}
                return Plain(np.pad(array, edges, mode=mode, **options))  # type: ignore[call-overload]

        return Made

    class PReLU(layer):  # type: ignore[misc]
        def __init__(self, num_parameters: int = 1, init: float = 0.25, *, dtype: Any = F32) -> None:
            self.weight = Variable(Plain(np.full((num_parameters,), init, dtype_of(dtype))))

        def forward(self, x: Any) -> Any:
            return FUNCTIONS["prelu"](x, self.weight.value)

    class Bilinear(layer):  # type: ignore[misc]
        def __init__(self, one: int, two: int, outputs: int, bias: bool = True, *, dtype: Any = F32) -> None:
            self.weight = parameter((outputs, one, two), one, dtype)
            self.bias = parameter((outputs,), one, dtype) if bias else None

        def forward(self, a: Any, b: Any) -> Any:
            return FUNCTIONS["bilinear"](a, b, self.weight.value, None if self.bias is None else self.bias.value)

    class Softmax2d(layer):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            return FUNCTIONS["softmax"](x, axis=-3)

    class AdaptiveLogSoftmaxWithLoss(layer):  # type: ignore[misc]
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
            self.head = linear(features, cutoffs[0] + len(cutoffs), head_bias, dtype=dtype)
            self.tail = []
            for number in range(len(cutoffs)):
                hidden = int(features // div_value ** (number + 1))
                size = self.cutoffs[number + 1] - self.cutoffs[number]
                first = linear(features, hidden, False, dtype=dtype)
                self.tail.append((first, linear(hidden, size, False, dtype=dtype)))

        def forward(self, x: Any, target: Any) -> Any:
            head = FUNCTIONS["log_softmax"](self.head(x)).a
            found = np.zeros(len(head), head.dtype)
            for row, label in enumerate(plain(target).a):
                if label < self.cutoffs[0]:
                    found[row] = head[row, label]
                    continue
                number = next(k for k in range(len(self.tail)) if label < self.cutoffs[k + 1])
                first, second = self.tail[number]
                inner = FUNCTIONS["log_softmax"](second(first(x))).a
                found[row] = head[row, self.cutoffs[0] + number] + inner[row, label - self.cutoffs[number]]
            return Plain(found), Plain(np.asarray(-np.mean(widest_of(found))).astype(found.dtype))

    found: dict[str, Any] = {
        f"{kind}Pad{rank}d": padding(kind, rank)
        for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")
        for rank in (1, 2, 3)
    }
    pools = ("kernel_size", "stride", "padding")
    for rank in (1, 2, 3):
        found |= {
            f"LPPool{rank}d": of_function(f"lp_pool{rank}d", "norm_type", "kernel_size", "stride", "ceil_mode"),
            f"AdaptiveAvgPool{rank}d": of_function(f"adaptive_avg_pool{rank}d", "output_size"),
            f"AdaptiveMaxPool{rank}d": of_function(f"adaptive_max_pool{rank}d", "output_size", "return_indices"),
            f"MaxUnpool{rank}d": of_function(f"max_unpool{rank}d", *pools),
            f"Dropout{rank}d": trained(f"dropout{rank}d", "p"),
            f"FractionalMaxPool{rank}d": of_function(f"fractional_max_pool{rank}d", "kernel_size", "output_size"),
        }
    windows = ("kernel_size", "dilation", "padding", "stride")
    found |= {
        "MaxPool3d": of_function("max_pool3d", *pools),
        "AvgPool3d": of_function("avg_pool3d", *pools, "ceil_mode"),
        "Conv3d": convolution("conv3d", 3),
        "ConvTranspose1d": convolution("conv_transpose1d", 1, True),
        "ConvTranspose3d": convolution("conv_transpose3d", 3, True),
        "PixelShuffle": of_function("pixel_shuffle", "upscale_factor"),
        "PixelUnshuffle": of_function("pixel_unshuffle", "downscale_factor"),
        "ChannelShuffle": of_function("channel_shuffle", "groups"),
        "Unflatten": of_function("unflatten", "dim", "sizes"),
        "Unfold": of_function("unfold", *windows),
        "Fold": of_function("fold", "output_size", *windows),
        "Upsample": of_function("interpolate", "size", "scale_factor", "mode"),
        "UpsamplingNearest2d": of_function("interpolate", "size", "scale_factor"),
        "LocalResponseNorm": of_function("local_response_norm", "size", "alpha", "beta", "k"),
        "AlphaDropout": trained("alpha_dropout", "p"),
        "FeatureAlphaDropout": trained("feature_alpha_dropout", "p"),
        "RReLU": trained("rrelu", "lower", "upper"),
        "CosineSimilarity": of_function("cosine_similarity", "dim", "eps", dim="axis"),
        "PairwiseDistance": of_function("pairwise_distance", "p", "eps", "keepdim", keepdim="keepdims"),
        "MarginRankingLoss": of_function("margin_ranking_loss", "margin"),
        "HingeEmbeddingLoss": of_function("hinge_embedding_loss", "margin"),
        "CosineEmbeddingLoss": of_function("cosine_embedding_loss", "margin"),
        "TripletMarginLoss": of_function("triplet_margin_loss", "margin", "p", "eps", "swap"),
        "TripletMarginWithDistanceLoss": of_function("triplet_margin_with_distance_loss"),
        "MultiMarginLoss": of_function("multi_margin_loss", "p", "margin", "weight"),
        "MultiLabelMarginLoss": of_function("multilabel_margin_loss"),
        "MultiLabelSoftMarginLoss": of_function("multilabel_soft_margin_loss", "weight"),
        "SoftMarginLoss": of_function("soft_margin_loss"),
        "PoissonNLLLoss": of_function("poisson_nll_loss", "log_input", "full"),
        "GaussianNLLLoss": of_function("gaussian_nll_loss"),
        "PReLU": PReLU,
        "Bilinear": Bilinear,
        "Softmax2d": Softmax2d,
        "AdaptiveLogSoftmaxWithLoss": AdaptiveLogSoftmaxWithLoss,
        "ParameterList": list,
        "ParameterDict": dict,
    }

    class UpsamplingBilinear2d(layer):  # type: ignore[misc]
        def __init__(self, size: Any = None, scale_factor: Any = None) -> None:
            self.given = size, scale_factor

        def forward(self, x: Any) -> Any:
            return FUNCTIONS["interpolate"](x, *self.given, mode="bilinear", align_corners=True)

    found["UpsamplingBilinear2d"] = UpsamplingBilinear2d
    return found

