"""PyTorch's reading of a call, in f64: its gradient is held against ours. Of the functions that it has under a like meaning."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

from tests.fuzz import plain
from tests.fuzz.cells.piece import Piece, wide


def is_available() -> bool:
    """Return whether PyTorch is installed. Asked anew for each piece: `tests/noted.py` sees which test asks."""
    return importlib.util.find_spec("torch") is not None


def gradients(piece: Piece) -> list[Any]:
    """PyTorch's gradients of the piece's value by its operands; none where it has no such functions."""
    import torch

    if ".std(" in piece.value.replace("st.std(", "") or ".var(" in piece.value.replace("st.var(", ""):
        return []  # methods of tensors, with another correction
    names: dict[str, Any] = {"st": _namespace(), "np": np}
    exec(piece.module(piece.value), names)
    given = {
        name: torch.tensor(wide(array) if plain.kind_of(array.dtype) in "fc" else _signed(array))
        for name, array in piece.arrays.items()
    }
    for name in piece.by:
        given[name].requires_grad_()
    try:
        value = names["piece"](*given.values())
        if not value.requires_grad:
            return []
        found = torch.autograd.grad(value, [given[name] for name in piece.by], allow_unused=True)
    except (AttributeError, TypeError, RuntimeError, IndexError, ValueError, NotImplementedError):
        return []  # another form of call, or a function that PyTorch has not
    return [None if gradient is None else gradient.resolve_conj().numpy() for gradient in found]


def _signed(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return array.astype(np.int64) if array.dtype.kind in "ui" else array


def _reduced(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Any, axis: Any = None, keepdims: bool = False, **rest: Any) -> Any:
        axes = tuple(range(x.ndim)) if axis is None else axis
        return function(x, dim=axes, keepdim=keepdims, **rest)

    return run


def _spread(name: str) -> Callable[..., Any]:
    import torch

    return _reduced(lambda x, dim, keepdim, correction=0: getattr(torch, name)(x, dim=dim, correction=correction, keepdim=keepdim))


def _losses(name: str, **renamed: str) -> Callable[..., Any]:
    import torch.nn.functional as functional

    return lambda *args, **kwargs: getattr(functional, name)(*args, **{renamed.get(key, key): v for key, v in kwargs.items()})


def _of_labels(name: str) -> Callable[..., Any]:
    function = _losses(name)

    def run(x: Any, labels: Any, **kwargs: Any) -> Any:
        kwargs.setdefault("ignore_index", -100)
        return function(x.movedim(kwargs.pop("axis", -1), 1), labels.long(), **kwargs)

    return run


def _namespace() -> SimpleNamespace:
    import torch
    import torch.nn.functional as functional

    same = (
        "exp expm1 log log1p log2 log10 sqrt rsqrt sin cos tan asin acos atan sinh cosh tanh erf erfc negative square abs sign "
        "add subtract multiply divide maximum minimum atan2 pow where sigmoid relu matmul outer tensordot reshape flatten "
        "permute unsqueeze swapaxes moveaxis flip tril triu broadcast_to sum mean real imag conj"
    ).split()
    functional_ones = "elu softplus silu gelu leaky_relu mse_loss l1_loss huber_loss smooth_l1_loss kl_div".split()
    functions: dict[str, Any] = {name: getattr(torch, name) for name in same}
    functions |= {name: getattr(functional, name) for name in functional_ones}
    functions |= {
        "sum": _reduced(torch.sum),
        "mean": _reduced(torch.mean),
        "max": _reduced(torch.amax),
        "min": _reduced(torch.amin),
        "var": _spread("var"),
        "std": _spread("std"),
        "log_sigmoid": functional.logsigmoid,
        "clip": lambda x, min=None, max=None: torch.clamp(x, min, max),
        "softmax": lambda x, axis=-1: torch.softmax(x, axis),
        "log_softmax": lambda x, axis=-1: torch.log_softmax(x, axis),
        "logsumexp": _reduced(torch.logsumexp),
        "cross_entropy": _of_labels("cross_entropy"),
        "nll_loss": _of_labels("nll_loss"),
        "binary_cross_entropy": functional.binary_cross_entropy,
        "binary_cross_entropy_with_logits": functional.binary_cross_entropy_with_logits,
        "norm": lambda x, axis=None, keepdims=False, ord=2: torch.linalg.vector_norm(x, ord, axis, keepdims),
        "normalize": lambda x, axis=-1, eps=1e-12: functional.normalize(x, dim=axis, eps=eps),
        "vecdot": lambda a, b, axis=-1: torch.linalg.vecdot(a, b, dim=axis),
        "concat": lambda arrays, axis=0: torch.cat(arrays, axis),
        "stack": lambda arrays, axis=0: torch.stack(arrays, axis),
        "expand_dims": lambda x, axis=0: torch.unsqueeze(x, axis),
        "roll": lambda x, shift, axis=None: torch.roll(x, shift, axis),
        "permute_dims": lambda x, *axes: torch.permute(x, axes[0] if isinstance(axes[0], tuple) else axes),
        "conv1d": functional.conv1d,
        "conv2d": functional.conv2d,
        "conv_transpose2d": functional.conv_transpose2d,
        "checkpoint": lambda function: function,
    }
    for rank in ("1d", "2d"):
        for kind in ("max", "avg"):
            functions[f"{kind}_pool{rank}"] = getattr(functional, f"{kind}_pool{rank}")
    return SimpleNamespace(**functions)
