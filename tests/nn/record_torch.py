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
layer_norm leaky_relu log_softmax mse_loss nll_loss normalize rms_norm smooth_l1_loss softmax""".split()

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
    for name in ("SGD", "Adagrad", "Adam", "AdamW"):
        found[f"optim.{name}"] = signature(getattr(torch.optim, name).__init__)
    found["optim.clip_grad_norm"] = signature(inspect.unwrap(torch.nn.utils.clip_grad_norm_))
    found["optim.clip_grad_value"] = signature(inspect.unwrap(torch.nn.utils.clip_grad_value_))
    shown = {
        row: repr(eval(f"nn.{row.split()[0]}({arguments})", {"nn": torch.nn})) for row, arguments in PRINTED.items()
    }
    shown["network"] = repr(network(torch.nn))
    return {"torch": torch.__version__.partition("+")[0], "signatures": found, "printed": shown}


if __name__ == "__main__":
    RECORD.write_text(json.dumps(record(), indent=0, sort_keys=True) + "\n")
