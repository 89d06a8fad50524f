"""Arrays of other libraries: read in place by the protocols in which they offer their elements."""

from __future__ import annotations

import sys
from typing import Any

import ml_dtypes
import numpy as np

from staged.errors import DTypeError, article
from staged.source import here

_TORCH_BF16 = "torch.bfloat16"
"""torch gives NumPy no such tensor, for which NumPy has no dtype: its bits are read."""
_BY_NUMPY = ("__array_interface__", "__array_struct__")


def is_offered(x: Any) -> bool:
    """Return whether an object offers elements: `__array__`, `__array_interface__`, `__array_struct__` or DLPack."""
    cls = type(x)
    if hasattr(cls, "__array__"):
        return not isinstance(x, type)
    own = getattr(x, "__dict__", ())
    return not isinstance(x, type) and any(hasattr(cls, name) or name in own for name in (*_BY_NUMPY, "__dlpack__"))


def elements(x: Any, what: str = "an array") -> np.ndarray[Any, Any]:
    """The elements of another library's array as a NumPy array on the same memory, in this machine's byte order.

    Libraries refuse some arrays (a tensor that requires gradients, one on a device). Elements are copied if a library
    has no memory of that form, or if their bytes are in the other order.
    Raises: DTypeError with the library's own message.
    """
    array: np.ndarray[Any, Any] = x
    if not isinstance(x, np.ndarray):
        try:
            by_numpy = hasattr(x, "__array__") or any(hasattr(x, name) for name in _BY_NUMPY)
            if str(getattr(x, "dtype", "")) == _TORCH_BF16:
                array = np.asarray(x.view(sys.modules["torch"].int16)).view(ml_dtypes.bfloat16)
            else:
                array = np.asarray(x) if by_numpy else np.from_dlpack(x)
        except Exception as error:
            raise DTypeError(
                f"{what} is {article(type(x).__name__)} that NumPy cannot read: {error}",
                where=here(),
                hint="pass a NumPy array of its elements; of a tensor of PyTorch's that is `x.detach().cpu().numpy()`",
            ) from None
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
