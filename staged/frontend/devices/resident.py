"""Regions in plain Python: the back end of the staged calls in their extent,
and the arrays that they keep on a device."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from typing import Any

import numpy as np

from staged.base.remote import Remote, RemoteElements, read_dlpack
from staged.errors import DTypeError, StagedError, StagingError, article
from staged.frontend.devices.device_options import Options, joined_options
from staged.frontend.devices.read_only import freeze, thaw
from staged.frontend.devices.region_work import RegionWork
from staged.ir.types import CPU, Device, shape_text
from staged.source import here


class DeviceArray(np.lib.mixins.NDArrayOperatorsMixin):
    """An array with a copy on a device, made when a program first takes it and kept until this object dies.

    NumPy computes with it as with `host`, the array that it was made of, which must not change meanwhile: the region
    that makes it keeps the array read-only. Immutable.
    """

    __slots__ = ("__weakref__", "device", "host", "remote")
    __staged_by_reference__ = True

    def __init__(self, host: np.ndarray[Any, Any], device: Device) -> None:
        self.host = host
        self.device = device
        self.remote: Remote | None = None
        """The elements there, once a program has asked for them."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return tuple(self.host.shape)

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the dtype."""
        dtype: np.dtype[Any] = self.host.dtype
        return dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return self.host.ndim

    @property
    def size(self) -> int:
        """The number of elements."""
        return self.host.size

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return self.host.nbytes

    @property
    def origin(self) -> np.ndarray[Any, Any] | None:
        """The array of the host that it was made of, by which a region knows it; None where there was none."""
        return self.host

    def numpy(self) -> np.ndarray[Any, Any]:
        """The array of the host, which must not change either."""
        return self.host

    def item(self) -> Any:
        """The only element, as a Python number."""
        return self.host.item()

    def tolist(self) -> Any:
        """The elements, as lists of Python numbers."""
        return self.host.tolist()

    def __bool__(self) -> bool:
        return bool(self.host)

    def __int__(self) -> int:
        return int(self.host)

    def __index__(self) -> int:
        return operator.index(self.host)

    def __float__(self) -> float:
        return float(self.host)

    def __complex__(self) -> complex:
        return complex(self.host)

    def __format__(self, spec: str) -> str:
        return format(self.host, spec) if spec else str(self)

    def __str__(self) -> str:
        return str(self.host)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        return (
            np.array(self.host, dtype=dtype, copy=bool(copy)) if copy or dtype not in (None, self.dtype) else self.host
        )

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        if any(isinstance(given, DeviceArray) for given in kwargs.get("out", ())):
            raise StagingError(
                "an array that a device has a copy of does not change",
                where=here(),
                hint="make a new one, `x = x + 1` instead of `x += 1`; what changes from call to call is an "
                "`st.Variable`",
            )
        note_numpy_work()
        return getattr(ufunc, method)(*(_on_host(given) for given in inputs), **kwargs)

    def __getitem__(self, key: Any) -> Any:
        return self.host[key]

    def __getattr__(self, name: str) -> Any:
        known = not name.startswith("_") and hasattr(np.ndarray, name)
        hint = f"; `x.numpy()` gives NumPy's array of its elements, which has `{name}`" if known else ""
        raise AttributeError(f"a DeviceArray has no `{name}`{hint}", name=name)

    def __reduce__(self) -> Any:
        return DeviceArray, (self.host, self.device)

    def __len__(self) -> int:
        return self.shape[0] if self.shape else len(self.host)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.host)

    def __repr__(self) -> str:
        return f"DeviceArray({self.dtype} {shape_text(self.shape)} on {self.device})"


def _on_host(value: Any) -> Any:
    return value.host if isinstance(value, DeviceArray) else value


class _Described(DeviceArray):
    """An array of a device that the host need not have."""

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device) -> None:
        self.device = device
        self.remote = None
        self._shape = shape
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """The extents of the axes."""
        return self._shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """NumPy's name of the dtype."""
        return self._dtype

    @property
    def ndim(self) -> int:
        """The number of axes."""
        return len(self._shape)

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self._shape)

    @property
    def nbytes(self) -> int:
        """The size of the elements in bytes."""
        return int(self.size * self._dtype.itemsize)

    @property
    def origin(self) -> None:
        """None: it was made on the device."""


_NAMES_STREAMS = 3  # the version from which `__cuda_array_interface__` names the stream to wait for
_LEGACY_STREAM = 1  # that of libraries which name none


class BorrowedArray(_Described):
    """An array of another library's that lies on a device: a program with its input there reads it in place."""

    __slots__ = ("address", "lease", "owner", "stream")

    def __init__(self, owner: Any, interface: dict[str, Any], device: Device) -> None:
        super().__init__(tuple(interface["shape"]), np.dtype(interface["typestr"]), device)
        self.owner = owner
        self.lease = interface.get("lease")
        """The other library's object that keeps the elements alive."""
        self.address = int(interface["data"][0] or 0)
        is_unnamed = interface.get("version", _NAMES_STREAMS) < _NAMES_STREAMS
        self.stream = interface.get("stream", _LEGACY_STREAM if is_unnamed else None)
        """The stream whose work on the elements must be over before they are read; None where it is over."""

    @property
    def host(self) -> np.ndarray[Any, Any]:  # type: ignore[override]
        """There is none: the elements are another library's to copy."""
        raise StagingError(
            f"{article(type(self.owner).__name__)} on {self.device} is read on the host",
            where=here(),
            hint="call the function in `with st.with_backend(st.GPU):`, or pass what the library copies to the host",
        )


class ResidentArray(_Described):
    """An array whose elements are on a device: a result of a call in a region, or a batch of `st.loader`. They are
    copied to the host when Python reads them, once.
    """

    __slots__ = ()
    remote: RemoteElements

    def __init__(self, shape: tuple[int, ...], dtype: np.dtype[Any], device: Device, remote: RemoteElements) -> None:
        super().__init__(shape, dtype, device)
        self.remote = remote

    @property
    def host(self) -> np.ndarray[Any, Any]:  # type: ignore[override]
        """The elements, read-only. Raises: the error of the call that computed them."""
        return self.remote.elements(self._shape, self._dtype)


def borrowed(value: Any, what: str) -> BorrowedArray | None:
    """An array that offers its elements on a device by DLPack, or by `__cuda_array_interface__`; None for one that does
    not.

    Raises: DTypeError for elements that do not lie in C's order, or have a mask.
    """
    # DLPack first: it orders the library's pending writes. PyTorch's other interface does not name a stream.
    interface = read_dlpack(value, what)
    if interface is None and hasattr(type(value), "__cuda_array_interface__"):
        # A tensor of the host has the property, without a value.
        interface = getattr(value, "__cuda_array_interface__", None)
    if interface is None:
        return None
    made = BorrowedArray(value, interface, _device_of_owner(value))
    if interface.get("mask") is not None or not _is_contiguous(made, interface.get("strides")):
        raise DTypeError(
            f"{what} is {article(type(value).__name__)} on {made.device} whose elements are not one after another",
            where=here(),
            hint="make a contiguous one first, such as `x.contiguous()` of PyTorch's or `cupy.ascontiguousarray(x)`",
        )
    return made


def _is_contiguous(array: DeviceArray, strides: Sequence[int] | None) -> bool:
    """Return whether elements that are `strides` bytes apart stand one after another. That of an axis of one element
    says nothing.
    """
    if strides is None or not array.size:
        return True
    step = array.dtype.itemsize
    for extent, stride in zip(reversed(array.shape), reversed(strides), strict=True):
        if extent > 1 and stride != step:
            return False
        step *= extent
    return True


def _device_of_owner(value: Any) -> Device:
    """The device of an array, from DLPack: `__cuda_array_interface__` does not have it."""
    number = value.__dlpack_device__()[1] if hasattr(value, "__dlpack_device__") else 0
    return Device("gpu")(int(number))


class Region:
    """The extent of one `with_backend` in plain Python."""

    def __init__(self, device: Device, strict: bool = False, options: Options | None = None) -> None:
        self.device = device
        self.strict = strict
        self.options = options or {}
        self.named: list[Any] = []
        """The arrays (of host or device) and Variables that the `with` names."""
        self.arrays: dict[int, DeviceArray] = {}
        """By the id of the array on the host, which stays alive with it."""
        self.frozen: list[np.ndarray[Any, Any]] = []
        """The arrays that are read-only until the region ends."""
        self.work = RegionWork()
        self.departures: Any = None
        """The calls that return before their work is over, if this is the outermost region of a device."""

    def names(self, value: Any) -> bool:
        """Return whether the `with` names an array or Variable."""
        return any(leaf is value or isinstance(leaf, DeviceArray) and leaf.origin is value for leaf in self.named)

    def keep(self, leaf: Any) -> Any:
        """An array on the region's device for one on the host, which is read-only from now on;
        anything else as it is."""
        kept = self.kept(leaf)
        self.named += [leaf, kept]
        origin = kept.origin if isinstance(kept, DeviceArray) else None
        if origin is not None and freeze(origin):
            self.frozen.append(origin)
        return kept

    def kept(self, leaf: Any) -> Any:
        """`keep` for an array that is not written."""
        if isinstance(leaf, DeviceArray):
            if self.device == leaf.device:
                if leaf.origin is not None:
                    self.arrays[id(leaf.origin)] = leaf
                return leaf
            leaf = leaf.host
        if not isinstance(leaf, np.ndarray) or not leaf.ndim or self.device == CPU:
            return leaf
        known = self.arrays.get(id(leaf))
        if known is None:
            known = find_kept(leaf, self.device)
        if known is None:
            known = DeviceArray(leaf, self.device)
        self.arrays[id(leaf)] = known
        return known


_regions: ContextVar[tuple[Region, ...]] = ContextVar("staged_regions", default=())


def enter_region(region: Region) -> None:
    """Make `region` the innermost one, until `leave_region`."""
    _regions.set((*_regions.get(), region))


def leave_region(region: Region) -> None:
    """Without `region`, wherever it stands: generators that enter regions may leave them in any order. What no other
    region names is writable again, if it was before.

    The end of the outermost region waits for its calls. Raises: the error of a call that Python was not told of.
    """
    _regions.set(tuple(each for each in _regions.get() if each is not region))
    for array in region.frozen:
        thaw(array)
    region.frozen.clear()
    departures, region.departures = region.departures, None
    if departures is None:
        return
    try:
        departures.end()
    except StagedError as error:
        leaving = error.__context__
        if leaving is None or isinstance(leaving, Exception):
            raise
        leaving.add_note(str(error))  # Ctrl-C, and what else ends the process, goes on


open_regions = _regions.get
"""The `with_backend`s around plain Python, the innermost one last."""


def ambient_region() -> Region | None:
    """The innermost `with_backend` around plain Python."""
    regions = _regions.get()
    return regions[-1] if regions else None


def note_staged_call() -> None:
    """Remember a staged call in the enclosing regions of its device."""
    regions = _regions.get()
    for region in regions:
        if region.device == regions[-1].device:
            region.work.has_staged_call = True


def note_numpy_work() -> None:
    """Remember in the innermost region around plain Python that an op runs in NumPy."""
    region = ambient_region()
    if region is not None:
        region.work.note_numpy_work()


def note_copies(device: Device) -> None:
    """Remember in the innermost region, if it is of this device, that arrays are copied there for later use."""
    region = ambient_region()
    if region is not None and region.device == device:
        region.work.has_copies = True


def ambient_options() -> Options:
    """The options of all regions around plain Python. Raises: StagingError if they disagree."""
    said: Options = {}
    for region in _regions.get():
        said = joined_options(said, region.options)
    return said


def ambient_device() -> Device:
    """Its device: that of the staged calls in its extent."""
    region = ambient_region()
    return region.device if region is not None else CPU


def find_kept(array: np.ndarray[Any, Any], device: Device) -> DeviceArray | None:
    """The copy on `device` that an enclosing region keeps of an array of the host."""
    for region in reversed(_regions.get()):
        found = region.arrays.get(id(array))
        if region.device == device and found is not None:
            return found
    return None


def device_of(value: Any) -> Device:
    """The device to take an argument from: the one that has it, unless the code around is the host's."""
    if isinstance(value, DeviceArray):
        return CPU if _regions.get() and ambient_device() == CPU else value.device
    device = ambient_device()
    if device != CPU and isinstance(value, np.ndarray) and find_kept(value, device) is not None:
        return device
    return CPU
