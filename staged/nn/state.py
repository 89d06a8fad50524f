"""Load saved state: values of any library, all of them checked before the first is written."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

import staged as st
from staged.errors import article


class MatchedKeys(NamedTuple):
    """The result of `load_state_dict`: names that did not match. Both lists are empty if all did."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return f"MatchedKeys(missing_keys={self.missing_keys}, unexpected_keys={self.unexpected_keys})"


def load(owner: str, variables: Mapping[str, Any], state: Mapping[str, Any], strict: bool) -> MatchedKeys:
    """Write `state[name]` to the Variable of each name: all of them, or none if one does not fit."""
    if not isinstance(state, Mapping):
        raise st.DTypeError(
            f"{owner}: a state_dict is a dict of arrays by name, got {type(state).__name__}", where=st.here()
        )
    keys = MatchedKeys(sorted(variables.keys() - state.keys()), sorted(state.keys() - variables.keys()))
    if strict and (keys.missing_keys or keys.unexpected_keys):
        raise st.StateDictError(
            f"state_dict does not fit {owner}: missing {keys.missing_keys}, not known {keys.unexpected_keys}",
            where=st.here(),
            hint="`strict=False` loads what is there",
        )
    ready = {name: elements(name, state[name], variable.dtype) for name, variable in variables.items() if name in state}
    wrong = [
        f"`{name}` has shape {variables[name].shape}, the state_dict has {shape_of(value)}"
        for name, value in ready.items()
        if shape_of(value) != variables[name].shape
    ]
    if wrong:
        raise st.ShapeError(f"state_dict does not fit {owner}: {'; '.join(wrong)}", where=st.here())
    for name, value in ready.items():
        variables[name].value = value
    return keys


def shape_of(value: Any) -> tuple[Any, ...]:
    """The shape of an array of ours or NumPy's."""
    return tuple(value.shape)


def elements(name: str, value: Any, dtype: Any) -> Any:
    """`value` as an array of `dtype`: our arrays stay ours, all else becomes NumPy's. Numbers convert as in torch.

    Raises: DTypeError if `value` is not an array of real numbers.
    """
    if isinstance(value, st.Array):
        return st.astype(value, dtype)
    array = value if isinstance(value, np.ndarray) else _from_elsewhere(value)
    if type(array) not in (np.ndarray, np.memmap):
        # A Variable would refuse it when others are written already.
        raise st.DTypeError(f"`{name}` takes a plain array, the state_dict has {_described(value)}", where=st.here())
    if array.dtype == dtype.numpy:
        return array
    if array.dtype.kind not in "biuf" and not _is_small_float(array.dtype):
        raise st.DTypeError(
            f"`{name}` takes an array of real numbers, the state_dict has {_described(value)}", where=st.here()
        )
    with np.errstate(all="ignore"):
        return array.astype(dtype.numpy)


def _from_elsewhere(value: Any) -> np.ndarray[Any, Any]:
    """The elements as a NumPy array: of a torch tensor on any device, with or without gradient, of a list, or of any
    array.
    """
    if hasattr(value, "detach"):
        value = value.detach().cpu()
        if "float" in str(value.dtype) and str(value.dtype) not in ("torch.float16", "torch.float32", "torch.float64"):
            value = value.float()  # bfloat16 and the smaller ones, which NumPy does not have
    try:
        return np.asarray(value)
    except (ValueError, TypeError):
        return np.asarray(None)  # rows of unequal lengths, or a tensor of a layout that NumPy does not have


def _is_small_float(dtype: np.dtype[Any]) -> bool:
    """Return whether it is one of the floats that `ml_dtypes` adds to NumPy."""
    return dtype.kind == "V" and dtype.names is None and dtype.name.startswith(("bfloat", "float"))


def _described(value: Any) -> str:
    kind = getattr(value, "dtype", None)
    return article(type(value).__name__) + (f" of {kind}" if kind is not None else "")
