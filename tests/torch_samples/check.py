"""One sample of torch's on our function: value, vjp and jvp in eager mode, each against torch's. `compiled.py` has programs."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.autograd import forward_ad

import staged as st

DTYPES = (torch.float32, torch.float64)
COMPLEX = (torch.complex64, torch.complex128)
TOLERANCE = {torch.float32: 2e-4, torch.float64: 1e-7, torch.complex64: 2e-4, torch.complex128: 1e-7}
"""The largest difference, relative to the largest element of the array, or to 1."""


class Failure(NamedTuple):
    """The fault of a sample: `what` is call, value, vjp or jvp."""

    what: str
    why: str

    def __str__(self) -> str:
        return f"{self.what}: {self.why}"


def samples(record: Any, dtype: Any) -> list[Any]:
    """The samples that torch generates for a record, the same ones in every run."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)
    differentiable = record.supports_autograd and dtype in record.supported_backward_dtypes("cpu")
    return list(record.sample_inputs("cpu", dtype, requires_grad=differentiable))


def arguments(sample: Any) -> tuple[list[Any], dict[str, Any]]:
    """The positional and named arguments of a sample."""
    return [sample.input, *sample.args], dict(sample.kwargs)


def tensors(tree: Any) -> Iterator[Any]:
    """The tensors of a tree of lists, tuples and dicts, in order."""
    if isinstance(tree, torch.Tensor):
        yield tree
    elif isinstance(tree, list | tuple):
        for item in tree:
            yield from tensors(item)
    elif isinstance(tree, dict):
        for item in tree.values():
            yield from tensors(item)


def converted(tree: Any, leaf: Callable[[Any], Any]) -> Any:
    """The tree as our functions take it, with `leaf(tensor)` for each tensor."""
    if isinstance(tree, torch.Tensor):
        return leaf(tree)
    if isinstance(tree, torch.Size):
        return tuple(tree)
    if isinstance(tree, list | tuple):
        items = [converted(item, leaf) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    if isinstance(tree, dict):
        return {key: converted(item, leaf) for key, item in tree.items()}
    if isinstance(tree, torch.dtype):
        return str(tree).removeprefix("torch.")
    return tree


def array_of(tensor: Any) -> np.ndarray:
    """The elements of a tensor."""
    if tensor._is_zerotensor():
        tensor = torch.zeros(tensor.shape, dtype=tensor.dtype)
    if tensor.dtype == torch.bfloat16:
        return tensor.detach().view(torch.int16).numpy().copy().view(st.bfloat16.numpy)
    return tensor.detach().resolve_conj().resolve_neg().numpy().copy()


def results(tree: Any) -> list[Any]:
    """The arrays that one of our functions returned, in order."""
    if isinstance(tree, list | tuple):
        return [leaf for item in tree for leaf in results(item)]
    return [tree]


def difference(found: Any, expected: Any, dtype: Any) -> str:
    """The difference of two arrays in words; empty where there is none."""
    found, expected = np.asarray(found), np.asarray(expected)
    if found.shape != expected.shape:
        return f"shape {found.shape} instead of {expected.shape}"
    if found.dtype != expected.dtype:
        return f"dtype {found.dtype} instead of {expected.dtype}"
    if found.dtype.kind not in "fc":
        return "" if np.array_equal(found, expected) else f"other elements, {found.ravel()[:4]} instead of {expected.ravel()[:4]}"
    if not np.array_equal(np.isfinite(found), np.isfinite(expected)):
        return "other infinities or NaNs"
    finite = np.isfinite(expected)
    if not np.array_equal(found[~finite], expected[~finite], equal_nan=True):
        return "other infinities or NaNs"
    scale = max(1.0, float(np.abs(expected[finite]).max(initial=0.0)))
    error = float(np.abs(found[finite] - expected[finite]).max(initial=0.0)) / scale
    return "" if error <= TOLERANCE[dtype] else f"differs by {error:.1e}"


def compare(what: str, found: list[Any], expected: list[Any], dtype: Any) -> Failure | None:
    """The first difference of two lists of arrays."""
    if len(found) != len(expected):
        return Failure(what, f"{len(found)} results instead of {len(expected)}")
    for one, other in zip(found, expected, strict=True):
        why = difference(one, other, dtype)
        if why:
            return Failure(what, why)
    return None


def says(error: BaseException) -> str:
    """The first line of an error."""
    return f"{type(error).__name__}: {str(error).splitlines()[0] if str(error) else ''}"


class Expected(NamedTuple):
    """The results of a sample by torch: and the derivatives of those in `chosen` by the `leaves`."""

    values: list[Any]
    leaves: list[Any]
    chosen: list[int]
    cotangents: list[np.ndarray]
    d_leaves: list[np.ndarray]
    """The gradients of the leaves; empty where there are none."""
    tangents: list[np.ndarray]
    d_values: list[np.ndarray] | None
    """The tangents of the chosen results; None where torch has no forward mode."""


def by_torch(record: Any, sample: Any, dtype: Any, values: bool) -> Expected:
    """torch's results of a sample, and their derivatives if `values` count."""
    args, kwargs = arguments(sample)
    made = record.op(*args, **kwargs)
    if isinstance(made, bool | int | float | complex):
        made = torch.tensor(made, dtype=None if isinstance(made, bool) else dtype)
    expected = list(tensors(made))
    leaves = [tensor for tensor in tensors([args, kwargs]) if tensor.requires_grad]
    chosen = [index for index, tensor in enumerate(expected) if tensor.requires_grad] if leaves and values else []
    arrays = [array_of(tensor) for tensor in expected]
    if not chosen:
        return Expected(arrays, leaves, [], [], [], [], None)
    outputs = [expected[index] for index in chosen]
    generator = torch.Generator().manual_seed(1)
    cotangents = [torch.randn(y.shape, dtype=y.dtype, generator=generator) for y in outputs]
    tangents = [torch.randn(x.shape, dtype=x.dtype, generator=generator) for x in leaves]
    try:
        found = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    except RuntimeError as error:
        if "ill-defined" not in str(error):
            raise
        return Expected(arrays, leaves, [], [], [], [], None)  # torch refuses: cotangents reach the phases of vectors
    d_leaves = [np.zeros_like(array_of(x)) if d is None else array_of(d) for d, x in zip(found, leaves, strict=True)]
    d_values = tangents_of(record, sample, leaves, tangents, chosen)
    return Expected(
        arrays, leaves, chosen, list(map(array_of, cotangents)), d_leaves, list(map(array_of, tangents)), d_values
    )


def alike(found: list[Any], expected: list[Any]) -> bool:
    """Return whether arrays have the same shapes and dtypes."""
    return [(np.asarray(a).shape, np.asarray(a).dtype) for a in found] == [(b.shape, b.dtype) for b in expected]


def check(record: Any, sample: Any, function: Callable[..., Any], dtype: Any, values: bool = True) -> Failure | None:
    """Run one sample; None where all agrees. Without `values` only shapes and dtypes are compared."""
    return in_eager_mode(by_torch(record, sample, dtype, values), sample, function, dtype, values)


def in_eager_mode(
    expected: Expected, sample: Any, function: Callable[..., Any], dtype: Any, values: bool = True
) -> Failure | None:
    """The first difference of our function in eager mode from what torch made."""
    leaves, primals = expected.leaves, [array_of(leaf) for leaf in expected.leaves]
    chosen: list[int] = []

    def run(*given: Any) -> list[Any]:
        handles = {id(leaf): handle for leaf, handle in zip(leaves, given, strict=True)}
        ours = [
            converted(tree, lambda tensor: handles[id(tensor)] if id(tensor) in handles else st.asarray(array_of(tensor)))
            for tree in arguments(sample)
        ]
        made = results(function(*ours[0], **ours[1]))
        return [made[index] for index in chosen] if chosen else made

    with st.eager() as context:
        try:
            found = run(*map(st.asarray, primals))
        except Exception as error:  # any refusal or fault is the failure that is reported
            return Failure("call", says(error))
        if not values:
            return None if alike(found, expected.values) else Failure("value", "other shapes or dtypes")
        failure = compare("value", found, expected.values, dtype)
        chosen = expected.chosen
        if failure is not None or not chosen:
            return failure
        try:
            _, pullback = context.vjp(run, primals)
            d_leaves = pullback([st.asarray(ct) for ct in expected.cotangents])
        except Exception as error:
            return Failure("vjp", says(error))
        failure = compare("vjp", list(d_leaves), expected.d_leaves, dtype)
        if failure is not None or expected.d_values is None:
            return failure
        try:
            _, d_values = context.jvp(run, primals, expected.tangents)
        except Exception as error:
            return Failure("jvp", says(error))
        return compare("jvp", list(d_values), expected.d_values, dtype)


def tangents_of(record: Any, sample: Any, leaves: list[Any], tangents: list[Any], chosen: list[int]) -> list[np.ndarray] | None:
    """The directional derivative of the chosen results by torch, in forward mode or else by reverse mode twice; None if neither."""
    args, kwargs = arguments(sample)
    if record.supports_forward_ad:
        with forward_ad.dual_level():
            duals = {
                id(leaf): forward_ad.make_dual(leaf.detach(), tangent)
                for leaf, tangent in zip(leaves, tangents, strict=True)
            }
            given = [_replaced(tree, duals) for tree in (args, kwargs)]
            outputs = list(tensors(record.op(*given[0], **given[1])))
            made = [forward_ad.unpack_dual(outputs[index]) for index in chosen]
            return [np.zeros_like(array_of(y.primal)) if y.tangent is None else array_of(y.tangent) for y in made]
    return None


def _replaced(tree: Any, duals: dict[int, Any]) -> Any:
    if isinstance(tree, torch.Tensor):
        return duals.get(id(tree), tree)
    if isinstance(tree, list | tuple) and not isinstance(tree, torch.Size):
        items = [_replaced(item, duals) for item in tree]
        return items if isinstance(tree, list) else tuple(items)
    if isinstance(tree, dict):
        return {key: _replaced(item, duals) for key, item in tree.items()}
    return tree
