"""The facts that torch reports about itself, recorded, so that tests compare with it where torch is not installed.

python -m tests.nn.record_torch    writes tests/nn/torch_record.json from the torch at hand

The signatures of layers, losses, optimisers and functions as [name, default] in order ("*" before what is keyword-only), and
how layers print.
"""

from __future__ import annotations

import ast
import inspect
import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "torch_record.json"

# Functions of torch that are written in C++ have no signature to inspect: these are what their documentation says.
DOCUMENTED = {
    "all": "input dim=None keepdim=False",
    "any": "input dim=None keepdim=False",
    "arange": "start end step=1",
    "argmax": "input dim=None keepdim=False",
    "argmin": "input dim=None keepdim=False",
    "broadcast_to": "input shape",
    "clip": "input min=None max=None",
    "concat": "tensors dim=0",
    "conv1d": "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv2d": "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv_transpose2d": "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "avg_pool1d": "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True",
    "avg_pool2d": "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True",
    "adaptive_avg_pool1d": "input output_size",
    "avg_pool3d": "input kernel_size stride=None padding=0 ceil_mode=False count_include_pad=True",
    "bilinear": "input1 input2 weight bias=None",
    "channel_shuffle": "input groups",
    "conv3d": "input weight bias=None stride=1 padding=0 dilation=1 groups=1",
    "conv_transpose1d": "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "conv_transpose3d": "input weight bias=None stride=1 padding=0 output_padding=0 groups=1 dilation=1",
    "cosine_similarity": "x1 x2 dim=1 eps=1e-8",
    "max_pool3d": "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
    "pairwise_distance": "x1 x2 p=2.0 eps=1e-6 keepdim=False",
    "pixel_shuffle": "input upscale_factor",
    "pixel_unshuffle": "input downscale_factor",
    "prelu": "input weight",
    "unflatten": "input dim sizes",
    "count_nonzero": "input dim=None",
    "expand_dims": "input dim",
    "eye": "n m=None",
    "flatten": "input start_dim=0 end_dim=-1",
    "flip": "input dims",
    "full": "size fill_value",
    "full_like": "input fill_value",
    "linspace": "start end steps",
    "logsumexp": "input dim keepdim=False",
    "max": "input dim keepdim=False",
    "max_pool1d": "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
    "max_pool2d": "input kernel_size stride=None padding=0 dilation=1 ceil_mode=False return_indices=False",
    "mean": "input dim=None keepdim=False",
    "min": "input dim keepdim=False",
    "moveaxis": "input source destination",
    "norm": "input p=2 dim=None keepdim=False",
    "one_hot": "input num_classes=-1",
    "outer": "input vec2",
    "gelu": "input approximate=none",
    "prod": "input dim=None keepdim=False",
    "roll": "input shifts dims=None",
    "squeeze": "input dim=None",
    "stack": "tensors dim=0",
    "std": "input dim=None",
    "sum": "input dim=None keepdim=False",
    "swapaxes": "input axis0 axis1",
    "tensordot": "a b dims=2",
    "tile": "input dims",
    "tril": "input diagonal=0",
    "triu": "input diagonal=0",
    "unsqueeze": "input dim",
    "var": "input dim=None",
    "vecdot": "x y",
    "where": "condition input other",
}
DOCUMENTED_LAYERS = {
    "RNN": "input_size hidden_size num_layers=1 nonlinearity=tanh bias=True batch_first=False dropout=0.0 bidirectional=False",
    "LSTM": "input_size hidden_size num_layers=1 bias=True batch_first=False dropout=0.0 bidirectional=False proj_size=0",
    "GRU": "input_size hidden_size num_layers=1 bias=True batch_first=False dropout=0.0 bidirectional=False",
}
FUNCTIONAL = """adaptive_avg_pool2d batch_norm binary_cross_entropy binary_cross_entropy_with_logits
cross_entropy ctc_loss dropout elu group_norm huber_loss instance_norm kl_div l1_loss
layer_norm leaky_relu log_softmax mse_loss nll_loss normalize rms_norm smooth_l1_loss softmax
affine_grid alpha_dropout dropout1d dropout2d dropout3d cosine_embedding_loss feature_alpha_dropout fold
gaussian_nll_loss grid_sample hinge_embedding_loss interpolate local_response_norm lp_pool1d lp_pool2d lp_pool3d
margin_ranking_loss max_unpool1d max_unpool2d max_unpool3d multi_margin_loss multilabel_margin_loss
multilabel_soft_margin_loss poisson_nll_loss rrelu soft_margin_loss triplet_margin_loss
triplet_margin_with_distance_loss unfold adaptive_avg_pool3d""".split()

# How each layer is made to be printed.
PRINTED = {
    "Linear": "6, 7",
    "Linear without bias": "6, 7, bias=False",
    "Conv1d": "4, 6, 3, stride=2",
    "Conv2d": "4, 6, (3, 2), padding=1, dilation=2, groups=2, bias=False",
    "Conv2d same": "4, 6, 3, padding='same'",
    "ConvTranspose2d": "4, 6, 3, 2, 1, 1",
    "BatchNorm1d": "5",
    "BatchNorm2d": "4, eps=1e-3, momentum=None",
    "BatchNorm3d": "4, affine=False",
    "GroupNorm": "2, 4",
    "InstanceNorm1d": "4",
    "InstanceNorm2d": "4, affine=True",
    "InstanceNorm3d": "4",
    "LayerNorm": "6",
    "LayerNorm of two axes": "(5, 6), elementwise_affine=False",
    "RMSNorm": "6",
    "Dropout": "0.25",
    "Embedding": "10, 4",
    "EmbeddingBag": "10, 4",
    "Flatten": "",
    "ReLU": "",
    "Sigmoid": "",
    "Tanh": "",
    "SiLU": "",
    "GELU": "approximate='tanh'",
    "Softmax": "dim=-1",
    "LogSoftmax": "dim=1",
    "LeakyReLU": "0.2",
    "ELU": "0.5",
    "Softplus": "",
    "ReLU6": "",
    "Hardsigmoid": "",
    "Hardswish": "",
    "Mish": "",
    "SELU": "",
    "Softsign": "",
    "Tanhshrink": "",
    "LogSigmoid": "",
    "Hardtanh": "-0.5, 0.25",
    "Hardshrink": "0.25",
    "Softshrink": "0.25",
    "CELU": "0.5",
    "Threshold": "0.25, -1.0",
    "Softmin": "dim=1",
    "GLU": "dim=1",
    "MaxPool1d": "2",
    "MaxPool2d": "3, stride=2, padding=1, ceil_mode=True",
    "AvgPool1d": "2",
    "AvgPool2d": "(3, 2), 2",
    "AdaptiveAvgPool2d": "(None, 3)",
    "AdaptiveMaxPool2d": "1",
    "Identity": "",
    "RNN": "6, 7",
    "LSTM": "6, 7, num_layers=2, batch_first=True, dropout=0.1, bidirectional=True",
    "GRU": "6, 7, bias=False",
    "RNNCell": "6, 7",
    "LSTMCell": "6, 7",
    "GRUCell": "6, 7, bias=False",
    "MSELoss": "",
    "CrossEntropyLoss": "",
    "NLLLoss": "",
    "BCELoss": "",
    "BCEWithLogitsLoss": "",
    "L1Loss": "",
    "SmoothL1Loss": "",
    "HuberLoss": "",
    "KLDivLoss": "",
    "CTCLoss": "",
    "ConstantPad1d": "1, 0.5",
    "ConstantPad2d": "1, 0.5",
    "ConstantPad3d": "1, 0.5",
    "ZeroPad1d": "(2, 1)",
    "ZeroPad2d": "(2, 1, 2, 1)",
    "ZeroPad3d": "2",
    "ReflectionPad1d": "(2, 1)",
    "ReflectionPad2d": "(2, 1, 2, 1)",
    "ReflectionPad3d": "2",
    "ReplicationPad1d": "(2, 1)",
    "ReplicationPad2d": "(2, 1, 2, 1)",
    "ReplicationPad3d": "2",
    "CircularPad1d": "(2, 1)",
    "CircularPad2d": "(2, 1, 2, 1)",
    "CircularPad3d": "2",
    "LPPool1d": "2, 2",
    "MaxUnpool1d": "2, stride=3",
    "Dropout1d": "0.25",
    "AdaptiveAvgPool1d": "1",
    "AdaptiveMaxPool1d": "1",
    "LPPool2d": "2, 2",
    "MaxUnpool2d": "2, stride=3",
    "Dropout2d": "0.25",
    "LPPool3d": "2, 2",
    "MaxUnpool3d": "2, stride=3",
    "Dropout3d": "0.25",
    "AdaptiveAvgPool3d": "1",
    "AdaptiveMaxPool3d": "1",
    "MaxPool3d": "2, padding=1",
    "AvgPool3d": "2",
    "Conv3d": "4, 6, (3, 2, 1), padding=1, groups=2",
    "ConvTranspose1d": "4, 6, 3, 2, 1, 1",
    "ConvTranspose3d": "4, 6, 3, bias=False",
    "FractionalMaxPool2d": "2, 3",
    "FractionalMaxPool3d": "2, 3",
    "PixelShuffle": "2",
    "PixelUnshuffle": "2",
    "ChannelShuffle": "2",
    "Unflatten": "1, (2, 3)",
    "Unfold": "2",
    "Fold": "4, 2",
    "Upsample": "scale_factor=2",
    "Upsample of a size": "(2, 3), mode='bilinear'",
    "UpsamplingNearest2d": "4",
    "UpsamplingBilinear2d": "scale_factor=2",
    "LocalResponseNorm": "3",
    "AlphaDropout": "0.25",
    "FeatureAlphaDropout": "",
    "RReLU": "",
    "PReLU": "3",
    "Bilinear": "2, 3, 4",
    "Softmax2d": "",
    "CosineSimilarity": "",
    "PairwiseDistance": "",
    "MarginRankingLoss": "",
    "HingeEmbeddingLoss": "",
    "CosineEmbeddingLoss": "",
    "TripletMarginLoss": "",
    "TripletMarginWithDistanceLoss": "",
    "MultiMarginLoss": "",
    "MultiLabelMarginLoss": "",
    "MultiLabelSoftMarginLoss": "",
    "SoftMarginLoss": "",
    "PoissonNLLLoss": "",
    "GaussianNLLLoss": "",
    "AdaptiveLogSoftmaxWithLoss": "8, 9, [3, 5]",
}


def network(nn: Any) -> Any:
    """One that has containers in containers, equal neighbours in a list, and a shared module."""
    block = lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU())  # noqa: E731
    return nn.Sequential(
        nn.ModuleList([block(), block(), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 2)]),
        nn.ModuleDict({"first": nn.Identity(), "second": block()}),
        nn.ModuleList(),
    )


def signature(function: Any) -> list[list[Any]]:
    """[name, default] for each parameter but `self`; ["*"] before the first that is keyword-only."""
    found: list[list[Any]] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and ["*"] not in found:
            found.append(["*"])
        required = parameter.default is parameter.empty
        found.append([parameter.name] if required else [parameter.name, plain(parameter.default)])
    return found


def plain(value: Any) -> Any:
    """A default as JSON can hold it."""
    return (
        list(value)
        if isinstance(value, tuple)
        else value
        if isinstance(value, int | float | str | None)
        else str(value)
    )


def documented(text: str) -> list[list[Any]]:
    """The signature that a row of `DOCUMENTED` stands for."""
    words = [word.partition("=") for word in text.split()]
    read = {word: word if word.islower() and word.isalpha() else ast.literal_eval(word) for _, _, word in words if word}
    return [[name, read[value]] if value else [name] for name, _, value in words]


def record() -> dict[str, Any]:
    """All of it."""
    import torch

    found = {f"st.{name}": documented(text) for name, text in DOCUMENTED.items()}
    found |= {f"st.{name}": signature(inspect.unwrap(getattr(torch.nn.functional, name))) for name in FUNCTIONAL}
    for name in dict.fromkeys(row.split()[0] for row in PRINTED):
        layer = getattr(torch.nn, name)
        found[f"nn.{name}"] = (
            documented(DOCUMENTED_LAYERS[name]) if name in DOCUMENTED_LAYERS else signature(layer.__init__)
        )
    for name in ("MultiheadAttention", "TransformerEncoder", "TransformerDecoder"):
        found[f"nn.{name}"] = signature(getattr(torch.nn, name).__init__)
    for name in ("SGD", "Adagrad", "Adam", "AdamW"):
        found[f"optim.{name}"] = signature(getattr(torch.optim, name).__init__)
    found["optim.clip_grad_norm"] = signature(inspect.unwrap(torch.nn.utils.clip_grad_norm_))
    found["optim.clip_grad_value"] = signature(inspect.unwrap(torch.nn.utils.clip_grad_value_))
    for name in ("pack_padded_sequence", "pad_packed_sequence", "pad_sequence", "pack_sequence"):
        found[f"nn.utils.rnn.{name}"] = signature(getattr(torch.nn.utils.rnn, name))
    shown = {
        row: repr(eval(f"nn.{row.split()[0]}({arguments})", {"nn": torch.nn})) for row, arguments in PRINTED.items()
    }
    shown["network"] = repr(network(torch.nn))
    return {"torch": torch.__version__.partition("+")[0], "signatures": found, "printed": shown}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=0, sort_keys=True) + "\n")
