"""Arrays of other libraries on a device: find their elements by DLPack, and wait for pending writes.

Source: https://dmlc.github.io/dlpack/latest/c_api.html for the structs, python_spec.html for the protocol.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Any

import numpy as np

from staged.errors import DTypeError, article
from staged.runtime.cuda.arriving import Arrival
from staged.runtime.cuda.interface import current_runtime
from staged.runtime.cuda.resident import DeviceCopy, check_status, choose_device
from staged.runtime.guard import ffi
from staged.source import here

_CUDA = 2  # kDLCUDA
_NEWEST = (1, 0)  # the version whose structs these are
_LEGACY_STREAM = 1  # as the protocols call the null stream


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32), ("device_number", ctypes.c_int32), ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )  # fmt: skip


class _Managed(ctypes.Structure):
    """DLManagedTensor."""

    _fields_ = (("tensor", _Tensor), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p))


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = (
        ("major", ctypes.c_uint32), ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64), ("tensor", _Tensor),
    )  # fmt: skip


# The names of capsules, those of them that are taken, and what is in them. Python keeps no copy of a name.
_FORMS: tuple[tuple[bytes, bytes, type[_Managed] | type[_Versioned]], ...] = (
    (b"dltensor_versioned", b"used_dltensor_versioned", _Versioned),
    (b"dltensor", b"used_dltensor", _Managed),
)

_is_named = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
_set_name = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(("PyCapsule_SetName", ctypes.pythonapi))
_deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)

_KINDS = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex"}
_BOOL = 6


class Lease:
    """Elements that another library keeps alive until this object dies."""

    def __init__(self, managed: int, deleter: int | None) -> None:
        if deleter:
            weakref.finalize(self, _delete, deleter, managed, os.getpid()).atexit = False


def _delete(deleter: int, managed: int, process: int) -> None:
    if os.getpid() == process:
        _deleter(deleter)(managed)


def device_interface(value: Any, what: str) -> dict[str, Any] | None:
    """DLPack's description of an array on a CUDA device, as a `__cuda_array_interface__`; None for other arrays.

    Keep `lease` alive while the elements are read.
    Raises: DTypeError if the library exports no array (with its message), or one of an unsupported dtype.
    """
    cls = type(value)
    if not (hasattr(cls, "__dlpack__") and hasattr(cls, "__dlpack_device__")):
        return None
    try:
        kind, _ = value.__dlpack_device__()
    except (BufferError, ValueError):  # PyTorch's meta tensors are on a device that DLPack does not know
        return None
    if kind != _CUDA:
        return None
    try:
        try:
            capsule = value.__dlpack__(stream=_LEGACY_STREAM, max_version=_NEWEST)
        except TypeError:  # a library from before the versions
            capsule = value.__dlpack__(stream=_LEGACY_STREAM)
    except Exception as error:
        raise _refused(what, value, f"that its library does not give: {error}") from None
    for name, taken, form in _FORMS:
        if _is_named(capsule, name):
            address = _pointer(capsule, name)
            managed = form.from_address(address)
            _set_name(capsule, taken)
            lease = Lease(address, managed.deleter)
            if isinstance(managed, _Versioned) and managed.major > _NEWEST[0]:
                raise _refused(what, value, f"in DLPack's version {managed.major}")
            return _described(managed.tensor, lease, what, value)
    raise _refused(what, value, "whose capsule is none of DLPack's")


def _described(tensor: _Tensor, lease: Lease, what: str, value: Any) -> dict[str, Any]:
    kind = "bool" if tensor.code == _BOOL else f"{_KINDS.get(tensor.code, 'other')}{tensor.bits}"
    try:
        dtype = np.dtype(kind)
    except TypeError:
        dtype = None
    if dtype is None or dtype.kind == "V" or tensor.lanes != 1 or dtype.itemsize * 8 != tensor.bits:
        lanes = "" if tensor.lanes == 1 else f" in groups of {tensor.lanes}"
        raise _refused(what, value, f"of elements of {kind}{lanes}, which have no staged type")
    strides = tensor.strides[: tensor.ndim] if tensor.strides else None
    return {
        "shape": tuple(tensor.shape[: tensor.ndim]),
        "typestr": dtype.str,
        "data": ((tensor.data or 0) + tensor.byte_offset, True),
        "strides": None if strides is None else tuple(stride * dtype.itemsize for stride in strides),
        "stream": _LEGACY_STREAM,
        "lease": lease,
    }


def _refused(what: str, value: Any, words: str) -> DTypeError:
    return DTypeError(
        f"{what} is {article(type(value).__name__)} on a device {words}",
        where=here(),
        hint="pass an array of numbers that have a staged type, cut off from gradients, or what the library copies to "
        "the host",
    )


class BorrowedPlace:
    """Elements of another library's array on a device, for one call, and the event to wait for before reading.

    A program reads the elements in place if their address is a multiple of `alignment` bytes. Otherwise it reads a
    copy, which the device makes after the library's work, while the host goes on.
    """

    def __init__(self, device: str, address: int, nbytes: int, stream: int | None, alignment: int, owner: Any) -> None:
        self.address = ffi.cast("void *", address)
        self.owner = owner
        """Keeps the elements alive."""
        self.arrival: Arrival | None = None
        is_misaligned = nbytes > 0 and address % alignment != 0
        if stream is None and not is_misaligned:
            return
        runtime = current_runtime()
        choose_device(runtime, device)
        if stream is not None and stream != _LEGACY_STREAM:
            # Which device this stream is of is not said, so that no event can be made for it: the host waits.
            status = runtime.function("cudaStreamSynchronize", "int (*)(void *)")(ffi.cast("void *", stream))
            check_status(runtime, status, "cudaStreamSynchronize")
        if is_misaligned:
            self.copy = DeviceCopy(device, nbytes)
            self.copy.take_from(self.address)
            self.address = self.copy.address
        if is_misaligned or stream == _LEGACY_STREAM:
            self.arrival = Arrival(runtime)
            self.arrival.record(ffi.NULL)
