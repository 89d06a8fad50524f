"""Helpers of all layers: parameters and their initial values, checks of arguments and inputs."""

from __future__ import annotations

import math
from typing import Any

import staged as st


class Parameter(st.Variable):
    """A trainable Variable by torch's name: every one that is an attribute of a Module is trained."""

    __slots__ = ()

    def __init__(self, data: Any, requires_grad: bool = True, name: str | None = None) -> None:
        if requires_grad is not True:
            raise st.ArgumentError(
                "every parameter is trained",
                where=st.here(),
                hint="hold what is not trained with `self.register_buffer(name, array)`, or train some with "
                "`wrt=[...]`",
            )
        super().__init__(data, name)
        if not self.dtype.is_float:
            raise st.DTypeError(
                f"every parameter is trained, and so holds floats, got {self.dtype}",
                where=st.here(),
                hint="hold integers with `self.register_buffer(name, array)`, or give floats",
            )

    @property
    def requires_grad(self) -> bool:
        """Return whether it is trained: every parameter is."""
        return True

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value is not True:
            raise st.ArgumentError(
                f"`{self.name or 'a parameter'}` cannot be frozen: every parameter is trained",
                where=st.here(),
                hint="train some of them by naming them, in the gradient and in the optimiser: "
                "`head = list(model.head.parameters())`, `st.value_and_grad(f, wrt=head)`, `optim.SGD(head)`",
            )


def check_dtype(layer: str, x: Any, weight: Any) -> None:
    """Data of another float dtype is refused: promotion would quietly run the whole network in f64."""
    given = st.asarray(x).dtype
    if given != weight.dtype and not (st.autocast.dtype_here() and given.size <= 4 and weight.dtype.size <= 4):
        raise st.DTypeError(
            f"{layer} has {weight.dtype} parameters, its input is {given}",
            where=st.here(),
            hint=f"cast the data (`st.astype(x, st.{weight.dtype})`, in NumPy `x.astype({weight.dtype.numpy})`), "
            f"or make the layer with `dtype=st.{given}`",
        )


def biased(y: Any, bias: Any) -> Any:
    """`y + bias` in the dtype of `y`, which an `autocast` has made; `bias` may be None."""
    if bias is None:
        return y
    return y + (bias if bias.dtype == y.dtype else st.astype(bias, y.dtype))


def check_sizes(layer: str, least: int = 1, **sizes: Any) -> None:
    """Sizes are integers of at least `least`."""
    for name, size in sizes.items():
        for extent in size if isinstance(size, tuple | list) else (size,):
            if isinstance(extent, bool) or not isinstance(extent, int) or extent < least:
                raise st.ArgumentError(
                    f"{layer}: {name} is an integer of at least {least}, got {size!r}", where=st.here()
                )


def check_probability(layer: str, p: Any) -> None:
    """Raises: ArgumentError if `p` is a Python number outside [0, 1]. A staged one is not checked."""
    if isinstance(p, int | float) and not 0.0 <= p <= 1.0:
        raise st.ArgumentError(f"{layer}: a probability is between 0 and 1, got {p}", where=st.here())


def check_option(layer: str, name: str, value: Any, options: tuple[str, ...]) -> None:
    """One of the options that there are."""
    if value not in options:
        known = ", ".join(f'"{option}"' for option in options)
        raise st.ArgumentError(f"{layer}: {name} is one of {known}, got {value!r}", where=st.here())


def check_inplace(layer: str, inplace: Any) -> None:
    """Raises: ArgumentError if `inplace` is set: layers return new arrays and never overwrite their input."""
    if inplace:
        raise st.ArgumentError(
            f"{layer}: arrays are values, no layer writes over its input",
            where=st.here(),
            hint="leave `inplace` out, and use what the layer returns; memory is shared where lives allow",
        )


def uniform(shape: tuple[int, ...], fan_in: int, dtype: Any) -> Any:
    """A parameter drawn from U(-1/sqrt(fan_in), 1/sqrt(fan_in)): torch's default for Linear and Conv2d.

    Source: `torch.nn.init.kaiming_uniform_` with a = sqrt(5), which comes to this bound.
    """
    bound = 1.0 / math.sqrt(fan_in) if fan_in > 0 else 0.0
    return Parameter(st.random.uniform(shape, low=-bound, high=bound, dtype=dtype))
