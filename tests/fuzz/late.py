"""Late slices: arrays on a device that begin one element into their memory, as `t[1:]` of another library's array does.

Kernels that access several elements at once, and libraries that were chosen for aligned arrays, must not be given such an address.
The rule is for every operand of a program: inputs of a region are slices of longer arrays (`view`), arrays of another library (`lent`),
and parameters of a recursive function that is called with slices (`parameter`). Programs here have packs from a few elements on.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

import numpy as np

from staged.backends.cublas_cudnn import emit, program
from staged.backends.cublas_cudnn.description import CUDA_GPU
from staged.runtime.cuda.resident import DeviceCopy
from staged.runtime.guard import ffi

SMALL_GPU = replace(CUDA_GPU, busy_items=8)
"""A GPU on which small arrays, too, are read and written by several elements at once."""


@contextlib.contextmanager
def packs_of_few() -> Iterator[None]:
    """Programs that are staged meanwhile are for `SMALL_GPU`."""
    with mock.patch.object(program, "CUDA_GPU", SMALL_GPU), mock.patch.object(emit, "CUDA_GPU", SMALL_GPU):
        yield


class Lent:
    """An array of another library on the device, `late` elements after the start of its memory."""

    def __init__(self, array: np.ndarray[Any, Any], late: int = 1) -> None:
        offset = late * array.itemsize
        self.place = DeviceCopy("gpu", offset + array.nbytes)
        self.place.update(np.frombuffer(bytes(offset) + array.tobytes(), np.uint8))
        self.address = int(ffi.cast("uintptr_t", self.place.address)) + offset
        self.array = array

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        shape, dtype = self.array.shape, self.array.dtype.str
        return {"shape": shape, "typestr": dtype, "data": (self.address, True), "strides": None, "stream": 1, "version": 3}


@dataclass(frozen=True)
class Late:
    """The late operands of a program, by their names; `lent` are those of another library."""

    views: Mapping[str, np.ndarray[Any, Any]]
    lent: frozenset[str]

    def given(self, name: str, array: np.ndarray[Any, Any]) -> Any:
        """The argument for an operand."""
        if name in self.lent:
            return Lent(array)
        if name in self.views:
            return np.concatenate([array.reshape(-1)[:1], array.reshape(-1)])
        return array.copy()

    def text(self, name: str) -> str:
        """The operand in the program, from the argument."""
        return f"st.reshape({name}[1:], {self.views[name].shape!r})" if name in self.views else name


NONE = Late({}, frozenset())


def late_operands(chance: random.Random, arrays: Mapping[str, np.ndarray[Any, Any]], is_lent: bool) -> Late:
    """Some operands as late slices: of other libraries where `is_lent`."""
    late = [name for name, array in arrays.items() if array.ndim and array.size and chance.random() < 0.7]
    # Arrays of bf16 are not exchanged in this form.
    lent = frozenset(name for name in late if is_lent and arrays[name].dtype.kind != "V" and chance.random() < 0.6)
    return Late({name: arrays[name] for name in late if name not in lent}, lent)
