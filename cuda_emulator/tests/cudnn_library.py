"""The emulated cuDNN from Python: descriptors that a test makes and that are given back when it ends."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import numpy.typing as npt
from cuda_library import Array, Buffer, Library


class Cudnn(Library):
    """cuDNN, loaded. Inside `session` there is a handle, and descriptors are destroyed at its end."""

    def __init__(self) -> None:
        super().__init__("cudnn", "cudnn.h")
        self.handle: Any = None
        self._made: list[tuple[str, Any]] = []

    @contextmanager
    def session(self) -> Iterator[Cudnn]:
        with self.clean():
            self.handle = self.made("cudnnCreate", "cudnnHandle_t")
            try:
                yield self
            finally:
                while self._made:
                    kind, descriptor = self._made.pop()
                    self.do(f"cudnnDestroy{kind}Descriptor", descriptor)
                self.do("cudnnDestroy", self.handle)

    def descriptor(self, kind: str) -> Any:
        """A descriptor that is not set."""
        made = self.made(f"cudnnCreate{kind}Descriptor", f"cudnn{kind}Descriptor_t")
        self._made.append((kind, made))
        return made

    def tensor(self, array: Array | Buffer, layout: str = "CUDNN_TENSOR_NCHW") -> Any:
        """The descriptor of an array: of (n, c, h, w) in a layout, else packed and with axes of 1 behind up to three."""
        made, type = self.descriptor("Tensor"), data_type(array.dtype)
        shape = tuple(array.shape) + (1,) * (3 - len(array.shape))
        if len(shape) == 4:
            self.do("cudnnSetTensor4dDescriptor", made, layout, type, *shape)
        else:
            strides = tuple(int(np.prod(shape[axis + 1 :])) for axis in range(len(shape)))
            self.do("cudnnSetTensorNdDescriptor", made, type, len(shape), shape, strides)
        return made

    def filter(self, array: Array | Buffer, layout: str = "CUDNN_TENSOR_NCHW") -> Any:
        made = self.descriptor("Filter")
        self.do("cudnnSetFilter4dDescriptor", made, data_type(array.dtype), layout, *array.shape)
        return made

    def pair(self, array: Array) -> tuple[Any, Buffer]:
        """The descriptor of an array and the array on the device, as most parameters come."""
        return self.tensor(array), self.put(array)

    def workspace(self, size: int) -> tuple[Buffer | None, int]:
        return (self.put(np.zeros(size, np.uint8)) if size else None), size


def data_type(dtype: npt.DTypeLike) -> str:
    return "CUDNN_DATA_FLOAT" if np.dtype(dtype) == np.float32 else "CUDNN_DATA_DOUBLE"


def gradient(function: Any, at: Array, cotangent: Array, step: float = 1e-6) -> Array:
    """The vjp of a function of one array by central differences."""
    result = np.empty_like(at)
    for index in np.ndindex(at.shape):
        up, down = at.copy(), at.copy()
        up[index] += step
        down[index] -= step
        result[index] = np.sum((function(up) - function(down)) * cotangent) / (2.0 * step)
    return result
