"""`Remote`: the memory of an array on a device, between calls of programs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np


class Remote(Protocol):
    """The elements of an array on a device, which the host may have too. The runtime allocates it, and frees it with
    the object.
    """

    device: str
    """The memory that it is in: a device, and whose runtime reaches it, where that is not CUDA's."""
    nbytes: int
    is_ahead: bool
    """True if a program has written them there since the host last had them."""
    address: Any
    """The address that a program receives for the array."""

    def update(self, host: np.ndarray[Any, Any]) -> None:
        """Copy the elements there, unless they are."""

    def fetch(self, host: np.ndarray[Any, Any]) -> None:
        """Copy them into `host`."""

    def take(self, other: Any) -> None:
        """Copy them from another device, where the current ones were until now."""

    def outdate(self) -> None:
        """Note that the host's have changed."""

    def written(self) -> None:
        """Note that a program writes them on the device."""


class RemoteElements(Remote, Protocol):
    """The elements of an array that never change on a device."""

    def elements(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
        """The elements on the host, read-only; they are copied once. Raises: the error of the call that made them."""

    def check(self) -> None:
        """Raise the error that makes the elements void, if Python was told of it."""


_read_dlpack: Callable[[Any, str], dict[str, Any] | None] | None = None


def set_dlpack_reader(reader: Callable[[Any, str], dict[str, Any] | None]) -> None:
    """Set the function of the runtime that finds the elements of an array on a device by DLPack."""
    global _read_dlpack
    _read_dlpack = reader


def read_dlpack(value: Any, what: str) -> dict[str, Any] | None:
    """Return the `__cuda_array_interface__` of an array that offers elements on a device by DLPack, else None."""
    if _read_dlpack is None or not hasattr(type(value), "__dlpack_device__"):
        return None
    return _read_dlpack(value, what)
