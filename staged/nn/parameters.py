"""What layers share: pairs of sizes, the first values of weights, the check of their input."""

from __future__ import annotations

import math
from typing import Any

import staged as st


def pair(value: int | tuple[int, int]) -> tuple[int, int]:
    """(v, v) from v, or the pair itself."""
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def check_dtype(layer: str, x: Any, weight: Any) -> None:
    """Data of another float dtype is refused: promotion would quietly run the whole network in f64."""
    given = st.asarray(x).dtype
    if given != weight.dtype:
        raise st.DTypeError(
            f"{layer} has {weight.dtype} parameters, its input is {given}",
            where=st.here(),
            hint=f"cast the data (`st.astype(x, st.{weight.dtype})`, in NumPy `x.astype({weight.dtype.numpy})`), "
            f"or make the layer with `dtype=st.{given}`",
        )


def uniform(shape: tuple[int, ...], fan_in: int, dtype: Any) -> Any:
    """A parameter drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)): torch's default for Linear and Conv2d.

    Source: `torch.nn.init.kaiming_uniform_` with a = sqrt(5), which comes to this bound.
    """
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return st.Variable(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))
