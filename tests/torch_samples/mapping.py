"""The function of `staged` for a record of torch's `op_db`: the one with its name or alias, or a line in `SPELLED`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from staged.ops.array import METHOD_NAMES, METHODS
from staged.ops.torch_words import METHOD_WORDS

PREFIXES = ("nn.functional.", "special.", "linalg.", "")
"""The modules of torch whose functions are in `st` itself; those of `linalg` are in `st.linalg` too."""


def _spread(name: str) -> Callable[..., Any]:
    """torch's `var` and `std`: over n - 1 unless told, and a bool in the second place is `unbiased`."""

    def call(x: Any, *args: Any, **options: Any) -> Any:
        if args and isinstance(args[0], bool):
            options["unbiased"], args = args[0], args[1:]
        if len(args) > 1:
            options["unbiased"] = args[1]
        if len(args) > 2:
            options["keepdims"] = args[2]
        if "unbiased" in options:
            options["correction"] = 1 if options.pop("unbiased") else 0
        options.setdefault("correction", 1)
        if options["correction"] is None:
            options["correction"] = 1
        axis = args[0] if args else options.pop("dim", None)
        keepdims = options.pop("keepdim", options.pop("keepdims", False))
        return getattr(st, name)(x, axis or None if isinstance(axis, list | tuple) else axis, keepdims=keepdims, **options)

    return call


def _batch_norm(x: Any, mean: Any, var: Any, weight: Any = None, bias: Any = None, **options: Any) -> Any:
    options = {key: value for key, value in options.items() if key in ("training", "momentum", "eps")}
    eps = options.get("eps", 1e-5)
    if options.get("training"):
        return st.batch_norm_training(x, weight, bias, eps=eps)[0]
    return st.batch_norm(x, mean, var, weight, bias, eps=eps)


def _known(parts: Any) -> Any:
    """Places of cuts as Python numbers: the shapes of a program follow from them."""
    return np.asarray(parts).tolist() if isinstance(parts, st.Array) else parts


def _ordered(function: Any, x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return function(x, axis=dim, descending=descending)


def _own(options: dict[str, Any]) -> dict[str, Any]:
    """The options without torch's device."""
    return {name: value for name, value in options.items() if name != "device"}


def _logdet(x: Any) -> Any:
    sign, log = st.linalg.slogdet(x)
    return st.where(sign < 0, float("nan"), log)


SPELLED: dict[str, Callable[..., Any] | None] = {
    "var": _spread("var"),
    "std": _spread("std"),
    "var_mean": _spread("var_mean"),
    "std_mean": _spread("std_mean"),
    "__radd__": lambda x, y: y + x,
    "__rsub__": lambda x, y: y - x,
    "__rmul__": lambda x, y: y * x,
    "__rdiv__": lambda x, y: y / x,
    "__rmod__": lambda x, y: y % x,
    "__rpow__": lambda x, y: y**x,
    "__rmatmul__": lambda x, y: y @ x,
    "rsub": lambda x, y, alpha=1: y - x * alpha,
    "T": lambda x: st.permute_dims(x, tuple(reversed(range(x.ndim)))),
    "H": lambda x: st.matrix_transpose(x),
    "mT": lambda x: st.matrix_transpose(x),
    "mH": lambda x: st.matrix_transpose(x),
    "broadcast_tensors": lambda *arrays: st.broadcast_arrays(*arrays),
    "dist": lambda x, y, p=2: st.norm(x - y, p),
    "fill": lambda x, value: st.full_like(x, value),
    "gather": lambda x, dim, index: st.take_along_axis(x, index, dim),
    "new_zeros": lambda x, shape, **options: st.zeros(shape, **{"dtype": x.dtype, **options}),
    "new_ones": lambda x, shape, **options: st.ones(shape, **{"dtype": x.dtype, **options}),
    "new_full": lambda x, shape, value, **options: st.full(shape, value, **{"dtype": x.dtype, **options}),
    "sort": lambda x, *args, **options: (_ordered(st.sort, x, *args, **options), _ordered(st.argsort, x, *args, **options)),
    "argsort": lambda x, *args, **options: _ordered(st.argsort, x, *args, **options),
    "logdet": lambda x: _logdet(x),
    "pinverse": lambda x, rcond=1e-15: st.linalg.pinv(x, rcond),
    "nn.functional.linear": lambda x, w, b=None: x @ w.T if b is None else x @ w.T + b,
    "nn.functional.logsigmoid": lambda x: st.log_sigmoid(x),
    "split_with_sizes": lambda x, sizes, dim=0: x.split(sizes, dim),
    "unsafe_split": lambda x, sizes, dim=0: x.split(sizes, dim),
    "unsafe_chunk": lambda x, chunks, dim=0: x.chunk(chunks, dim),
    "hsplit": lambda x, parts: st.tensor_split(x, parts, 0 if x.ndim == 1 else 1),
    "vsplit": lambda x, parts: st.tensor_split(x, parts, 0),
    "dsplit": lambda x, parts: st.tensor_split(x, parts, 2),
    "sgn": lambda x: st.sign(x),
    "equal": lambda a, b: st.array_equal(a, b),
    "logspace": lambda start, end, steps, base=10.0, **options: st.logspace(start, end, steps, base=base, **_own(options)),
    "nn.functional.pad": lambda x, pad, mode="constant", value=None: st.pad(x, pad=pad, mode=mode, value=value),
    "polygamma": lambda x, n: st.polygamma(n, x),
    "special.polygamma": lambda x, n: st.polygamma(n, x),
    "unfold": None,  # the tensors' method; ours is that of nn.functional
    "unfold_copy": None,
    "svd": None,  # torch's old function, which has another meaning
    "linalg.lstsq.grad_oriented": lambda a, b, driver=None: st.linalg.lstsq(a, b)[:2],
    "max.binary": lambda a, b: st.maximum(a, b),
    "min.binary": lambda a, b: st.minimum(a, b),
    "max.reduction_with_dim": lambda x, dim, keepdim=False: st.max(x, dim=dim, keepdim=keepdim),
    "min.reduction_with_dim": lambda x, dim, keepdim=False: st.min(x, dim=dim, keepdim=keepdim),
    "lu": None,  # torch's old function, which has another meaning
    "nn.functional.batch_norm": _batch_norm,
    "linalg.lstsq": lambda a, b, driver=None: st.linalg.lstsq(a, b),
    "tensor_split": lambda x, parts, dim=0: st.tensor_split(x, _known(parts), dim),
    "cat": lambda tensors, dim=0: st.concat(tensors, dim),
    "nn.functional.embedding": None,
    "nn.functional.embedding_bag": lambda weight, x, **options: st.embedding_bag(x, weight, **options),
    "repeat": lambda x, *counts: st.tile(x, counts[0] if len(counts) == 1 and not isinstance(counts[0], int) else counts),
}
"""Functions that are ours in other words: another name, another order of arguments, a default that torch has otherwise."""


def ours(record: Any) -> Callable[..., Any] | None:
    """Our function for a record; None where there is none."""
    if f"{record.name}.{record.variant_test_name}" in SPELLED:
        return SPELLED[f"{record.name}.{record.variant_test_name}"]
    for name in [record.name, *(alias.name for alias in record.aliases)]:
        if name in SPELLED:
            return SPELLED[name]
    names = [record.name, *(alias.name for alias in record.aliases)]
    names += [name.removesuffix("_copy") for name in names if name.endswith("_copy")]  # a copy is no other value
    for name in names:
        for prefix in PREFIXES:
            if name.startswith(prefix):
                found = _named(name.removeprefix(prefix), prefix)
                if found is not None:
                    return found
    return None


def _named(name: str, prefix: str) -> Callable[..., Any] | None:
    if "." in name:
        return None
    if prefix == "linalg." and name in st.linalg.__all__:
        return getattr(st.linalg, name)
    if name in METHOD_WORDS:
        method = METHOD_WORDS[name]
        return lambda *args, memory_format=None, **options: method(*args, **options)
    if name in st.ops.__all__:
        return getattr(st, name)
    if name in METHOD_NAMES:
        return METHODS[METHOD_NAMES[name]]
    return getattr(st.linalg, name) if name in st.linalg.__all__ else None
