"""The function of `staged` for a record of torch's `op_db`: the one with its name or alias, or a line in `SPELLED`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import staged as st
from staged.ops.array import METHOD_NAMES, METHODS, StagedArray
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
    return np.asarray(parts).tolist() if isinstance(parts, st.Array) and not isinstance(parts, StagedArray) else parts


def _classes(scores: Any) -> int:
    """The axis of torch's classes: the second one, or the only one."""
    return min(1, scores.ndim - 1)


def _ordered(function: Any, x: Any, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    return function(x, axis=dim, descending=descending)


def _own(options: dict[str, Any]) -> dict[str, Any]:
    """The options without torch's device."""
    return {name: value for name, value in options.items() if name != "device"}


def _in_doubles(x: Any) -> Any:
    return st.astype(x, st.c128 if x.dtype.is_complex else st.f64)


def _logdet(x: Any) -> Any:
    sign, log = st.linalg.slogdet(x)
    if sign.dtype.is_complex:
        return st.log(sign) + log
    return st.where(sign < 0, float("nan"), log)


def _unique(
    x: Any, sorted: bool = True, return_inverse: bool = False, return_counts: bool = False, dim: Any = None
) -> Any:
    options = {} if dim is None else {"axis": dim}
    size = np.unique(np.asarray(x)).size
    return st.unique(x, return_inverse=return_inverse, return_counts=return_counts, size=size, **options)


def _places(x: Any, size: int, as_tuple: bool = False, fill_value: int = 0) -> Any:
    found = st.nonzero(x, size=size, fill_value=fill_value)
    return found if as_tuple else st.stack(found, 1)


def _selected(x: Any, mask: Any) -> Any:
    size = np.count_nonzero(np.broadcast_to(np.asarray(mask), np.broadcast_shapes(x.shape, mask.shape)))
    return st.masked_select(x, mask, size=int(size))


def _histogram(x: Any, bins: Any, range: Any = None, weight: Any = None, density: bool = False) -> Any:
    counts, edges = st.histogram(x, bins, range, weight)
    counts = st.astype(counts, x.dtype)
    if density:
        counts = counts / (st.sum(counts) * st.diff(edges))
    return counts, edges


def _quantile(name: str) -> Callable[..., Any]:
    def call(x: Any, q: Any, *args: Any, interpolation: str = "linear", **options: Any) -> Any:
        return getattr(st, name)(x, _known(q), *args, method=interpolation, **options)

    return call


def _to(x: Any, *args: Any, **options: Any) -> Any:
    """Devices, and whether to wait for them, are left out."""
    dtypes = [one for one in (*args, *options.values()) if isinstance(one, str) and st.dtype_of(one) is not None]
    dtypes += [one.dtype for one in args if isinstance(one, st.Array)]
    return st.astype(x, dtypes[0]) if dtypes else x


def _distance(options: dict[str, Any]) -> dict[str, Any]:
    """torch's module of distances as our function."""
    return {**options, "distance_function": st.pairwise_distance}


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
    "H": lambda x: st.conj(st.matrix_transpose(x)),
    "mT": lambda x: st.matrix_transpose(x),
    "mH": lambda x: st.conj(st.matrix_transpose(x)),
    "broadcast_tensors": lambda *arrays: st.broadcast_arrays(*arrays),
    "cdist": lambda x, y, p=2.0, compute_mode=None: st.cdist(x, y, p),
    "dist": lambda x, y, p=2: st.norm(x - y, p),
    "item": lambda x: st.asarray(x.item(), dtype=x.dtype),
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
    "nn.functional.cross_entropy": lambda x, *args, **options: st.cross_entropy(x, *args, axis=_classes(x), **options),
    "nn.functional.nll_loss": lambda x, *args, **options: st.nll_loss(x, *args, axis=_classes(x), **options),
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
    "unique": _unique,
    "nonzero": lambda x, as_tuple=False: _places(x, int(np.count_nonzero(np.asarray(x))), as_tuple),
    "nonzero_static": lambda x, size, fill_value=-1: _places(x, size, fill_value=fill_value),
    "argwhere": lambda x: _places(x, int(np.count_nonzero(np.asarray(x)))),
    "masked_select": _selected,
    "histogram": _histogram,
    "quantile": _quantile("quantile"),
    "nanquantile": _quantile("nanquantile"),
    "einsum": lambda arrays, subscripts: st.einsum(subscripts, *arrays),
    "linalg.lu": lambda a, pivot=True: st.linalg.lu(a, **({} if pivot else {"pivot": False})),
    "linalg.lu_factor": lambda a, pivot=True: st.linalg.lu_factor(a, **({} if pivot else {"pivot": False})),
    "linalg.pinv.hermitian": None,  # of one triangle
    "linalg.pinv.singular": lambda a, b: st.linalg.pinv(a @ st.matrix_transpose(b)),
    "norm.nuc": lambda x, p, dim=None, keepdim=False: st.linalg.matrix_norm(x, p, keepdims=keepdim),
    "to": _to,
    "nn.functional.triplet_margin_with_distance_loss": (
        lambda a, b, c, **options: st.triplet_margin_with_distance_loss(a, b, c, **_distance(options))
    ),
    "take_along_dim": lambda x, index, dim=None: (
        st.take_along_axis(st.reshape(x, (-1,)), st.reshape(index, (-1,)), 0)
        if dim is None
        else st.take_along_axis(x, index, dim)
    ),
    "constant_pad_nd": lambda x, pad, value=0: st.pad(x, pad=pad, value=value),
    "nn.functional.upsample_nearest": lambda x, size=None, scale_factor=None: st.interpolate(x, size, scale_factor),
    "nn.functional.upsample_bilinear": (
        lambda x, size=None, scale_factor=None: st.interpolate(x, size, scale_factor, "bilinear", align_corners=True)
    ),
    "float_power": lambda x, y: _in_doubles(x) ** (_in_doubles(y) if isinstance(y, st.Array) else y),
    "isposinf": lambda x: x == float("inf"),
    "isneginf": lambda x: x == -float("inf"),
    "__getitem__": lambda x, index: x[index],
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
    if name in st.library.__all__:
        return getattr(st, name)
    if name in METHOD_NAMES:
        return METHODS[METHOD_NAMES[name]]
    return getattr(st.linalg, name) if name in st.linalg.__all__ else None
